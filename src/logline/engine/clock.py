"""The event clock of an operator: a watermark over its channels, and the timers that wait for it.

The watermark is the minimum, over the channels that have neither ended nor been idle for `idle`, of the
greatest event time seen minus the lateness. A channel that has not started holds it back. It never goes back.
Event times are microseconds since 1970. Silence is waited for, so it is measured on the monotonic clock; what the
clocks say comes in as a value.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from logline.engine.moments import Monotonic
from logline.engine.sets import Timer
from logline.graph.operator import Clock
from logline.names import ChannelName, InsetId

WATERMARK = ChannelName("")
"""The key under which the watermark itself is logged beside the channels' greatest times."""


class EventClock:
    """The watermark of one operator."""

    def __init__(self, channels: Iterable[ChannelName], *, lateness: int, idle: int | None) -> None:
        self.lateness = lateness
        self.idle = idle
        self.greatest: dict[ChannelName, int | None] = dict.fromkeys(channels)
        self.active: dict[ChannelName, Monotonic] = {}
        self.ended: set[ChannelName] = set()
        self.watermark: int | None = None

    def restore(self, logged: dict[ChannelName, int], ended: Iterable[ChannelName], now: Monotonic) -> None:
        """As it was at the image's positions; silence is counted anew from now."""
        for channel in self.greatest:
            self.greatest[channel] = logged.get(channel)
            self.active[channel] = now
        self.ended = {c for c in ended if c in self.greatest}
        self.watermark = logged.get(WATERMARK)

    def rewire(self, channels: Iterable[ChannelName], now: Monotonic) -> None:
        """Other channels: what one of them has shown stays known, one that has come begins as any other does."""
        self.greatest = {channel: self.greatest.get(channel) for channel in channels}
        self.active = {channel: self.active.get(channel, now) for channel in self.greatest}
        self.ended &= self.greatest.keys()

    def saw(self, channel: ChannelName, time: int | None, now: Monotonic) -> None:
        """An event has arrived whose greatest time is this."""
        self.active[channel] = now
        if time is not None:
            known = self.greatest[channel]
            self.greatest[channel] = time if known is None else max(known, time)

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

    def _silent(self, channel: ChannelName, now: Monotonic) -> bool:
        return self.idle is not None and now - self.active.get(channel, now) >= self.idle

    def next_silence(self, now: Monotonic) -> Monotonic | None:
        """When a channel will have been silent for `idle`."""
        if self.idle is None:
            return None
        waits = [
            Monotonic(self.active.get(c, now) + self.idle)
            for c in self.greatest
            if c not in self.ended and not self._silent(c, now)
        ]
        return min(waits, default=None)

    def image(self) -> dict[ChannelName, int]:
        """What must be logged."""
        found = {c: t for c, t in self.greatest.items() if t is not None}
        if self.watermark is not None:
            found[WATERMARK] = self.watermark
        return found


class Timers:
    """At most one timer per id, the latest call wins; both clocks."""

    def __init__(self) -> None:
        self.by_id: dict[InsetId, Timer] = {}
        self._heaps: dict[Clock, list[tuple[int, int, InsetId]]] = {"event": [], "wall": []}
        self._count = 0

    def set(self, inset: InsetId, timer: Timer) -> None:
        """A timer, in the place of an earlier one."""
        self.by_id[inset] = timer
        self._count += 1
        heappush(self._heaps[timer.clock], (timer.at, self._count, inset))

    def clear(self, inset: InsetId) -> bool:
        """Whether there was one."""
        return self.by_id.pop(inset, None) is not None

    def first(self, clock: Clock) -> int | None:
        """The earliest time waited for."""
        heap = self._heaps[clock]
        while heap and self.by_id.get(heap[0][2]) != (heap[0][0], clock):
            heappop(heap)  # replaced or cleared since
        return heap[0][0] if heap else None

    def take(self, clock: Clock, upto: int) -> list[InsetId]:
        """Removes and returns the ids whose time has come, in the order of their times."""
        come = []
        while (at := self.first(clock)) is not None and at <= upto:
            inset = heappop(self._heaps[clock])[2]
            del self.by_id[inset]
            come.append(inset)
        return come
