"""A wall clock that somebody sets while a pipeline runs: what waits goes on waiting as if nothing had happened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import logline as ll
from logline.engine.moments import Wall
from logline.runtime.lives import life


class Seen:
    """What user code did, in one test."""

    def __init__(self) -> None:
        self.reads_failed = self.writes_failed = 0
        self.tried: list[int] = []
        self.written: list[int] = []


SEEN = [Seen()]
"""The newest one counts. Not in the operators themselves: they have to be shippable."""


class Numbers(ll.Source):
    """0 to 3, with a failure before 2."""

    schema = pa.schema({"x": pa.int64()})
    gather = False

    def read(self, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, Any] | None]:
        for n in range(offset or 0, 4):
            if n == 2 and not SEEN[-1].reads_failed:
                SEEN[-1].reads_failed += 1
                raise OSError("away")
            yield pa.record_batch({"x": [n]}), n + 1


def double(batch: pa.RecordBatch) -> pa.RecordBatch:
    (n,) = batch["x"].to_pylist()
    tried = SEEN[-1].tried
    tried.append(n)
    if n == 1 and tried.count(1) == 1:
        raise OSError("away")
    return pa.record_batch({"x": [2 * n]})


def store(batch: pa.RecordBatch, number: int, write_id: str) -> None:
    seen = SEEN[-1]
    if number == 4 and not seen.writes_failed:
        seen.writes_failed += 1
        raise OSError("away")
    seen.written.extend(batch["x"].to_pylist())


@pytest.mark.parametrize("pace", [-1000, 0, 1_000_000], ids=["set back all the time", "stopped", "set forward"])
def test_reads_retries_and_writes_wait_by_another_clock(pace: int, monkeypatch: pytest.MonkeyPatch) -> None:
    began = life.wall_clock()
    real = life.wall_clock
    monkeypatch.setattr(life, "wall_clock", lambda: Wall(began + pace * (real() - began)))
    seen = Seen()
    SEEN.append(seen)
    p = ll.Pipeline("clocks")
    retry = ll.Retry(attempts=3, wait="10ms")
    doubled = p.source("numbers", Numbers(), retry=retry).map_batches("double", double, schema="x long", retry=retry)
    doubled.sink("store", ll.sinks.call(store, guarantee="named"))
    run = p.start(None, engine="inline")
    try:
        assert run.wait(timeout=60).phase == "finished"
    finally:
        run.stop()
    assert seen.written == [0, 2, 4, 6]
    assert (seen.reads_failed, seen.tried.count(1), seen.writes_failed) == (1, 2, 1)
