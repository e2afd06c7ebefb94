"""Sessions are those of Spark SQL's session_window, in any order of arrival."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import pyarrow as pa
from pyspark.sql import SparkSession

import logline as ll

BEGIN = datetime(2026, 3, 29, tzinfo=UTC)


def test_sessions_are_those_of_spark_sql(spark: SparkSession) -> None:
    rnd = Random(14)
    rows = [
        (rnd.choice(["ann", "bob", None]), BEGIN + timedelta(seconds=10 * rnd.randrange(400)), rnd.randrange(9))
        for _ in range(300)
    ]  # many are exactly a gap apart
    frame = spark.createDataFrame(rows, "user string, at timestamp, n bigint")
    frame.createOrReplaceTempView("clicks")
    theirs = spark.sql("""
        select unix_timestamp(session_window.start), unix_timestamp(session_window.end), user, sum(n)
        from clicks group by session_window(at, '60 seconds'), user
    """).collect()
    users, times, numbers = zip(*rows, strict=True)
    table = pa.table({"user": users, "at": pa.array(times, pa.timestamp("us", "UTC")), "n": numbers})
    p = ll.Pipeline("sessions")
    clicks = p.source("clicks", ll.sources.batches([table]), rows=7)
    window = ll.session_window("60s", on="at", lateness="2h")
    clicks.window("visits", window, by=["user"], agg={"n": ("n", "sum")}).sink("store", ll.sinks.collect())
    made = p.run(engine="inline").result("store").to_pylist()
    ours = [(r["window_start"].timestamp(), r["window_end"].timestamp(), r["user"], r["n"]) for r in made]
    assert sorted(ours, key=str) == sorted(map(tuple, theirs), key=lambda row: str((float(row[0]), *row[1:])))
    assert len(ours) > 30
