"""A log that is finished, gone or another one, and a Python without Logline on the path: what a notebook meets."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.cli.harness import logline, write_sales
from tests.paced import Paced, allow
from tests.waiting import PATIENCE, until

import logline as ll


def numbers(count: int) -> ll.Pipeline:
    p = ll.Pipeline("numbers")
    rows = p.source("numbers", ll.sources.batches([pa.table({"n": [n]}) for n in range(count)]), rows=1)
    rows.map_batches("op", lambda b: b).sink("store", ll.sinks.collect())
    p.lineage()
    return p


def test_begin_anew_under_the_same_name(spark: SparkSession, tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path / 'log'}"
    first = numbers(3).run(url, spark=spark)
    assert first.result("store").num_rows == 3
    shutil.rmtree(tmp_path / "log")
    second = numbers(5).run(url, spark=spark)
    assert (second.status().phase, second.result("store").num_rows) == ("finished", 5)
    with pytest.raises(ll.errors.LogError, match="is another one by now"):
        first.log.read("op:1")


def test_a_run_whose_log_is_replaced_ends_and_frees_its_slots(spark: SparkSession, tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path / 'log'}"
    allow(tmp_path, 2)
    p = ll.Pipeline("paced")
    p.source("numbers", Paced(tmp_path / "allowed"), rows=1).sink("store", ll.sinks.collect())
    old = p.start(url, spark=spark)
    until(lambda: old.status().operators["store"].taken == 2)
    (tmp_path / "log").rename(tmp_path / "away")
    second = numbers(5).run(url, spark=spark)
    assert second.result("store").num_rows == 5
    with pytest.raises(ll.PipelineFailed, match="start the pipeline again") as failed:
        old.wait(PATIENCE)
    assert len(str(failed.value).splitlines()) == 1


def test_a_frame_of_a_session_whose_python_is_another_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of an activated environment PySpark takes `python3`, which does not have Logline."""
    log = numbers(4).run(f"lmdb:{tmp_path / 'log'}", engine="inline").log
    without = tmp_path / "python3"
    without.write_text("#!/bin/sh\nexit 1\n")
    without.chmod(0o755)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(without))
    assert log.frame(spark, "op").count() == 4
    assert spark.sparkContext.pythonExec == str(without)  # the user's own jobs have the Python that they had


def test_a_finished_log_answers_without_spark(tmp_path: Path) -> None:
    """There is no Java to start one with."""
    sales = write_sales(tmp_path)
    assert logline("run", sales, "--log", tmp_path / "log", "--engine", "inline").returncode == 0
    java, path = "/nowhere", "/nowhere"
    for more in ((), ("--master", "local[2]")):
        again = logline(
            "run", sales, "--log", tmp_path / "log", "--engine", "spark", *more, JAVA_HOME=java, PATH=path
        )
        assert again.returncode == 0, again.stderr
        assert "sales finished" in again.stdout
    new = logline("run", sales, "--log", tmp_path / "other", "--engine", "spark", JAVA_HOME=java, PATH=path)
    assert new.returncode == 1 and "Spark needs Java 17 or newer" in new.stderr
