"""A month in the life of a pipeline: daily runs, code that changes, errors that are fixed, kills and power cuts."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.month import INSERTED, LAST, factor, is_odd, rows_of
from tests.waiting import PATIENCE, until

SIZE = "512M"


class Disk:
    """A file system of its own, if the machine allows it: what was not synced is gone after a power cut. Else a
    folder, of which a power cut leaves what a copy has."""

    def __init__(self, home: Path) -> None:
        self.at, self._home, self._cuts = home / "disk", home, 0
        self.at.mkdir()
        self.real = self._mount_new()

    def _image(self) -> Path:
        return self._home / f"image-{self._cuts}"

    def _mount_new(self) -> bool:
        if not shutil.which("mkfs.ext4") or os.geteuid() != 0:
            return False
        subprocess.run(["truncate", "-s", SIZE, self._image()], check=True)
        subprocess.run(["mkfs.ext4", "-q", "-F", self._image()], check=True)
        mount = ["mount", "-o", "loop", str(self._image()), str(self.at)]
        return subprocess.run(mount, check=False, capture_output=True).returncode == 0

    def cut(self, process: subprocess.Popen[Any]) -> None:
        """The power fails: whoever runs is gone, and so is what the disk does not have."""
        process.send_signal(signal.SIGSTOP)
        before = self._image()
        self._cuts += 1
        if self.real:
            subprocess.run(["cp", "--sparse=always", before, self._image()], check=True)
        else:
            shutil.copytree(self.at, self._image())
        process.kill()
        process.wait()
        if self.real:
            self.unmount()
            subprocess.run(["mount", "-o", "loop", self._image(), self.at], check=True)
        else:
            shutil.rmtree(self.at)
            self._image().rename(self.at)

    def unmount(self) -> None:
        subprocess.run(["umount", self.at], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path)
    yield made
    if made.real:
        made.unmount()


def days(home: Path, first: int, last: int, engine: str = "inline") -> subprocess.Popen[Any]:
    command = [sys.executable, "-m", "tests.chaos.month", str(home), str(first), str(last), engine]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})


def through(process: subprocess.Popen[Any]) -> None:
    assert process.wait(PATIENCE) == 0


def paid(home: Path) -> list[tuple[int, int]]:
    """The rows that were paid for, with the process that asked."""
    file = home / "paid.txt"
    lines = file.read_text().splitlines() if file.exists() else []
    return [(int(row), int(pid)) for row, pid in (line.split() for line in lines)]


def held(home: Path, row: int, asked: int = 1) -> int:
    """Waits until somebody asks for the row and is kept waiting; the process that does."""
    until(lambda: sum(one == row for one, _ in paid(home)) == asked)
    return next(pid for one, pid in reversed(paid(home)) if one == row)


def test_a_month(tmp_path: Path, disk: Disk) -> None:
    (tmp_path / "in").mkdir()
    holds = {day: tmp_path / f"hold-{100 * day + 4}" for day in (5, 13, 18, 26)}
    for hold in holds.values():
        hold.touch()
    struck = [100 * day + 4 for day in holds]

    driver = days(tmp_path, 1, 5)  # the driver is killed on the 5th
    held(tmp_path, struck[0])
    driver.kill()
    driver.wait()
    holds[5].unlink()
    through(days(tmp_path, 5, 12))

    driver = days(tmp_path, 13, 13, "processes")  # an operator is killed on the 13th
    os.kill(held(tmp_path, struck[1]), signal.SIGKILL)
    held(tmp_path, struck[1], asked=2)
    holds[13].unlink()
    through(driver)
    through(days(tmp_path, 14, 17))

    for day, until_day in ((18, 25), (26, LAST)):  # the power fails on the 18th and on the 26th
        driver = days(tmp_path, day, until_day)
        held(tmp_path, 100 * day + 4)
        disk.cut(driver)
        holds[day].unlink()
        through(days(tmp_path, day, until_day))

    rows = {row["id"]: (day, row) for day in range(1, LAST + 1) for row in rows_of(day)}
    good = {id_: known for id_, known in rows.items() if not (known[0] >= INSERTED and known[1]["amount"] == -1)}
    late = {id_ for id_, (day, _) in good.items() if is_odd(day, id_ % 100)}
    wanted = {id_: (0 if id_ in late else factor(day) * row["amount"]) for id_, (day, row) in good.items()}
    calls = Counter(row for row, _ in paid(tmp_path))
    assert calls.keys() == wanted.keys()
    # A call whose answer was not in the log when it struck is made again: the one that was held, and the answer
    # before it may have been on its way. No other is.
    twice = {row for row, times in calls.items() if times > 1}
    assert {row for row in twice if row + 1 not in struck} == set(struck)
    assert max(calls.values()) == 2
    with sqlite3.connect(disk.at / "store.db") as database:
        assert sorted(database.execute("select id, score from rows")) == sorted(wanted.items())
        assert {id_ for (id_,) in database.execute("select id from late")} == late
        totals = Counter[tuple[int, int]]()
        for id_, score in wanted.items():
            if id_ not in late:
                totals[id_ // 100, rows[id_][1]["item"]] += score
        found = database.execute("select cast(substr(window_start, 9, 2) as integer), item, total from totals")
        assert sorted(found) == sorted((day, item, total) for (day, item), total in totals.items())
    database.close()
