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
            n += 1
            # It sleeps rather than say "nothing now", after which it would be asked again a second later.
            time.sleep(max(began + n / RATE - time.monotonic(), 0))
            yield pa.record_batch({"n": [n]}), n


class Timed(ll.Sink):
    """Appends the time of each write, and which process made what is written, to a file."""

    guarantee = "named"

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{time.time()} {batch['pid'][0]}\n")


def signed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The event with the process that handled it."""
    return batch.append_column("pid", pa.array([os.getpid()] * batch.num_rows, pa.int64()))


def steady(folder: Path) -> ll.Pipeline:
    """The pipeline; removing `folder/on` ends it."""
    (folder / "on").touch()
    p = ll.Pipeline("steady")
    numbers = p.source("numbers", Steady(folder / "on"), rows=1, within="1ms")
    numbers.map_batches("map", signed).sink("store", Timed(folder / "times"))
    return p


def writes(folder: Path) -> list[tuple[float, int]]:
    """When the sink wrote, and what process of `map` had made that; a line that is being written is left out."""
    path = folder / "times"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [(float(at), int(pid)) for at, pid in (line.split() for line in lines)]


def times(folder: Path) -> list[float]:
    """When the sink wrote."""
    return [at for at, _ in writes(folder)]


def wait_for_writes(folder: Path, after: float, count: int = 1) -> None:
    """Until the sink has written so many times after that moment."""
    while sum(t > after for t in times(folder)[-count - 50 :]) < count:
        time.sleep(0.005)


def kill(run: ll.Run, operator: str, *, parent: bool = False) -> tuple[float, int]:
    """kill -9 of an operator's process, or of the one that forked it; returns when that was, and the operator's."""
    while (pid := run.pid(operator)) is None:
        time.sleep(0.001)
    target = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) if parent else pid
    at = time.time()
    os.kill(target, signal.SIGKILL)
    return at, pid


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
