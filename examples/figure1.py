"""LOG.io's Figure 1: sales -> totals per 100 events, and totals per hour -> a store. An event is a batch of records.

Every operator has a Spark task of its own. Midway the process of `hourly` is killed with kill -9; the others go on,
it comes back where its log ends, and at the end the store is compared with plain Spark SQL on the same data.

    python examples/figure1.py [RECORDS]
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import logline as ll

PER_EVENT = 100
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def sales(records: int) -> Iterator[pa.RecordBatch]:
    """Sales records in the order of their date: store, item, state, date, amount."""
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
    """The pipeline of Figure 1; OP2 and OP3 of the paper are `per100` and `hourly`."""
    p = ll.Pipeline("sales")
    orders = p.source("orders", ll.sources.batches(lambda: sales(records)))
    by = ["item_id", "state"]
    per100 = orders.window("per100", ll.events(100), by=by, agg={"total": ("amount", "sum")})
    hourly = orders.window("hourly", ll.tumbling("1h", on="date"), by=by, agg={"total": ("amount", "sum")})
    per100.sink("store100", ll.sinks.parquet(f"{folder}/per100"))
    hourly.sink("store", ll.sinks.parquet(f"{folder}/hourly"))
    return p


def spark_sql(spark: SparkSession, records: int) -> pa.Table:
    """The same totals, by plain Spark SQL."""
    spark.createDataFrame(pa.Table.from_batches(sales(records))).createOrReplaceTempView("sales")
    return spark.sql(
        "select date_trunc('HOUR', date) as window_start, item_id, state, sum(amount) as total from sales "
        "group by all"
    ).toArrow()


def in_order(table: pa.Table) -> pa.Table:
    """Rows that can be compared."""
    table = table.select(["window_start", "item_id", "state", "total"])
    return table.sort_by([(name, "ascending") for name in ("window_start", "item_id", "state")])


def kill_hourly(run: ll.Run, after: int) -> bool:
    """kill -9 of the process of `hourly`, once it has taken in so many events."""
    while run.status().phase == "running":
        if run.status().operators["hourly"].taken >= after and (pid := run.process("hourly")) is not None:
            os.kill(pid, signal.SIGKILL)
            print(f"killed the process of 'hourly' ({pid}) after {after} or more of its events")
            return True
        time.sleep(0.01)
    return False


def main() -> int:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    print("starting Spark", flush=True)
    spark = ll.session("figure1", **{"spark.sql.session.timeZone": "UTC", "spark.ui.enabled": False})
    with tempfile.TemporaryDirectory(prefix="logline-demo-") as folder:
        print(f"{records} sales records in events of {PER_EVENT}; a Spark task per operator, log in {folder}/log")
        began = time.monotonic()
        with pipeline(records, folder).start(f"lmdb:{folder}/log", spark=spark) as run:
            killed = kill_hourly(run, after=records // PER_EVENT // 3)
            status = run.wait()
        print(f"\n{status}\n\n{time.monotonic() - began:.1f} s")
        found = in_order(pq.read_table(Path(folder) / "hourly"))
        same = found.equals(in_order(spark_sql(spark, records)).cast(found.schema))
        print(f"hourly totals: {found.num_rows} rows, {'equal to' if same else 'DIFFERENT FROM'} plain Spark SQL's")
        if not killed:
            print("the pipeline was done before anything was killed: give it more records")
    spark.stop()
    return 0 if same and killed else 1


if __name__ == "__main__":
    sys.exit(main())
