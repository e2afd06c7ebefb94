"""Workers are killed at armed points, at random times, all at once and while they recover; a stopped one wakes up as
a zombie. What is in another system's database equals what one run without failure writes."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.sales_job import pipeline
from tests.chaos.striking import declare_dead
from tests.chaos.test_kill_process import expected
from tests.postgres import Database, server
from tests.waiting import PATIENCE, until

import logline as ll
from logline.runtime.control.supervisor import Supervisor
from logline.store.faults import POINTS

ROOT = Path(__file__).parents[2]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "sales.db"


@pytest.fixture
def hold(tmp_path: Path) -> Path:
    """As long as it is not there, half of the events are still to come."""
    return tmp_path / "go on"


@pytest.fixture
def run(tmp_path: Path, database: Path, hold: Path) -> Iterator[ll.Run]:
    """It is not over before the test touches `hold`."""
    with start(tmp_path, database, held=True) as run:
        yield run


def start(
    folder: Path, database: Path, durability: Any = "process", *, held: bool = False, log: str = "", **more: Any
) -> ll.Run:
    hold = folder / "go on"
    if not held:
        hold.touch()
    job = pipeline(str(database), str(hold))
    if log:
        return job.start(log, engine="processes", **more)
    return job.start(f"lmdb:{folder / 'log'}", engine="processes", durability=durability, **more)


@pytest.fixture(params=["lmdb", "postgres"])
def log(request: pytest.FixtureRequest) -> str:
    """Where the log is; empty: in the test's folder."""
    if request.param == "lmdb":
        return ""
    database: Database = request.getfixturevalue("postgres")
    return f"{database.bare}&log=log_of_{database.schema}"


def totals(database: Path) -> list[tuple[str, str, int]]:
    with sqlite3.connect(database) as db:
        return sorted(db.execute("select hour, item_id, total from totals"))


def alive(pid: int) -> bool:
    """Whether it can still do something: one that has died stays in the list until its parent asks for it, and the
    first process of a machine, which gets orphans, may take its time."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_each_armed_point(
    point: str, tmp_path: Path, database: Path, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every operator dies there, the first time or a later one."""
    victims = ["orders", "checked", "hourly", "store"]
    if point.startswith("write"):
        victims = ["store"]
    elif point in ("generate.inside", "rebuild.before"):
        victims = victims[1:]
    count = 1 if point in ("claim.inside", "rebuild.before") else 2
    monkeypatch.setenv("LOGLINE_FAULT", ",".join(f"{v}:{point}:{count}" for v in victims))
    with start(tmp_path, database, log=log) as run:
        status = run.wait(PATIENCE)
    assert {n: o.restarts for n, o in status.operators.items() if n in victims} == dict.fromkeys(victims, 1)
    assert totals(database) == expected()


def test_kills_at_random_times(run: ll.Run, database: Path, hold: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Supervisor, "soon", 0.0)  # so many deaths in a row are no crash loop
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    rnd = random.Random(seed)
    killed = 0
    while killed < 20:
        if killed > 10:
            hold.touch()
        if run.status().phase != "running":
            break
        time.sleep(rnd.random() * 0.15)  # not to wait for anything: to strike at any moment
        names = ["orders", "checked", "hourly", "store"]
        for name in names if rnd.random() < 0.2 else [rnd.choice(names)]:  # sometimes all at once
            if (pid := run.pid(name)) is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
    assert run.wait(PATIENCE).phase == "finished"
    assert killed > 10
    assert totals(database) == expected()


def stopped(pid: int) -> bool:
    """Whether it was stopped by a signal and has not gone on since."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def its_pid(run: ll.Run, name: str) -> int:
    """When it has one."""
    pid = until(lambda: run.pid(name))
    assert pid is not None
    return pid


def test_a_zombie_wakes_up(run: ll.Run, database: Path, hold: Path) -> None:
    """Stopped, replaced, and woken up again: what it still does changes nothing (R10)."""
    zombie = its_pid(run, "hourly")
    os.kill(zombie, signal.SIGSTOP)
    declare_dead(run, "hourly")
    until(lambda: run.pid("hourly") not in (None, zombie))
    os.kill(zombie, signal.SIGCONT)
    hold.touch()
    assert run.wait(PATIENCE).phase == "finished"
    assert totals(database) == expected()


@pytest.mark.parametrize("durability", ["process", "disk"])
def test_a_process_stopped_inside_its_transaction(
    durability: Any, tmp_path: Path, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds LMDB's lock for good. The claim of the next life kills it, and goes on (R10)."""
    monkeypatch.setenv("LOGLINE_FAULT", "hourly:commit.inside:2:0:stop")
    with start(tmp_path, database, durability) as run:
        holder = its_pid(run, "hourly")
        until(lambda: stopped(holder))
        declare_dead(run, "hourly")
        assert run.wait(PATIENCE).phase == "finished"
        until(lambda: not alive(holder))
    assert totals(database) == expected()


@pytest.mark.parametrize("point", ["generate.inside", "commit.inside"])
def test_a_process_that_makes_no_report_is_replaced(
    point: str, tmp_path: Path, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Supervisor, "silence", 2.0)
    monkeypatch.setenv("LOGLINE_FAULT", f"hourly:{point}:2:0:stop")
    with start(tmp_path, database) as run:
        silent = its_pid(run, "hourly")
        status = run.wait(PATIENCE)
    assert status.phase == "finished"
    assert status.operators["hourly"].restarts >= 1
    assert not alive(silent)
    assert totals(database) == expected()


def test_kills_while_it_recovers(tmp_path: Path, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second life dies in its claim, the third before it rebuilds, the fourth in its first commit."""
    lives = ("commit.inside:2:0", "claim.inside:1:1", "rebuild.before:1:2", "commit.inside:1:3")
    victims = ("checked", "hourly", "store")
    monkeypatch.setenv("LOGLINE_FAULT", ",".join(f"{name}:{life}" for name in victims for life in lives))
    with start(tmp_path, database, "disk") as run:
        status = run.wait(PATIENCE)
    assert {name: status.operators[name].restarts for name in victims} == dict.fromkeys(victims, len(lives))
    assert totals(database) == expected()


def test_nothing_is_left_behind(run: ll.Run, tmp_path: Path, hold: Path) -> None:
    pids = [its_pid(run, name) for name in ("orders", "checked", "hourly", "store")]
    hold.touch()
    assert run.wait(PATIENCE).phase == "finished"
    assert not [pid for pid in pids if alive(pid)]
    assert list((tmp_path / "log" / "bells").iterdir()) == []
    assert sorted(p.name for p in (tmp_path / "log").iterdir() if p.name.startswith("lease")) == ["lease"]


def driver(folder: Path, database: Path, hold: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """A driver in a process of its own, with its workers' pids."""
    words = [str(folder / "log"), str(database), "processes", str(hold)]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.sales_job", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    pids = [int(pid) for pid in process.stdout.readline().split() if pid != "None"]  # a short run may be over
    assert process.stdout.readline() == "running\n"
    return process, pids


def test_the_driver_is_killed_and_the_run_resumed(tmp_path: Path, database: Path, hold: Path) -> None:
    process, pids = driver(tmp_path, database, hold)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    until(lambda: not [pid for pid in pids if alive(pid)])  # they go with their driver
    hold.touch()
    again, _ = driver(tmp_path, database, hold)
    out, _ = again.communicate(timeout=PATIENCE)
    assert (again.returncode, out) == (0, "finished\n")
    assert totals(database) == expected()


def test_ctrl_c_stops_in_order(tmp_path: Path, database: Path, hold: Path) -> None:
    process, pids = driver(tmp_path, database, hold)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    until(lambda: not [pid for pid in pids if alive(pid)])
    with start(tmp_path, database) as run:  # the lease is free again
        assert run.wait(PATIENCE).phase == "finished"
    assert totals(database) == expected()


def test_a_second_run_on_a_log_in_use(run: ll.Run, tmp_path: Path, database: Path, hold: Path) -> None:
    with pytest.raises(ll.errors.LogInUse, match="takeover=True"):
        start(tmp_path, database, held=True)
    with start(tmp_path, database, held=True, takeover=True) as other:
        with pytest.raises(ll.errors.TakenOver):
            run.wait(PATIENCE)
        hold.touch()
        assert other.wait(PATIENCE).phase == "finished"
    assert totals(database) == expected()


def test_the_server_of_the_log_goes_away_and_comes_back(
    postgres: Database, tmp_path: Path, database: Path, hold: Path
) -> None:
    """The pipeline pauses, and nobody dies of it. Twice: the second time an operator is killed meanwhile."""
    with start(tmp_path, database, held=True, log=f"{postgres.bare}&log=log_of_{postgres.schema}") as run:
        until(lambda: run.status().operators["store"].taken > 0)
        for victim in (None, "hourly"):
            server().stop()
            if victim is not None and (pid := run.pid(victim)) is not None:
                os.kill(pid, signal.SIGKILL)
            hold.touch()  # what comes now can't be logged yet
            server().start()
        status = run.wait(PATIENCE)
    assert status.phase == "finished"
    assert {name: operator.restarts for name, operator in status.operators.items() if operator.restarts} == {
        "hourly": 1
    }
    assert totals(database) == expected()
