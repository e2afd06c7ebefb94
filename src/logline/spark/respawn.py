"""The process of a Spark task as a respawner: it forks the lives of its group, one after the other, and notices at
once when one of them dies.

    the task's process      imports everything, opens nothing, waits
      +- a life             claims the journals, works, is killed
      +- the next life      is there a hundredth of a second later

Spark's own way back (the task fails, is scheduled again, gets a Python worker) would take several times as long, and
as many seconds more as the user's own modules take to be imported. It stays for the case that the respawner itself is
killed. A life dies with its respawner.

A fork carries one thread over and shares what is open. So a respawner is made only of a process that has no thread
beside its own, except such as a library ends at a fork, and no connection but the one to Spark (`can_fork`): a user's
module that opened one when it was imported has a new one in each life, as it would without a respawner.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib.metadata
import os
import pickle
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from logline.runtime.hosts.parent import die_with_parent
from logline.runtime.hosts.processes import how_it_ended

Live = Callable[[int, str], Any]
"""Lives: how many lives of this respawner came before, and how the last of them ended."""
_HARMLESS = {"jemalloc_bg_thd"}
"""Threads that know what a fork is and go on beside one: Arrow's memory pool has one."""


def can_fork() -> bool:
    """Whether a fork of this process is a process like any other: one thread, and nothing open but Spark's socket.

    Libraries that know what a fork is end their threads before one and start them again when they need them: OpenBLAS
    does, which has threads as soon as NumPy or SciPy is imported. So if there are threads, the process forks once for
    nothing, and counts again."""
    if _threads() > 1:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    close_archives()
    return _threads() == 1 and len(_opened()) <= 1


def close_archives() -> None:
    """A module that asks for its own version when it is imported, as psycopg does, has every archive on the path
    searched, Spark's among them. Python keeps them open until it forgets what it found."""
    known: Any = getattr(importlib.metadata, "FastPath", None)
    if hasattr(getattr(known, "__new__", None), "cache_clear"):
        known.__new__.cache_clear()
        gc.collect()


def _threads() -> int:
    names = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # it has just ended
            names.append(Path(f"/proc/self/task/{task}/comm").read_text().strip())
    return len([name for name in names if name not in _HARMLESS])


def _opened() -> set[str]:
    """What is open beyond the three that every process has, and the file into which PySpark has crashes written."""
    traces = os.environ.get("PYTHON_FAULTHANDLER_DIR", "/nowhere")
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that lists them is gone
            if int(number) > 2 and not (place := os.readlink(f"/proc/self/fd/{number}")).startswith(traces):
                found.add(place)
    return found


def respawn(live: Live) -> Any:
    """Forks lives until one comes to its end, and returns what that one returned. Raises what it raised, as a
    RuntimeError with its traceback: that is for things that another life would not do better."""
    gc.collect()
    gc.freeze()  # the lives share these pages as long as nobody touches them
    try:
        before, how = 0, ""
        while True:
            ended, value = _one(live, before, how)
            if ended:
                return value
            before, how = before + 1, value
    finally:
        gc.unfreeze()


def _one(live: Live, before: int, how: str) -> tuple[bool, Any]:
    """One life: whether it came to its end, with what it returned; or how it died."""
    # Files in memory, which both have: a pipe would have to be emptied while it lives, and its end could be held open
    # by a process that user code has started.
    with open(os.memfd_create("answer"), "w+b") as answer, open(os.memfd_create("crash"), "w+b") as crash:
        respawner = os.getpid()
        pid = os.fork()
        if pid == 0:
            _live(live, before, how, respawner, answer, crash)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        answer.seek(0)
        if code == 0 and (said := answer.read()):  # else it may be half of one
            raised, value = pickle.loads(said)
            if raised:
                raise RuntimeError(value)
            return True, value
        crash.seek(0)
        trace = crash.read().decode(errors="replace").splitlines()
    return False, f"crashed ({trace[0]})" if trace else how_it_ended(code)


def _live(live: Live, before: int, how: str, respawner: int, answer: BinaryIO, crash: BinaryIO) -> None:
    """In the forked process; never returns. Threads of user code that hang do not keep it."""
    try:
        die_with_parent(respawner)
        faulthandler.enable(crash)
        try:
            said = False, live(before, how)
        except BaseException:
            said = True, traceback.format_exc()
        answer.write(pickle.dumps(said))
        answer.flush()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(0)
