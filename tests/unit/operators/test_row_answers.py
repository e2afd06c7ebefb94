"""Answers of row functions: taken over whole, or refused."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from logline.engine.codec import encode
from logline.errors import SchemaError
from logline.operators.row_answers import plain_answer, plain_rows

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def plain(value, type):
    answer = plain_answer({"x": value}, pa.schema({"x": type}))
    assert answer is not None
    return answer["x"]


@pytest.mark.parametrize(
    ("value", "type", "kept"),
    [
        (1.0, pa.int64(), 1),
        (0.1, pa.float32(), pytest.approx(0.1)),
        (1, pa.float64(), 1.0),
        (2, pa.decimal128(5, 2), Decimal("2.00")),
        ((1, 2), pa.list_(pa.int64()), [1, 2]),
        ([[1], None], pa.list_(pa.list_(pa.int64())), [[1], None]),
        ({"a": 1}, pa.struct({"a": pa.int64(), "b": pa.string()}), {"a": 1, "b": None}),
        ({"k": 1}, pa.map_(pa.string(), pa.int64()), [("k", 1)]),
        (NOON.replace(tzinfo=None), pa.timestamp("us", "UTC"), NOON),
        (NOON.replace(tzinfo=None), pa.timestamp("s"), NOON.replace(tzinfo=None)),
        (NOON, pa.timestamp("ms", "Europe/Berlin"), NOON),
        (timedelta(seconds=1), pa.duration("s"), timedelta(seconds=1)),
        (None, pa.int64(), None),
    ],
)
def test_taken_over(value, type, kept):
    assert plain(value, type) == kept


@pytest.mark.parametrize(
    ("value", "type"),
    [
        (1.5, pa.int64()),
        (2**63, pa.int64()),
        ([1, 1.5], pa.list_(pa.int64())),
        ([{"a": 1.5}], pa.list_(pa.struct({"a": pa.int64()}))),
        ({"a": 1, "c": 2}, pa.struct({"a": pa.int64()})),
        (NOON, pa.date32()),
        (NOON.replace(microsecond=1), pa.timestamp("ms", "UTC")),
        (NOON, pa.timestamp("us")),
        (date(2026, 3, 1), pa.string()),
        (Decimal("1.234"), pa.decimal128(5, 2)),
        ("1", pa.int64()),
        (1, pa.string()),
    ],
)
def test_refused(value, type):
    with pytest.raises(SchemaError, match="column 'x' is "):
        plain(value, type)


NANOS = pa.schema(
    {
        "at": pa.timestamp("ns", "UTC"),
        "time": pa.time64("ns"),
        "took": pa.duration("ns"),
        "all": pa.list_(pa.timestamp("ns")),
        "inner": pa.struct({"at": pa.timestamp("ns")}),
    }
)


def test_nanoseconds_that_are_whole_microseconds_come_and_go():
    at = datetime(2024, 1, 2, 3, 4, 5, 678901)
    row = {
        "at": at.replace(tzinfo=UTC),
        "time": at.time(),
        "took": timedelta(microseconds=7),
        "all": [at],
        "inner": {"at": at},
    }
    (found,) = plain_rows(pa.RecordBatch.from_pylist([row], schema=NANOS))
    assert found == row
    assert [type(value) for value in found.values()] == [datetime, time, timedelta, list, dict]
    assert type(found["all"][0]) is datetime
    answer = plain_answer(found, NANOS)
    assert answer == row
    encode(answer)


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.time64("ns"), pa.duration("ns")])
def test_values_between_two_microseconds_are_refused(kind):
    with pytest.raises(SchemaError, match=r"column 'c' .* between two microseconds"):
        plain_rows(pa.record_batch({"c": pa.array([1001], kind)}))
