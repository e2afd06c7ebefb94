"""Whether a long run costs more than a short one: time per event, memory and log after 10^3 ... 10^6 events.

Source -> a fast window (60 events) and a slow one (10,000 events), both into targets that do nothing, in one process
on the embedded log with `process`. Events are small and the windows add up in plain Python, so that it is the engine
that is measured. Then 10^5 events with windows that have at most 10^3 and 10^5 members open: what an event costs must
not depend on that.

Last, the ready-made windows over events of one row, against the same pipeline without a window.

Time is processor time. Each run has a process of its own, so that memory is its own: its greatest, looked at twenty
times a second, less what it was before the run. It is counted apart: what the process allocated, and the pages of its
code and of the log that are mapped, which the system takes back when it needs them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import logline as ll
from benchmarks.measure import write

MOST = int(os.environ.get("GROWTH_EVENTS", "1000000"))
FAST, SLOW = 60, 10_000
MEMBERS = (1_000, 100_000)
SCHEMA = pa.schema([("n", pa.int64())])
TIMED = pa.schema([("at", pa.timestamp("us", "UTC")), ("item", pa.string()), ("n", pa.int64())])
TOTALS = {"total": ("n", "sum"), "mean": ("n", "mean")}
WINDOWS: dict[str, Callable[[ll.Stream], ll.Stream]] = {
    "no window": lambda source: source,
    "tumbling": lambda source: source.window("window", ll.tumbling("1m", on="at"), by=["item"], agg=TOTALS),
    "blocks of 60": lambda source: source.window("window", ll.events(60), by=["item"], agg=TOTALS),
    "rebatch to 60": lambda source: source.rebatch("window", rows=60, within="10s"),
}


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


class Times(Numbers):
    """Events of one row, a second apart."""

    schema = TIMED

    def read(self, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, int]]:
        for first in range(offset or 0, self.events, 1000):
            numbers = range(first, min(first + 1000, self.events))
            times = pa.array([n * 10**6 for n in numbers], TIMED.field("at").type)
            batch = pa.record_batch([times, pa.array([f"item {n % 10}" for n in numbers]), pa.array(numbers)], TIMED)
            for n in numbers:
                yield batch.slice(n - first, 1), n + 1


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
        peak = Peak()
        began = time.process_time()
        p.run(f"lmdb:{folder}/log", engine="inline", durability="process")
        seconds = time.process_time() - began
        size = sum(path.stat().st_blocks * 512 for path in Path(folder).rglob("*") if path.is_file())
    return {"microseconds": seconds * 1e6 / events, **peak.stop(), "log": size}


def windows(events: int, kind: str) -> dict[str, float]:
    """One run of a ready-made window in this process."""
    with tempfile.TemporaryDirectory() as folder:
        p = ll.Pipeline("windows")
        WINDOWS[kind](p.source("source", Times(events))).sink("end", ll.sinks.call(nothing, guarantee="named"))
        began = time.process_time()
        p.run(f"lmdb:{folder}/log", engine="inline", durability="process")
        return {"microseconds": (time.process_time() - began) * 1e6 / events}


class Peak:
    """The greatest memory of this process, by kind, beyond what it has now."""

    KINDS = {"allocated": "RssAnon", "mapped": "RssFile"}  # noqa: RUF012

    def __init__(self) -> None:
        self._before = self._greatest = self._now()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _now(self) -> dict[str, int]:
        text = Path("/proc/self/status").read_text()
        return {kind: int(re.findall(rf"{name}:\s+(\d+) kB", text)[0]) * 1024 for kind, name in self.KINDS.items()}

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            now = self._now()
            self._greatest = {kind: max(now[kind], known) for kind, known in self._greatest.items()}

    def stop(self) -> dict[str, int]:
        """In bytes."""
        self._over.set()
        self._thread.join()
        return {kind: self._greatest[kind] - self._before[kind] for kind in self.KINDS}


def apart(what: str) -> dict[str, float]:
    """One run in a process of its own."""
    code = f"import json; from benchmarks.growth import run, windows; print(json.dumps({what}))"
    out = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(out.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measures, prints and writes the JSON."""
    results: dict[str, Any] = {}
    sizes = [(f"{n:,} events", n, SLOW) for n in (1_000, 10_000, 100_000, 1_000_000) if n <= MOST]
    for name, events, slow in [*sizes, *((f"{m:,} members open", min(MOST, 100_000), m) for m in MEMBERS)]:
        found = results[name] = apart(f"run({events}, {slow})")
        mib = "".join(f"   {key} {found[key] / 2**20:6.1f} MiB" for key in ("allocated", "mapped", "log"))
        print(f"{name:<22} {found['microseconds']:7.1f} us per event{mib}", flush=True)
    for kind in WINDOWS:
        found = results[f"one row, {kind}"] = apart(f"windows({min(MOST, 50_000)}, {kind!r})")
        print(f"one row, {kind:<13} {found['microseconds']:7.1f} us per event", flush=True)
    write(
        "growth",
        {"unit": "microseconds of processor time per event; bytes", "fast": FAST, "slow": SLOW, "results": results},
    )


if __name__ == "__main__":
    main()
