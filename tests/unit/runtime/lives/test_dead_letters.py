"""Dead letters hold their own rows and answers, and nothing of the rows beside them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import logline as ll
from logline.engine.results import Failure, Produced
from logline.engine.sets import Answer
from logline.names import OperatorName, Serial
from logline.runtime.lives.dead_letters import answers_of, compacted, rows_of
from logline.runtime.lives.payloads import ArrowPayloads, RowAnswers

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


def made_of(rejected: ll.Reject, schema: pa.Schema, calls: RowAnswers | None = None) -> Produced:
    made = payloads(schema).made("rows:1", rejected, (), calls)
    assert made is not None
    return made


@pytest.mark.parametrize("kind", SHARING)
def test_no_rows_are_no_dead_letter(kind: str) -> None:
    batch = pa.record_batch({"column": SHARING[kind]})
    assert payloads(batch.schema).made("rows:1", ll.Reject(batch.slice(7, 0), "no"), ()) is None


@pytest.mark.parametrize("kind", SHARING)
def test_a_set_without_rows_takes_little(kind: str) -> None:
    batch = pa.record_batch({"column": SHARING[kind]}).slice(7, 0)
    made = payloads(batch.schema).diverted("H", [batch], ["rows:1"], Failure("ValueError", "no", ""))
    assert made.nbytes < 3000 and rows_of(made.payload).equals(batch)


@pytest.mark.parametrize("kind", SHARING)
def test_one_row_of_many_takes_little(kind: str) -> None:
    batch = pa.record_batch({"column": SHARING[kind]})
    for part in (batch.slice(7, 1), batch.slice(8, 1), batch.slice(ROWS - 4, 4)):
        rejected = made_of(ll.Reject(part, "no"), batch.schema)
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
    made = made_of(ll.Reject(batch.slice(1, 2), "no", rows=(1, 2)), batch.schema, Calls())
    assert [(a.row, a.digest) for a in answers_of(made.payload)] == [(0, "about 1"), (1, "about 2")]
    assert rows_of(made.payload).schema.equals(batch.schema, check_metadata=True)
    without = made_of(ll.Reject(batch, "no"), batch.schema, Calls())  # nobody said which rows
    assert answers_of(without.payload) == []


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (ValueError("no such file: caf\udce9"), "ValueError: no such file: caf?"),
        (Unspeakable(), "Unspeakable: (it can't be shown: its __str__ raised RuntimeError)"),
    ],
)
def test_one_row_goes_whatever_its_exception_says(raised: Exception, said: str) -> None:
    def checked(row: dict[str, Any], ctx: Any) -> dict[str, Any]:
        if row["n"] == 2:
            raise raised
        return row

    p = ll.Pipeline("letters")
    read = p.source("rows", ll.sources.batches([pa.table({"n": [1, 2, 3]})]))
    read.map_rows("checked", checked, schema="n long", on_error="divert").sink("store", ll.sinks.collect())
    run = p.run(engine="inline")
    assert run.result("store")["n"].to_pylist() == [1, 3]
    assert run.log.errors()["reason"].to_pylist() == [said]


def test_a_text_of_megabytes_is_logged_by_its_beginning_and_its_end() -> None:
    def refused(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise ValueError("begins " + "x" * 10_000_000 + " ends")

    p = ll.Pipeline("letters")
    read = p.source("rows", ll.sources.batches([pa.table({"n": [1]})]))
    read.map_batches("checked", refused, schema="n long", on_error="divert").sink("store", ll.sinks.collect())
    (error,) = p.run(engine="inline").log.errors().to_pylist()
    for text in (error["reason"], error["traceback"]):
        assert "begins " in text and text.rstrip().endswith(" ends") and "characters left out" in text
        assert len(text) < 100_000


def test_a_reason_with_half_a_character_is_logged() -> None:
    class Refusing(ll.Operator[Any, Any]):
        def schemas(self, inputs: Any) -> Any:
            return {"out": "n long"}

        def generate(self, inset: Any, acc: Any, ctx: Any) -> Any:
            yield acc.slice(0, 1)
            yield ll.Reject(acc.slice(1), "caf\udce9", "at caf\udce9")

    p = ll.Pipeline("letters")
    read = p.source("rows", ll.sources.batches([pa.table({"n": [1, 2, 3]})]))
    read.apply("checked", Refusing()).sink("store", ll.sinks.collect())
    run = p.run(engine="inline")
    assert run.result("store")["n"].to_pylist() == [1]
    assert run.log.errors()["reason"].to_pylist() == ["caf?"]
