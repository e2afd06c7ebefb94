"""A source that gives as many events as a file allows, so that a test decides how far a pipeline gets; at a steady
rate for benchmarks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import logline as ll

EVENTS = 60


class Paced(ll.Source):
    """Event n comes once the file holds a number of at least n; with a `rate`, so many come in a second, and it
    catches up when it is later than due. Without the file it ends."""

    schema = pa.schema([("n", pa.int64())])
    gather = False

    def __init__(self, path: Path, events: int = EVENTS, rate: float | None = None) -> None:
        self.path = path
        self.events = events
        self.rate = rate

    def read(self, partition: str, offset: int | None) -> Iterator[tuple[pa.RecordBatch, int] | None]:
        n = offset or 0
        began = time.monotonic() - n / self.rate if self.rate is not None else 0.0
        while n < self.events and self.path.exists():
            if n < int(self.path.read_text() or 0):
                n += 1
                if self.rate is not None:
                    # It sleeps rather than say "nothing now", after which it would be asked again a second later.
                    time.sleep(max(began + n / self.rate - time.monotonic(), 0))
                yield pa.record_batch({"n": [n]}), n
            else:
                yield None


def paced(folder: Path) -> ll.Pipeline:
    """Source, a stateless operator, a window of three events, and two sinks, so that there are two branches."""
    allow(folder, 0)
    p = ll.Pipeline("paced")
    numbers = p.source("numbers", Paced(folder / "allowed"), rows=1)
    twice = numbers.map_batches("twice", lambda batch: pa.record_batch({"n": pc.multiply(batch["n"], 2)}))
    twice.window("sums", ll.events(3), agg={"total": ("n", "sum")}).sink("store", ll.sinks.collect())
    numbers.sink("plain", ll.sinks.collect())
    return p


def allow(folder: Path, events: int) -> None:
    """How far the source of this folder may go."""
    aside = folder / "allowed.new"
    aside.write_text(str(events))
    aside.replace(folder / "allowed")


def check(run: ll.Run) -> None:
    """As in a run without failure."""
    wanted = [2 * (3 * k + 1 + 3 * k + 2 + 3 * k + 3) for k in range(EVENTS // 3)]
    assert run.result("store")["total"].to_pylist() == wanted
    assert run.result("plain")["n"].to_pylist() == list(range(1, EVENTS + 1))


def parent(pid: int | None) -> int:
    """Who forked a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
