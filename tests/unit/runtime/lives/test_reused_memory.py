"""User code that fills the same NumPy array for each event: every event keeps the values that it had."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import logline as ll

SCHEMA = pa.schema({"x": pa.int64()})


class Filling(ll.Source):
    schema = SCHEMA

    def __init__(self, *, gather: bool) -> None:
        self.gather = gather

    def read(self, partition: str, offset: Any) -> Iterator[Any]:
        array = np.zeros(3, dtype="int64")
        for n in range(offset or 0, 5):
            array[:] = n
            yield pa.record_batch({"x": array}), n + 1


class Doubling:
    def __init__(self) -> None:
        self.array = np.zeros(3, dtype="int64")

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        np.multiply(batch["x"].to_numpy(), 2, out=self.array)
        return pa.record_batch({"x": self.array})


class Twice(ll.Operator[Any, None]):
    outputs = {"out": "x long"}  # noqa: RUF012

    def generate(self, inset: Any, acc: pa.RecordBatch, ctx: Any) -> Iterator[Any]:
        array = acc["x"].to_numpy().copy()
        yield pa.table({"x": array})
        array += 100
        yield ll.Emit(pa.record_batch({"x": array}))


@pytest.mark.parametrize("memory", [True, False])
@pytest.mark.parametrize("gather", [True, False])
def test_a_source_fills_its_array_again(gather: bool, memory: bool, tmp_path: Path) -> None:
    p = ll.Pipeline("reused")
    p.source("numbers", Filling(gather=gather)).sink("store", ll.sinks.collect())
    run = p.run(None if memory else f"lmdb:{tmp_path / 'log'}", engine="inline")
    assert run.result("store")["x"].to_pylist() == [n for n in range(5) for _ in range(3)]


@pytest.mark.parametrize("memory", [True, False])
def test_a_function_fills_its_array_again(memory: bool, tmp_path: Path) -> None:
    p = ll.Pipeline("reused")
    numbers = p.source("numbers", ll.sources.batches([pa.table({"x": [n] * 3}) for n in range(5)]))
    numbers.map_batches("double", Doubling(), schema="x long").sink("store", ll.sinks.collect())
    run = p.run(None if memory else f"lmdb:{tmp_path / 'log'}", engine="inline")
    assert run.result("store")["x"].to_pylist() == [2 * n for n in range(5) for _ in range(3)]


def test_an_operator_goes_on_with_what_it_yielded() -> None:
    p = ll.Pipeline("reused")
    numbers = p.source("numbers", ll.sources.batches([pa.table({"x": [n]}) for n in range(3)]))
    numbers.apply("twice", Twice()).sink("store", ll.sinks.collect())
    assert p.run(engine="inline").result("store")["x"].to_pylist() == [0, 100, 1, 101, 2, 102]
