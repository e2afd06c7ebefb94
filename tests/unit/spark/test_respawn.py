"""A respawner forks life after life. Real processes, killed by pid; each test has a respawner of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.chaos.test_kill_workers import alive
from tests.waiting import PATIENCE, until

NEST = """
import ctypes, json, os, sys, threading, time
from pathlib import Path
from logline.spark.respawn import respawn

folder = Path(sys.argv[1])

def live(before, how):
    (folder / f"life{before}.new").write_text(json.dumps([os.getpid(), how]))
    (folder / f"life{before}.new").rename(folder / f"life{before}")
    LIFE

print(json.dumps(respawn(live)))
"""
WAIT = 'while not (folder / "go").exists(): time.sleep(0.01)\n    return {"lives": before + 1}'


def start(folder: Path, life: str) -> subprocess.Popen[str]:
    code = NEST.replace("LIFE", life)
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=pipe, stderr=pipe, text=True)


def life(folder: Path, number: int) -> tuple[int, str]:
    """The process of a life, and how it was told that the one before it ended."""
    until((folder / f"life{number}").exists)
    pid, how = json.loads((folder / f"life{number}").read_text())
    return pid, how


def test_a_killed_life_is_followed_by_the_next_one(tmp_path: Path) -> None:
    respawner = start(tmp_path, WAIT)
    first, _ = life(tmp_path, 0)
    os.kill(first, signal.SIGKILL)
    second, how = life(tmp_path, 1)
    assert how == "was killed by signal 9"
    assert not alive(first)
    os.kill(second, signal.SIGTERM)
    _, how = life(tmp_path, 2)
    assert how == "was killed by signal 15"
    (tmp_path / "go").touch()
    out, _ = respawner.communicate(timeout=PATIENCE)
    assert json.loads(out) == {"lives": 3}


def test_a_life_dies_with_its_respawner(tmp_path: Path) -> None:
    respawner = start(tmp_path, WAIT)
    pid, _ = life(tmp_path, 0)
    respawner.kill()
    respawner.communicate(timeout=PATIENCE)
    until(lambda: not alive(pid))


def test_a_crash_in_native_code_is_named(tmp_path: Path) -> None:
    respawner = start(tmp_path, "if before == 0: ctypes.string_at(0)\n    return how")
    out, _ = respawner.communicate(timeout=PATIENCE)
    assert json.loads(out) == "crashed (Fatal Python error: Segmentation fault)"


def test_what_a_life_raises_is_raised_and_no_other_life_begins(tmp_path: Path) -> None:
    respawner = start(tmp_path, 'raise ModuleNotFoundError("no such module")')
    _, errors = respawner.communicate(timeout=PATIENCE)
    assert "ModuleNotFoundError: no such module" in errors
    assert not (tmp_path / "life1").exists()


def test_threads_and_processes_of_a_life_do_not_keep_the_respawner(tmp_path: Path) -> None:
    """Nor does an answer that is larger than any pipe."""
    code = """threading.Thread(target=time.sleep, args=(3600,)).start()
    (folder / "child").write_text(str(pid)) if (pid := os.fork()) else os.execvp("sleep", ["sleep", "3600"])
    return "x" * 1_000_000"""
    respawner = start(tmp_path, code)
    assert respawner.stdout is not None
    try:
        assert json.loads(respawner.stdout.readline()) == "x" * 1_000_000
    finally:
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
        respawner.communicate(timeout=PATIENCE)


@pytest.mark.parametrize(
    ("code", "can"),
    [
        ("pass", True),
        ("import pyarrow, pandas", True),
        ("import socket; spark = socket.socket()", True),
        ("import socket; spark = socket.socket(); mine = socket.socket()", False),
        ("import os; os.environ['OPENBLAS_NUM_THREADS'] = '2'; import numpy", True),
        ("a = open('/dev/null'); b = open('/dev/zero')", False),
        ("import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()", False),
    ],
)
def test_what_can_be_forked(code: str, can: bool) -> None:
    """One thread, and nothing open but one connection, which in a task is Spark's."""
    script = f"{code}\nfrom logline.spark.respawn import can_fork\nprint(can_fork())"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # as Spark sets them for a task
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert done.stdout.strip() == str(can)
