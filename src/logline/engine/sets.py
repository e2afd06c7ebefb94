"""Input sets: their members, and what is kept of a set until it is done.

A set is open until it is due, due until it is generated, then done; one that failed for good is parked (R6, R12).

    >>> own_id(Member(ChannelName("orders.out>hourly.in"), Ssn(7)))
    'orders:7'
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

from logline.engine import codec
from logline.errors import EngineError
from logline.graph.operator import Cause, Clock
from logline.names import ChannelName, InsetId, Serial, Ssn, event_name, sender_of

SetCause = Cause | Literal["parked"]
"""Why a set is due; or that it failed for good, is on port `errors`, and waits to be retried or dropped."""


class Member(NamedTuple):
    """An event in an input set, with the note that `assign` attached."""

    channel: ChannelName
    ssn: Ssn
    note: Any = None


def own_id(member: Member) -> InsetId:
    """The id of a set that is one event of its own: the event's name."""
    return f"{_stem(member.channel)}{member.ssn}"


def unassigned_id(member: Member) -> InsetId:
    """The id of a set that is one event for which `assign` failed; no author's id begins so."""
    return f"@{own_id(member)}"


@cache
def _stem(channel: ChannelName) -> str:
    """What the names of a channel's events begin with."""
    return event_name(*sender_of(channel), Ssn(0))[:-1]


class Kept(NamedTuple):
    """What was generated of a set that was kept open since: `fire(keep=True)`."""

    times: int
    members: int
    """How many members it had the last time."""


NEVER = Kept(0, 0)
"""Of a set that was not generated yet."""

_SIZE = 24
"""Bytes of a digest of members."""


def digest_members(members: Iterable[Member], before: bytes = bytes(_SIZE)) -> bytes:
    """A digest of members, whatever their order: each has one of its own, and these are added up. So the digest of
    some is enough to go on with the others (R22).

    >>> a, b = (Member(ChannelName("orders.out>hourly.in"), Ssn(n)) for n in (1, 2))
    >>> digest_members([a, b]) == digest_members([a], before=digest_members([b]))
    True
    """
    total = int.from_bytes(before)
    for channel, ssn, note in members:
        text = b"%s:%d:" % (channel.encode(), ssn) + (b"" if note is None else codec.encode(note))
        total += int.from_bytes(blake2b(text, digest_size=_SIZE).digest())
    return (total % (1 << 8 * _SIZE)).to_bytes(_SIZE)


class Checkpoint(NamedTuple):
    """The event state of an open set after its first `covers` members, as they were logged (R22)."""

    covers: int
    state: bytes
    layout: str
    """What the state is, for whoever reads it: code that has another one is refused (R14)."""
    digest: bytes
    """Of the members that it covers: `ctx.id` needs no more of them."""
    lows: dict[ChannelName, Ssn] = {}  # noqa: RUF012 - never changed
    """The first of these members by each channel that lineage traces."""


@dataclass(slots=True)
class OpenSet:
    """An input set that is not done. `cause` is set once it is due, or parked."""

    id: InsetId
    members: list[Member] = field(default_factory=list)
    """Those that recovery reads: of a set with a checkpoint, the ones after it."""
    cause: SetCause | None = None
    checkpoint: Checkpoint | None = None
    kept: Kept = NEVER

    @property
    def count(self) -> int:
        """How many members it has in all."""
        return len(self.members) + (0 if self.checkpoint is None else self.checkpoint.covers)

    def cover(self, checkpoint: Checkpoint) -> None:
        """A newer checkpoint takes the place of the one before it, and of the members that it covers (R22)."""
        before = self.count - len(self.members)
        if not before <= checkpoint.covers <= self.count:
            raise EngineError(
                f"a checkpoint of set {self.id!r} covers {checkpoint.covers} members; {self.count} are logged, and "
                f"the checkpoint before it covers {before}"
            )
        del self.members[: checkpoint.covers - before]
        self.checkpoint = checkpoint


class Timer(NamedTuple):
    """A `fire` that has not come yet; `at` in microseconds since 1970."""

    at: int
    clock: Clock
    span: int = 0
    """Of a `fire(after=...)`: how long it was to wait. It does, whatever the wall clock does meanwhile. Negative, of
    a time of the wall clock: it waits no longer than this, should somebody set the clock back."""

    @property
    def is_span(self) -> bool:
        """Whether it waits for a span to pass, not for a time."""
        return self.span > 0


CARRIED = 1 << 32
"""From this number on, the answers of a row were given to an earlier set that failed (`carried`)."""


class Answer(NamedTuple):
    """The kept answer of one `ctx.call` (R9)."""

    serial: Serial
    row: int
    n: int
    """Which call of the row it is; of an answer that was carried over, from `CARRIED` on."""
    fn: str
    digest: str
    value: bytes


def bare(fn: str) -> str:
    """A function's own name, without its module: a script that is imported is another module, and the same code.

    >>> bare("__main__.ask") == bare("sales.ask")
    True
    """
    return fn.rpartition(".")[2]


def carried(answers: Iterable[Answer], serial: Serial) -> list[Answer]:
    """Answers of a set that failed, for the set in which its rows are retried. The code or the rows may be others by
    then, so that the n-th call need not be the same: these are found by what was asked.

    >>> old = [Answer(Serial(3), 0, 1, "module.ask", "digest", b"paid for")]
    >>> [(answer.serial, answer.n - CARRIED) for answer in carried(old, Serial(9))]
    [(9, 0)]
    """
    found: list[Answer] = []
    rows: dict[int, int] = {}
    for answer in sorted(answers, key=lambda answer: (answer.row, answer.n)):
        at = rows[answer.row] = rows.get(answer.row, -1) + 1
        found.append(answer._replace(serial=serial, n=CARRIED + at))
    return found
