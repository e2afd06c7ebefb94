"""The history of sets that are done: what they were made of, and until when that is kept (R12)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from logline.engine.moments import Wall
from logline.engine.sets import Member
from logline.names import ChannelName, InsetId, PortName, Serial, Ssn


class Finished(NamedTuple):
    """The memberships of a set that is done; kept until the events are collected."""

    serial: Serial
    id: InsetId
    members: tuple[Member, ...]


class Membership(NamedTuple):
    """One event in a set that is done."""

    serial: Serial
    id: InsetId
    note: Any = None
    """What `assign` attached."""
    dropped: str | None = None
    """Why the set came to nothing, if it failed and was dropped."""


@dataclass(slots=True)
class Lone:
    """Sets of one event each that are done, as a run: serials and SSNs rise by one together. What lies between two
    sets that made something made nothing itself, so a run may reach over it."""

    serial: Serial
    channel: ChannelName
    ssn: Ssn
    count: int = 1

    def reaches(self, serial: Serial, member: Member) -> bool:
        """Whether the run can be made longer, up to this set."""
        return (
            serial - self.serial == member.ssn - self.ssn
            and serial >= self.serial + self.count
            and member.channel == self.channel
        )

    def member(self, serial: Serial) -> Member:
        """The event of one of the sets."""
        return Member(self.channel, Ssn(self.ssn + serial - self.serial))


class Segment(NamedTuple):
    """A stretch of an instance's history under a lineage scope: what it put out by then, and what that was made of.
    Retention is by segment, since to look at each set would cost as much as making it (R12)."""

    number: int
    began: Wall
    at: Wall
    """When the last of it was put out, in microseconds since 1970."""
    ports: dict[PortName, tuple[Ssn, int]]
    """The last SSN and the total of each kept port at its end."""
    lows: dict[ChannelName, Ssn]
    """The first event of each channel that a set of this segment has as a member."""
