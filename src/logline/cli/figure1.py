"""LOG.io's Figure 1, which `logline demo` shows: sales -> totals per 100 events, and totals per hour -> a store.

`examples/figure1.py` shows the same pipeline on Spark, compared with Spark SQL.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import logline as ll
from logline.runtime.log.log_status import log_status

PER_EVENT = 100
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = ["window_start", "item_id", "state", "total"]


def sales(records: int) -> Iterator[pa.RecordBatch]:
    """Sales records in the order of their date."""
    for first in range(0, records, PER_EVENT):
        rows = range(first, min(first + PER_EVENT, records))
        yield pa.record_batch(
            {
                "item_id": pa.array([f"BZ{n * 7919 % 40:03d}" for n in rows]),
                "state": pa.array([("CA", "NY", "TX")[n % 3] for n in rows]),
                "date": pa.array([BEGIN + timedelta(seconds=2 * n) for n in rows], pa.timestamp("us", "UTC")),
                "amount": pa.array([n * 31 % 997 for n in rows], pa.int64()),
            }
        )


def pipeline(records: int, folder: str) -> ll.Pipeline:
    """OP2 and OP3 of the paper are `per100` and `hourly`. The last third of the sales comes once there is a file
    `killed`."""
    p = ll.Pipeline("sales")
    late = 2 * records // 3 // PER_EVENT
    orders = p.source("orders", ll.sources.batches(lambda: held(sales(records), late, Path(folder) / "killed")))
    by = ["item_id", "state"]
    per100 = orders.window("per100", ll.events(100), by=by, agg={"total": ("amount", "sum")})
    hourly = orders.window("hourly", ll.tumbling("1h", on="date"), by=by, agg={"total": ("amount", "sum")})
    per100.sink("store100", ll.sinks.parquet(f"{folder}/per100"))
    hourly.sink("store", ll.sinks.parquet(f"{folder}/hourly"))
    return p


def plain_aggregate(records: int) -> pa.Table:
    """The same totals, without any pipeline."""
    table = pa.Table.from_batches(sales(records))
    table = table.append_column("window_start", pc.floor_temporal(table["date"], unit="hour"))
    totals = table.group_by(COLUMNS[:3]).aggregate([("amount", "sum")])
    return in_order(totals.rename_columns(COLUMNS))


def in_order(table: pa.Table) -> pa.Table:
    """Rows that can be compared."""
    return table.select(COLUMNS).sort_by([(name, "ascending") for name in COLUMNS[:3]])


def held(batches: Iterator[pa.RecordBatch], late: int, mark: Path) -> Iterator[pa.RecordBatch]:
    """Batches from number `late` on come once there is a file: so there is a midway, however fast the machine is."""
    for n, batch in enumerate(batches):
        while n == late and not mark.exists():
            time.sleep(0.01)
        yield batch


def kill(run: ll.Run, operator: str, after: int, mark: Path) -> bool:
    """kill -9 of the process of an operator, once it has taken in so many events, and a file that says so. False if
    the pipeline is over."""
    while run.status().phase == "running":
        time.sleep(0.02)
        pid = run.pid(operator)
        # What the log says, not what the process has reported: that comes twice a second.
        if pid is None or log_status(run.log.store).operators[operator].taken < after:
            continue
        os.kill(pid, signal.SIGKILL)
        print(f"killed the process of {operator!r} ({pid}) after {after} or more of its events", flush=True)
        mark.touch()
        return True
    return False


def show(records: int, engine: Literal["spark", "processes"]) -> bool:
    """Runs it, kills `hourly` midway, and compares; whether all went as it should."""
    where = "a Spark task" if engine == "spark" else "a process"
    with tempfile.TemporaryDirectory(prefix="logline-demo-") as folder:
        print(
            f"{records:,} sales records in events of {PER_EVENT}; {where} per operator; log in {folder}/log",
            flush=True,
        )
        began = time.monotonic()
        with pipeline(records, folder).start(f"lmdb:{folder}/log", engine=engine) as run:
            killed = kill(run, "hourly", records // PER_EVENT // 3, Path(folder) / "killed")
            status = run.wait()
        print(f"\n{status}\n\n{time.monotonic() - began:.1f} s")
        print("comparing with a plain aggregate", flush=True)
        found = in_order(pq.read_table(Path(folder) / "hourly"))
        same: bool = found.equals(plain_aggregate(records).cast(found.schema))
    print(f"hourly totals: {found.num_rows} rows, {'equal to' if same else 'DIFFERENT FROM'} a plain aggregate")
    return same and killed
