"""What keeps a life from beginning in its task ends the run, with the reason: Spark would try it a hundred times."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.paced import allow, paced, parent
from tests.waiting import PATIENCE, until

import logline as ll


def another_log(log: Path) -> None:
    about = json.loads((log / "log.json").read_text())
    (log / "log.json").write_text(json.dumps(about | {"log_id": "0123456789ab"}))


def a_damaged_log(log: Path) -> None:
    (log / "log.json").write_text('{"format": ')


def no_log(log: Path) -> None:
    (log / "log.json").unlink()


TASK = r"a Spark task on \S+ can't host sums: .*"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (another_log, rf"{TASK}is another one \(0123456789ab, not \w+\).* Bring the log back"),
        (a_damaged_log, rf"{TASK}the log is damaged: .*log.json"),
        # The driver looks for its log too, and may find that it is gone before the next life has begun.
        (no_log, rf"{TASK}there is no log at .*log|^the log is gone: somebody has removed \S+log"),
    ],
)
def test_a_log_that_a_task_cannot_open(
    spark: SparkSession, tmp_path: Path, spoil: Callable[[Path], None], said: str
) -> None:
    """The next life of an operator finds something else than its driver did."""
    with paced(tmp_path).start(f"lmdb:{tmp_path / 'log'}", spark=spark, durability="process") as run:
        allow(tmp_path, 10)
        until(lambda: run.status().operators["sums"].taken >= 10)
        until(lambda: all(run.pid(name) is not None for name in run.status().operators))  # all have opened the log
        first = run.pid("sums")
        assert first is not None
        spoil(tmp_path / "log")
        os.kill(first, signal.SIGKILL)
        with pytest.raises(ll.PipelineFailed, match=said):
            run.wait(PATIENCE)
    if spoil is a_damaged_log:  # in a log that is gone, or is another one, nothing is cleared away
        assert not (tmp_path / "log" / "mail" / "@reports.jsonl").exists()


def test_a_working_folder_that_is_gone(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that Spark brings back finds no folder to work in."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    with paced(tmp_path).start(f"lmdb:{tmp_path / 'log'}", spark=spark, durability="process") as run:
        allow(tmp_path, 10)
        until(lambda: run.status().operators["sums"].taken >= 10)
        until(lambda: all(run.pid(name) is not None for name in run.status().operators))  # they have been there
        here.rmdir()
        os.kill(parent(run.pid("sums")), signal.SIGKILL)
        with pytest.raises(
            ll.PipelineFailed, match=r"can't host sums: .*it can't work in \S+/here, .* Bring the folder"
        ):
            run.wait(PATIENCE)


def test_a_driver_without_a_folder(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tasks stay where Spark has started them."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    here.rmdir()
    allow(tmp_path, 60)
    p = paced(tmp_path)
    allow(tmp_path, 60)
    assert p.run(f"lmdb:{tmp_path / 'log'}", spark=spark, durability="process").status().phase == "finished"
