"""A pipeline at a steady rate on Spark: source -> map -> sink, with the times at which the sink wrote."""

from __future__ import annotations

import os
import signal
import statistics
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.paced import Paced, allow
from tests.paced import parent as parent_of

import logline as ll

RATE = 200
"""Events per second."""
FOREVER = 1 << 60


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
    """The pipeline; `finish` ends it."""
    allow(folder, FOREVER)
    p = ll.Pipeline("steady")
    numbers = p.source("numbers", Paced(folder / "allowed", FOREVER, RATE), rows=1, within="1ms")
    numbers.map_batches("map", signed).sink("store", Timed(folder / "times"))
    return p


def finish(folder: Path) -> None:
    """Nothing more comes."""
    (folder / "allowed").unlink()


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
    target = parent_of(pid) if parent else pid
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
