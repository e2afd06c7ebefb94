"""Answers of row functions: taken over whole, or refused."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from logline.errors import SchemaError
from logline.operators.row_answers import plain_answer

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
