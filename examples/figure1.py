"""LOG.io's Figure 1: sales -> totals per 100 events, and totals per hour -> a store. An event is a batch of records.

Every operator has a Spark task of its own. Midway the process of `hourly` is killed with kill -9; the others go on,
it comes back where its log ends, and at the end the store is compared with plain Spark SQL on the same data.

    python examples/figure1.py [RECORDS]

The records and the pipeline are those of `logline demo`: `src/logline/cli/figure1.py`.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import logline as ll
from logline.cli.figure1 import PER_EVENT, in_order, kill, pipeline, sales


def spark_sql(spark: SparkSession, records: int) -> pa.Table:
    """The same totals, by plain Spark SQL."""
    spark.createDataFrame(pa.Table.from_batches(sales(records))).createOrReplaceTempView("sales")
    return spark.sql(
        "select date_trunc('HOUR', date) as window_start, item_id, state, sum(amount) as total from sales "
        "group by all"
    ).toArrow()


def main() -> int:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    print("starting Spark", flush=True)
    spark = ll.session("figure1", **{"spark.sql.session.timeZone": "UTC", "spark.ui.enabled": False})
    with tempfile.TemporaryDirectory(prefix="logline-demo-") as folder:
        print(f"{records} sales records in events of {PER_EVENT}; a Spark task per operator, log in {folder}/log")
        began = time.monotonic()
        with pipeline(records, folder).start(f"lmdb:{folder}/log", spark=spark) as run:
            killed = kill(run, "hourly", after=records // PER_EVENT // 3, mark=Path(folder) / "killed")
            status = run.wait()
        print(f"\n{status}\n\n{time.monotonic() - began:.1f} s")
        print("comparing with plain Spark SQL, which takes some seconds", flush=True)
        found = in_order(pq.read_table(Path(folder) / "hourly"))
        same = found.equals(in_order(spark_sql(spark, records)).cast(found.schema))
        print(f"hourly totals: {found.num_rows} rows, {'equal to' if same else 'DIFFERENT FROM'} plain Spark SQL's")
    spark.stop()
    return 0 if same and killed else 1


if __name__ == "__main__":
    sys.exit(main())
