from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from logline.errors import SchemaError
from logline.graph.probe import probe

INPUT = pa.schema([("id", pa.int64()), pa.field("name", pa.string(), nullable=False)])


def test_the_function_sees_an_empty_batch_of_the_input_schema() -> None:
    seen: list[pa.RecordBatch] = []

    def look(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(batch)
        return batch

    probe("m", look, INPUT)
    assert [(batch.num_rows, batch.schema) for batch in seen] == [(0, INPUT)]


@pytest.mark.parametrize(
    "fn",
    [
        lambda batch: batch.select(["id"]),
        lambda batch: pa.table({"id": batch["id"]}).replace_schema_metadata({"k": "v"}),
        lambda batch: [batch.select(["id"])],
        lambda batch: (part for part in [batch.select(["id"])]),
    ],
)
def test_a_table_or_the_first_of_several(fn: Any) -> None:
    assert probe("m", fn, INPUT) == pa.schema([("id", pa.int64())])


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (lambda batch: batch["id"][0], "the function failed on an empty batch (IndexError"),
        (
            lambda batch: batch["nmae"],
            """(KeyError: 'Field "nmae" does not exist in schema'): correct it, or, if it can't""",
        ),
        (lambda batch: None, "the function makes nothing of an empty batch"),
        (lambda batch: [], "the function makes nothing of an empty batch"),
        (lambda batch: pa.table({"x": []}), "the column 'x' has no type when it is empty"),
    ],
)
def test_what_can_not_be_known_has_to_be_declared(fn: Any, says: str) -> None:
    with pytest.raises(SchemaError) as info:
        probe("enrich", fn, INPUT)
    assert str(info.value).startswith("operator 'enrich': ")
    assert says in str(info.value)
    assert "pass schema=" in str(info.value)


def test_what_is_no_table_is_named() -> None:
    for made in (5, [5]):
        with pytest.raises(SchemaError, match="operator 'enrich': the function gave an int; it must return a table"):
            probe("enrich", lambda batch, made=made: made, INPUT)  # type: ignore[misc]
