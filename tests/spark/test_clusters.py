"""Executors apart with a log in PostgreSQL: an executor is killed with its folder, then the driver, which goes on
where it was. `tests/spark/test_two_hosts.py` has real hosts."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos.test_kill_workers import alive
from tests.postgres import Database
from tests.spark.shop_job import FILES, Story
from tests.spark.test_drivers import ROOT, START, offspring
from tests.waiting import until

MASTER = "local-cluster[2,5,1024]"


class Drivers:
    """Starts drivers in a folder, one after the other."""

    def __init__(self, folder: Path, postgres: Database) -> None:
        self.folder = folder
        self.log = f"log_{postgres.schema}"
        self._env = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "MASTER": MASTER,
            "LOG": f"{postgres.bare}&log={self.log}",
            "OUT": postgres.dsn,
        }
        self.running: list[subprocess.Popen[bytes]] = []
        for name, text in FILES.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)

    def start(self, **more: str) -> subprocess.Popen[bytes]:
        with (self.folder / "said.txt").open("ab") as said:
            made = subprocess.Popen(
                [sys.executable, "job.py"],
                cwd=self.folder,
                env={**self._env, **more},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
            )
        self.running.append(made)
        return made

    def said(self) -> str:
        """What they have printed and logged."""
        return (self.folder / "said.txt").read_text()

    def close(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()


@pytest.fixture
def drivers(tmp_path: Path, postgres: Database) -> Iterator[Drivers]:
    made = Drivers(tmp_path, postgres)
    yield made
    made.close()


def executor_of(driver: int, pid: int) -> int:
    """The executor below a driver that has this process below it."""
    for found in offspring(driver):
        words = Path(f"/proc/{found}/cmdline").read_bytes().split(b"\0")
        if b"org.apache.spark.executor.CoarseGrainedExecutorBackend" in words and pid in offspring(found):
            return found
    raise ProcessLookupError(pid)


def test_an_executor_with_its_folder_and_then_the_driver(drivers: Drivers, postgres: Database) -> None:
    story = Story(postgres.ask, drivers.said, drivers.log)
    driver = drivers.start()
    story.more()

    life = story.life("sums").pid
    assert life is not None
    os.kill(life, signal.SIGKILL)
    story.more()
    life = until(lambda: story.life("sums").pid != life and story.life("sums").pid)
    assert life

    executor = executor_of(driver.pid, life)
    work = os.readlink(f"/proc/{executor}/cwd")
    os.kill(executor, signal.SIGKILL)
    shutil.rmtree(work, ignore_errors=True)
    story.more()

    below = offspring(driver.pid)
    driver.kill()
    driver.wait()
    until(lambda: not [pid for pid in below if alive(pid)])
    drivers.start()
    story.finish()


SUBMITTED = """
import logline as ll
spark = ll.session()
get = spark.sparkContext.getConf().get
print([spark.sparkContext.master, get("spark.app.name"), get("spark.task.maxFailures"), get("spark.x")])
spark.stop()
"""


def test_a_session_is_what_was_submitted(tmp_path: Path) -> None:
    """There is no home that can be written."""
    import pyspark

    (tmp_path / "job.py").write_text(SUBMITTED)
    (tmp_path / "home").write_text("no folder")
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    given = ["--master", "local[3]", "--name", "shop", "--conf", "spark.x=7", "--conf", "spark.ui.enabled=false"]
    env = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"}
    env |= {"PYTHONPATH": str(ROOT / "src"), "PYSPARK_PYTHON": sys.executable, "HOME": str(tmp_path / "home")}
    ran = subprocess.run(
        [submit, *given, "job.py"], cwd=tmp_path, env=env, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False, timeout=START,
    )  # fmt: skip
    assert "['local[3]', 'shop', '100', '7']" in ran.stdout, ran.stderr
