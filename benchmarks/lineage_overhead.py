"""What capturing lineage costs: a relay and a window pipeline with no scope, with one path, with everything.

Processor time of the whole pipeline, all operators in one process on an embedded log with durability `process`, so
that disks don't count. Variants are interleaved. On a busy machine even processor time varies by a third (caches, the
other half of a core), always upwards: the least of the repeats is compared, and the spread is of each repeat with
the run without lineage next to it.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

import logline as ll
from benchmarks.measure import timed, write

EVENTS = int(os.environ.get("LINEAGE_EVENTS", "6000"))
REPEATS = int(os.environ.get("LINEAGE_REPEATS", "7"))
ROWS = 400
SCOPES = ("off", "one path", "all")
_TWO = pa.scalar(2.0)
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def batches() -> Iterator[pa.RecordBatch]:
    """Events of about 10 kB, a minute of records each."""
    keys = pa.array([f"item{n % 20}" for n in range(ROWS)])
    amounts = pa.array([float(n) for n in range(ROWS)])
    for minute in range(EVENTS):
        times = pa.repeat(pa.scalar(_BEGIN + timedelta(minutes=minute), pa.timestamp("us", "UTC")), ROWS)
        yield pa.record_batch({"date": times, "item": keys, "amount": amounts})


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


def main() -> None:
    """Prints a table and keeps the figures."""
    result = {}
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
