"""A watchdog kills the processes of its own task, and nobody else's. Real processes, each by its pid."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.chaos.test_kill_workers import alive
from tests.waiting import PATIENCE

from logline.runtime.messages.commands import KillProcess
from logline.runtime.messages.wire import encode
from logline.spark.turns import place
from logline.spark.watchdog import _obey, orders_box
from logline.store.lmdb.folder import LmdbStore
from logline.store.processes import started

TASK = """
import subprocess, sys
from logline.spark.watchdog import watched

with watched(sys.argv[1], "hourly"):
    life = subprocess.Popen(["sleep", "1000"])
    print(life.pid, flush=True)
    print(life.wait(), flush=True)
    sys.stdin.readline()
"""


def test_it_kills_what_is_of_its_task(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "log", durability="process")
    box = store.mail(orders_box("hourly"))
    stranger = subprocess.Popen(["sleep", "1000"])
    task = subprocess.Popen(
        [sys.executable, "-c", TASK, f"lmdb:{tmp_path / 'log'}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert task.stdout is not None
        life = int(task.stdout.readline())
        box.send(b"what is no order")
        box.send(encode(KillProcess(stranger.pid, started(stranger.pid), place())))
        box.send(encode(KillProcess(life, "1", place())))  # another process that had the same id
        box.send(encode(KillProcess(life, started(life), "another host")))
        assert alive(life)
        box.send(encode(KillProcess(life, started(life), place())))
        assert task.stdout.readline() == f"{-signal.SIGKILL}\n"
        assert stranger.poll() is None  # its order was read first
        box.send(encode(KillProcess(task.pid, started(task.pid), place())))
        assert task.wait(PATIENCE) == -signal.SIGKILL
    finally:
        for process in (task, stranger):
            process.kill()
            process.communicate()
        store.close()


ENDING = """
import os, sys
from logline.spark.watchdog import watched

me = os.getpid()
with watched(sys.argv[1], "hourly"):
    print(open(f"/proc/{me}/task/{me}/children").read())
print(open(f"/proc/{me}/task/{me}/children").read())
"""


def test_it_ends_with_its_task(tmp_path: Path) -> None:
    LmdbStore(tmp_path / "log", durability="process").close()
    command = [sys.executable, "-c", ENDING, f"lmdb:{tmp_path / 'log'}"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    watchdog, *after = ran.stdout.split()
    assert after == []
    assert not alive(int(watchdog))


def test_a_process_that_has_the_id_of_another_by_now_is_left_alone() -> None:
    child = subprocess.Popen(["sleep", "1000"])
    _obey(KillProcess(child.pid, "1", place()), os.getpid())
    child.terminate()  # what comes first counts
    assert child.wait(PATIENCE) == -signal.SIGTERM
