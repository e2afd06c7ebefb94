"""The volatile side of an input set: its event state, and the members that a further try would need.

A set with a checkpoint begins with that, and takes in only the members after it (R22). The members that a durable
checkpoint covers are let go: their names are in the log, and `ctx.id` needs nothing but their digest.

    >>> from logline.engine.sets import Checkpoint
    >>> from logline.names import ChannelName, Ssn
    >>> known = SetState("H", 3, [Member(ChannelName("orders.out>hourly.in"), Ssn(n)) for n in (1, 2, 3)])
    >>> known.saved = Checkpoint(2, b"...", "", digest_members(known.members[:2]))
    >>> [member.ssn for member in known.later()]
    [3]
    >>> known.let_go(2)
    >>> known.covered, [member.ssn for member in known.members]
    (2, [3])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from logline.engine.events import Output
from logline.engine.keyed import KeyView
from logline.engine.sets import NEVER, Checkpoint, Kept, Member, OpenSet, digest_members, own_id
from logline.names import InsetId


@dataclass(slots=True)
class SetState:
    """The volatile side of an input set."""

    id: InsetId | None
    """None for a set that is one event of its own: named when somebody asks."""
    acc: Any = None
    members: list[Member] = field(default_factory=list)
    """All of them, but for those that a durable checkpoint covers."""
    kept: Kept = NEVER
    came: Output | None = None
    """Of a set that is one event: the event as its sender has it; None for rows that are retried."""
    spent: bool = False
    """Whether a try of `generate` has failed, and may have used up the event state."""
    calls: Any = None
    """What whoever runs `generate` knows of the calls it makes, over all tries."""
    keys: KeyView | None = None
    """The states of keys, as the try that is under way sees and changes them."""
    saved: Checkpoint | None = None
    """The newest checkpoint, durable or not."""
    covered: int = 0
    """How many members were let go."""
    _digest: bytes = digest_members(())
    """Of those."""

    @classmethod
    def logged(cls, opened: OpenSet) -> SetState:
        """As an image has it; the event state is still to come."""
        known = cls(opened.id, None, list(opened.members), opened.kept, saved=opened.checkpoint)
        if opened.checkpoint is not None:
            known.covered, known._digest = opened.checkpoint.covers, opened.checkpoint.digest
        return known

    def name(self) -> InsetId:
        """The id, also of a set that is one event."""
        return own_id(self.members[0]) if self.id is None else self.id

    @property
    def count(self) -> int:
        """How many members it has in all."""
        return self.covered + len(self.members)

    def digest(self) -> bytes:
        """Of all members (ADR 0005)."""
        return digest_members(self.members, self._digest)

    def later(self) -> Sequence[Member]:
        """The members that the newest checkpoint does not cover: what a further try takes in."""
        return self.members if self.saved is None else self.members[self.saved.covers - self.covered :]

    def let_go(self, count: int) -> None:
        """A checkpoint that covers so many is durable."""
        many = count - self.covered
        if many > 0:
            self._digest = digest_members(self.members[:many], self._digest)
            del self.members[:many]
            self.covered = count


class AllMembers:
    """All members of a set, for whoever wants their names: those that were let go come from the log."""

    def __init__(self, known: SetState, logged: Callable[[], Sequence[Member]]) -> None:
        self._known = known
        self._logged = logged

    def __iter__(self) -> Iterator[Member]:
        known = self._known
        if known.covered:
            yield from self._logged()[: known.covered]
        yield from known.members
