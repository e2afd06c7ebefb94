"""How far a source has read (Algorithm 1)."""

from __future__ import annotations

from typing import Literal, NamedTuple

from logline.names import Ssn

ReadStatus = Literal["incomplete", "complete", "done"]


class Progress(NamedTuple):
    """How far a partition has been read (Algorithm 1)."""

    action: int = 1
    """The number k of the current read action r_k."""
    status: ReadStatus = "incomplete"
    offset: bytes | None = None
    until: Ssn = Ssn(0)
    """Staged reads: the last SSN of the effect, once complete."""
    until_total: int = 0
    ended: bool = False
    unconfirmed: tuple[bytes, ...] = ()
    """Destructive reads: ids of messages that are in the log and not known to be confirmed."""
