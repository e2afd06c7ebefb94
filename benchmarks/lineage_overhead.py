"""What capturing lineage costs: a relay and a window pipeline with no scope, with one path, with everything.

Processor time of the whole pipeline, all operators in one process on an embedded log with durability `process`, so
that disks don't count. Variants are interleaved. On a busy machine even processor time varies by a third (caches, the
other half of a core), always upwards: the least of the repeats is compared, and the spread is of each repeat with
the run without lineage next to it.

`step`: what capture adds is too little to be seen in that, so it is measured by itself too: closing the sets of a
stateless operator and committing 256 tiny events, with lineage and without, the least processor time of many steps.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import logline as ll
from benchmarks.measure import timed, write
from logline.engine.events import Output, Position
from logline.engine.retention import Retention
from logline.engine.sets import Member
from logline.engine.spec import FOREVER, InstanceSpec, Retain
from logline.engine.step import Step
from logline.names import OUT, ChannelName, InstanceName, Serial, Ssn
from logline.store.address import open_store
from logline.store.seam import Journal

EVENTS = int(os.environ.get("LINEAGE_EVENTS", "6000"))
REPEATS = int(os.environ.get("LINEAGE_REPEATS", "7"))
ROWS = 400
SCOPES = ("off", "one path", "all")
CHUNK = 256
_TWO = pa.scalar(2.0)
_CHANNEL = ChannelName("source.out>last.in")
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def batches() -> Iterator[pa.RecordBatch]:
    """Events of about 10 kB, a minute of records each."""
    keys = pa.array([f"item{n % 20}" for n in range(ROWS)])
    amounts = pa.array([float(n) for n in range(ROWS)])
    for minute in range(EVENTS):
        times = pa.repeat(pa.scalar(_BEGIN + timedelta(minutes=minute), pa.timestamp("us", "UTC")), ROWS)
        yield pa.record_batch({"date": times, "item": keys, "amount": amounts})


_EVENT = pa.record_batch({"n": pa.array([1], pa.int64())})


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """One column is computed."""
    return batch.set_column(2, "amount", pc.multiply(batch.column(2), _TWO))


def relay() -> ll.Pipeline:
    """source -> map -> sink."""
    p = ll.Pipeline("relay")
    source = p.source("source", ll.sources.batches(batches), rows=ROWS)
    source.map_batches("last", doubled).sink("sink", _nowhere())
    return p


def window() -> ll.Pipeline:
    """source -> map -> hourly totals -> sink."""
    p = ll.Pipeline("window")
    source = p.source("source", ll.sources.batches(batches), rows=ROWS)
    totals = source.map_batches("map", doubled).window(
        "last", ll.tumbling("1h", on="date"), by=["item"], agg={"total": ("amount", "sum")}
    )
    totals.sink("sink", _nowhere())
    return p


def _nowhere() -> ll.Sink:
    return ll.sinks.call(lambda batch, number, write_id: None, guarantee="named")


def seconds(make: Callable[[], ll.Pipeline], scope: str) -> float:
    """Processor time of one run."""
    p = make()
    if scope == "one path":
        p.lineage("source", "last", keep="10MB")
    elif scope == "all":
        p.lineage(keep="10MB")
    with tempfile.TemporaryDirectory() as folder:
        return timed(lambda: p.run(f"lmdb:{folder}/log", engine="inline", durability="process"))


def step_seconds(journal: Journal, number: int, retention: Retention) -> float:
    """Closing and committing the sets of one step of a stateless operator."""
    traced = bool(retention.spec.retain)
    first, channel = (number - 1) * CHUNK + 1, _CHANNEL
    step = Step(
        number=number, serial=Serial(first + CHUNK - 1), positions={channel: Position(Ssn(first + CHUNK - 1))}
    )
    step.sets.alone = {Serial(s): Member(channel, Ssn(s)) for s in range(first, first + CHUNK)}
    outputs = [Output(OUT, Ssn(s), _EVENT, 1, 10, 10 * s, Serial(s)) for s in range(first, first + CHUNK)]
    began = time.thread_time()
    for output in outputs:
        step.outputs.append(output)
        kept = traced and retention.close(output.serial, step, made=True)
        step.close(output.serial, traced=kept)
    retention.record(step, 0)
    journal.commit(step)
    return time.thread_time() - began


def step_overhead(steps: int = 300) -> tuple[float, float]:
    """The least seconds of a step without lineage and with it, in turns."""
    spec = InstanceSpec(name=InstanceName("last"), traced_in=frozenset({_CHANNEL}), traced_out=frozenset({OUT}))
    kept = replace(spec, retain={OUT: Retain(FOREVER)})
    with tempfile.TemporaryDirectory() as folder:
        stores = [open_store(f"lmdb:{folder}/{name}", durability="process") for name in ("off", "on")]
        journals = [store.claim(InstanceName("last")) for store in stores]
        retentions = [Retention(spec), Retention(kept)]
        found = [
            min(times)
            for times in zip(
                *(
                    [step_seconds(j, n, r) for j, r in zip(journals, retentions, strict=True)]
                    for n in range(1, steps + 1)
                ),
                strict=True,
            )
        ]
        for journal, store in zip(journals, stores, strict=True):
            journal.close()
            store.close()
    return found[0], found[1]


def main() -> None:
    """Prints a table and keeps the figures."""
    off, on = step_overhead()
    more = {"off_us": off / CHUNK * 1e6, "on_us": on / CHUNK * 1e6, "added_us": (on - off) / CHUNK * 1e6}
    print(f"step: lineage adds {more['added_us']:.2f} us per event to {more['off_us']:.2f}")
    result: dict[str, Any] = {"step": more}
    for make in (relay, window):
        seconds(make, "all")  # warms up
        runs = [{scope: seconds(make, scope) for scope in SCOPES} for _ in range(REPEATS)]
        base = min(run["off"] for run in runs)
        print(f"{make.__name__}: {base / EVENTS * 1e6:.1f} us of processor time per event without lineage")
        for scope in SCOPES[1:]:
            ratios = sorted(100 * (run[scope] / run["off"] - 1) for run in runs)
            least = 100 * (min(run[scope] for run in runs) / base - 1)
            found = {"least": least, "median": statistics.median(ratios), "min": ratios[0], "max": ratios[-1]}
            result[f"{make.__name__}, {scope}"] = {"overhead_percent": found, "repeats": REPEATS}
            spread = f"median {found['median']:+.1f}, {found['min']:+.1f} to {found['max']:+.1f}"
            print(f"  {scope:<9} {least:+6.1f} %   ({spread})")
    print(write("lineage_overhead", {"events": EVENTS, "results": result}))
