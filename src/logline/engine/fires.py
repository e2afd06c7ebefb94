"""The `fire` calls of `assign` and `ready`: which set is to be generated, when, and whether it stays open (R6, R7).

A set that is fired with `keep` is generated and goes on: another set of the same id opens with the same members. An
id has one timer at which its set closes, and beside it one on each clock at which its set is generated and kept.
Those have a key of their own among the timers; no author's id looks like it, since ids are flat.

    >>> kept_key("a", "wall")
    ('@keep', 'wall', ('a',))
    >>> kept_id(kept_key(("a", 7), "event")), kept_id("a")
    (('a', 7), None)
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from logline.engine.clock import same_timer
from logline.engine.sets import Timer
from logline.graph.operator import Clock
from logline.names import InsetId

_KEEP = "@keep"


class Fire(NamedTuple):
    """One call, as it was made."""

    inset: InsetId
    timer: Timer | None
    """None: now."""
    keep: bool

    def goes_before(self, known: Timer | None) -> bool:
        """Whether its timer takes the place of the one that there is. The latest call wins; of the times at which a
        set is generated and kept, the first one counts. A timer that was set for a span goes on as it is if it is set
        anew for what is left of the span."""
        assert self.timer is not None
        if self.keep:
            return known is None or self.timer.at < known.at
        return not same_timer(known, self.timer)

    @property
    def key(self) -> InsetId:
        """Under which its timer is kept."""
        assert self.timer is not None
        return kept_key(self.inset, self.timer.clock) if self.keep else self.inset


def kept_key(inset: InsetId, clock: Clock) -> InsetId:
    """The key of the timer at which the set is generated and kept."""
    return cast(InsetId, (_KEEP, clock, (inset,)))


def kept_id(key: InsetId) -> InsetId | None:
    """The id of the set that such a key is of; None for any other key."""
    parts: tuple[Any, ...] = key if isinstance(key, tuple) else ()
    if len(parts) == 3 and parts[0] == _KEEP and isinstance(parts[2], tuple):
        return cast(InsetId, parts[2][0])
    return None
