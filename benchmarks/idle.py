"""What an idle pipeline of five processes costs: processor seconds per minute, of the workers and of the driver."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import logline as ll
from benchmarks.measure import write

SECONDS = float(os.environ.get("IDLE_SECONDS", "60"))


class Silent(ll.Source):
    """One event, and then nothing comes any more."""

    schema = pa.schema([("n", pa.int64())])

    def read(self, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, int] | None]:
        if offset is None:
            yield pa.record_batch({"n": [1]}), 1
        while True:
            yield None


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Nothing to do."""
    return batch


def spent(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measures, prints and writes the JSON."""
    with tempfile.TemporaryDirectory() as folder:
        p = ll.Pipeline("idle")
        stream = p.source("source", Silent())
        for name in ("one", "two", "three"):
            stream = stream.map_batches(name, same)
        stream.sink("sink", ll.sinks.collect())
        with p.start(f"lmdb:{folder}/log", engine="processes", durability="process") as run:
            while run.result("sink").num_rows == 0:
                time.sleep(0.1)
            names = list(run.status().operators)
            pids = {name: run.pid(name) for name in names} | {"driver": os.getpid()}
            before = {name: spent(pid) for name, pid in pids.items() if pid is not None}
            time.sleep(SECONDS)
            used = {n: (spent(pid) - before[n]) * 60 / SECONDS for n, pid in pids.items() if pid is not None}
    for name, seconds in used.items():
        print(f"{name:<8} {seconds:5.2f} processor seconds per minute")
    workers = sum(seconds for name, seconds in used.items() if name != "driver")
    print(f"five workers {workers:.2f}, one core for {workers / 60:.1%} of the time")
    write("idle", {"unit": "processor seconds per minute", "seconds": SECONDS, "results": used})


if __name__ == "__main__":
    main()
