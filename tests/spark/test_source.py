"""A DataFrame as a source: every row once, whatever its plan; read here by the driver, see test_frames_on_spark."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import logline as ll
from logline.errors import DefinitionError, SchemaError, ShippingError
from logline.spark.plans import plan_of

UTC = dt.UTC


@pytest.fixture(scope="module")
def files(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four files of 250 rows."""
    path = tmp_path_factory.mktemp("rows") / "data"
    spark.range(0, 1000, 1, 4).selectExpr("id", "id % 7 part").write.parquet(str(path))
    return path


@pytest.fixture
def small(spark: SparkSession) -> Iterator[None]:
    """Partitions of one file each."""
    wanted = {"spark.sql.files.openCostInBytes": "0", "spark.sql.files.maxPartitionBytes": "2000"}
    before = {key: str(spark.conf.get(key)) for key in wanted}
    for settings in (wanted, before):
        for key, value in settings.items():
            spark.conf.set(key, value)
        if settings is wanted:
            yield


def pipeline(frame: DataFrame, **options: Any) -> ll.Pipeline:
    p = ll.Pipeline("frames")
    p.source("rows", ll.sources.spark(frame), **options).sink("store", ll.sinks.collect())
    return p


def stored(p: ll.Pipeline) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = p.run(engine="inline").result("store").to_pylist()
    return rows


def replayable(frame: DataFrame) -> bool:
    return ll.sources.spark(frame).replayable


@pytest.mark.usefixtures("small")
def test_files_are_read_in_the_order_of_partitions(spark: SparkSession, files: Path) -> None:
    frame = spark.read.parquet(str(files)).where("part < 6")
    source = ll.sources.spark(frame)
    assert source.replayable
    assert len(source.partitions()) == frame.rdd.getNumPartitions() > 1
    assert stored(pipeline(frame, rows=100)) == [row.asDict() for row in frame.collect()]


@pytest.mark.usefixtures("small")
def test_a_read_goes_on_after_each_row(spark: SparkSession, files: Path) -> None:
    source = ll.sources.spark(spark.read.parquet(str(files)))
    partition = source.partitions()[1]
    whole = [id for batch, _ in source.read(partition, None) for id in batch["id"].to_pylist()]
    assert len(whole) == 250
    for offset in (1, 249, 250):
        rest = list(source.read(partition, offset))
        assert [id for batch, _ in rest for id in batch["id"].to_pylist()] == whole[offset:]
        assert [after for _, after in rest] == ([250] if offset < 250 else [])


def test_which_plans_can_be_replayed(spark: SparkSession, files: Path) -> None:
    frame = spark.read.parquet(str(files))
    local = spark.createDataFrame(pa.table({"id": [1, 2]}))
    assert replayable(frame)
    assert replayable(frame.select(F.explode(F.array("id", "part"))).where("col > 3").coalesce(2))
    assert replayable(frame.union(frame))
    assert replayable(local.union(spark.range(3)))
    identity = F.udf(lambda id: id, "long")
    for shaky, why in (
        (frame.orderBy("id"), "shuffles"),
        (frame.repartition(3), "shuffles"),
        (frame.groupBy("part").count(), "shuffles"),
        (frame.limit(3), "shuffles"),
        (frame.join(local, "id"), "joins"),
        (frame.withColumn("r", F.rand()), "not deterministic"),
        (frame.withColumn("at", F.current_timestamp()), "current time"),
        (frame.sample(fraction=0.5, seed=1), "Sample"),
        (frame.where(identity("id") > 3), "EvalPython"),
        (frame.mapInArrow(lambda batches: batches, frame.schema), "Python code"),
        (spark.sparkContext.parallelize([(1,)]).toDF(), "ExistingRDD"),
        (spark.range(3).cache(), "InMemoryTableScan"),
    ):
        assert not replayable(shaky)
        assert why in plan_of(shaky).obstacle


def test_what_cannot_be_replayed_is_read_whole(spark: SparkSession, files: Path) -> None:
    frame = spark.read.parquet(str(files)).repartition(3).withColumn("r", F.rand())
    p = pipeline(frame, rows=100)
    run = p.run(engine="inline")
    found = run.result("store").to_pylist()
    assert sorted(row["id"] for row in found) == list(range(1000))
    (action,) = run.log.table("read_action").to_pylist()
    assert action["conn_id"] == "all"
    assert "whole: it is not deterministic" in action["action_desc"]
    ordered = spark.read.parquet(str(files)).orderBy(F.desc("id"))
    assert [row["id"] for row in stored(pipeline(ordered))] == list(range(999, -1, -1))


def test_a_plan_is_known_again(spark: SparkSession, files: Path) -> None:
    def digest(condition: str) -> str:
        return plan_of(spark.read.parquet(str(files)).where(condition)).digest

    assert digest("id > 5") == digest("id > 5")
    assert digest("id > 5") != digest("id > 6")
    wide = [f"id + {k} as c{k}" for k in range(60)]
    assert plan_of(spark.range(5).selectExpr(*wide)) == plan_of(spark.range(5).selectExpr(*wide))
    assert plan_of(spark.range(5).selectExpr(*wide)) != plan_of(
        spark.range(5).selectExpr(*wide[:-1], "id + 7 as c59")
    )
    one, two = (spark.createDataFrame(pa.table({"id": [1, n]})) for n in (2, 3))
    assert plan_of(one) == plan_of(spark.createDataFrame(pa.table({"id": [1, 2]})))
    assert plan_of(one) != plan_of(two)


def test_other_files_are_other_partitions(spark: SparkSession, tmp_path: Path) -> None:
    """So that a resume does not go on in the midst of something else (R14)."""
    path = tmp_path / "data"
    spark.range(0, 100, 1, 2).write.parquet(str(path))

    def names() -> set[str]:
        return set(ll.sources.spark(spark.read.parquet(str(path))).partitions())

    before = names()
    assert before == names()
    file = next(path.glob("*.parquet"))
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 10**9))
    assert not before & names()
    spark.range(100, 150, 1, 1).write.mode("append").parquet(str(path))
    assert not before & names()


def test_nothing_to_read(spark: SparkSession) -> None:
    for empty in (
        spark.createDataFrame([], "id long"),
        spark.createDataFrame(pa.table({"id": pa.array([], pa.int64())})),
        spark.range(5).where("false"),
        spark.range(0),
    ):
        run = pipeline(empty).run(engine="inline")
        assert run.status().phase == "finished"
        assert run.result("store").num_rows == 0


def test_types_nulls_and_zones(spark: SparkSession) -> None:
    ddl = (
        "flag boolean, b byte, s short, i int NOT NULL, l long, f float, d double, price decimal(10,2), name string, "
        "raw binary, day date, at timestamp, wall timestamp_ntz, tags array<string>, sizes map<string,int>, "
        "place struct<x: double, names: array<string>>, `odd name` string"
    )
    at = dt.datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
    wall = dt.datetime(2026, 3, 29, 2, 30)
    row = (True, 1, 2, 3, 4, 0.5, 1.5, Decimal("1.25"), "é", b"ab", at.date(), at, wall, ["x", None], {"a": 1},
           {"x": 1.5, "names": []}, "?")  # fmt: skip
    nothing = tuple(None if k != 3 else 0 for k in range(17))
    frame = spark.createDataFrame([row, nothing], ddl)
    source = ll.sources.spark(frame)
    assert source.schema == ll.Pipeline("x").source("y", ll.sources.batches([], schema=ddl)).schema
    first, second = stored(pipeline(frame))
    assert first == {**dict(zip(frame.columns, row, strict=True)), "raw": bytearray(b"ab"), "sizes": [("a", 1)]}
    assert tuple(second.values()) == nothing


def test_a_huge_row(spark: SparkSession) -> None:
    frame = spark.range(3).selectExpr("id", "repeat('x', 5000000) text")
    assert [len(row["text"]) for row in stored(pipeline(frame))] == [5_000_000] * 3


def test_a_look_computes_no_more_than_it_shows(spark: SparkSession) -> None:
    failing = spark.range(0, 10**9, 1, 2).selectExpr("if(id >= 600000000, raise_error('too far'), id) id")
    rows = ll.Pipeline("look").source("rows", ll.sources.spark(failing.selectExpr("cast(id as long) id")))
    assert rows.preview(5)["id"].to_pylist() == [0, 1, 2, 3, 4]


def test_the_frame_stays_in_the_driver(spark: SparkSession) -> None:
    source = ll.sources.spark(spark.range(3))
    assert cloudpickle.loads(cloudpickle.dumps(source)).frame is source.frame
    data = cloudpickle.dumps(source)
    del source
    elsewhere = cloudpickle.loads(data)
    assert elsewhere.schema == pa.schema([pa.field("id", pa.int64(), nullable=False)])
    with pytest.raises(ShippingError, match="the DataFrame lives in the driver's process"):
        elsewhere.partitions()


def test_what_is_no_frame_is_refused(spark: SparkSession) -> None:
    with pytest.raises(DefinitionError, match=r"spark\(\) takes a DataFrame of Spark in this process, not a list"):
        ll.sources.spark([1, 2])  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match=r"the DataFrame has columns that Logline can't take.*interval"):
        ll.sources.spark(spark.sql("select interval 1 day i"))
    with pytest.raises(SchemaError, match="'id' twice"):
        ll.sources.spark(spark.range(1).selectExpr("id", "id"))
