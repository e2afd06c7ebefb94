"""The volatile side of an input set: its event state, and the members that a further try would need."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from logline.engine.events import Output
from logline.engine.keyed import KeyView
from logline.engine.sets import NEVER, Kept, Member, OpenSet, own_id
from logline.names import InsetId


@dataclass(slots=True)
class SetState:
    """The volatile side of an input set."""

    id: InsetId | None
    """None for a set that is one event of its own: named when somebody asks."""
    acc: Any = None
    members: list[Member] = field(default_factory=list)
    kept: Kept = NEVER
    came: Output | None = None
    """Of a set that is one event: the event as its sender has it; None for rows that are retried."""
    spent: bool = False
    """Whether a try of `generate` has failed, and may have used up the event state."""
    calls: Any = None
    """What whoever runs `generate` knows of the calls it makes, over all tries."""
    keys: KeyView | None = None
    """The states of keys, as the try that is under way sees and changes them."""

    @classmethod
    def logged(cls, opened: OpenSet) -> SetState:
        """As an image has it; the event state is still to come."""
        return cls(opened.id, None, list(opened.members), opened.kept)

    def name(self) -> InsetId:
        """The id, also of a set that is one event."""
        return own_id(self.members[0]) if self.id is None else self.id

    @property
    def count(self) -> int:
        """How many members it has."""
        return len(self.members)
