"""What a window is: which records belong together. Descriptions only; operators.window computes them.

>>> tumbling("1h", on="date", lateness="5m").size
datetime.timedelta(seconds=3600)
>>> sliding("1h", "10m", on="date").step
datetime.timedelta(seconds=600)
>>> session_window("30m", on="date").gap
datetime.timedelta(seconds=1800)
>>> tumbling("10s").on is None    # of processing time
True
>>> events(100).n
100
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from logline.errors import OptionError
from logline.graph.durations import duration
from logline.graph.operator import Duration
from logline.graph.zones import check_zone
from logline.operators.checks import at_least_one, column_name

_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Spans of equal size of the event-time column `on`, counted from 1970-01-01 UTC (LOG.io Example 4). Without a
    column they are of processing time."""

    size: timedelta
    on: str | None = None
    lateness: timedelta = timedelta(0)
    idle: timedelta | None = None
    offset: timedelta = timedelta(0)
    zone: str | None = None
    updates: timedelta = timedelta(0)
    early: timedelta | None = None

    def __post_init__(self) -> None:
        _check_time(self, "tumbling")

    @property
    def step(self) -> timedelta:
        """How far the starts of two windows are apart."""
        return self.size


@dataclass(frozen=True, slots=True)
class Sliding:
    """Spans of the event-time column `on`, or of processing time, that overlap: one of `size` begins every `step`."""

    size: timedelta
    step: timedelta
    on: str | None = None
    lateness: timedelta = timedelta(0)
    idle: timedelta | None = None
    offset: timedelta = timedelta(0)
    zone: str | None = None
    updates: timedelta = timedelta(0)
    early: timedelta | None = None

    def __post_init__(self) -> None:
        if self.step <= timedelta(0):
            raise OptionError(f"sliding: the step must be positive, not {self.step}")
        _check_time(self, "sliding")
        if self.step > self.size:
            raise OptionError(
                f"sliding: a step of {self.step} leaves gaps between windows of {self.size}: take a shorter one"
            )


def _check_time(window: Tumbling | Sliding, what: str) -> None:
    if window.size <= timedelta(0):
        raise OptionError(f"{what}: the size must be positive, not {window.size}")
    _check_clock(window, what)
    if window.updates < timedelta(0):
        raise OptionError(f"{what}: updates can't be negative, got {window.updates}")
    if window.early is not None and window.early <= timedelta(0):
        raise OptionError(f"{what}: early must be positive, got {window.early}")
    if not timedelta(0) <= window.offset < window.step:
        raise OptionError(f"{what}: the offset {window.offset} must be less than {window.step}: windows repeat")
    if window.zone is not None:
        check_zone(window.zone)
        for span in (window.size, window.step):
            if span % _DAY:
                raise OptionError(
                    f"{what}: zone= is for whole days, not for {span}: leave it out; offset= moves shorter windows"
                )


def _check_clock(window: Tumbling | Sliding | Session, what: str) -> None:
    if window.on is None:
        _check_processing_time(window, what)
        return
    column_name(window.on, "on")
    if window.lateness < timedelta(0):
        raise OptionError(f"{what}: lateness can't be negative, got {window.lateness}")
    if window.idle is not None and window.idle <= timedelta(0):
        raise OptionError(f"{what}: idle must be positive, got {window.idle}")


def _check_processing_time(window: Tumbling | Sliding | Session, what: str) -> None:
    """No row is late for the clock on the wall, and that never stands still."""
    of_events = {"lateness": window.lateness, "idle": window.idle, "updates": getattr(window, "updates", None)}
    for option, given in of_events.items():
        if given:
            raise OptionError(
                f"{what}: {option}= is for event time, and without on= the windows are of processing time, where no "
                f"row is late: name the event-time column, as in on='date', or leave {option} out"
            )


@dataclass(frozen=True, slots=True)
class Session:
    """Records of a group that are not further apart than `gap` in the event-time column `on`, or in the time at which
    they came."""

    gap: timedelta
    on: str | None = None
    lateness: timedelta = timedelta(0)
    idle: timedelta | None = None

    def __post_init__(self) -> None:
        if self.gap <= timedelta(0):
            raise OptionError(f"session_window: the gap must be positive, not {self.gap}")
        _check_clock(self, "session_window")


@dataclass(frozen=True, slots=True)
class Events:
    """Blocks of `n` events, in order of arrival (LOG.io Examples 2 and 3)."""

    n: int
    within: timedelta | None = None

    def __post_init__(self) -> None:
        at_least_one(self.n, "n")
        if self.within is not None and self.within <= timedelta(0):
            raise OptionError(f"events: within must be positive, got {self.within}")


@dataclass(frozen=True, slots=True)
class Whole:
    """All events, until the end; put out before it every so much time, or every so many events."""

    every: timedelta | None = None
    events: int | None = None

    def __post_init__(self) -> None:
        if self.every is not None and self.every <= timedelta(0):
            raise OptionError(f"whole: every must be positive, got {self.every}")
        if self.events is not None:
            at_least_one(self.events, "events")

    @property
    def versions(self) -> bool:
        """Whether it may be put out more than once."""
        return self.every is not None or self.events is not None


Window = Tumbling | Sliding | Session | Events | Whole


def tumbling(
    size: Duration,
    *,
    on: str | None = None,
    lateness: Duration = "0s",
    idle: Duration | None = None,
    offset: Duration = "0s",
    zone: str | None = None,
    updates: Duration = "0s",
    early: Duration | None = None,
) -> Tumbling:
    """Windows of a fixed size over the event time in column `on`.

    Without `on` they are of processing time: an event is in the window in which the operator takes it, and a window
    closes when the wall clock reaches its end. The rest of this is about event time.

    A window closes when the watermark reaches its end. The watermark is the greatest time seen, minus `lateness`.
    With several senders the slowest one decides; one without events for `idle` no longer does.

    Windows begin at `offset` after a multiple of their size. With `zone="Europe/Paris"` they are days, or several, as
    clocks there show them: from midnight to midnight, also where that takes 23 or 25 hours.

    With `updates` a window that was put out at its end takes records for that much longer. Each event with such
    records makes the window come out again, whole, as the next `window_version`; records that come later still are
    late. With `early` a window that has got records is put out that long after, before its end and without closing.
    """
    return Tumbling(
        duration(size),
        on,
        duration(lateness),
        _span(idle),
        duration(offset),
        zone,
        duration(updates),
        _span(early),
    )


def _span(given: Duration | None) -> timedelta | None:
    return None if given is None else duration(given)


def sliding(
    size: Duration,
    step: Duration,
    *,
    on: str | None = None,
    lateness: Duration = "0s",
    idle: Duration | None = None,
    offset: Duration = "0s",
    zone: str | None = None,
    updates: Duration = "0s",
    early: Duration | None = None,
) -> Sliding:
    """Windows of a fixed size over the event time in column `on`, one every `step`: a record is in several of them.

    The options are those of `tumbling`; without `on` they are of processing time.
    """
    spans = duration(size), duration(step)
    more = duration(updates), _span(early)
    return Sliding(*spans, on, duration(lateness), _span(idle), duration(offset), zone, *more)


def session_window(
    gap: Duration, *, on: str | None = None, lateness: Duration = "0s", idle: Duration | None = None
) -> Session:
    """Windows of activity: records of a group (`by=`) that are not further apart than `gap` in the event time of
    column `on`. A session begins with its first record and ends a gap after its last one.

    A session closes when the watermark has passed its end. A record that lies between two sessions makes them one. It
    is late if it would be a session by itself that has closed. `lateness` and `idle` are those of `tumbling`.

    Without `on` sessions are of processing time: one ends when no record of its group has come for `gap`.
    """
    return Session(duration(gap), on, duration(lateness), _span(idle))


def whole(*, every: Duration | None = None, events: int | None = None) -> Whole:
    """One window for all events. It is put out at the end of the input, or by a run with `close=True`.

    With `every` it is also put out that long after something has come, with `events` after each so many events: what
    it comes to so far, with a column `window_version` that counts 1, 2, ... Each version logs which events it is made
    of, so the log grows with the number of versions.
    """
    return Whole(_span(every), events)


def events(n: int, *, within: Duration | None = None) -> Events:
    """Blocks of `n` events, in order of arrival. With `within` a block closes at the latest that long after its first
    event."""
    return Events(n, _span(within))
