"""Whose turn it is, on a log in memory: clocks and lives are the test's."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest

from logline.runtime.messages.notes import GroupStatus, TaskLife
from logline.runtime.messages.reports import LogLine
from logline.runtime.messages.wire import encode
from logline.runtime.status import Phase
from logline.spark.turns import SILENT, Turn, is_alive, last_status, place, take_turn
from logline.store.memory import MemoryStore
from logline.store.postgres.host import host_id
from logline.store.processes import started

ELSEWHERE = "another host"


class Scene:
    """A store, and a clock that moves when somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = MemoryStore()
        self.now = 1000.0
        self.reports: list[float] = []
        """When the life before reports again."""
        self.told: list[LogLine] = []
        self.last: GroupStatus | None = None
        monkeypatch.setattr("logline.spark.turns.time.monotonic", lambda: self.now)
        monkeypatch.setattr("logline.spark.turns.time.sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        while self.reports and self.reports[0] <= self.now:
            at = self.reports.pop(0)
            assert self.last is not None
            assert self.last.task is not None
            self.write(self.last.pid, self.last.task, at=at)

    def write(self, pid: int, task: TaskLife, *, phase: Phase = "running", at: float = 0.0) -> None:
        self.last = GroupStatus(pid, phase, {}, False, at, task)
        self.store.put_status("sums", encode(self.last))

    def take(self, **more: Any) -> Turn:
        given: dict[str, Any] = {"run": "r", "life": 0, **more}
        return take_turn(self.store, given["run"], "sums", given["life"], os.getpid(), self.told.append)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def task(run: str = "r", life: int = 3, born: str = "1", where: str = ELSEWHERE) -> TaskLife:
    return TaskLife(run, life, born, (1, "1"), 0.0, 0, where)


def test_the_first_life_does_not_wait(scene: Scene) -> None:
    assert scene.take().task.life == 0
    assert scene.now == 1000.0


def test_it_waits_while_one_elsewhere_reports_and_then_until_that_is_silent(scene: Scene) -> None:
    scene.write(7, task())
    scene.reports = [1000.5 + k / 2 for k in range(10)]
    taken = scene.take()
    assert taken.task.life == 4
    assert scene.now >= 1005.0 + SILENT
    assert [line.text for line in scene.told] == [
        f"a second task of sums stands by on {host_id()}: process 7 still works"
    ]


@pytest.mark.parametrize("phase", ["finished", "stopped", "failed", "caught up"])
def test_one_that_is_over_is_not_waited_for(scene: Scene, phase: Phase) -> None:
    scene.write(7, task(), phase=phase)
    scene.take()
    assert scene.now == 1000.0


def test_one_of_another_run_is_not_waited_for(scene: Scene) -> None:
    scene.write(7, task(run="before"))
    assert scene.take().task.life == 0
    assert scene.now == 1000.0


def test_here_a_process_that_is_gone_is_known_at_once(scene: Scene) -> None:
    child = subprocess.Popen(["sleep", "1000"])
    born = started(child.pid)
    assert is_alive(child.pid, born)
    assert not is_alive(child.pid, "1")
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(child.pid, born)  # nobody has buried it
    scene.write(child.pid, task(born=born, where=place()))
    assert scene.take().task.life == 4
    assert scene.now == 1000.0
    child.wait()


def test_a_life_that_was_away_does_not_write_over_its_successor(scene: Scene) -> None:
    old = scene.take()
    status = GroupStatus(os.getpid(), "running", {}, False, 1.0)
    old.note(status)
    assert last_status(scene.store, "sums", scene.told.append) == GroupStatus(
        os.getpid(), "running", {}, False, 1.0, old.task
    )
    scene.now += 60
    old.note(status)  # nobody has come meanwhile
    assert not old.lost.is_set()
    scene.write(8, task(life=old.task.life + 1))
    scene.now += 60
    old.note(status)
    assert old.lost.is_set()
    known = last_status(scene.store, "sums", scene.told.append)
    assert known is not None
    assert known.pid == 8
