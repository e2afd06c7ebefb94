"""Nulls and NaN count in aggregates as Spark SQL has them."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import logline as ll

AGG: dict[str, Any] = {
    "sum": ("v", "sum"),
    "count": ("v", "count"),
    "min": ("v", "min"),
    "max": ("v", "max"),
    "mean": ("v", "mean"),
    "first": ("v", "first"),
    "last": ("v", "last"),
    "different": ("v", "count_distinct"),
    "variance": ("v", "variance"),
    "stddev": ("v", "stddev"),
    "median": ("v", "median"),
    "q": ("v", "quantile", 0.9),
    "list": ("v", "collect_list"),
    "set": ("v", "collect_set"),
    "top": ("v", "top", 2),
}
SQL = """
    select k, sum(v) as sum, count(v) as count, min(v) as min, max(v) as max, avg(v) as mean,
        min_by(v, i) filter (where v is not null) as first, max_by(v, i) filter (where v is not null) as last,
        count(distinct v) as different,
        variance(v) as variance, stddev(v) as stddev,
        percentile(v, 0.5) as median, percentile(v, 0.9) as q,
        transform(array_sort(collect_list(struct(i, v)) filter (where v is not null)), one -> one.v) as list,
        array_sort(collect_set(v)) as set,
        slice(reverse(array_sort(collect_list(v))), 1, 2) as top
    from aggregated group by k order by k nulls last
"""
NAN = math.nan
FLOATS = [1.5, None, 4.0, NAN, 4.0, None, -0.0, 0.0, NAN, 7.25, None, 2.0]
INTEGERS = [1, None, 4, 9, 4, None, -3, 0, 2**40, 7, None, 2]
KEYS = ["a", "a", "a", "b", "b", "c", "d", "d", "e", None, None, "a"]


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, float) and isinstance(theirs, float):
        return math.isnan(theirs) if math.isnan(ours) else ours == pytest.approx(theirs)
    return bool(ours == theirs)


@pytest.mark.parametrize("values", [FLOATS, INTEGERS], ids=["floats", "integers"])
def test_aggregates_are_those_of_spark_sql(spark: SparkSession, values: list[Any]) -> None:
    rows = pa.table({"k": KEYS, "v": values, "i": list(range(len(KEYS)))})
    p = ll.Pipeline("aggregates")
    source = p.source("rows", ll.sources.batches([rows]), rows=3)
    source.window("all", ll.whole(), by=["k"], agg=AGG).sink("store", ll.sinks.collect())
    ours = p.run(engine="inline").result("store").to_pylist()
    kind = "double" if values is FLOATS else "bigint"
    frame = spark.createDataFrame([tuple(row.values()) for row in rows.to_pylist()], f"k string, v {kind}, i bigint")
    frame.createOrReplaceTempView("aggregated")
    theirs = [row.asDict() for row in spark.sql(SQL).collect()]
    assert [row["k"] for row in ours] == [row["k"] for row in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        wrong = {name: (mine[name], other[name]) for name in AGG if not same(mine[name], other[name])}
        assert not wrong, mine["k"]
