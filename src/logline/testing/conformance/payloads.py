"""Payloads that are hard to keep: types, nesting, dictionaries, slices, and batches of almost nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa


def payloads() -> Mapping[str, pa.RecordBatch]:
    """Batches of many types."""
    moment = datetime(2024, 2, 29, 12, 30, 0, 5, tzinfo=UTC)
    nested: list[Any] = [{"a": [1, None], "b": {"c": "x"}}, None, {"a": [], "b": None}]
    dictionary = pa.array(["x", None, "y", "x"]).dictionary_encode()
    return {
        "numbers": pa.record_batch(
            {
                "i8": pa.array([1, None, -3], pa.int8()),
                "u64": pa.array([2**64 - 1, None, 0], pa.uint64()),
                "f32": pa.array([0.5, None, float("nan")], pa.float32()),
                "f64": pa.array([float("inf"), -0.0, None], pa.float64()),
                "decimal": pa.array([Decimal("1.10"), None, Decimal("-9.99")], pa.decimal128(10, 2)),
                "wide": pa.array([Decimal(10**50), None, Decimal(-1)], pa.decimal256(60, 0)),
                "bool": pa.array([True, None, False]),
            }
        ),
        "times": pa.record_batch(
            {
                "utc": pa.array([moment, None], pa.timestamp("us", "UTC")),
                "zone": pa.array([moment, None], pa.timestamp("ns", "Europe/Berlin")),
                "naive": pa.array([moment.replace(tzinfo=None), None], pa.timestamp("ms")),
                "date": pa.array([date(2024, 2, 29), None], pa.date32()),
                "time": pa.array([time(1, 2, 3, 4), None], pa.time64("us")),
                "duration": pa.array([timedelta(days=-1), None], pa.duration("us")),
            }
        ),
        "texts": pa.record_batch(
            {
                "text": pa.array(["", None, "Grüße \N{SNOWMAN} \0"]),
                "large": pa.array(["a", None, "b"], pa.large_string()),
                "view": pa.array(["a text longer than twelve bytes", None, "short"], pa.string_view()),
                "bytes": pa.array([b"\0\xff", None, b""]),
                "fixed": pa.array([b"abc", None, b"xyz"], pa.binary(3)),
            }
        ),
        "nested": pa.record_batch(
            {
                "struct": pa.array(nested),
                "list": pa.array([[[1], []], None, [[2, None]]], pa.list_(pa.large_list(pa.int16()))),
                "pair": pa.array([[1, 2], None, [3, None]], pa.list_(pa.int8(), 2)),
                "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
            }
        ),
        "dictionaries": pa.record_batch(
            {
                "word": dictionary,
                "small": dictionary.cast(pa.dictionary(pa.int8(), pa.string())),
                "list": pa.ListArray.from_arrays(pa.array([0, 1, 2, 2, 4]), dictionary),
            }
        ),
        "unions": pa.record_batch(
            {
                "union": pa.UnionArray.from_sparse(
                    pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["x", "y"])], ["int", "text"]
                ),
                "null": pa.nulls(2),
            }
        ),
        "only nulls": pa.record_batch({"n": pa.nulls(3, pa.int64()), "s": pa.nulls(3, pa.string())}),
        "no rows": pa.record_batch({"n": pa.array([], pa.int64()), "d": pa.array([], dictionary.type)}),
        "no columns": pa.RecordBatch.from_struct_array(pa.array([{}, {}, {}], pa.struct([]))),
        "nothing": pa.record_batch({}),
        "a slice": pa.record_batch({"n": pa.array(range(100)), "w": pa.array(["x", "y"] * 50).dictionary_encode()})[
            33:40
        ],
        "metadata": pa.record_batch(
            [pa.array([1])], schema=pa.schema([pa.field("n", pa.int64(), False, {"unit": "m"})], {"k": b"\xff"})
        ),
        "same names": pa.record_batch([pa.array([1]), pa.array(["x"])], names=["n", "n"]),
        "large": pa.record_batch({"n": pa.array(range(100_000), pa.int64())}),
    }
