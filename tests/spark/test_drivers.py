"""Drivers in processes of their own: with a session that is not ours, with executors apart."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.chaos.test_kill_process import expected
from tests.chaos.test_kill_workers import alive, totals
from tests.jvms import cache_in, options
from tests.waiting import until

ROOT = Path(__file__).parents[2]
START = 240
"""Seconds that a JVM may take on a busy machine."""


def spawn(arguments: list[str], folder: Path, **more: str) -> subprocess.Popen[str]:
    """A driver; its session logs into the test's folder."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "XDG_CACHE_HOME": cache_in(folder / "cache"), **more},
        stdout=subprocess.PIPE,
        text=True,
    )


def offspring(pid: int) -> list[int]:
    """All processes below one: the JVM, its Python daemon, the workers."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, todo = [], [pid]
    while todo:
        parent = todo.pop()
        children = [child for child, of in parents.items() if of == parent]
        found += children
        todo += children
    return found


SCRIPT = """
import json, os, sys
from pyspark.sql import SparkSession
import beside
import logline as ll
from logline.runtime.control.supervisor import Supervisor

Supervisor.silence = 1e9  # the test kills, nobody else
settings = {"spark.ui.enabled": "false", "spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", "")}
spark = SparkSession.builder.master(sys.argv[1]).config(map=settings).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
run = beside.pipeline(sys.argv[2], spark if "frame" in sys.argv else None).start("lmdb:log", durability="process")
print(json.dumps({"executors": beside.executors(spark)}), flush=True)
status = run.wait(%d)
print(json.dumps({"phase": status.phase, "hourly": status.operators["hourly"].restarts}), flush=True)
spark.stop()
"""
BESIDE = '''
"""A module beside the script: Spark's workers must find it."""
import os
from pathlib import Path

from tests.chaos import sales_job


class Checked:
    def __call__(self, batch):
        (Path.cwd() / "seen").touch()  # a relative path means the same in a worker
        return batch


def pipeline(database, spark):
    import logline as ll
    import pyarrow as pa

    p = ll.Pipeline("sales")
    source = ll.sources.batches(sales_job.sales)
    if spark is not None:
        rows = spark.createDataFrame(pa.Table.from_batches(sales_job.sales()))
        source = ll.sources.spark(rows.coalesce(3))
    orders = p.source("orders", source, rows=20)
    checked = orders.map_batches("checked", Checked())
    hourly = checked.window("hourly", ll.tumbling("1h", on="date"), by=["item_id"], agg={"total": ("amount", "sum")})
    hourly.sink("store", sales_job.Sqlite(database))
    return p


def executors(spark):
    return [int(p.name) for p in Path("/proc").glob("[0-9]*") if _is_executor(p)]


def _is_executor(process):
    try:
        words = (process / "cmdline").read_bytes().split(b"\\0")
        return b"org.apache.spark.executor.CoarseGrainedExecutorBackend" in words and _ours(process)
    except OSError:
        return False


def _ours(process):
    while process.name not in ("0", "1"):
        if process.name == str(os.getpid()):
            return True
        process = Path("/proc") / (process / "stat").read_text().rpartition(")")[2].split()[1]
    return False
'''


def script(folder: Path, master: str, source: str = "batches", **more: str) -> subprocess.Popen[str]:
    (folder / "job.py").write_text(SCRIPT % START)
    (folder / "beside.py").write_text(BESIDE)
    arguments = ["job.py", master, str(folder / "sales.db"), source]
    return spawn(arguments, folder, **{"PYSPARK_PYTHON": sys.executable, "SPARK_SUBMIT_OPTS": options(), **more})


def finish(process: subprocess.Popen[str]) -> dict[str, object]:
    try:
        out, _ = process.communicate(timeout=START)
    finally:
        process.kill()
    assert process.returncode == 0
    found: dict[str, object] = json.loads(out.splitlines()[-1])
    return found


def test_a_session_and_a_python_that_are_not_ours(tmp_path: Path) -> None:
    """Plain local[N] never brings a task back: the driver submits the job again. Its workers run on the Python that
    the user has chosen."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\ntouch {tmp_path}/chosen\nexec {sys.executable} "$@"\n')
    python.chmod(0o700)
    fault = "hourly:commit.inside:2,store:write.after:3"
    found = finish(script(tmp_path, "local[4]", LOGLINE_FAULT=fault, PYSPARK_PYTHON=str(python)))
    assert found == {"phase": "finished", "hourly": 1}
    assert totals(tmp_path / "sales.db") == expected()
    assert (tmp_path / "seen").exists()
    assert (tmp_path / "chosen").exists()


@pytest.mark.parametrize(
    ("source", "fault"), [("batches", "hourly:commit.inside:2:0:stop"), ("frame", "orders:commit.inside:2:0:stop")]
)
def test_an_executor_is_killed(tmp_path: Path, source: str, fault: str) -> None:
    """Its tasks find room on the other one. It is the one with an operator that stands still: a window, or a source
    that reads the rows of a DataFrame."""
    process = script(tmp_path, "local-cluster[2,4,1024]", source, LOGLINE_FAULT=fault)
    below: list[int] = []
    try:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        until(lambda: _stopped_worker(process.pid) is not None)
        worker = _stopped_worker(process.pid)
        below = offspring(process.pid)
        victims = [pid for pid in first["executors"] if worker in offspring(pid)]
        assert len(victims) == 1
        os.kill(victims[0], signal.SIGKILL)
        found = finish(process)
    finally:
        process.kill()
    assert found["phase"] == "finished"
    assert totals(tmp_path / "sales.db") == expected()
    until(lambda: not [pid for pid in below if alive(pid)])


def _stopped_worker(driver: int) -> int | None:
    """The Python worker that was stopped at its armed point."""
    for pid in offspring(driver):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                return pid
        except OSError:
            continue
    return None
