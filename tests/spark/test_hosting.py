"""Pipelines on Spark: operators are killed, stopped and fail inside their tasks; the result is that of a run without
failure. Armed points strike at the same instruction every time; kills from outside at any."""

from __future__ import annotations

import gc
import os
import re
import signal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.chaos.sales_job import pipeline
from tests.chaos.test_kill_process import expected
from tests.chaos.test_kill_workers import alive, totals
from tests.chaos.test_poison import EVENTS as SERVED
from tests.chaos.test_poison import POISON, deaths, plain
from tests.chaos.test_poison import pipeline as poisoned
from tests.paced import EVENTS, Paced, allow, check, paced, parent
from tests.waiting import PATIENCE, until

import logline as ll
from logline.runtime.control.supervisor import Supervisor
from logline.spark.task import REPORTS, commands_box
from logline.store.lmdb.folder import LmdbStore

OPERATORS = ["orders", "checked", "hourly", "store"]


@pytest.fixture
def log(tmp_path: Path) -> str:
    return f"lmdb:{tmp_path / 'log'}"


def sales(spark: SparkSession, folder: Path, log: str) -> ll.Status:
    with pipeline(str(folder / "sales.db")).start(log, spark=spark, durability="process") as run:
        status = run.wait(PATIENCE)
    assert status.phase == "finished"
    assert totals(folder / "sales.db") == expected()
    return status


def test_every_operator_is_killed(
    spark: SparkSession, tmp_path: Path, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGLINE_FAULT", ",".join(f"{name}:commit.inside:2" for name in OPERATORS))
    status = sales(spark, tmp_path, log)
    assert {name: status.operators[name].restarts for name in OPERATORS} == dict.fromkeys(OPERATORS, 1)
    left = [p.name for p in (tmp_path / "log" / "bells").iterdir()] + list((tmp_path / "log" / "mail").iterdir())
    assert left == []


def test_kills_while_it_recovers(
    spark: SparkSession, tmp_path: Path, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second life dies in its claim, the third before it rebuilds."""
    lives = ("commit.inside:2:0", "claim.inside:1:1", "rebuild.before:1:2")
    monkeypatch.setenv("LOGLINE_FAULT", ",".join(f"hourly:{life}" for life in lives))
    assert sales(spark, tmp_path, log).operators["hourly"].restarts == len(lives)


def test_the_others_go_on_meanwhile(spark: SparkSession, tmp_path: Path, log: str) -> None:
    with paced(tmp_path).start(log, spark=spark, durability="process") as run:
        allow(tmp_path, 10)
        until(lambda: run.status().operators["sums"].taken >= 10)
        down = run.pid("sums")
        assert down is not None
        os.kill(down, signal.SIGSTOP)  # as good as dead, and it stays so
        allow(tmp_path, 40)
        until(lambda: run.status().operators["plain"].taken >= 40)
        until(lambda: run.status().operators["twice"].out >= 40)
        os.kill(down, signal.SIGKILL)
        until(lambda: run.pid("sums") not in (None, down))
        allow(tmp_path, EVENTS)
        status = run.wait(PATIENCE)
        assert {n: o.restarts for n, o in status.operators.items() if o.restarts} == {"sums": 1}
        check(run)


def test_a_respawner_is_killed(spark: SparkSession, tmp_path: Path, log: str) -> None:
    """The task's own process, which forks the lives: the life goes with it, and Spark brings both back."""
    with paced(tmp_path).start(log, spark=spark, durability="process") as run:
        allow(tmp_path, 10)
        until(lambda: run.status().operators["sums"].taken >= 10)
        first = run.pid("sums")
        assert first is not None
        os.kill(first, signal.SIGKILL)
        until(lambda: run.status().operators["sums"].restarts == 1)
        second = until(lambda: run.pid("sums") not in (None, first) and run.pid("sums"))
        assert second
        respawner = parent(second)
        assert respawner != parent(run.pid("twice"))
        os.kill(respawner, signal.SIGKILL)
        until(lambda: not alive(second))
        third = until(lambda: run.pid("sums") not in (None, second) and run.pid("sums"))
        assert parent(third) != respawner
        allow(tmp_path, EVENTS)
        status = run.wait(PATIENCE)
        assert {n: o.restarts for n, o in status.operators.items() if o.restarts} == {"sums": 2}
        check(run)


CONNECTED = """
import socket
here, there = socket.socketpair()  # as a client that is made when its module is imported
"""


def test_a_connection_that_a_module_makes_is_not_shared_by_lives(
    spark: SparkSession, tmp_path: Path, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a process forks no lives: each is a task's own process, which imports the module anew."""
    (tmp_path / "connected_module.py").write_text(CONNECTED)
    monkeypatch.syspath_prepend(str(tmp_path))
    import connected_module  # type: ignore[import-not-found]

    seen = tmp_path / "seen"

    def noting(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows:  # not when the driver asks for its schema
            with seen.open("a") as file:
                file.write(os.readlink(f"/proc/self/fd/{connected_module.here.fileno()}") + "\n")
        return batch

    allow(tmp_path, 0)
    p = ll.Pipeline("connected")
    numbers = p.source("numbers", Paced(tmp_path / "allowed"), rows=1)
    numbers.map_batches("note", noting).sink("store", ll.sinks.collect())
    with p.start(log, spark=spark, durability="process") as run:
        allow(tmp_path, 10)
        until(lambda: run.status().operators["note"].taken >= 10)
        before = run.pid("note")
        assert before is not None
        os.kill(before, signal.SIGKILL)
        until(lambda: run.pid("note") not in (None, before))
        allow(tmp_path, EVENTS)
        run.wait(PATIENCE)
        assert run.result("store")["n"].to_pylist() == list(range(1, EVENTS + 1))
    assert len(set(seen.read_text().split())) == 2
    for end in (connected_module.here, connected_module.there):
        end.close()


def test_a_zombie_is_replaced(spark: SparkSession, tmp_path: Path, log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes no report, is killed, and another one goes on (R10)."""
    monkeypatch.setattr(Supervisor, "silence", 4.0)
    with paced(tmp_path).start(log, spark=spark, durability="process") as run:
        allow(tmp_path, 10)
        until(lambda: run.status().operators["sums"].taken >= 10)
        zombie = run.pid("sums")
        assert zombie is not None
        os.kill(zombie, signal.SIGSTOP)
        allow(tmp_path, EVENTS)
        assert run.wait(PATIENCE).phase == "finished"
        assert not alive(zombie)
        check(run)


def test_a_driver_that_may_not_signal(
    spark: SparkSession, tmp_path: Path, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if its tasks were on another machine: a life that stands still is killed, and a restart works."""

    def refused(pid: int, number: int) -> None:
        raise PermissionError(f"the driver sends signal {number} to {pid}")

    kill = os.kill
    monkeypatch.setattr(Supervisor, "silence", 4.0)
    with paced(tmp_path).start(log, spark=spark, durability="process") as run:
        allow(tmp_path, 10)
        until(lambda: run.status().operators["sums"].taken >= 10)
        zombie, well = run.pid("sums"), run.pid("twice")
        assert zombie is not None
        kill(zombie, signal.SIGSTOP)
        monkeypatch.setattr(os, "kill", refused)
        until(lambda: run.pid("sums") not in (None, zombie))
        run.restart("twice")
        until(lambda: run.pid("twice") not in (None, well))
        allow(tmp_path, EVENTS)
        assert run.wait(PATIENCE).phase == "finished"
        assert not alive(zombie)
        check(run)


def test_a_watchdog_is_killed(spark: SparkSession, tmp_path: Path, log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nobody kills a life that hangs, and the driver has Spark end the task."""
    monkeypatch.setattr(Supervisor, "silence", 4.0)
    with paced(tmp_path).start(log, spark=spark, durability="process") as run:
        allow(tmp_path, 10)
        until(lambda: run.status().operators["sums"].taken >= 10)
        zombie = run.pid("sums")
        assert zombie is not None
        (watchdog,) = set(children(parent(zombie))) - {zombie}
        os.kill(watchdog, signal.SIGKILL)
        os.kill(zombie, signal.SIGSTOP)
        allow(tmp_path, EVENTS)
        assert run.wait(PATIENCE).phase == "finished"
        check(run)
    until(lambda: not alive(zombie))


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_stages_have_the_names_of_operators(spark: SparkSession, tmp_path: Path, log: str) -> None:
    """In Spark's UI; after a death of the task's job it says how many there were."""
    tracker = spark.sparkContext.statusTracker()

    def jobs() -> dict[str, int]:
        found = ((job, tracker.getJobInfo(job)) for job in tracker.getActiveJobsIds())
        stages = ((job, tracker.getStageInfo(info.stageIds[0])) for job, info in found if info is not None)
        return {stage.name: job for job, stage in stages if stage is not None}

    with paced(tmp_path).start(log, spark=spark, durability="process") as run:
        until(lambda: set(jobs()) >= {f"logline: {name}" for name in run.status().operators})
        spark.sparkContext._jsc.sc().cancelJob(jobs()["logline: sums"])
        until(lambda: "logline: sums (restart 1)" in jobs())
        allow(tmp_path, EVENTS)
        assert run.wait(PATIENCE).phase == "finished"
        check(run)


def test_a_restart_is_shown_in_the_ui(spark: SparkSession, tmp_path: Path, log: str) -> None:
    """As a job of its own, among those that are completed."""
    jobs = spark.sparkContext._jsc.sc().statusStore()

    def shown() -> list[str]:
        found = jobs.jobsList(None)
        told = (found.apply(i).description() for i in range(found.size()))
        return [str(text.get()) for text in told if text.isDefined()]

    with paced(tmp_path).start(log, spark=spark, durability="process") as run:
        allow(tmp_path, 10)
        until(lambda: run.status().operators["sums"].taken >= 10)
        pid = run.pid("sums")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        until(lambda: [t for t in shown() if re.fullmatch(r"logline: sums .*: restart 1, lag \d+ events", t)])
        allow(tmp_path, EVENTS)
        assert run.wait(PATIENCE).phase == "finished"
        check(run)


def test_an_exception_is_no_crash(spark: SparkSession, log: str) -> None:
    def fails(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows:
            raise ValueError("no such item")
        return batch

    p = ll.Pipeline("failing")
    p.source("numbers", ll.sources.batches([pa.record_batch({"n": [1, 2]})])).map_batches("check", fails).sink(
        "store", ll.sinks.collect()
    )
    with p.start(log, spark=spark) as run, pytest.raises(ll.PipelineFailed, match="no such item") as caught:
        run.wait(PATIENCE)
    assert caught.value.operator == "check"
    assert 'raise ValueError("no such item")' in caught.value.traceback
    assert run.status().operators["check"].restarts == 0


def test_a_dead_letter(spark: SparkSession, log: str) -> None:
    def picky(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows and batch["n"][0].as_py() == 2:
            raise ValueError("not that one")
        return batch

    p = ll.Pipeline("letters")
    numbers = p.source("numbers", ll.sources.batches([pa.record_batch({"n": [n]}) for n in (1, 2, 3)]), rows=1)
    numbers.map_batches("check", picky, on_error="divert").sink("store", ll.sinks.collect())
    run = p.run(log, spark=spark)
    assert run.result("store")["n"].to_pylist() == [1, 3]
    assert run.log.errors()["reason"].to_pylist() == ["ValueError: not that one"]
    assert run.status().operators["check"].errors == 1


def test_a_crash_loop_ends_with_the_name_of_the_operator(
    spark: SparkSession, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Supervisor, "crashes", 4)

    def deadly(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows:
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    p = ll.Pipeline("deadly")
    p.source("numbers", ll.sources.batches([pa.record_batch({"n": [1]})])).map_batches("check", deadly).sink(
        "store", ll.sinks.collect()
    )
    with (
        p.start(log, spark=spark) as run,
        pytest.raises(ll.PipelineFailed, match=r"process of check .* 4 times") as e,
    ):
        run.wait(PATIENCE)
    assert e.value.operator == "check"


def test_stop_resume_and_a_log_that_has_finished(
    spark: SparkSession, tmp_path: Path, log: str, caplog: pytest.LogCaptureFixture
) -> None:
    p = paced(tmp_path)
    with p.start(log, spark=spark, durability="process") as run:
        allow(tmp_path, 20)
        until(lambda: run.status().operators["plain"].taken >= 20)
        with pytest.raises(ll.errors.LogInUse, match="takeover=True"):
            p.start(log, spark=spark, durability="process")
        assert run.stop().phase == "stopped"
    with p.start(log, spark=spark, durability="process") as run:
        allow(tmp_path, 40)
        until(lambda: run.status().operators["plain"].taken >= 40)
        before = run.pid("sums")
        run.restart("sums")
        until(lambda: run.pid("sums") not in (None, before))
        assert run.stop(drain=True).phase == "stopped"
    allow(tmp_path, EVENTS)
    check(p.run(log, spark=spark, durability="process"))
    again = p.run(log, spark=spark, durability="process")
    assert again.status().phase == "finished"
    check(again)


def test_what_operators_log_and_count_reaches_the_driver(
    spark: SparkSession, log: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fn(row: dict[str, int], ctx: ll.Context[None]) -> dict[str, int]:
        ctx.log.warning("saw %d", row["n"])
        ctx.count("seen")
        return row

    p = ll.Pipeline("telling")
    numbers = p.source("numbers", ll.sources.batches([pa.record_batch({"n": [1, 2, 3]})]))
    numbers.map_rows("tell", fn, schema="n long").sink("store", ll.sinks.collect())
    run = p.run(log, spark=spark)
    assert run.status().operators["tell"].counters["seen"] == 3
    assert "saw 3" in caplog.text


def test_without_a_log_it_has_a_temporary_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    p = ll.Pipeline("short")
    p.source("numbers", ll.sources.batches([pa.record_batch({"n": [1]})])).sink("store", ll.sinks.collect())
    run = p.run(spark=spark)
    assert run.result("store")["n"].to_pylist() == [1]
    (folder,) = tmp_path.iterdir()
    assert f"keeps its log in {folder}" in caplog.text
    del run
    gc.collect()  # who supervises and who is supervised know each other
    assert list(tmp_path.iterdir()) == []


def test_an_event_that_kills_its_task_each_time_is_set_aside(spark: SparkSession, tmp_path: Path, log: str) -> None:
    run = poisoned(plain, tmp_path, on_error="divert", concurrency=4).start(log, spark=spark, durability="process")
    (tmp_path / "go").touch()
    with run:
        status = run.wait(PATIENCE)
        assert status.operators["eat"].errors == 1
        (error,) = run.log.errors().to_pylist()
        assert error["events"] == [f"events:{POISON + 1}"]
        assert "of operator 'eat' killed its process 3 times" in error["reason"]
        assert sorted(run.result("store")["n"].to_pylist()) == [n for n in range(SERVED) if n != POISON]
    assert 4 <= deaths(tmp_path) <= 5
    assert list((tmp_path / "log" / "notes").iterdir()) == []


def test_a_module_that_workers_cannot_find_is_named(
    spark: SparkSession, tmp_path: Path, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was there when the pipeline was made. Another life would not find it either: the run ends."""
    module = tmp_path / "fleeting_module.py"
    module.write_text("def same(batch):\n    return batch\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import fleeting_module  # type: ignore[import-not-found]

    p = ll.Pipeline("fleeting")
    numbers = p.source("numbers", ll.sources.batches([pa.record_batch({"n": [1]})]))
    numbers.map_batches("same", fleeting_module.same).sink("store", ll.sinks.collect())
    module.unlink()
    with (
        p.start(log, spark=spark) as run,
        pytest.raises(ll.PipelineFailed, match=r"can't host same: ModuleNotFoundError: .*fleeting_module"),
    ):
        run.wait(PATIENCE)


def test_a_task_that_is_sent_what_it_does_not_know_fails_the_run(
    spark: SparkSession, tmp_path: Path, log: str
) -> None:
    with paced(tmp_path).start(log, spark=spark, durability="process") as run:
        until(lambda: run.pid("store"))
        ll.open_log(log).store.mail(commands_box("store")).send(b'{"kind": "explode"}')
        with pytest.raises(ll.PipelineFailed, match="a worker was sent something that is not a command to a worker"):
            run.wait(PATIENCE)


def test_reports_and_statuses_that_cannot_be_read_are_told_and_in_nobody_s_way(
    spark: SparkSession, tmp_path: Path, log: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = LmdbStore(tmp_path / "log", durability="process")
    store.put_status("store", b'{"kind": "group_status"}')
    with paced(tmp_path).start(log, spark=spark, durability="process") as run:
        until(lambda: run.pid("store"))
        store.mail(REPORTS).send(b'{"kind": "letter", "run": 3}')
        until(lambda: "a Spark task sent something that is not a report of a Spark task: " in caplog.text)
        until(lambda: "what is written down for store in the log is not the status of a group: " in caplog.text)
        store.put_status("plain", b'{"phase": "running"}')  # until its next heartbeat
        allow(tmp_path, EVENTS)
        assert run.wait(PATIENCE).phase == "finished"
        check(run)
    store.close()
