"""Spark SQL over input sets: the same as Spark would say of the records, logged once."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.waiting import PATIENCE

import logline as ll
from logline.errors import OptionError, PipelineFailed, SchemaError
from logline.names import OperatorName, PortName
from logline.operators import Gathered
from logline.spark.sql import Query

HOUR = datetime(2026, 3, 1, tzinfo=UTC)
SALES = [
    pa.table(
        {
            "item": ["tea", "jam", "tea"],
            "amount": [k, 10 * k, 1],
            "date": [HOUR + timedelta(minutes=20 * k)] * 3,
        },
        schema=pa.schema({"item": pa.string(), "amount": pa.int64(), "date": pa.timestamp("us", "UTC")}),
    )
    for k in range(9)
]


def totals(frame: DataFrame) -> DataFrame:
    return frame.groupBy("item").agg(F.sum("amount").alias("total")).orderBy("item")


def pipeline(fn: Any, window: ll.Window | None = None, **options: Any) -> ll.Pipeline:
    p = ll.Pipeline("sql")
    made = p.source("orders", ll.sources.batches(SALES)).sql("made", fn, window, **options)
    made.sink("store", ll.sinks.collect())
    return p


def stored(p: ll.Pipeline, log: str | None = None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = p.run(log, engine="inline").result("store").to_pylist()
    return rows


def plain(spark: SparkSession, tables: list[pa.Table]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = totals(spark.createDataFrame(pa.concat_tables(tables))).toArrow().to_pylist()
    return found


def test_a_job_for_each_event(spark: SparkSession) -> None:
    p = pipeline(totals)
    made = p.graph().nodes[OperatorName("made")]
    assert made.outputs[PortName("out")] == pa.schema({"item": pa.string(), "total": pa.int64()})
    assert stored(p) == [row for table in SALES for row in plain(spark, [table])]


def test_a_job_for_each_block(spark: SparkSession) -> None:
    found = stored(pipeline(totals, ll.events(4)))
    assert found == [row for at in (0, 4, 8) for row in plain(spark, SALES[at : at + 4])]


def test_a_job_for_each_window_of_time(spark: SparkSession) -> None:
    found = stored(pipeline(totals, ll.tumbling("1h", on="date")))
    bounds = [(HOUR + timedelta(hours=h), HOUR + timedelta(hours=h + 1)) for h in range(3)]
    assert found == [
        {"window_start": start, "window_end": end, **row}
        for at, (start, end) in enumerate(bounds)
        for row in plain(spark, SALES[3 * at : 3 * at + 3])
    ]


def test_an_empty_result_is_no_event(spark: SparkSession) -> None:
    run = pipeline(lambda df: df.where("amount > 60")).run(engine="inline")
    assert run.result("store")["amount"].to_pylist() == [70, 80]
    assert run.status().operators["made"].out == 2


def test_the_function_may_hold_what_cannot_be_shipped(spark: SparkSession) -> None:
    prices = spark.createDataFrame([("tea", 2.5), ("jam", 4.0)], "item string, price double")
    lock = threading.Lock()

    def worth(frame: DataFrame) -> DataFrame:
        with lock:
            return frame.join(prices, "item").select(F.sum(F.col("amount") * F.col("price")).alias("worth"))

    assert [row["worth"] for row in stored(pipeline(worth))] == [2.5 * (k + 1) + 40.0 * k for k in range(9)]


def test_what_a_job_gave_is_not_asked_again(spark: SparkSession, tmp_path: Path) -> None:
    calls: list[int] = []

    def lots(frame: DataFrame) -> DataFrame:
        calls.append(1)
        return frame.select(F.rand().alias("r"))

    p = pipeline(lots, schema="r double")
    log = f"lmdb:{tmp_path}/log"
    with p.start(log, engine="inline") as run:
        run.restart("made")
        run.wait(PATIENCE)
    first = run.result("store").to_pylist()
    assert len(first) == 27
    assert stored(p, log) == first
    assert 9 <= len(calls) <= 10  # the restart may have dropped one that was under way


def test_several_jobs_at_once_in_order(spark: SparkSession) -> None:
    together = threading.Barrier(3, timeout=PATIENCE)

    def meet(frame: DataFrame) -> DataFrame:
        together.wait()
        return totals(frame)

    p = pipeline(meet, concurrency=3, schema="item string, total long")
    assert stored(p) == [row for table in SALES for row in plain(spark, [table])]


def test_a_spark_error_is_the_operators_own(spark: SparkSession) -> None:
    p = pipeline(lambda df: df.selectExpr("assert_true(amount < 70) as x", "amount"), schema="x void, amount long")
    with pytest.raises(PipelineFailed, match=r"operator 'made' failed on orders:8") as failed:
        p.run(engine="inline")
    assert failed.value.operator == "made"
    assert "amount < 70" in str(failed.value)


def test_a_failing_set_is_diverted(spark: SparkSession) -> None:
    def picky(frame: DataFrame) -> DataFrame:
        return frame.select(F.expr("if(amount = 70, raise_error('seventy'), amount)").cast("long").alias("amount"))

    run = pipeline(picky, on_error="divert").run(engine="inline")
    assert run.result("store").num_rows == 24
    (error,) = run.log.errors("made").to_pylist()
    assert "seventy" in error["reason"]
    assert error["events"] == ["orders:8"]


def test_types_and_zones_come_back_as_declared(spark: SparkSession) -> None:
    found = stored(pipeline(lambda df: df.selectExpr("max(date) at", "cast(max(date) as date) day"), ll.events(9)))
    tokyo = HOUR + timedelta(hours=9, minutes=160)
    assert found == [{"at": HOUR + timedelta(minutes=160), "day": tokyo.date()}]


def test_a_function_that_spark_refuses_is_refused_at_once(spark: SparkSession) -> None:
    with pytest.raises(SchemaError, match=r"operator 'made': its schema is not known.*'?price'?"):
        pipeline(lambda df: df.select("price"))
    with pytest.raises(SchemaError, match="gave a int; it must return a DataFrame"):
        pipeline(lambda df: df.count())
    with pytest.raises(OptionError, match="operator 'made': sql takes a plain function"):
        pipeline("select 1")
    with pytest.raises(OptionError, match="is not a window"):
        pipeline(totals, "1h")  # type: ignore[arg-type]


def test_the_version_is_that_of_the_function(spark: SparkSession) -> None:
    def version(p: ll.Pipeline) -> str:
        from logline.graph.record import record_of
        from logline.names import OperatorName

        return record_of(p.graph()).operators[OperatorName("made")].version

    assert version(pipeline(totals)) == version(pipeline(totals))
    assert version(pipeline(totals)) != version(pipeline(lambda df: totals(df).limit(1)))


def test_without_a_session_the_schema_is_asked_for() -> None:
    code = """
import pyarrow as pa, logline as ll
orders = ll.Pipeline("sql").source("orders", ll.sources.batches([pa.table({"id": [1]})]))
orders.sql("known", lambda df: df, schema="id long")
try:
    orders.sql("unknown", lambda df: df)
except ll.errors.SchemaError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith("operator 'unknown': its schema is not known, since there is no Spark session")
    assert "schema=" in said


def test_what_was_given_to_spark_is_let_go(spark: SparkSession) -> None:
    """Sets of 16 MB: DataFrames of few of them are alive at a time, though Python's own collector does nothing, and
    the JVM holds them in columns."""
    plans: list[str] = []
    frames: weakref.WeakSet[DataFrame] = weakref.WeakSet()
    alive: list[int] = []

    def counts(frame: DataFrame) -> DataFrame:
        made = frame.groupBy().count()
        plans.append(str(frame._jdf.queryExecution().executedPlan().toString()))
        frames.add(frame)
        alive.append(len(frames))
        return made

    query = Query("counts", counts, None)
    threshold = spark.conf.get("spark.sql.execution.arrow.localRelationThreshold")
    table = pa.table({"n": range(2_000_000)})
    gc.collect()
    gc.disable()
    try:
        for _ in range(6):
            parts = Gathered.after(None, table.combine_chunks().to_batches()[0])
            assert query.result(parts).to_pylist() == [{"count": 2_000_000}]
    finally:
        gc.enable()
    assert max(alive) <= 3
    assert not any("LocalTableScan" in plan for plan in plans)
    assert spark.conf.get("spark.sql.execution.arrow.localRelationThreshold") == threshold
