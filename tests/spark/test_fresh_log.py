"""A log that is finished, gone or another one, and a Python without Logline on the path: what a notebook meets."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
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
