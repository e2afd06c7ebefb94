"""Two clocks: one to wait by, and one to tell the time by. They are different types, so that nobody mixes them up.

Whatever waits (a retry, a commit that holds positions back, a channel that may fall silent) waits on `Monotonic`.
Somebody may set the wall clock back, and nothing stalls; or forward, and nothing comes early. What a user sees or has
asked for by the clock (`ctx.now()`, a timer at a time of day, the age of lineage) is `Wall`.

A monotonic reading means nothing in another life. So whatever is logged and read back is wall time.

    >>> Moment(Monotonic(5), Wall(1_700_000_000_000_000)).until(Wall(1_700_000_000_000_030))
    35
"""

from __future__ import annotations

from typing import NamedTuple, NewType

Monotonic = NewType("Monotonic", int)
"""Microseconds since some moment that only this life knows. It never goes back, and stands still while the machine
sleeps."""
Wall = NewType("Wall", int)
"""Microseconds since 1970. People and time servers set it back and forward."""


class Moment(NamedTuple):
    """What both clocks say."""

    monotonic: Monotonic
    wall: Wall

    def after(self, span: int) -> Monotonic:
        """When so many microseconds will have passed."""
        return Monotonic(self.monotonic + span)

    def until(self, at: Wall) -> Monotonic:
        """When the wall clock will be there, if nobody sets it meanwhile."""
        return Monotonic(self.monotonic + at - self.wall)
