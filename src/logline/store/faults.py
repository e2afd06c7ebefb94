"""Named points where a test lets the process die, as a kill -9 at that very instruction would. Free when not armed.

LOGLINE_FAULT="hourly:commit.inside:3"    the third time the process of `hourly` is inside a commit
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
"""All there are: inside a claim, around and inside a commit, in user code, around an external write, in recovery."""

_armed: dict[tuple[str, str], int] = {}


def arm(text: str) -> None:
    """Arms `instance:point:count`, several separated by commas."""
    for one in filter(None, text.split(",")):
        instance, point, count = one.rsplit(":", 2)
        if point not in POINTS:
            raise ValueError(f"{point!r} is no point: there are {', '.join(POINTS)}")
        _armed[instance, point] = int(count)


def point(instance: str, name: str) -> None:
    """Dies here if armed for it."""
    if not _armed:
        return
    left = _armed.get((instance, name))
    if left is None:
        return
    _armed[instance, name] = left - 1
    if left <= 1:
        os.kill(os.getpid(), signal.SIGKILL)
