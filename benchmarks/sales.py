"""What a small pipeline costs beside the same functions without any log: records per second of processor time.

    lines -> parse -> cleaned -> blocks of 100 events by item -> Parquet

`loop` calls the functions one after the other, with an aggregation by Arrow. `pessimistic` logs each hop. With
`ephemeral` parse and cleaned ride on the connection to the window. Everything is in one process, on an embedded
log with durability `process`, so that disks and the order of processes do not count. Variants are interleaved, and
ratios are those of one round: the machine may be busy.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import logline as ll
from benchmarks.measure import timed, write

ROUNDS = int(os.environ.get("SALES_ROUNDS", "5"))
EVENTS = {100: int(os.environ.get("SALES_SMALL", "4000")), 10_000: int(os.environ.get("SALES_LARGE", "200"))}
"""Records of an event -> how many events."""
BLOCK = 100
RIDES: dict[str, Any] = {"policy": "ephemeral", "deterministic": True}


def lines(records: int) -> pa.RecordBatch:
    """One event of text lines."""
    return pa.record_batch({"line": [f"{n},item{n % 20},{n % 97}.5" for n in range(records)]})


def parse(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Splits lines into columns."""
    parts = pc.split_pattern(batch["line"], ",")
    columns = [pc.list_element(parts, at) for at in range(3)]
    return pa.record_batch(
        [columns[0].cast(pa.int64()), columns[1], columns[2].cast(pa.float64())], names=["id", "item", "amount"]
    )


def cleaned(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Drops small amounts."""
    return batch.filter(pc.greater(batch["amount"], 3.0))


def events(records: int) -> Iterator[pa.RecordBatch]:
    """All events; the source makes none of its own, so that its work does not count."""
    one = lines(records)
    return (one for _ in range(EVENTS[records]))


def loop(records: int, folder: Path) -> None:
    """The functions, without a log."""
    waiting: list[pa.RecordBatch] = []
    for number, event in enumerate(events(records), 1):
        waiting.append(cleaned(parse(event)))
        if number % BLOCK == 0:
            made = pa.Table.from_batches(waiting).group_by("item").aggregate([("amount", "sum"), ("id", "count")])
            pq.write_table(made, folder / f"{number}.parquet")
            waiting = []


def piped(**options: Any) -> Callable[[int, Path], None]:
    """The same as a pipeline; the options are those of the two functions."""

    def run(records: int, folder: Path) -> None:
        p = ll.Pipeline("sales")
        source = p.source("lines", ll.sources.batches(lambda: events(records)), rows=records)
        schema = "id long, item string, amount double"
        parsed = source.map_batches("parse", parse, schema=schema, **options)
        kept = parsed.map_batches("cleaned", cleaned, schema=schema, **options)
        totals = kept.window(
            "blocks", ll.events(BLOCK), by=["item"], agg={"total": ("amount", "sum"), "n": ("id", "count")}
        )
        totals.sink("store", ll.sinks.parquet(str(folder / "out")))
        p.run(f"lmdb:{folder}/log", engine="inline", durability="process")

    return run


VARIANTS: dict[str, Callable[[int, Path], None]] = {
    "loop": loop,
    "pessimistic": piped(),
    "ephemeral": piped(**RIDES),
}


def main() -> None:
    """Measures, prints and keeps the results."""
    result: dict[str, Any] = {}
    for records, count in EVENTS.items():
        rates: dict[str, list[float]] = {name: [] for name in VARIANTS}
        for at in range(ROUNDS + 1):
            for name, run in VARIANTS.items():
                with tempfile.TemporaryDirectory() as folder:
                    spent = timed(partial(run, records, Path(folder)))
                if at:  # the first round warms up
                    rates[name].append(records * count / spent)
        found = {}
        for name, some in rates.items():
            ratios = [mine / plain for mine, plain in zip(some, rates["loop"], strict=True)]
            found[name] = {
                "records_per_cpu_second": round(statistics.median(some)),
                "against_loop": round(statistics.median(ratios), 3),
                "min": round(min(ratios), 3),
                "max": round(max(ratios), 3),
            }
            print(f"{records:>6} records  {name:<12} {found[name]}", flush=True)
        result[str(records)] = {"events": count, **found}
    print(write("sales", {"rounds": ROUNDS, "events_of": result}))


if __name__ == "__main__":
    main()
