"""Runs until now on Spark: files and a DataFrame, a worker killed in each run, and every row is there once."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from tests.spark.test_frames_on_spark import slowly
from tests.waiting import PATIENCE, until

import logline as ll

ROWS = 2000


def test_two_runs_until_now_with_a_kill_in_each(spark: SparkSession, tmp_path: Path) -> None:
    folder, slow = tmp_path / "days", tmp_path / "slow"
    folder.mkdir()

    def slower(batch: pa.RecordBatch) -> pa.RecordBatch:
        return slowly(str(slow), batch)

    def pipeline() -> ll.Pipeline:
        p = ll.Pipeline("days")
        rows = p.source("rows", ll.sources.parquet(folder, schema="n long"), rows=10)
        rows.map_batches("slower", slower).sink("store", ll.sinks.collect())
        frame = p.source("frame", ll.sources.spark(spark.range(0, 100, 1, 2)), rows=10)
        frame.sink("framed", ll.sinks.collect())
        return p

    expected: list[int] = []
    for day in range(2):
        expected += range(day * ROWS, (day + 1) * ROWS)
        pq.write_table(pa.table({"n": expected[day * ROWS :]}), folder / f"{day}.parquet")
        slow.touch()
        with pipeline().start(f"lmdb:{tmp_path / 'log'}", spark=spark, durability="process", until="now") as run:
            until(lambda run=run, day=day: run.status().operators["slower"].out > day * ROWS // 10)  # type: ignore[misc]
            pid: Any = run.pid("slower")
            os.kill(pid, signal.SIGKILL)
            slow.unlink()
            assert run.wait(PATIENCE).phase == "caught up"
            assert run.status().operators["slower"].restarts == 1
            assert run.result("store")["n"].to_pylist() == expected
            assert sorted(run.result("framed")["id"].to_pylist()) == list(range(100))  # read once, not in each run
