"""Dead letters hold their own rows and answers, and nothing of the rows beside them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import logline as ll
from logline.engine.results import Failure
from logline.engine.sets import Answer
from logline.names import OperatorName, Serial
from logline.runtime.lives.dead_letters import answers_of, compacted, rows_of
from logline.runtime.lives.payloads import ArrowPayloads

ROWS = 100_000
TEXTS = [None if n % 3 == 0 else f"{n:020}" for n in range(ROWS)]
CODED = pa.array(TEXTS).dictionary_encode()
OFFSETS = pa.array(range(ROWS + 1), pa.int32())

SHARING = {
    "texts": pa.array(TEXTS),
    "views": pa.array(TEXTS, pa.string_view()),
    "dictionary": CODED,
    "ordered": pa.DictionaryArray.from_arrays(CODED.indices.cast(pa.int64()), CODED.dictionary, ordered=True),
    "lists": pa.array([[text, text] for text in TEXTS]),
    "lists of a dictionary": pa.ListArray.from_arrays(OFFSETS, CODED),
    "pairs of a dictionary": pa.FixedSizeListArray.from_arrays(pa.concat_arrays([CODED, CODED]), 2),
    "maps to a dictionary": pa.MapArray.from_arrays(OFFSETS, pa.array(map(str, range(ROWS))), CODED),
    "structs with a dictionary": pa.StructArray.from_arrays(
        [CODED], ["code"], mask=pa.array([n == 8 for n in range(ROWS)])
    ),
}


def payloads(schema: pa.Schema) -> ArrowPayloads:
    p = ll.Pipeline("letters")
    read = p.source("rows", ll.sources.batches([schema.empty_table()]))
    read.map_batches("checked", lambda batch: batch)
    return ArrowPayloads(p.graph().nodes[OperatorName("checked")])


@pytest.mark.parametrize("kind", SHARING)
def test_one_row_of_many_takes_little(kind: str) -> None:
    batch = pa.record_batch({"column": SHARING[kind]})
    for part in (batch.slice(7, 1), batch.slice(8, 1), batch.slice(ROWS - 4, 4), batch.slice(0, 0)):
        rejected = payloads(batch.schema).made("rows:1", ll.Reject(part, "no"), ())
        assert rejected.nbytes < 3000, rejected.nbytes
        found = rows_of(rejected.payload)
        assert found.schema.equals(part.schema) and found.to_pylist() == part.to_pylist()
        found.validate(full=True)


def test_events_of_a_diverted_set_take_what_their_rows_take() -> None:
    """Each of them may be a part of a large batch; their dictionaries differ."""
    batch = pa.record_batch({"column": CODED})
    parts = [batch.slice(at, 2) for at in (1, 50_000)]
    made = payloads(batch.schema).diverted("H", parts, ["rows:1", "rows:2"], Failure("ValueError", "no", ""))
    assert made.nbytes < 3000
    assert rows_of(made.payload).to_pylist() == [row for part in parts for row in part.to_pylist()]


def test_what_shares_nothing_is_left_as_it_is() -> None:
    batch = pa.record_batch({"n": [1, 2], "text": ["a", "b"]})
    assert compacted(batch) is batch


class Calls:
    def of_row(self, row: int) -> list[Answer]:
        return [Answer(Serial(9), row, 1, "ask", f"about {row}", b"paid for")]


def test_answers_of_rejected_rows_go_with_them() -> None:
    batch = pa.record_batch({"n": [1, 2, 3]})
    made: Any = payloads(batch.schema).made("rows:1", ll.Reject(batch.slice(1, 2), "no", rows=(1, 2)), (), Calls())
    assert [(a.row, a.digest) for a in answers_of(made.payload)] == [(0, "about 1"), (1, "about 2")]
    assert rows_of(made.payload).schema.equals(batch.schema, check_metadata=True)
    without = payloads(batch.schema).made("rows:1", ll.Reject(batch, "no"), (), Calls())  # nobody said which rows
    assert answers_of(without.payload) == []
