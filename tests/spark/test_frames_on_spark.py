"""A DataFrame read in Spark's tasks, one after the other; workers and the driver are killed while they read.

The result is that of plain Spark, each time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.chaos.test_kill_workers import alive
from tests.jvms import cache_in
from tests.waiting import PATIENCE, until

import logline as ll

ROWS, PARTITIONS = 4000, 4


@pytest.fixture
def log(tmp_path: Path) -> str:
    return f"lmdb:{tmp_path / 'log'}"


def rows_of(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, PARTITIONS).selectExpr("id", "id % 5 part")


def slowly(path: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    """As long as there is that file, a run takes far longer than it takes to stop it."""
    if Path(path).exists():
        time.sleep(0.01)
    return batch


def pipeline(frame: DataFrame, rows: int = 100, slow: Path | None = None) -> ll.Pipeline:
    p = ll.Pipeline("frames")
    read = p.source("rows", ll.sources.spark(frame), rows=rows)
    read.window("sums", ll.events(4), by=["part"], agg={"total": ("id", "sum")}).sink("store", ll.sinks.collect())
    plain = read if slow is None else read.map_batches("slow", partial(slowly, str(slow)))
    plain.sink("plain", ll.sinks.collect())
    return p


def check(run: ll.Run, frame: DataFrame) -> None:
    """As plain Spark has it: every row once, and in its order."""
    assert run.result("plain").to_pylist() == frame.toArrow().to_pylist()
    totals = frame.groupBy("part").agg(F.sum("id").alias("total")).toArrow().sort_by("part").to_pylist()
    found = run.result("store").group_by("part").aggregate([("total", "sum")]).sort_by("part")
    assert found.rename_columns({"total_sum": "total"}).to_pylist() == totals


def test_every_partition_is_a_task_of_its_own(spark: SparkSession, log: str) -> None:
    frame = rows_of(spark)
    with pipeline(frame).start(log, spark=spark, durability="process") as run:
        status = run.wait(PATIENCE)
    check(run, frame)
    assert status.operators["rows"].restarts == 0
    assert status.operators["rows"].out == ROWS // 100
    actions = run.log.table("read_action").to_pylist()
    assert [a["status"] for a in actions] == ["complete"] * PARTITIONS
    assert ll.open_log(log).store.read("rows").incarnation() >= PARTITIONS  # type: ignore[arg-type]


def test_workers_are_killed_while_they_read(spark: SparkSession, log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the first partition twice, once more in a later life, and right after the last commit of a partition."""
    points = ("commit.inside:2:0", "claim.inside:1:1", "commit.before:1:2", "commit.after:2:4", "commit.after:1:5")
    monkeypatch.setenv("LOGLINE_FAULT", ",".join(f"rows:{point}" for point in points))
    frame = rows_of(spark)
    with pipeline(frame, rows=10).start(log, spark=spark, durability="process") as run:
        status = run.wait(PATIENCE)
    check(run, frame)
    assert status.operators["rows"].restarts >= 3
    assert status.operators["sums"].restarts == 0


def test_what_shuffles_is_staged_whole(spark: SparkSession, log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGLINE_FAULT", "rows:commit.inside:2:0,rows:commit.inside:3:1")
    frame = rows_of(spark).repartition(3).withColumn("chance", F.rand())
    p = ll.Pipeline("staged")
    p.source("rows", ll.sources.spark(frame), rows=10).sink("plain", ll.sinks.collect())
    with p.start(log, spark=spark, durability="process") as run:
        status = run.wait(PATIENCE)
    assert sorted(run.result("plain")["id"].to_pylist()) == list(range(ROWS))
    assert status.operators["rows"].restarts == 2


def test_more_partitions_than_slots_and_none(spark: SparkSession, tmp_path: Path) -> None:
    for number, frame in enumerate((spark.range(0, 30, 1, 15), spark.createDataFrame([], "id long"), spark.range(0))):
        p = ll.Pipeline("small")
        p.source("rows", ll.sources.spark(frame)).sink("plain", ll.sinks.collect())
        run = p.run(f"lmdb:{tmp_path}/{number}", spark=spark, durability="process")
        assert run.result("plain").to_pylist() == frame.toArrow().to_pylist()


def test_a_run_is_stopped_midway_and_goes_on(spark: SparkSession, log: str, tmp_path: Path) -> None:
    frame, slow = rows_of(spark), tmp_path / "slow"
    slow.touch()
    with pipeline(frame, 1, slow).start(log, spark=spark, durability="process") as run:
        until(lambda: run.status().operators["plain"].taken > 10)
        run.stop()
    assert run.result("plain").num_rows < ROWS
    slow.unlink()
    again = pipeline(rows_of(spark), 1, slow).run(log, spark=spark, durability="process")
    check(again, frame)


def test_what_spark_cannot_compute_is_said(spark: SparkSession, log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = spark.range(0, 30, 1, 1).selectExpr("cast(if(id = 25, raise_error('no such row'), id) as long) id")
    p = ll.Pipeline("failing")
    p.source("rows", ll.sources.spark(frame), rows=10).sink("plain", ll.sinks.collect())
    monkeypatch.setattr("logline.runtime.control.supervisor.Supervisor.crashes", 2)
    with pytest.raises(ll.PipelineFailed, match="no such row"):
        p.run(log, spark=spark, durability="process")


def test_the_source_has_its_process_for_itself(spark: SparkSession) -> None:
    p = ll.Pipeline("shared")
    rows = p.source("rows", ll.sources.spark(spark.range(3)), group="all")
    rows.sink("plain", ll.sinks.collect(), group="all")
    with pytest.raises(ll.errors.OptionError, match="group 'all': each partition of the source among rows, plain"):
        p.run(spark=spark)


DRIVER = """
import sys
import time
from pathlib import Path
import logline as ll
from pyspark.sql import functions as F

def slow(df):
    first = df.first()  # none where only the schema is asked for
    while first is not None and first["id"] >= 200 and not Path(sys.argv[2]).exists():
        time.sleep(0.01)  # the third set, and those after it
    return df.groupBy("part").agg(F.sum("id").alias("total")).coalesce(1).sortWithinPartitions("part")

if __name__ == "__main__":
    log = sys.argv[1]
    settings = {"spark.ui.enabled": False, "spark.sql.shuffle.partitions": 1}
    spark = ll.session("frames", master="local[5,100]", **settings)
    p = ll.Pipeline("frames")
    read = p.source("rows", ll.sources.spark(spark.range(0, 600, 1, 3).selectExpr("id", "id % 5 part")), rows=20)
    # One at a time, those that are due together would be logged together, and two would wait for the third.
    read.sql("sums", slow, ll.events(5), concurrency=2).sink("store", ll.sinks.collect())
    run = p.run(log, spark=spark, durability="process")
    print("RESULT", run.result("store").group_by("part").aggregate([("total", "sum")]).sort_by("part").to_pylist())
"""


def test_the_driver_is_killed_and_its_log_resumed(tmp_path: Path) -> None:
    """While the source reads and Spark SQL runs in the driver; nothing of either is left or made twice."""
    script = tmp_path / "job.py"
    script.write_text(DRIVER)
    log = f"lmdb:{tmp_path / 'log'}"
    environment = {**os.environ, "XDG_CACHE_HOME": cache_in(tmp_path / "cache")}
    go = tmp_path / "go"
    command = [sys.executable, str(script), log, str(go)]
    driver = subprocess.Popen(command, env=environment, start_new_session=True)
    pids: set[int] = set()

    def midway() -> bool:
        assert driver.poll() is None
        if not (tmp_path / "log" / "graph.json").exists():
            return False
        store = ll.open_log(log).store
        pids.update(int(s["pid"]) for s in map(json.loads, store.statuses().values()) if "pid" in s)
        return store.read("sums").head("out").last >= 2  # type: ignore[arg-type]

    try:
        until(midway)
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    until(lambda: not any(alive(pid) for pid in pids))
    go.touch()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    wanted: list[dict[str, Any]] = [{"part": k, "total_sum": sum(range(k, 600, 5))} for k in range(5)]
    assert f"RESULT {wanted}" in done.stdout
    assert ll.open_log(log).store.read("sums").head("out").last == 7  # type: ignore[arg-type]  # and the end
