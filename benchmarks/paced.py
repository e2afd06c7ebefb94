"""A pipeline at a steady rate on Spark: source -> map -> sink, with the times at which the sink wrote."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import logline as ll

RATE = 200
"""Events per second."""


class Steady(ll.Source):
    """An event every 5 ms, for as long as a file exists. Later than due, it catches up."""

    schema = pa.schema([("n", pa.int64())])
    gather = False

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, partition: str, offset: int | None) -> Iterator[tuple[pa.RecordBatch, int] | None]:
        n = offset or 0
        began = time.monotonic() - n / RATE
        while self.path.exists():
            if n < (time.monotonic() - began) * RATE:
                n += 1
                yield pa.record_batch({"n": [n]}), n
            else:
                time.sleep(1 / RATE / 4)
                yield None


class Timed(ll.Sink):
    """Appends the time of each write to a file. Writes that come again are the same to it."""

    guarantee = "named"

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{time.time()}\n")


def steady(folder: Path) -> ll.Pipeline:
    """The pipeline; removing `folder/on` ends it."""
    (folder / "on").touch()
    p = ll.Pipeline("steady")
    numbers = p.source("numbers", Steady(folder / "on"), rows=1, within="1ms")
    numbers.map_batches("map", lambda batch: batch).sink("store", Timed(folder / "times"))
    return p


def times(folder: Path) -> list[float]:
    """When the sink wrote."""
    path = folder / "times"
    return [float(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_for_writes(folder: Path, after: float, count: int = 1) -> None:
    """Until the sink has written so many times after that moment."""
    while sum(t > after for t in times(folder)[-count - 50 :]) < count:
        time.sleep(0.005)


def kill(run: ll.Run, operator: str) -> float:
    """kill -9; returns when that was."""
    while (pid := run.process(operator)) is None:
        time.sleep(0.001)
    at = time.time()
    os.kill(pid, signal.SIGKILL)
    return at


def spread(found: list[float]) -> dict[str, Any]:
    """p50, p90 and the extremes."""
    ordered = sorted(found)
    return {
        "p50": statistics.median(ordered),
        "p90": ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))],
        "min": ordered[0],
        "max": ordered[-1],
        "repeats": len(ordered),
    }
