"""Latency of one hop between two processes, without load: source -> sink, an event every 20 ms.

An event carries the time at which the source gives it away; the sink's code takes the time when it is called
(`time.monotonic_ns` is one clock for all processes of a machine). In between: the event is read, committed, rung for,
fetched, taken in, its write committed, and written out. `one way` is the first half of that: until an operator's own
code sees the event, before anything of its own is committed.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import logline as ll
from benchmarks.measure import write

EVENTS = int(os.environ.get("HOP_EVENTS", "500"))
PAUSE = 0.02
WARM = 50
"""Events at the beginning that don't count: processes are still starting."""
SCHEMA = pa.schema([("n", pa.int64()), ("at", pa.int64())])


class Slow(ll.Source):
    """An event every now and then, with the time."""

    schema = SCHEMA
    gather = False

    def read(self, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, int]]:
        for n in range(offset or 0, EVENTS + WARM):
            time.sleep(PAUSE)
            yield pa.record_batch([pa.array([n]), pa.array([time.monotonic_ns()])], SCHEMA), n + 1


class Clocked(ll.Operator[Any, None]):
    """Notes how long an event was under way, and passes the time on to its target."""

    outputs = {"out": "n long"}  # noqa: RUF012

    def __init__(self, path: str) -> None:
        self.path = path

    def generate(self, inset: Any, batch: Any, ctx: ll.Context[None]) -> Any:
        now = time.monotonic_ns()
        with Path(self.path).open("a") as file:
            file.write(f"{now - batch['at'][0].as_py()}\n")
        yield ll.Write(batch, to="end")


class End(ll.Sink):
    """Notes how long an event was under way."""

    guarantee = "named"

    def __init__(self, path: str) -> None:
        self.path = path

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        now = time.monotonic_ns()
        with Path(self.path).open("a") as file:
            file.write(f"{now - batch['at'][0].as_py()}\n")


def hop(url: str, settings: dict[str, Any]) -> dict[str, list[float]]:
    """Milliseconds of each event, to the operator's code and to the target."""
    with tempfile.TemporaryDirectory() as folder:
        p = ll.Pipeline("hop")
        source = p.source("source", Slow(), within="1ms")
        source.apply("receiver", Clocked(f"{folder}/way"), targets={"end": End(f"{folder}/end")})
        p.start(url, **settings).wait()
        return {
            name: [int(line) / 1e6 for line in Path(folder, file).read_text().splitlines()[WARM:]]
            for name, file in (("one way", "way"), ("to the target", "end"))
        }


def main() -> None:
    """Measures, prints and writes the JSON."""
    results: dict[str, Any] = {}
    for durability in ("process", "disk"):
        with tempfile.TemporaryDirectory() as folder:
            spent = hop(f"lmdb:{folder}/log", {"engine": "processes", "durability": durability})
        for name, found in spent.items():
            cut = statistics.quantiles(found, n=100)
            results[f"{durability}, {name}"] = {"p50": cut[49], "p99": cut[98], "min": min(found), "max": max(found)}
            print(f"{durability + ', ' + name:<24} p50 {cut[49]:6.2f} ms   p99 {cut[98]:6.2f} ms", flush=True)
    write("hop", {"unit": "milliseconds", "events": EVENTS, "results": results})


if __name__ == "__main__":
    main()
