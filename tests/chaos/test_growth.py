"""How large a log gets, and what is left in it, depends on what is needed, not on how long the run is (R12)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import logline as ll
from logline.store.lmdb.environment import acquire, release

EVENTS, SLOW, FAST = 20_000, 400, 20
ROWS = 2_500
"""20 KB: all events together are 400 MB, six times what a port may be ahead of its receivers (R13)."""
BOUND = 160 << 20
"""What a receiver has not taken, once for payloads and a little more than once for what a collection leaves free."""


class Long(ll.Source):
    schema = pa.schema([("n", pa.int64())])
    gather = False

    def read(self, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, int]]:
        batch = pa.record_batch({"n": pa.array(range(ROWS), pa.int64())})
        for n in range(offset or 0, EVENTS):
            yield batch, n + 1


class Window(ll.Operator[int, None]):
    outputs = {"out": "rows long"}  # noqa: RUF012

    def __init__(self, size: int) -> None:
        self.size = size

    def assign(self, event: ll.Event, ctx: ll.Context[None]) -> list[int]:
        return [(event.ssn - 1) // self.size]

    def update(self, inset: Any, acc: int | None, event: ll.Event) -> int:
        return (acc or 0) + int(event.batch.num_rows)

    def ready(self, inset: Any, acc: int, ctx: ll.Context[None]) -> bool:
        return acc == self.size * ROWS

    def generate(self, inset: Any, acc: int, ctx: ll.Context[None]) -> Iterator[Any]:
        yield pa.record_batch({"rows": [acc]})


def test_the_log_of_a_long_run_is_bounded(tmp_path: Path) -> None:
    written: list[int] = []

    def keep(batch: pa.RecordBatch, number: int, write_id: str) -> None:
        written.extend(batch["rows"].to_pylist())

    p = ll.Pipeline("long")
    source = p.source("source", Long())
    for name, size in (("fast", FAST), ("slow", SLOW)):
        source.apply(name, Window(size)).sink(f"{name}_end", ll.sinks.call(keep, guarantee="named"))
    p.run(f"lmdb:{tmp_path / 'log'}", engine="inline", durability="process")
    assert sum(written) == 2 * EVENTS * ROWS
    journals = list((tmp_path / "log" / "journals").iterdir())
    size = sum(path.stat().st_blocks * 512 for journal in journals for path in journal.iterdir())
    assert size < BOUND
    for journal in journals:
        env = acquire(journal, sync=False)
        with env.read() as txn:
            rows = txn.stat()["entries"]
        release(env)
        assert rows < EVENTS // 4, f"{journal.name} still has {rows} rows of {EVENTS} events"
