"""What a window is: which records belong together. Descriptions only; operators.window computes them.

>>> tumbling("1h", on="date", lateness="5m").size
datetime.timedelta(seconds=3600)
>>> events(100).n
100
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from logline.errors import OptionError
from logline.graph.durations import duration
from logline.graph.operator import Duration
from logline.operators.checks import at_least_one, column_name


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Spans of equal size of the event-time column `on`, counted from 1970-01-01 UTC (LOG.io Example 4)."""

    size: timedelta
    on: str
    lateness: timedelta = timedelta(0)
    idle: timedelta | None = None

    def __post_init__(self) -> None:
        if self.size <= timedelta(0):
            raise OptionError(f"tumbling: the size must be positive, not {self.size}")
        column_name(self.on, "on")
        if self.lateness < timedelta(0):
            raise OptionError(f"tumbling: lateness can't be negative, got {self.lateness}")
        if self.idle is not None and self.idle <= timedelta(0):
            raise OptionError(f"tumbling: idle must be positive, got {self.idle}")


@dataclass(frozen=True, slots=True)
class Events:
    """Blocks of `n` events, in order of arrival (LOG.io Examples 2 and 3)."""

    n: int
    within: timedelta | None = None

    def __post_init__(self) -> None:
        at_least_one(self.n, "n")
        if self.within is not None and self.within <= timedelta(0):
            raise OptionError(f"events: within must be positive, got {self.within}")


Window = Tumbling | Events


def tumbling(size: Duration, *, on: str, lateness: Duration = "0s", idle: Duration | None = None) -> Tumbling:
    """Windows of a fixed size over the event time in column `on`.

    A window closes when the watermark reaches its end. The watermark is the greatest time seen, minus `lateness`.
    With several senders the slowest one decides; one without events for `idle` no longer does.
    """
    return Tumbling(duration(size), on, duration(lateness), None if idle is None else duration(idle))


def events(n: int, *, within: Duration | None = None) -> Events:
    """Blocks of `n` events, in order of arrival. With `within` a block closes at the latest that long after its first
    event."""
    return Events(n, None if within is None else duration(within))
