"""A group needs a slot: operators share few of them, pinned groups are refused, a full session is waited for."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.spark.conftest import SLOTS
from tests.waiting import PATIENCE, until

import logline as ll
from logline.runtime.control import supervisor
from logline.spark.refusals import one_host
from logline.spark.slots import busy


def chain(operators: int, *, pinned: bool = False) -> ll.Pipeline:
    """A source, so many operators, and a sink."""
    p = ll.Pipeline("chain")
    stream = p.source("numbers", ll.sources.batches([pa.record_batch({"n": [1, 2]})]))
    for k in range(operators):
        options: Any = {"group": f"g{k}"} if pinned else {}
        stream = stream.map_batches(f"op{k}", lambda batch: batch, **options)
    stream.sink("store", ll.sinks.collect())
    return p


def test_operators_share_processes_when_there_are_few(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    p = chain(8)
    assert len(p.check().groups) == SLOTS
    assert f"there are {SLOTS}, operators share processes" in str(p.check())
    run = p.run(f"lmdb:{tmp_path / 'log'}", spark=spark)
    assert run.result("store")["n"].to_pylist() == [1, 2]


def test_too_few_for_pinned_groups(spark: SparkSession, tmp_path: Path) -> None:
    wanted = r"room for 9 processes at once.* Spark has 6 slots .*ll.session\(master='local\[9,100\]'\)"
    with pytest.raises(ll.errors.OptionError, match=wanted):
        chain(8, pinned=True).start(f"lmdb:{tmp_path / 'log'}", spark=spark)
    chain(2).run(f"lmdb:{tmp_path / 'log'}", spark=spark)  # the log was not touched and its lease is free


def test_slots_that_another_job_holds_are_waited_for(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "PATIENCE", 0.5)
    free = tmp_path / "free"

    def hold(batches):  # type: ignore[no-untyped-def]
        import time

        while not free.exists():
            time.sleep(0.05)
        yield from batches

    other = threading.Thread(target=spark.range(0, SLOTS, 1, SLOTS).mapInArrow(hold, "id long").collect, daemon=True)
    other.start()
    try:
        until(lambda: busy(spark) >= SLOTS)  # more, if Spark still counts one of a job that was cancelled
        with chain(1).start(f"lmdb:{tmp_path / 'log'}", spark=spark) as run:
            until(lambda: "it begins when another job lets go of one" in caplog.text)
            assert re.search(rf"Spark has {SLOTS} slots and runs \d+ tasks", caplog.text)
            free.touch()
            assert run.wait(PATIENCE).phase == "finished"
            assert run.status().operators["op0"].restarts == 0
    finally:
        free.touch()  # else the tests after this one wait for a slot
        other.join(PATIENCE)


def test_a_log_in_memory_and_masters_that_span_hosts_are_refused(spark: SparkSession) -> None:
    with pytest.raises(ll.errors.OptionError, match="'memory:x' is a log in this process"):
        chain(1).start("memory:x", spark=spark)
    assert all(one_host(m) for m in ("local", "local[4]", "local[4,100]", "local-cluster[2,2,1024]"))
    assert not any(one_host(m) for m in ("spark://host:7077", "yarn", "k8s://https://host", None))
