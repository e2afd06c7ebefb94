"""The JVM of a session is killed, stands still, or runs out of memory: the run fails, says so, and nothing is left
that works on its log."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos.test_kill_workers import alive
from tests.jvms import cache_in
from tests.spark.test_drivers import ROOT, START, offspring
from tests.waiting import until

import logline as ll
from logline.runtime.log.log_status import log_status

SCRIPT = """
import sys
from pathlib import Path
import logline as ll
from logline.spark.jvm import Jvm
from tests.paced import allow, paced

if __name__ == "__main__":
    Jvm.silence = 3.0
    spark = None if "own" in sys.argv else ll.session(slots=6, **{"spark.driver.memory": "512m"})
    p = paced(Path("."))
    allow(Path("."), 10)
    run = p.start("lmdb:log", spark=spark, durability="process")
    if "memory" in sys.argv:
        sys.stdin.readline()  # the test says when
        try:
            spark.sparkContext._gateway.new_array(spark._jvm.long, 1 << 30)
        except Exception as error:
            print(type(error).__name__)
    try:
        run.wait(240)
    except ll.PipelineFailed as error:
        print(error, flush=True)
    if "own" in sys.argv:  # in another session
        allow(Path("."), 60)
        print(p.run("lmdb:log", durability="process").status().phase)
"""


class Driver:
    """A script that runs a pipeline, up to its tenth event."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.below: list[int] = []
        (folder / "job.py").write_text(SCRIPT)

    def begin(self, session: str) -> int:
        """Returns the process of its JVM."""
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        with open(self.folder / "said", "wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "job.py", session],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": path, "XDG_CACHE_HOME": cache_in(self.folder / "cache")},
                stdin=subprocess.PIPE,
                stdout=said,  # a file: a pipe would stay open as long as a JVM that stands still has it
                stderr=said,
            )
        until(lambda: self.process.poll() is not None or (self.folder / "log" / "graph.json").exists())
        assert self.process.poll() is None, self.said()
        log = ll.open_log(f"lmdb:{self.folder / 'log'}")
        until(lambda: self.process.poll() is not None or log_status(log.store).operators["sums"].taken == 10)
        assert self.process.poll() is None, self.said()
        self.below = offspring(self.process.pid)
        (jvm,) = [pid for pid in self.below if b"org.apache.spark.deploy.SparkSubmit" in _words(pid)]
        return jvm

    def end(self) -> str:
        """Waits until it has ended by itself. Returns what it has said."""
        assert self.process.wait(START) == 0, self.said()
        return self.said()

    def said(self) -> str:
        return (self.folder / "said").read_text()

    def workers(self) -> list[int]:
        """Those of its processes that have the log open, and still live."""
        return [pid for pid in self.below if any(str(self.folder / "log") in name for name in _opened(pid))]


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    found = Driver(tmp_path)
    yield found
    found.process.kill()
    found.process.communicate()
    for pid in filter(alive, found.below):
        os.kill(pid, signal.SIGKILL)


def test_it_stands_still(driver: Driver) -> None:
    """The script has made the session, and may still want something of it."""
    jvm = driver.begin("given")
    assert len(driver.workers()) >= 5
    os.kill(jvm, signal.SIGSTOP)
    said = driver.end()
    assert "the Spark session is gone: its JVM has not answered for 3 s" in said
    assert "spark.driver.memory" in said
    assert "Traceback" not in said
    until(lambda: not driver.workers())


@pytest.mark.parametrize(
    ("number", "how"), [(signal.SIGSTOP, "has not answered for 3 s"), (signal.SIGKILL, "was killed by SIGKILL")]
)
def test_that_of_a_session_of_the_run(driver: Driver, number: signal.Signals, how: str) -> None:
    """Nobody else would end it. The script goes on in another session."""
    jvm = driver.begin("own")
    os.kill(jvm, number)
    said = driver.end()
    assert f"the Spark session is gone: its JVM {how}" in said
    assert said.splitlines()[-1] == "finished"
    until(lambda: not [pid for pid in driver.below if alive(pid)])


def test_it_runs_out_of_memory(driver: Driver) -> None:
    driver.begin("memory")
    assert driver.process.stdin is not None
    driver.process.stdin.write(b"now\n")
    driver.process.stdin.flush()
    assert "its JVM ran out of memory (java.lang.OutOfMemoryError)" in driver.end()
    until(lambda: not [pid for pid in driver.below if alive(pid)])


QUERY = """
import os, signal, sys
import pyarrow as pa
import logline as ll

spark = ll.session(slots=2)
jvm = spark.sparkContext._gateway.proc.pid

def query(frame):
    if sys.argv[1] == "kill" and frame.first()["n"] == 2:
        os.kill(jvm, signal.SIGKILL)
    return frame.selectExpr("n * 2 n")

p = ll.Pipeline("query")
numbers = p.source("numbers", ll.sources.batches([pa.table({"n": [n]}) for n in range(4)]))
numbers.sql("made", query, schema="n long", on_error="divert").sink("store", ll.sinks.collect())
try:
    run = p.run("lmdb:log", engine="inline", durability="process")
except ll.PipelineFailed as error:
    print(error)
else:
    print(run.result("store")["n"].to_pylist(), run.log.errors().num_rows)
"""


def test_a_set_is_not_to_blame_for_it(tmp_path: Path) -> None:
    """A query that fails since the JVM is gone is not diverted: its set is due in the next run."""
    said = []
    cache = cache_in(tmp_path / "cache")
    for what in ("kill", "go on"):
        done = subprocess.run(
            [sys.executable, "-c", QUERY, what],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "XDG_CACHE_HOME": cache},
            capture_output=True,
            text=True,
            check=False,
            timeout=START,
        )
        said.append(done.stdout)
        assert done.returncode == 0, done.stderr
    assert "the Spark session is gone: its JVM was killed by SIGKILL" in said[0]
    assert said[1] == "[0, 2, 4, 6] 0\n"


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def _opened(pid: int) -> list[str]:
    found = []
    with contextlib.suppress(FileNotFoundError):  # it has ended
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it was closed just now
                found.append(str(link.readlink()))
    return found
