"""Descriptors that stay with this process: a child that user code forks does not get them.

A process pool that an operator makes in `open()` would hold the ends of our pipes, our bells and our locks for as
long as it lives: a lock would outlive the process that holds it, and whoever waits for the end of a pipe would wait
for the pool. Close-on-exec does not help, since such a child never executes anything else.

    own(fd)         it becomes /dev/null in every child that is forked from now on
    disown(fd)      it is closed, or about to be

Not closed in the child but replaced: its number stays taken, so that an object of the parent's that the child drops
later closes nothing of the child's. LMDB's own descriptors are left alone: its locks belong to a process.
"""

from __future__ import annotations

import contextlib
import os

_owned: dict[int, tuple[int, int]] = {}
"""Device and inode, by descriptor: one that was closed and is something else by now is not ours."""


def own(fd: int) -> int:
    """Keeps it from children; returns it."""
    known = os.fstat(fd)
    _owned[fd] = known.st_dev, known.st_ino
    return fd


def disown(fd: int) -> None:
    """It is not ours any more."""
    _owned.pop(fd, None)


def _keep_from_child() -> None:
    """In a child, right after the fork."""
    if not _owned:
        return
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd, known in _owned.items():
        with contextlib.suppress(OSError):
            now = os.fstat(fd)
            if (now.st_dev, now.st_ino) == known:
                os.dup2(nothing, fd, inheritable=False)
    os.close(nothing)
    _owned.clear()


os.register_at_fork(after_in_child=_keep_from_child)
