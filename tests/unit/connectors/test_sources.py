"""batches(): read again from any offset, the same data comes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from logline.connectors.sources import batches
from logline.errors import DefinitionError, OptionError, SchemaError

TABLES = [pa.table({"id": [1, 2]}), pa.record_batch({"id": [3]}), pa.table({"id": [4]})]
FORMS = {
    "list": lambda: batches(TABLES),
    "function": lambda: batches(lambda: iter(TABLES)),
}


def ids(source, offset=None):
    return [(batch["id"].to_pylist(), at) for batch, at in source.read("0", offset)]


@pytest.mark.parametrize("form", FORMS)
def test_goes_on_exactly_after_any_offset(form):
    source = FORMS[form]()
    everything = ids(source)
    assert everything == [([1, 2], 1), ([3], 2), ([4], 3)]
    for done in range(1, 4):
        assert ids(source, done) == everything[done:]
    assert source.replayable
    assert source.partitions() == ("0",)


def test_a_single_table_is_a_list_of_one():
    assert ids(batches(pa.table({"id": [1]}))) == [([1], 1)]


def test_a_table_of_several_chunks_is_one_batch():
    chunked = pa.concat_tables([pa.table({"id": [1]}), pa.table({"id": [2]})])
    assert ids(batches([chunked])) == [([1, 2], 1)]


@pytest.mark.parametrize("form", FORMS)
def test_the_schema_comes_from_the_first_table(form):
    assert FORMS[form]().schema == pa.schema({"id": pa.int64()})


def test_nothing_to_read_needs_a_schema():
    assert ids(batches([], schema="id long")) == []
    nothing: list[Any] = [[], lambda: iter([])]
    for data in nothing:
        with pytest.raises(SchemaError, match="needs schema="):
            batches(data)


def test_a_function_with_a_schema_is_not_called_before_the_run():
    def never():
        raise AssertionError

    assert batches(never, schema="id long").schema == pa.schema({"id": pa.int64()})


def test_a_table_of_another_schema_in_a_list_is_refused_at_definition():
    with pytest.raises(SchemaError, match="'id' is missing"):
        batches([TABLES[0], pa.table({"x": [1]})])


def test_what_can_not_be_read_again_is_refused():
    with pytest.raises(DefinitionError, match="not a generator"):
        batches(table for table in TABLES)  # type: ignore[arg-type]
    for gives, said in ((None, "None"), (TABLES[0], "a Table"), (5, "an int")):
        with pytest.raises(
            DefinitionError, match=rf"function of batches\(\) gave {said}; it must return an iterable of tables"
        ):
            batches(lambda gives=gives: gives)  # type: ignore[misc]
    with pytest.raises(OptionError, match=r"batches\(\) calls its function with \(\), and <lambda>\(n\)"):
        batches(lambda n: TABLES)  # type: ignore[arg-type, misc]
    with pytest.raises(SchemaError, match="not a table"):
        batches([{"id": 1}])  # type: ignore[list-item]


def test_it_says_what_it_reads():
    assert FORMS["list"]().describe("0") == "batches(3 in a list)"
    assert "lambda" in FORMS["function"]().describe("0")


def test_a_reader_is_an_iterable_of_batches() -> None:
    table = pa.table({"n": [1, 2, 3]})
    source = batches(lambda: table.to_reader(max_chunksize=2))
    assert [batch["n"].to_pylist() for batch, _ in source.read("0", None)] == [[1, 2], [3]]
