"""Whether a long run costs more than a short one: time per event, memory and log after 10^3 ... 10^6 events.

Source -> a fast window (60 events) and a slow one (10,000 events), both into targets that do nothing, in one process
on the embedded log with `process`. Events are small and the windows add up in plain Python, so that it is the engine
that is measured. Then 10^5 events with windows that have at most 10^3 and 10^5 members open: what an event costs must
not depend on that.

Time is processor time. Each size runs in a process of its own, so that memory is its own: its greatest, less what it
was before the run.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import logline as ll
from benchmarks.measure import write

MOST = int(os.environ.get("GROWTH_EVENTS", "1000000"))
FAST, SLOW = 60, 10_000
MEMBERS = (1_000, 100_000)
SCHEMA = pa.schema([("n", pa.int64())])


class Numbers(ll.Source):
    """Small events."""

    schema = SCHEMA
    gather = False

    def __init__(self, events: int) -> None:
        self.events = events

    def read(self, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, int]]:
        batch = pa.record_batch([pa.array([1], pa.int64())], SCHEMA)
        for n in range(offset or 0, self.events):
            yield batch, n + 1


class Window(ll.Operator[int, None]):
    """A number of events, added up."""

    outputs = {"out": "total long"}  # noqa: RUF012

    def __init__(self, size: int) -> None:
        self.size = size

    def assign(self, event: ll.Event, ctx: ll.Context[None]) -> list[int]:
        return [(event.ssn - 1) // self.size]

    def update(self, inset: Any, acc: int | None, event: ll.Event) -> int:
        return (acc or 0) + 1

    def ready(self, inset: Any, acc: int, ctx: ll.Context[None]) -> bool:
        return acc == self.size

    def generate(self, inset: Any, acc: int, ctx: ll.Context[None]) -> Iterator[Any]:
        yield pa.record_batch({"total": [acc]})


def nothing(batch: pa.RecordBatch, number: int, write_id: str) -> None:
    """Writes nothing."""


def run(events: int, slow: int) -> dict[str, float]:
    """One run in this process."""
    with tempfile.TemporaryDirectory() as folder:
        p = ll.Pipeline("growth")
        source = p.source("source", Numbers(events))
        for name, size in (("fast", FAST), ("slow", slow)):
            windows = source.apply(name, Window(size))
            windows.sink(f"{name}_end", ll.sinks.call(nothing, guarantee="named"))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.process_time()
        p.run(f"lmdb:{folder}/log", engine="inline", durability="process")
        seconds = time.process_time() - began
        size = sum(path.stat().st_blocks * 512 for path in Path(folder).rglob("*") if path.is_file())
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    return {"microseconds": seconds * 1e6 / events, "memory": memory, "log": size}


def apart(events: int, slow: int) -> dict[str, float]:
    """One run in a process of its own."""
    code = f"import json; from benchmarks.growth import run; print(json.dumps(run({events}, {slow})))"
    out = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(out.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measures, prints and writes the JSON."""
    results: dict[str, Any] = {}
    sizes = [(f"{n:,} events", n, SLOW) for n in (1_000, 10_000, 100_000, 1_000_000) if n <= MOST]
    for name, events, slow in [*sizes, *((f"{m:,} members open", min(MOST, 100_000), m) for m in MEMBERS)]:
        found = results[name] = apart(events, slow)
        mib = {key: found[key] / 2**20 for key in ("memory", "log")}
        print(f"{name:<22} {found['microseconds']:7.1f} us per event   memory {mib['memory']:6.1f} MiB", end="")
        print(f"   log {mib['log']:6.1f} MiB", flush=True)
    write(
        "growth",
        {"unit": "microseconds of processor time per event; bytes", "fast": FAST, "slow": SLOW, "results": results},
    )


if __name__ == "__main__":
    main()
