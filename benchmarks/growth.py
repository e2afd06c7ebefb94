"""Whether a long run costs more than a short one: time per event, memory and log after 10^3 ... 10^6 events.

Source -> a fast window (60 events) and a slow one (10,000 events), both into targets that do nothing, in one process
on the embedded log with `process`. Events are small and the windows add up in plain Python, so that it is the engine
that is measured. Then 10^5 events with windows that have at most 10^3 and 10^5 members open: what an event costs must
not depend on that.

Then the ready-made windows over events of one row, against the same pipeline without a window.

Last, what may grow with what is open: 10^3 ... 10^5 windows open at once, with checkpoints and without, and
10^3 ... 10^6 keys with a state. Each has a run that fills them, a `status()` of the log, and a run that has nothing
new to read: it claims the journals, rebuilds the sets or loads the states, and leaves. The least of three.

GROWTH_EVENTS, GROWTH_WINDOWS and GROWTH_KEYS bound the sizes. GROWTH_CASES=sets,keys measures these alone, and leaves
the other results as they are.

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
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import logline as ll
from benchmarks.measure import RESULTS, timed, write

MOST = int(os.environ.get("GROWTH_EVENTS", "1000000"))
OPEN = int(os.environ.get("GROWTH_WINDOWS", "100000"))
KEYS = int(os.environ.get("GROWTH_KEYS", "1000000"))
CASES = os.environ.get("GROWTH_CASES", "events,windows,sets,keys").split(",")
TIMES = 3
"""How often what takes no long time is measured."""
FAST, SLOW = 60, 10_000
MEMBERS = (1_000, 100_000)
SIZES = (1_000, 10_000, 100_000, 1_000_000)
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


class Minutes(Numbers):
    """Events of a thousand rows, a minute apart, each with a key of its own."""

    schema = TIMED

    def read(self, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, int]]:
        for first in range(offset or 0, self.events, 1000):
            numbers = range(first, min(first + 1000, self.events))
            times = pa.array([n * 60 * 10**6 for n in numbers], TIMED.field("at").type)
            items = pa.array([f"item {n}" for n in numbers])
            yield pa.record_batch([times, items, pa.array(numbers)], TIMED), numbers.stop


@dataclass
class Seen:
    """The state of a key."""

    rows: int = 0


def seen(batch: pa.RecordBatch, ctx: Any) -> None:
    """Counts the rows of a key."""
    ctx.state.rows += batch.num_rows


def _windows(source: ll.Stream, **more: Any) -> ll.Stream:
    minutes = ll.tumbling("1m", on="at", lateness="3650d")  # so that all of them stay open
    return source.window("many", minutes, by=["item"], agg=TOTALS, **more)


MANY: dict[str, Callable[[ll.Stream], ll.Stream]] = {
    "windows open": _windows,
    "windows open, eventual": lambda source: _windows(
        source, policy="eventual", eventual=ll.Eventual(replay=10, every="10ms", budget=0.9)
    ),
    "keys, dedup": lambda source: source.dedup("many", by=["item"]),
    "keys, stateful": lambda source: source.stateful("many", seen, by=["item"], state=Seen, schema="item string"),
}


def many(size: int, kind: str) -> dict[str, float]:
    """Fills so many windows or keys, and looks at what a status and a start cost then."""
    with tempfile.TemporaryDirectory() as folder:
        url, runs = f"lmdb:{folder}/log", deque[ll.Run](maxlen=1)

        def go() -> float:
            p = ll.Pipeline("many")
            MANY[kind](p.source("source", Minutes(size))).sink("end", ll.sinks.call(nothing, guarantee="named"))
            return timed(lambda: runs.append(p.run(url, engine="inline", durability="process", until="now")))

        filled = go()
        if "eventual" in kind:
            go()  # lets the checkpoints catch up
        peak = Peak()
        start = min(go() for _ in range(TIMES))
        look = min(timed(runs[0].status) for _ in range(TIMES))
        known = runs[0].status().operators["many"]
        memory = peak.stop()
    assert (known.open_sets or known.keys) == size
    found = {"microseconds": filled * 1e6 / size, "start": start, "status": look, "checkpoints": known.checkpoints}
    return {**found, **memory}


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
    code = f"import json; from benchmarks.growth import many, run, windows; print(json.dumps({what}))"
    out = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(out.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measures, prints and writes the JSON."""
    results: dict[str, Any] = {}
    sizes = [(f"{n:,} events", n, SLOW) for n in SIZES if n <= MOST]
    sizes += [(f"{m:,} members open", min(MOST, 100_000), m) for m in MEMBERS]
    for name, events, slow in sizes if "events" in CASES else ():
        found = results[name] = apart(f"run({events}, {slow})")
        mib = "".join(f"   {key} {found[key] / 2**20:6.1f} MiB" for key in ("allocated", "mapped", "log"))
        print(f"{name:<22} {found['microseconds']:7.1f} us per event{mib}", flush=True)
    for kind in WINDOWS if "windows" in CASES else ():
        found = results[f"one row, {kind}"] = apart(f"windows({min(MOST, 50_000)}, {kind!r})")
        print(f"one row, {kind:<13} {found['microseconds']:7.1f} us per event", flush=True)
    for kind in MANY:
        case, most = ("keys", KEYS) if kind.startswith("keys") else ("sets", OPEN)
        for size in [n for n in SIZES if n <= most] if case in CASES else ():
            found = results[f"{size:,} {kind}"] = apart(f"many({size}, {kind!r})")
            filled, start, look = found["microseconds"], found["start"], found["status"] * 1e3
            mib = f"allocated {found['allocated'] / 2**20:6.1f} MiB"
            cost = f"{filled:6.1f} us each   start {start:6.2f} s   status {look:5.2f} ms"
            print(f"{size:>9,} {kind:<24} {cost}   {mib}", flush=True)
    before = RESULTS / "growth.json"
    if before.exists() and len(CASES) < 4:
        results = {**json.loads(before.read_text())["results"], **results}
    write(
        "growth",
        {
            "unit": "microseconds of processor time per event; seconds; bytes",
            "fast": FAST,
            "slow": SLOW,
            "results": results,
        },
    )


if __name__ == "__main__":
    main()
