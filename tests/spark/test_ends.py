"""How a command line that runs a pipeline on Spark ends: by Ctrl-C, and when its JVM or its driver is killed. Nothing
is left behind, and the log goes on in another session."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from py4j import java_gateway
from pyspark.sql import SparkSession
from tests.chaos.sales_job import pipeline
from tests.chaos.test_kill_process import expected
from tests.chaos.test_kill_workers import alive, totals
from tests.cli.harness import TOTALS, environment, write_sales
from tests.jvms import cache_in
from tests.spark.test_drivers import START, offspring, spawn
from tests.waiting import PATIENCE, until

import logline as ll
from logline.cli.load import load_pipeline
from logline.runtime.log.log_status import log_status


class Command:
    """`logline run FILE --master ...`, midway: its source waits for a file, and everything else is done."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = write_sales(folder, go=False)
        self.log = f"lmdb:{folder / 'log'}"
        command = ["run", str(self.path), "--log", self.log, "--master", "local[4,100]", "--durability", "process"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "logline", *command],
            cwd=folder,
            env=environment(XDG_CACHE_HOME=cache_in(folder / "cache")),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,  # a terminal's Ctrl-C is for all of them
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - it may be ignored here
        )

    def midway(self) -> list[int]:
        """All its processes, once it has come so far."""
        until(lambda: self.process.poll() is not None or (self.folder / "log" / "graph.json").exists())
        log = ll.open_log(self.log)
        until(lambda: self.process.poll() is not None or log_status(log.store).operators["blocks"].taken == 25)
        assert self.process.poll() is None, self.process.communicate()
        return offspring(self.process.pid)

    def go_on(self, spark: SparkSession) -> None:
        """In another session."""
        (self.folder / "go").touch()
        run = load_pipeline(str(self.path)).run(self.log, spark=spark, durability="process")
        assert run.status().phase == "finished"
        assert pq.read_table(self.folder / "out")["total"].to_pylist() == TOTALS


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    found = Command(tmp_path)
    yield found
    found.process.kill()
    found.process.communicate()


def test_ctrl_c(spark: SparkSession, command: Command) -> None:
    below = command.midway()
    os.killpg(command.process.pid, signal.SIGINT)
    _, said = command.process.communicate(timeout=PATIENCE)
    assert command.process.returncode == 130, said
    assert "in Spark's UI: http://" in said
    assert "Traceback" not in said
    assert log_status(ll.open_log(command.log).store).phase == "stopped"
    until(lambda: not [pid for pid in below if alive(pid)])
    command.go_on(spark)


def test_its_jvm_is_killed(spark: SparkSession, command: Command, caplog: pytest.LogCaptureFixture) -> None:
    below = command.midway()
    (jvm,) = [pid for pid in below if b"org.apache.spark.deploy.SparkSubmit" in _words(pid)]
    os.kill(jvm, signal.SIGKILL)
    _, said = command.process.communicate(timeout=START)
    assert command.process.returncode == 1, said
    assert "the Spark session is gone: its JVM was killed by SIGKILL. Nothing that is logged is lost" in said
    assert "Traceback" not in said
    until(lambda: not [pid for pid in below if alive(pid)])
    command.go_on(spark)
    # Py4J tells the root logger of it, with a traceback, if it is just then asked for something.
    root = logging.getLogger()
    for path in (java_gateway.__file__, __file__):
        root.handle(root.makeRecord("root", logging.ERROR, path, 1, path, (), None))
    assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == [__file__]


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def test_the_driver_is_killed_and_the_run_resumed(spark: SparkSession, tmp_path: Path) -> None:
    """Its JVM, the daemon and the workers go with it; another driver, on another session, goes on."""
    log, database, hold = tmp_path / "log", tmp_path / "sales.db", tmp_path / "go on"
    process = spawn(["-m", "tests.chaos.sales_job", str(log), str(database), "spark", str(hold)], tmp_path)
    try:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert process.stdout.readline() == "running\n"
        below = offspring(process.pid)
        assert set(pids) <= set(below)
    finally:
        process.kill()
        process.communicate()
    until(lambda: not [pid for pid in below if alive(pid)])
    hold.touch()
    run = pipeline(str(database), str(hold)).run(f"lmdb:{log}", spark=spark, durability="process")
    assert run.status().phase == "finished"
    assert totals(database) == expected()
