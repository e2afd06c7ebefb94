"""What checkpoints of open sets cost, and what they save (CEC's Figures 5 to 9, for ours).

Source -> windows by key that stay open, in one process on the embedded log with `process`. Events are small and the
windows add up in plain Python, so that it is the engine that is measured. A run reads what is there (`until="now"`)
and leaves the windows open; the next one has nothing to read, so all that it does is to recover.

    overhead     processor time per event: without checkpoints, with few and with many            Figure 5
    replay       time of a recovery, and events taken in again, by `replay=` (CEC's U)              Figures 6 and 7
    budget       processor time per event and what is left to replay, by `budget=` (CI/CP)          Figures 8 and 9
    growth       recovery of many open windows, and of one with many members, with and without

Time is processor time. Each run has a process of its own. `MOST=1000000` makes the last part as large as it is meant
to be; the other parts take some minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

import logline as ll
from benchmarks.measure import write

EVENTS = int(os.environ.get("EVENTS", "20000"))
MOST = int(os.environ.get("MOST", "100000"))
SCHEMA = pa.schema([("n", pa.int64())])
TAKEN = [0]
"""Events that the life in this process has taken in."""


class Numbers(ll.Source):
    """So many events of one row."""

    schema = SCHEMA
    gather = False

    def __init__(self, events: int) -> None:
        self.events = events

    def read(self, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, int]]:
        for n in range(offset or 0, self.events):
            yield pa.record_batch([pa.array([n], pa.int64())], schema=SCHEMA), n + 1


class Windows(ll.Operator[tuple[int, int], None]):
    """So many windows, which take turns and stay open."""

    outputs = {"out": SCHEMA}  # noqa: RUF012

    def __init__(self, keys: int) -> None:
        self.keys = keys

    def assign(self, event: ll.Event, ctx: ll.Context[None]) -> list[ll.InsetId]:
        return [event.ssn % self.keys]

    def update(self, inset: ll.InsetId, acc: tuple[int, int] | None, event: ll.Event) -> tuple[int, int]:
        TAKEN[0] += 1
        many, total = acc or (0, 0)
        return many + 1, total + event.ssn

    def generate(self, inset: ll.InsetId, acc: tuple[int, int], ctx: ll.Context[None]) -> Iterator[ll.Emit]:
        yield ll.Emit(pa.record_batch([pa.array([acc[1]])], schema=SCHEMA))


def run(events: int, keys: int, wanted: dict[str, Any] | None) -> dict[str, float]:
    """Fills the windows, then recovers; in this process."""
    with tempfile.TemporaryDirectory() as folder:
        p = ll.Pipeline("windows")
        options: Any = {} if wanted is None else {"policy": "eventual", "eventual": ll.Eventual(**wanted)}
        p.source("numbers", Numbers(events)).apply("windows", Windows(keys), **options)
        log = f"lmdb:{folder}/log"
        began = time.process_time()
        p.run(log, engine="inline", durability="process", until="now")
        spent = time.process_time() - began
        TAKEN[0] = 0
        began = time.process_time()
        p.run(log, engine="inline", durability="process", until="now")
        recovery = time.process_time() - began
        rows = ll.open_log(log).table("checkpoints")
        extent = sum(rows["extent"].to_pylist())
        return {
            "microseconds": spent * 1e6 / events,
            "recovery": recovery,
            "replayed": TAKEN[0],
            "extent": extent,
            "bytes": sum(rows["bytes"].to_pylist()),
        }


def apart(events: int, keys: int, wanted: dict[str, Any] | None) -> dict[str, float]:
    """One run in a process of its own."""
    code = f"import json; from benchmarks.eventual import run; print(json.dumps(run({events}, {keys}, {wanted!r})))"
    out = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(out.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measures, prints and writes the JSON."""
    results: dict[str, Any] = {}

    def measure(name: str, events: int, keys: int, wanted: dict[str, Any] | None) -> None:
        found = results[name] = apart(events, keys, wanted)
        print(
            f"{name:<36} {found['microseconds']:7.1f} us per event   recovery {found['recovery']:6.3f} s   "
            f"{found['replayed']:>8,.0f} events again   extent {found['extent']:>7,.0f}",
            flush=True,
        )
        write("eventual", {"unit": "microseconds of processor time per event; seconds; events", "results": results})

    often: dict[str, Any] = {"every": "10ms", "budget": 0.5}
    for name, wanted in {"none": None, "few": {"replay": 5000, **often}, "many": {"replay": 100, **often}}.items():
        measure(f"overhead, {name}", EVENTS, 100, wanted)
    for events in (10_000, 1000, 100):
        measure(f"replay={events}", EVENTS, 10, {"replay": events, **often})
    for budget in (0.01, 0.05, 0.2):
        measure(f"budget={budget}", EVENTS, 100, {"replay": 0, "every": "10ms", "budget": budget})
    measure("by cost and benefit", EVENTS, 100, {})
    for name, keys in ((f"{MOST:,} members", 1), (f"{min(MOST, 100_000):,} open windows", min(MOST, 100_000))):
        for how, wanted in {"without": None, "with": {"replay": 1000, **often}}.items():
            measure(f"{name}, {how}", MOST if keys == 1 else keys, keys, wanted)


if __name__ == "__main__":
    main()
