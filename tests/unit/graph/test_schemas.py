from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from logline.errors import SchemaError
from logline.graph.schemas import lossless, schema, to_batches


class Foreign:
    """A table of some library that only speaks the Arrow C stream interface."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


class ForeignBatch:
    """A batch of some library that only speaks the Arrow C array interface."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch

    def __arrow_c_array__(self, requested_schema: object | None = None) -> Any:
        return self.batch.__arrow_c_array__(requested_schema)


def one(data: Any, declared: pa.Schema | str) -> pa.RecordBatch:
    wanted = schema(declared)
    batches = to_batches(data, wanted, "hourly.out")
    assert len(batches) == 1
    assert batches[0].schema.equals(wanted)
    batches[0].validate(full=True)
    return batches[0]


def test_a_schema_is_read_from_ddl_or_taken_without_its_metadata() -> None:
    plain = pa.schema([("id", pa.int64())])
    assert schema("id long") == plain
    assert schema(plain.with_metadata({"pandas": "{}"})).metadata is None
    with pytest.raises(SchemaError, match=r"pass a pyarrow\.Schema or Spark DDL"):
        schema(["id"])
    with pytest.raises(SchemaError, match="the column 'a' twice"):
        schema(pa.schema([("a", pa.int64()), ("a", pa.int32())]))


def test_a_batch_that_fits_is_passed_on_as_it_is() -> None:
    batch = pa.record_batch({"id": [1, 2]})
    assert to_batches(batch, batch.schema, "hourly.out")[0] is batch


def test_metadata_does_not_matter() -> None:
    batch = pa.record_batch({"id": [1]}).replace_schema_metadata({"k": "v"})
    assert one(batch, "id long").to_pylist() == [{"id": 1}]


def test_columns_in_another_order_are_reordered() -> None:
    assert one(pa.table({"b": ["x"], "a": [1]}), "a long, b string").to_pylist() == [{"a": 1, "b": "x"}]


@pytest.mark.parametrize("wrap", [Foreign, lambda table: ForeignBatch(table.to_batches()[0])])
def test_tables_of_other_libraries(wrap: Any) -> None:
    assert one(wrap(pa.table({"id": [1, 2]})), "id long").num_rows == 2


def test_a_table_of_several_chunks_becomes_one_batch() -> None:
    chunks = pa.concat_tables([pa.table({"id": [1]}), pa.table({"id": [2, 3]})])
    assert one(chunks, "id long").column("id").to_pylist() == [1, 2, 3]


def test_an_empty_table_gives_a_batch_without_rows() -> None:
    assert one(pa.schema([("id", pa.int64())]).empty_table(), "id long").num_rows == 0
    assert one(Foreign(pa.table({"id": pa.chunked_array([], pa.int64())})), "id long").num_rows == 0


def test_the_nameless_index_of_pandas_is_left_out() -> None:
    frame = pa.table({"id": [7], "__index_level_0__": [3]})
    assert one(frame, "id long").to_pylist() == [{"id": 7}]


def test_rows_without_columns_keep_their_number() -> None:
    rows = pa.record_batch({"id": [1, 2]}).select([])
    assert to_batches(pa.Table.from_batches([rows]), pa.schema([]), "x.out")[0].num_rows == 2


@pytest.mark.parametrize(
    ("got", "wanted", "value"),
    [
        (pa.large_string(), pa.string(), "a"),
        (pa.string_view(), pa.string(), "a"),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string(), "a"),
        (pa.large_binary(), pa.binary(), b"a"),
        (pa.binary(1), pa.binary(), b"a"),
        (pa.int32(), pa.int64(), 5),
        (pa.uint32(), pa.int64(), 5),
        (pa.float32(), pa.float64(), 0.5),
        (pa.date32(), pa.date32(), datetime(2024, 1, 1).date()),
        (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC"), datetime(2024, 1, 1, tzinfo=UTC)),
        (pa.timestamp("ns", "UTC"), pa.timestamp("us", "UTC"), datetime(2024, 1, 1, tzinfo=UTC)),
        (pa.timestamp("us", "+00:00"), pa.timestamp("us", "UTC"), datetime(2024, 1, 1, tzinfo=UTC)),
        (pa.decimal128(5, 2), pa.decimal128(10, 3), Decimal("1.25")),
        (pa.large_list(pa.large_string()), pa.list_(pa.string()), ["a"]),
        (pa.list_(pa.int32(), 2), pa.list_(pa.int64()), [1, 2]),
        (pa.map_(pa.large_string(), pa.int32()), pa.map_(pa.string(), pa.int64()), [("a", 1)]),
        (pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int64())]), {"a": 1}),
    ],
)
def test_types_that_lose_nothing_are_cast(got: pa.DataType, wanted: pa.DataType, value: Any) -> None:
    table = pa.table({"x": pa.array([value, None], got) if not pa.types.is_dictionary(got)
                      else pa.array([value, None], got.value_type).dictionary_encode()})  # fmt: skip
    assert one(table, pa.schema([("x", wanted)])).column("x").to_pylist() == [value, None]


def test_a_column_of_nothing_but_null_has_any_type() -> None:
    assert one(pa.table({"x": [None]}), "x struct<a: int>").to_pylist() == [{"x": None}]


@pytest.mark.parametrize(
    ("got", "wanted"),
    [
        (pa.int64(), pa.int32()),
        (pa.int64(), pa.uint64()),
        (pa.uint64(), pa.int64()),
        (pa.int64(), pa.float64()),
        (pa.float64(), pa.int64()),
        (pa.float64(), pa.float32()),
        (pa.int64(), pa.string()),
        (pa.string(), pa.binary()),
        (pa.bool_(), pa.int64()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.timestamp("us", "UTC"), pa.timestamp("us")),
        (pa.date32(), pa.timestamp("us")),
        (pa.decimal128(10, 3), pa.decimal128(10, 2)),
        (pa.decimal128(10, 2), pa.decimal128(10, 3)),
        (pa.list_(pa.int64()), pa.list_(pa.int32())),
        (pa.list_(pa.int64()), pa.list_(pa.int64(), 2)),
        (pa.binary(), pa.binary(4)),
        (pa.struct([("a", pa.int64())]), pa.struct([("b", pa.int64())])),
        (pa.dictionary(pa.int8(), pa.int64()), pa.int32()),
    ],
)
def test_types_that_may_lose_something_are_not(got: pa.DataType, wanted: pa.DataType) -> None:
    assert not lossless(got, wanted)


def fails(data: Any, declared: str) -> str:
    with pytest.raises(SchemaError) as info:
        to_batches(data, schema(declared), "hourly.late")
    return str(info.value)


def test_the_message_names_port_column_and_both_types() -> None:
    assert fails(pa.table({"id": ["1"]}), "id long") == (
        "hourly.late: the column 'id' has type string, expected int64: cast it, or change the schema of the port"
    )


def test_missing_extra_and_double_columns_are_named() -> None:
    message = fails(pa.table({"a": [1], "c": [1]}), "a long, b long")
    assert "the column 'b' is missing, and the column 'c' is not in the schema" in message
    assert "expected the columns 'a', 'b', got 'a', 'c'" in message
    message = fails(pa.table({"c": [1], "d": [1]}), "a long, b long")
    assert "the columns 'a', 'b' are missing, and the columns 'c', 'd' are not in the schema" in message
    double = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    assert "the column 'a' comes twice" in fails(double, "a long")


def test_a_null_in_a_column_that_is_not_null() -> None:
    assert one(pa.table({"id": [1]}), "id long NOT NULL").num_rows == 1
    assert "is declared NOT NULL and has 1 null(s)" in fails(pa.table({"id": [1, None]}), "id long NOT NULL")


def test_a_time_that_is_not_whole_in_the_declared_unit_is_not_rounded() -> None:
    odd = pa.table({"at": pa.array([1001], pa.timestamp("ns"))})
    assert "round or cast it yourself" in fails(odd, "at timestamp_ntz")


@pytest.mark.parametrize("data", [{"id": [1]}, [1], 5, "id"])
def test_what_is_not_a_table(data: Any) -> None:
    assert "which is not a table: yield a pyarrow RecordBatch" in fails(data, "id long")
