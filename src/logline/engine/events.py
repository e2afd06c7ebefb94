"""Events as they are logged, and what an instance holds and has taken of them.

`Output` is one event or write action. A sender has a `Head` for each port, a receiver a `Position` for each channel;
a `Collection` moves a head's base (R12).

    >>> last = Output(PortName("out"), Ssn(3), None, 0, 0, 80, Serial(0), "end")
    >>> last.end
    True
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from logline.engine.sets import Member
from logline.names import PortName, Serial, Ssn

Kind = Literal["event", "end", "reopened", "watermark", "nothing"]
"""What an output is: data, or a mark: the end of the stream (R11), that the end is taken back (R11'), or that event
time has moved and nothing else (R30). `nothing` is what a receiver sees of an event of which an ephemeral operator on
the way made nothing (R24): it is taken, and no set has it. No log holds such an output."""
KINDS: tuple[Kind, ...] = ("event", "end", "reopened", "watermark", "nothing")
"""A store may write a kind as its place in here; kinds are only ever added, at the end."""

Headers = Mapping[str, str | int | float | bool | bytes | None]
WATERMARK_HEADER = "watermark"
"""On an event or a mark: what comes after it on the port has no earlier time, in microseconds since 1970 (R30)."""
IDLE_HEADER = "idle"
"""Beside it: the port is silent for now, and its receivers need not wait for it."""
MARK_BYTES = 16
"""What a watermark counts for back-pressure, so that those that nobody takes are bounded too (R13)."""


class Output(NamedTuple):
    """An event or a write action as it is logged: a batch with small headers (R1)."""

    port: PortName
    ssn: Ssn
    payload: Any
    """The batch; None for a mark."""
    rows: int
    nbytes: int
    total: int
    """Bytes of the port up to and including this event: what back-pressure counts (R13)."""
    serial: Serial
    """The input set it was made from, 0 if none."""
    kind: Kind = "event"
    same: Member | None = None
    """Of a write action that passes an event on: that event, which a store may keep instead of a copy. The event is
    needed until the write is known to be done (R12)."""
    headers: Headers | None = None
    """A few small values that travel with the event; None if there are none. Never changed once it is put out."""

    @property
    def end(self) -> bool:
        """Whether it is the end of the stream."""
        return self.kind == "end"

    @property
    def mark(self) -> bool:
        """Whether it says something about the stream and holds no records."""
        return self.kind != "event"


class Position(NamedTuple):
    """What an instance has taken of a channel."""

    ssn: Ssn = Ssn(0)
    total: int = 0
    marks: int = 0
    """How many of what was taken are ends and their taking back: an end, that it was taken back, the next end, and so
    on. A watermark does not count."""

    @property
    def ended(self) -> bool:
        """Whether the last mark is an end."""
        return self.marks % 2 == 1


CLOSED = Position(Ssn(1 << 62), 1 << 62, 1)
"""Of a channel that is gone (R14): nothing more is taken, nothing above it is needed, and no room is waited for."""


@dataclass(slots=True)
class Head:
    """What an output port (or a write target, as port `@name`) holds."""

    last: Ssn = Ssn(0)
    total: int = 0
    base: Ssn = Ssn(1)
    """Everything below is collected, but for `pinned`."""
    pinned: set[Ssn] = field(default_factory=set)

    @property
    def stored(self) -> int:
        """How many events are visible and not collected."""
        return len(self.pinned) + self.last - self.base + 1


class Collection(NamedTuple):
    """A port's new base, and which events below it stay (R12)."""

    base: Ssn
    pinned: frozenset[Ssn]
