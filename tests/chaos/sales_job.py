"""A pipeline that a test runs in a process of its own and kills: sales per hour into SQLite, a positioned target.

python -m tests.chaos.sales_job LOG DATABASE [ENGINE [HOLD]]
"""

from __future__ import annotations

import signal
import sqlite3
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

import logline as ll

EVENTS, ROWS = 240, 20
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def sales() -> list[pa.RecordBatch]:
    """Batches of records that walk through the hours."""
    found = []
    for event in range(EVENTS):
        rows = range(event * ROWS, (event + 1) * ROWS)
        found.append(
            pa.record_batch(
                {
                    "date": pa.array([BEGIN + timedelta(seconds=17 * n) for n in rows], pa.timestamp("us", "UTC")),
                    "item_id": [f"item{n % 7}" for n in rows],
                    "amount": pa.array([n % 101 for n in rows], pa.int64()),
                }
            )
        )
    return found


def held(hold: str) -> Iterator[pa.RecordBatch]:
    """The same, but half of them only once a file is there: a test that strikes before has struck midway."""
    batches = sales()
    yield from batches[: EVENTS // 2]
    while not Path(hold).exists():
        time.sleep(0.01)
    yield from batches[EVENTS // 2 :]


class Sqlite(ll.Sink):
    """Keeps the last number with the rows, in one transaction, and applies n only after n - 1 (R8)."""

    guarantee = "positioned"

    def __init__(self, path: str) -> None:
        self.path = path

    def open(self, scope: str) -> None:
        self.scope = scope
        with sqlite3.connect(self.path, timeout=60) as db:
            db.execute("create table if not exists totals (hour text, item_id text, total integer)")
            db.execute("create table if not exists positions (scope text primary key, number integer)")

    def position(self) -> int:
        with sqlite3.connect(self.path, timeout=60) as db:
            found = db.execute("select number from positions where scope = ?", (self.scope,)).fetchone()
        return found[0] if found else 0

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        db = sqlite3.connect(self.path, timeout=60, isolation_level=None)
        try:
            db.execute("begin immediate")
            found = db.execute("select number from positions where scope = ?", (self.scope,)).fetchone()
            if number == (found[0] if found else 0) + 1:
                db.executemany(
                    "insert into totals values (?, ?, ?)",
                    [(r["window_start"].isoformat(), r["item_id"], r["total"]) for r in batch.to_pylist()],
                )
                db.execute("insert or replace into positions values (?, ?)", (self.scope, number))
            db.execute("commit")
        finally:
            db.close()


def pipeline(database: str, hold: str = "") -> ll.Pipeline:
    """Source -> stateless -> window -> writer."""

    def check(batch: pa.RecordBatch) -> Any:
        return batch

    p = ll.Pipeline("sales")
    orders = p.source("orders", ll.sources.batches(partial(held, hold) if hold else sales))
    checked = orders.map_batches("checked", check)
    hourly = checked.window("hourly", ll.tumbling("1h", on="date"), by=["item_id"], agg={"total": ("amount", "sum")})
    hourly.sink("store", Sqlite(database))
    return p


def main() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits "ignored"
    engine: Any
    log, database, engine, hold = (*sys.argv[1:], *("inline", "")[len(sys.argv) - 3 :])
    run = pipeline(database, hold).start(f"lmdb:{log}", engine=engine, durability="process")
    if engine != "inline":
        names = ("orders", "checked", "hourly", "store")
        while None in (pids := [run.pid(name) for name in names]) and run.status().phase == "running":
            time.sleep(0.01)
        print(*pids, flush=True)
    print("running", flush=True)
    print(run.wait().phase, flush=True)


if __name__ == "__main__":
    main()
