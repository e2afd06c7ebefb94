"""What a store knows of processes: which ones exist for a life alone, and which process a pid means.

>>> import os
>>> started(os.getpid()) == started(os.getpid()) != ""
True
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_lives: list[object] = []
"""One entry for each life that this process was begun for and that is under way."""


def is_worker_process() -> bool:
    """Whether this process exists for nothing but a life: a store may kill one that is in the way of the next life.
    A user's own process never is."""
    return bool(_lives)


@contextmanager
def as_worker_process() -> Iterator[None]:
    """This process may be killed, for as long as the block lasts."""
    life = object()
    _lives.append(life)
    try:
        yield
    finally:
        _lives.remove(life)


def started(pid: int) -> str:
    """When a process began, in the kernel's ticks; with the pid it names one process for good. Empty if there is no
    such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
