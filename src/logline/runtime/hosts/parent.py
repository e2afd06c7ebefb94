"""What a process does first that another one made: it does not outlive that one, and is no copy of it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


def die_with_parent(parent: int | None = None) -> None:
    """Asks the kernel for a SIGKILL when the thread that made us is gone. `parent`: the process that made us; if it
    is gone already, nobody will tell the kernel any more, and we end here."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def call_process(name: str) -> None:
    """What `ps` and `top` show of a process; the kernel keeps fifteen bytes of it."""
    _prctl(_PR_SET_NAME, name.encode())


def new_chance() -> None:
    """Python's own random numbers begin anew in a forked process; those of NumPy have to be told."""
    if (numbers := sys.modules.get("numpy.random")) is not None:
        numbers.seed()


def _prctl(option: int, value: int | bytes) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value)
