"""What a log says of itself when it is one of two: a copy that is not whole, a log that has moved, a copy to read.

Targets keep positions by the id of the log (R8), and a log that is moved to another store keeps its id. If both went
on, each would take the other's writes for its own. So at most one of them may be run, and the others say which one.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from logline.errors import LogError


class Mark(NamedTuple):
    """What a log is besides itself."""

    kind: Literal["unfinished", "moved", "copy"]
    """A copy that is being made, or was given up; a log that went on elsewhere; a copy that is there to be read."""
    other: str
    """The address of the other log, without a password."""


def check_whole(mark: Mark | None, log: str) -> None:
    """Raises LogError for a copy that is not whole: whoever opens it would take a part for everything."""
    if mark is not None and mark.kind == "unfinished":
        raise LogError(
            f"{log} is a copy of {mark.other} that is not finished: wait for it, or repeat `logline log copy` if it "
            "was given up. It begins anew then"
        )


def check_may_run(mark: Mark | None) -> None:
    """Raises LogError unless this is the log that goes on."""
    if mark is not None and mark.kind == "moved":
        raise LogError(f"this log has moved to {mark.other}: go on there. Here it can only be read")
    if mark is not None:
        raise LogError(
            f"this log is a copy of {mark.other}, made to be read: go on with that one, or move it with "
            "`logline log copy` without --keep"
        )
