"""What a forked or started process does first, so that it does not outlive its parent and shares no randomness."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


def die_with_parent(parent: int | None = None, sign: signal.Signals = signal.SIGKILL) -> None:
    """Asks the kernel for a signal when the thread that made us is gone. `parent`: the process that made us; if it
    is gone already, nobody will tell the kernel any more, and we end here."""
    _prctl(_PR_SET_PDEATHSIG, sign)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def call_process(name: str) -> None:
    """Sets the name that `ps` and `top` show for this process; the kernel keeps fifteen bytes of it."""
    _prctl(_PR_SET_NAME, name.encode())


def new_chance() -> None:
    """Seeds NumPy's random numbers anew in a forked process. Python's own are seeded by the fork."""
    if (numbers := sys.modules.get("numpy.random")) is not None:
        numbers.seed()


def _prctl(option: int, value: int | bytes) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value)
