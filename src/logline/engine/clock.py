"""The event clock of an operator: a watermark over its channels, and the timers that wait for it.

The watermark is the minimum, over the channels that have neither ended nor been idle for `idle`, of the
greatest event time seen minus the lateness. A channel that has not started holds it back. It never goes back.
A channel whose sender says how far its time is (R30) counts with what it says, and as idle while it says so.

Event times are microseconds since 1970. Silence is waited for, so it is measured on the monotonic clock; what the
clocks say comes in as a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import Any, Literal

from logline.engine.codec import instant, micros
from logline.engine.events import IDLE_HEADER, WATERMARK_HEADER, Headers
from logline.engine.moments import Moment, Monotonic, Wall
from logline.engine.sets import Timer
from logline.errors import a_kind
from logline.graph.durations import duration
from logline.names import ChannelName, InsetId, PortName

WATERMARK = ChannelName("")
"""The key under which the watermark itself is logged beside the channels' greatest times."""
SHOWN = ChannelName(">")
"""The key under which it is logged what the output ports have said of event time (`engine/port_time.py`)."""
_IDLE, _MARKS = "~", "#"


def marks_key(channel: ChannelName) -> ChannelName:
    """The key under which it is logged how many watermarks were taken of a channel that were no events."""
    return ChannelName(_MARKS + channel)


def port_marks_key(port: PortName) -> ChannelName:
    """The key under which it is logged how many watermarks a port has put out that are no events."""
    return ChannelName(f"{SHOWN}{_MARKS}{port}")


def of_inputs(clock: Mapping[ChannelName, int]) -> dict[ChannelName, int]:
    """What the logged clock says of the inputs alone."""
    return {key: value for key, value in clock.items() if not key.startswith(SHOWN)}


_Kind = Literal["event", "wall", "span", "most"]


class EventClock:
    """The watermark of one operator."""

    def __init__(self, channels: Iterable[ChannelName], *, lateness: int, idle: int | None) -> None:
        self.lateness = lateness
        self.idle = idle
        self.greatest: dict[ChannelName, int | None] = dict.fromkeys(channels)
        self.active: dict[ChannelName, Monotonic] = {}
        self.ended: set[ChannelName] = set()
        self.resting: dict[ChannelName, bool] = {}
        """Of channels whose sender has ever said that it is idle: whether it is."""
        self.marks: dict[ChannelName, int] = {}
        """Watermarks that were taken of a channel and were no events."""
        self.watermark: int | None = None

    def restore(self, logged: dict[ChannelName, int], ended: Iterable[ChannelName], now: Monotonic) -> None:
        """As it was at the image's positions; silence is counted anew from now."""
        for channel in self.greatest:
            self.greatest[channel] = logged.get(channel)
            self.active[channel] = now
            if (rests := logged.get(ChannelName(_IDLE + channel))) is not None:
                self.resting[channel] = bool(rests)
            if marks := logged.get(marks_key(channel)):
                self.marks[channel] = marks
        self.ended = {c for c in ended if c in self.greatest}
        self.watermark = logged.get(WATERMARK)

    def rewire(self, channels: Iterable[ChannelName], now: Monotonic) -> None:
        """Other channels: what one of them has shown stays known, one that has come begins as any other does."""
        self.greatest = {channel: self.greatest.get(channel) for channel in channels}
        self.active = {channel: self.active.get(channel, now) for channel in self.greatest}
        self.ended &= self.greatest.keys()
        self.resting = {channel: rests for channel, rests in self.resting.items() if channel in self.greatest}
        self.marks = {channel: marks for channel, marks in self.marks.items() if channel in self.greatest}

    def saw(self, channel: ChannelName, time: int | None, now: Monotonic) -> None:
        """An event has arrived whose greatest time is this."""
        self.active[channel] = now
        if channel in self.resting:
            self.resting[channel] = False
        if time is not None:
            known = self.greatest[channel]
            self.greatest[channel] = time if known is None else max(known, time)

    def told(self, channel: ChannelName, headers: Headers, now: Monotonic, *, mark: bool) -> None:
        """The sender says how far its time is, and whether it is idle: with an event, or by a mark."""
        time = headers.get(WATERMARK_HEADER)
        self.saw(channel, time if isinstance(time, int) else None, now)
        if headers.get(IDLE_HEADER):
            self.resting[channel] = True
        if mark:
            self.marks[channel] = self.marks.get(channel, 0) + 1

    def rests(self, now: Monotonic) -> bool:
        """Whether every channel that has not ended is idle."""
        live = [c for c in self.greatest if c not in self.ended]
        return bool(live) and all(self._silent(c, now) for c in live)

    def advance(self, now: Monotonic) -> int | None:
        """Moves the watermark as far as the channels allow now, and returns it. None: no time yet."""
        live = [c for c in self.greatest if c not in self.ended]
        awake = [c for c in live if not self._silent(c, now)]
        if awake:
            times = [self.greatest[c] for c in awake]
            if any(t is None for t in times):
                return self.watermark
            found = min(t for t in times if t is not None)
        else:  # all are silent or have ended: the furthest of them speaks
            known = [t for c, t in self.greatest.items() if t is not None and (not live or c in live)]
            if not known:
                return self.watermark
            found = max(known)
        found -= self.lateness
        if self.watermark is None or found > self.watermark:
            self.watermark = found
        return self.watermark

    def reach(self, time: int | None) -> None:
        """Moves the watermark on to this time, whatever the channels have shown."""
        if time is not None and (self.watermark is None or time > self.watermark):
            self.watermark = time

    def _silent(self, channel: ChannelName, now: Monotonic) -> bool:
        if self.resting.get(channel):
            return True
        return self.idle is not None and now - self.active.get(channel, now) >= self.idle

    def next_silence(self, now: Monotonic, among: Iterable[ChannelName] | None = None) -> Monotonic | None:
        """When a channel will have been silent for `idle`; one of these, or any."""
        if self.idle is None:
            return None
        waits = [
            Monotonic(self.active.get(c, now) + self.idle)
            for c in (self.greatest if among is None else among)
            if c not in self.ended and not self._silent(c, now)
        ]
        return min(waits, default=None)

    def image(self) -> dict[ChannelName, int]:
        """What must be logged."""
        found = {c: t for c, t in self.greatest.items() if t is not None}
        found.update((ChannelName(_IDLE + c), int(rests)) for c, rests in self.resting.items())
        found.update((marks_key(c), count) for c, count in self.marks.items())
        if self.watermark is not None:
            found[WATERMARK] = self.watermark
        return found


class Timers:
    """At most one timer per id, the latest call wins. A timer waits for a time of the event clock or of the wall
    clock, or for a span to pass, which is measured on the monotonic clock.

    A span is logged with the wall time at which it should be over. A new life waits for what is left of it by the
    wall clock, but never longer than the whole span. A time of the wall clock may have a longest wait beside it, for
    a clock that is set back: it is measured on the monotonic clock too, and a new life begins it anew.
    """

    def __init__(self) -> None:
        self.by_id: dict[InsetId, Timer] = {}
        self._heaps: dict[_Kind, list[tuple[int, int, InsetId]]] = {
            "event": [],
            "wall": [],
            "span": [],
            "most": [],
        }
        self._entry: dict[InsetId, int] = {}
        """Which entry of a heap counts for an id."""
        self._count = 0

    def set(self, inset: InsetId, timer: Timer, moment: Moment) -> None:
        """A timer, in the place of an earlier one."""
        self.by_id[inset] = timer
        self._count += 1
        self._entry[inset] = self._count
        if timer.is_span:
            left = min(max(timer.at - moment.wall, 0), timer.span)
            heappush(self._heaps["span"], (moment.after(left), self._count, inset))
        else:
            heappush(self._heaps[timer.clock], (timer.at, self._count, inset))
            if timer.span:
                heappush(self._heaps["most"], (moment.after(-timer.span), self._count, inset))

    def change(self, changes: Mapping[InsetId, Timer | None], moment: Moment) -> None:
        """Timers that are set, or None for one that is cleared."""
        for inset, timer in changes.items():
            if timer is None:
                self.clear(inset)
            else:
                self.set(inset, timer, moment)

    def clear(self, inset: InsetId) -> bool:
        """Whether there was one."""
        self._entry.pop(inset, None)
        return self.by_id.pop(inset, None) is not None

    def first_wall(self) -> Wall | None:
        """The earliest time of the wall clock that is waited for."""
        found = self._first("wall")
        return None if found is None else Wall(found)

    def first_span(self) -> Monotonic | None:
        """When the first span is over, or the longest wait for a time of the wall clock."""
        found = [at for kind in ("span", "most") if (at := self._first(kind)) is not None]
        return Monotonic(min(found)) if found else None

    def first_event(self) -> int | None:
        """The earliest time of the event clock that is waited for."""
        return self._first("event")

    def _first(self, kind: _Kind) -> int | None:
        heap = self._heaps[kind]
        while heap and self._entry.get(heap[0][2]) != heap[0][1]:
            heappop(heap)  # replaced or cleared since
        return heap[0][0] if heap else None

    def take_event(self, watermark: int) -> list[tuple[InsetId, Timer]]:
        """Removes and returns those whose event time has come, in the order of their times."""
        return self._take("event", watermark)

    def take(self, moment: Moment) -> list[tuple[InsetId, Timer]]:
        """Removes and returns those whose wall time has come or whose span is over, in the order of their times."""
        spans = (*self._take("most", moment.monotonic), *self._take("span", moment.monotonic))
        come = [*self._take("wall", moment.wall), *spans]
        return sorted(come, key=lambda one: one[1].at)

    def take_spans(self, these: Callable[[InsetId], bool]) -> list[tuple[InsetId, Timer]]:
        """Removes and returns these of those that wait for a span, whether it is over or not, in order."""
        found = [(inset, timer) for inset, timer in self.by_id.items() if timer.is_span and these(inset)]
        for inset, _ in found:
            self.clear(inset)
        return sorted(found, key=lambda one: one[1].at)

    def take_all(self) -> list[tuple[InsetId, Timer]]:
        """Removes and returns all, in the order of their times."""
        come = sorted(self.by_id.items(), key=lambda one: one[1].at)
        for inset, _ in come:
            self.clear(inset)
        return come

    def _take(self, kind: _Kind, upto: int) -> list[tuple[InsetId, Timer]]:
        come = []
        while (at := self._first(kind)) is not None and at <= upto:
            inset = heappop(self._heaps[kind])[2]
            come.append((inset, self.by_id[inset]))
            self.clear(inset)
        return come


def make_timer(said: str, at: Any, after: Any, clock: Any, *, now: Wall, has_event_clock: bool) -> Timer | None:
    """The timer that an author asks for; None for none, which is now. `said`: the call up to what is wrong with it,
    as in "fire('a', "."""
    if clock not in ("event", "wall"):
        raise ValueError(f"{said}clock={clock!r}): take one of 'event', 'wall'")
    if after is not None and at is None:
        return _timer_after(said, duration(after), now)
    if after is not None and clock == "event":
        raise TypeError(f"{said}at={at!r}, after={after!r}): give one of them; both only with clock='wall'")
    if at is None:
        return None
    if not isinstance(at, datetime):
        raise TypeError(f"{said}at={at!r}): give a datetime with a time zone, not {a_kind(at)}")
    if at.tzinfo is None:
        raise TypeError(f"{said}at={at!r}): give a time zone, for example datetime.timezone.utc")
    if clock == "event" and not has_event_clock:
        raise TypeError(
            f"{said}at=...) asks for the event clock, and the operator has none: "
            "give its source time=, declare time = {port: column}, or say clock='wall'"
        )
    if after is None:
        return Timer(micros(at), clock)
    most = duration(after) // timedelta(microseconds=1)
    return Timer(micros(at), clock, -most) if most else None


def _timer_after(said: str, span: timedelta, now: Wall) -> Timer | None:
    if span <= timedelta(0):
        return None
    try:
        at = instant(now) + span
    except OverflowError:
        raise ValueError(f"{said}after={span!s}): that would be after the year 9999") from None
    return Timer(micros(at), "wall", span // timedelta(microseconds=1))


def same_timer(known: Timer | None, timer: Timer) -> bool:
    """Whether there is such a timer. One that was set for a span goes on as it is if it is set anew for what is left
    of the span."""
    return known is not None and (known.at, known.clock, known.is_span) == (timer.at, timer.clock, timer.is_span)
