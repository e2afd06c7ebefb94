"""Named points where a test has the process die, as by a kill -9 at that instruction. Free unless armed.

LOGLINE_FAULT="hourly:commit.inside:3"         the third time the process of `hourly` is inside a commit
LOGLINE_FAULT="hourly:commit.inside:3:1"       the same in its second life (lives are counted from 0)
LOGLINE_FAULT="hourly:commit.inside:3:0:stop"  it is stopped there, as by a SIGSTOP, and does not die
"""

from __future__ import annotations

import os
import signal

POINTS = (
    "claim.inside",
    "commit.before",
    "commit.inside",
    "commit.after",
    "generate.inside",
    "write.before",
    "write.after",
    "rebuild.before",
)
"""Those of a life: inside a claim, around and inside a commit, in user code, around an external write, in recovery.
Operators and sinks that a test brings along may have points of their own, whose names begin with `user.`"""

COMPACTING = ("compact.begun", "compact.written", "compact.copied", "compact.renamed")
"""While the holder of the lease writes a journal's file anew."""

_armed: dict[tuple[str, str], tuple[int, signal.Signals]] = {}


def arm(text: str, life: int = 0) -> None:
    """Arms `instance:point:count[:life[:stop]]`, several separated by commas; only what is meant for this life, and
    nothing of what was armed before."""
    _armed.clear()
    for one in filter(None, text.split(",")):
        instance, point, count, *rest = one.split(":")
        if point not in (*POINTS, *COMPACTING) and not point.startswith("user."):
            raise ValueError(f"{point!r} is no point: there are {', '.join((*POINTS, *COMPACTING))}")
        if int(rest[0] if rest else 0) == life:
            _armed[instance, point] = (int(count), signal.SIGSTOP if rest[1:] == ["stop"] else signal.SIGKILL)


def point(instance: str, name: str) -> None:
    """Dies (or stops) here if armed for it."""
    if not _armed:
        return
    left, how = _armed.get((instance, name), (0, signal.SIGKILL))
    if left == 0:
        return
    _armed[instance, name] = (left - 1, how)
    if left == 1:
        os.kill(os.getpid(), how)
