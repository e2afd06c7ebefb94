"""A group needs a slot: operators share few of them, pinned groups are refused, a full session is waited for."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.paced import Paced, allow
from tests.spark.conftest import SLOTS
from tests.waiting import PATIENCE, until

import logline as ll
from logline.runtime.control import supervisor
from logline.spark.host import SparkHost
from logline.spark.refusals import one_host
from logline.spark.session import SPARE
from logline.spark.slots import use
from logline.store.address import open_store


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
    assert len(p.check().groups) == SLOTS - 1
    assert f"there are {SLOTS}, 1 kept free for other jobs, operators share processes" in str(p.check())
    run = p.run(f"lmdb:{tmp_path / 'log'}", spark=spark)
    assert run.result("store")["n"].to_pylist() == [1, 2]


def kept_waiting(folder: Path) -> ll.Pipeline:
    """As many operators as there are slots; the source waits for a file."""
    allow(folder, 0)
    p = ll.Pipeline("waiting")
    stream = p.source("numbers", Paced(folder / "allowed"), rows=1)
    for k in range(SLOTS):
        stream = stream.map_batches(f"op{k}", lambda batch: batch)
    stream.sink("store", ll.sinks.collect())
    return p


def test_a_job_beside_a_pipeline_has_a_slot(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    p = kept_waiting(tmp_path)
    with p.start(f"lmdb:{tmp_path / 'log'}", spark=spark, durability="process") as run:
        until(lambda: all(run.pid(name) for name in run.status().operators))
        until(lambda: sum(use(spark, ["logline-"])) == SLOTS - 1)
        assert spark.range(10).count() == 10
        assert run.status().phase == "running"
    assert "takes all" not in caplog.text


@pytest.fixture
def spare(spark: SparkSession) -> Iterator[Callable[[int], object]]:
    yield lambda slots: ll.session(spare=slots)
    spark.conf.unset(SPARE)


def test_as_many_slots_are_spared_as_one_says(
    spark: SparkSession, spare: Callable[[int], object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spare(3)
    assert len(chain(8).check().groups) == SLOTS - 3
    wanted = r"6 slots .*, 3 of them kept free for other jobs: take at least 7, .*local\[7,100\]"
    with pytest.raises(ll.errors.OptionError, match=wanted):
        chain(3, pinned=True).start(f"lmdb:{tmp_path / 'log'}", spark=spark)
    spare(0)
    assert len(chain(8).check().groups) == SLOTS
    chain(8).run(f"lmdb:{tmp_path / 'log'}", spark=spark)
    assert f"pipeline 'chain' takes all {SLOTS} slots of the session" in caplog.text
    spark.conf.set(SPARE, "some")
    with pytest.raises(ll.errors.OptionError, match=r"spark.logline.spare='some': expected a number of slots"):
        chain(8).check()


def test_what_is_no_number_of_slots_is_refused() -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"spare": -1}, "spare=-1: expected a number of slots, 0 or more"),
        ({"slots": 0}, "slots=0: expected a number of slots, 1 or more"),
        ({"slots": True}, "slots=True: expected"),
        ({"slots": 4, "master": "local[2]"}, "leave slots= out, or master="),
    ]
    for given, said in refused:
        with pytest.raises(ll.errors.OptionError, match=said):
            ll.session(**given)


def test_a_wait_for_slots_tells_own_tasks_from_others(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One slot is left when the pipeline starts: some of its groups have it, and the others do not wait for those."""
    monkeypatch.setattr(supervisor, "PATIENCE", 0.5)
    with holding(spark, tmp_path / "free", SLOTS - 1) as free:
        p = kept_waiting(tmp_path)
        with p.start(f"lmdb:{tmp_path / 'log'}", spark=spark, durability="process") as run:
            said = f"this pipeline has 1 of them, other jobs have {SLOTS - 1}. It begins when one of those lets go"
            until(lambda: said in caplog.text)
            free.touch()
            allow(tmp_path, 3)
            until(lambda: run.status().operators["store"].taken == 3)


def test_too_few_for_pinned_groups(spark: SparkSession, tmp_path: Path) -> None:
    wanted = r"room for 9 processes at once.* Spark has 6 slots .*ll.session\(master='local\[9,100\]'\)"
    with pytest.raises(ll.errors.OptionError, match=wanted):
        chain(8, pinned=True).start(f"lmdb:{tmp_path / 'log'}", spark=spark)
    chain(2).run(f"lmdb:{tmp_path / 'log'}", spark=spark)  # the log was not touched and its lease is free


def test_slots_that_another_job_holds_are_waited_for(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "PATIENCE", 0.5)
    with (
        holding(spark, tmp_path / "free", SLOTS) as free,
        chain(1).start(f"lmdb:{tmp_path / 'log'}", spark=spark) as run,
    ):
        until(lambda: "It begins when one of those lets go" in caplog.text)
        assert f"Spark has {SLOTS} slots; this pipeline has 0 of them" in caplog.text
        free.touch()
        assert run.wait(PATIENCE).phase == "finished"
        assert run.status().operators["op0"].restarts == 0


def test_what_logline_runs_beside_a_pipeline_is_no_other_job(spark: SparkSession, tmp_path: Path) -> None:
    """The warm-up of a session, and the jobs of an operator that runs SQL."""
    free, context = tmp_path / "free", spark.sparkContext
    host = SparkHost(spark, open_store(f"lmdb:{tmp_path / 'log'}"), "", "r1")
    try:
        for group in ("logline-warm-up", "logline-sql", "logline-r1-op0-0", "logline-r2-op0-0", None):
            with holding(spark, free, 1, group):
                found = use(spark, host.own_jobs)
            free.unlink()
            ours = group is not None and "r2" not in group
            assert (group, found) == (group, (1, 0) if ours else (0, 1))
    finally:
        host.close()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


@contextlib.contextmanager
def holding(spark: SparkSession, free: Path, slots: int, group: str | None = None) -> Iterator[Path]:
    """A job that holds so many slots until there is a file."""

    def hold(batches):  # type: ignore[no-untyped-def]
        import time

        while not free.exists():
            time.sleep(0.05)
        yield from batches

    def work() -> None:
        if group is not None:
            spark.sparkContext.setJobGroup(group, group)
        spark.range(0, slots, 1, slots).mapInArrow(hold, "id long").collect()

    other = threading.Thread(target=work, daemon=True)
    other.start()
    try:
        until(lambda: sum(use(spark, ["logline-"])) >= slots)
        yield free
    finally:
        free.touch()  # else the tests after this one wait for a slot
        other.join(PATIENCE)


def test_a_log_in_memory_and_masters_that_span_hosts_are_refused(spark: SparkSession) -> None:
    with pytest.raises(ll.errors.OptionError, match="'memory:x' is a log in this process"):
        chain(1).start("memory:x", spark=spark)
    assert all(one_host(m) for m in ("local", "local[4]", "local[4,100]", "local-cluster[2,2,1024]"))
    assert not any(one_host(m) for m in ("spark://host:7077", "yarn", "k8s://https://host", None))
