"""What lineage scopes keep, and for how long (R12; LOG.io section 3.6).

A scope keeps an event of its paths for `keep`, also one of which nothing was made: why, is asked later. It keeps all
that an event was made of for as long as the event. So what is needed is passed on against the stream: an instance
that still keeps outputs needs the members of the sets they were made from; its senders read that in its journal
(`Needs.low`) and keep those events, and with them the history of the sets that made them.

A scope's time is an age by the wall clock. Where that clock was set back, what is stamped with a time that has not
come yet would be kept until it comes, and for the scope's time beyond. So its age is counted, on the monotonic clock,
from when this life first saw it, and whichever is over first counts.

History is kept and dropped in segments. One is begun every 128th of a scope's time or size, so what is kept may be
kept that much longer. Where receivers hold back far more than that, one is begun every 128th of what is there: there
are few of them then too, and none is so large that it keeps what is behind it. A segment is not needed when none of
its outputs is: too old or too many at a target, and below what every receiver of the port still needs. Sets that are
open can become part of a lineage: their members count as needed.

Retried rows lead from a later event of an instance to an earlier one of its own, on port `errors`. So that port is
needed from the first such event on, as long as what came of it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from logline.engine.history import Segment
from logline.engine.image import Image, Needs
from logline.engine.moments import Moment, Monotonic, Wall
from logline.engine.sets import Member
from logline.engine.spec import InstanceSpec, again_channel
from logline.engine.step import Step
from logline.names import ERRORS, ChannelName, PortName, Serial, Ssn

PARTS = 128
"""Segments that a scope's time or size is divided into."""


class Retention:
    """The kept history of one instance."""

    def __init__(self, spec: InstanceSpec) -> None:
        self.spec = spec
        self.segments: list[Segment] = []
        self._lows: dict[Serial, dict[ChannelName, Ssn]] = {}
        """The first member of each set that is not done, by channel."""
        sizes = [keep.nbytes for keep in spec.retain.values() if keep.nbytes is not None]
        self._span = min((keep.age for keep in spec.retain.values()), default=0) // PARTS
        self._bytes = min(sizes) // PARTS if sizes else None
        self._expired = 0
        self._ahead: dict[int, Monotonic] = {}
        """Segments whose time has not come yet by the wall clock, and when that was first seen."""

    def rewire(self, spec: InstanceSpec) -> None:
        """Channels have come or gone; what is kept of the ports is the same."""
        self.spec = spec

    def restore(self, image: Image) -> None:
        """Takes over what the image says."""
        self.segments = [image.segments[number] for number in sorted(image.segments)]
        for serial, opened in image.sets.items():
            if opened.checkpoint is not None and opened.checkpoint.lows:
                self._lows[serial] = dict(opened.checkpoint.lows)
            self.joined((serial, member) for member in opened.members)

    # ---- capture ---------------------------------------------------------------------------------------

    def joined(self, members: Iterable[tuple[Serial, Member]]) -> None:
        """Events joined sets; those of enabled channels count."""
        for serial, (channel, ssn, _) in members:
            if channel in self.spec.traced_in:
                known = self._lows.setdefault(serial, {})
                known[channel] = min(ssn, known.get(channel, ssn))

    def merged(self, serial: Serial) -> None:
        """The set is part of another one, whose members its members are now (R32)."""
        self._lows.pop(serial, None)

    def lows(self, serial: Serial) -> dict[ChannelName, Ssn]:
        """The first member of an open set by each enabled channel: a checkpoint keeps it (R22)."""
        return dict(self._lows.get(serial, {}))

    def close(self, serial: Serial, step: Step, *, made: bool) -> bool:
        """The set is done. Whether its history is kept: it made something on an enabled port, and of something that
        came by an enabled channel (Example 5)."""
        lows = self._lows.pop(serial, None) if self._lows else None
        if not made:
            return False
        if lows is None:
            alone = step.sets.alone.get(serial)
            if alone is None or alone.channel not in self.spec.traced_in:
                return False
            if self.spec.ordered:
                return True  # part of a run, which knows where it begins
            lows = {alone.channel: alone.ssn}
        step.reach_down(lows)
        return True

    def record(self, step: Step, now: Wall) -> None:
        """Puts what the step adds to the history into a segment, before it is committed."""
        if self.spec.retain:
            self._grow(step, now)
        # A member that is kept below its port's base can still be asked for what came of it.
        for channel, base in step.forget.items():
            step.forget[channel] = min(base, self.low(channel) or base)

    def _grow(self, step: Step, now: Wall) -> None:
        retain = self.spec.retain
        ports = {port: reached for port, reached in step.reads.reveal.items() if port in retain}
        ports.update((o.port, (o.ssn, o.total)) for o in step.outputs if o.port in retain)
        if not ports and not step.lineage.kept and not step.lineage.lone:
            return
        for run in step.lineage.lone:
            step.reach_down({run.channel: run.ssn})
        last = self.segments[-1] if self.segments else None
        if last is None or self._full(last, ports, now):
            number = (self._expired if last is None else last.number) + 1
            begun = Segment(number, now, now, {}, {})
            self.segments.append(begun if last is None else begun._replace(ports=last.ports))
        last = self.segments[-1]
        lows = {c: min(step.lineage.lows.get(c, ssn), ssn) for c, ssn in last.lows.items()}
        step.lineage.segment = last._replace(
            at=max(last.at, now), ports=last.ports | ports, lows=step.lineage.lows | lows
        )
        self.segments[-1] = step.lineage.segment

    def _full(self, last: Segment, ports: Mapping[PortName, tuple[Ssn, int]], now: Wall) -> bool:
        first = self.segments[0]
        if not 0 <= now - last.began <= max(self._span, (now - first.began) // PARTS):  # also: the clock was set back
            return True
        if self._bytes is None:
            return False
        before = self.segments[-2].ports if len(self.segments) > 1 else {}
        for port, (_, total) in ports.items():
            there = total - first.ports.get(port, (0, total))[1]
            if total - before.get(port, (0, 0))[1] > max(self._bytes, there // PARTS):
                return True
        return False

    # ---- retention -------------------------------------------------------------------------------------

    def floors(
        self, needs: Mapping[ChannelName, Needs], durable: Mapping[PortName, Ssn], moment: Moment
    ) -> dict[PortName, Ssn]:
        """The first SSN of each kept port that is needed: by a receiver, or by the age of its own events."""
        for segment in self.segments:
            if segment.at > moment.wall:
                self._ahead.setdefault(segment.number, moment.monotonic)
        found: dict[PortName, Ssn] = {}
        for port, keep in sorted(self.spec.retain.items(), key=lambda entry: entry[0] == ERRORS):
            floor = Ssn(durable[port] + 1)
            for channel in self.spec.ports[port]:
                floor = min(floor, _needed(needs.get(channel.name)))
            floor = min(floor, self._after(port, durable, self._older(moment, keep.age)))
            if port == ERRORS:
                floor = self._retried(floor, found)
            if keep.nbytes is not None and self.segments:
                most = self.segments[-1].ports.get(port, (0, 0))[1] - keep.nbytes
                floor = max(floor, self._after(port, durable, _beyond(port, most)))
            found[port] = floor
        return found

    def _retried(self, floor: Ssn, others: Mapping[PortName, Ssn]) -> Ssn:
        """The first error that is needed for what came of it, or will come. The newest segment first: what came of an
        error is never older, and may be an error that was retried in its turn."""
        again = again_channel(self.spec.name)
        floor = min([floor, *(lows.get(again, floor) for lows in self._lows.values())])
        for segment in reversed(self.segments):
            last = {port: ssn for port, (ssn, _) in segment.ports.items()}
            if last.get(ERRORS, 0) >= floor or any(last.get(port, 0) >= first for port, first in others.items()):
                floor = min(floor, segment.lows.get(again, floor))
        return floor

    def _after(self, port: PortName, durable: Mapping[PortName, Ssn], gone: Callable[[Segment], bool]) -> Ssn:
        """The first SSN after the leading segments that are `gone`; where there is none, nothing is kept any more."""
        floor = Ssn(1)
        for segment in self.segments:
            if not gone(segment):
                return floor
            floor = Ssn(segment.ports.get(port, (0, 0))[0] + 1)
        return min(floor, Ssn(durable[port] + 1)) if self.segments else Ssn(durable[port] + 1)

    def _older(self, moment: Moment, age: int) -> Callable[[Segment], bool]:
        def older(segment: Segment) -> bool:
            if segment.at <= moment.wall - age:
                return True
            seen = self._ahead.get(segment.number)
            return seen is not None and seen <= moment.monotonic - age

        return older

    def low(self, channel: ChannelName) -> Ssn | None:
        """The first event of the channel that the kept history leads to."""
        return min((s.lows[channel] for s in self.segments if channel in s.lows), default=None)

    def expire(self, floors: Mapping[PortName, Ssn], moment: Moment) -> int:
        """Drops the segments of which nothing is needed; the number of the last one, 0 if there is none. What sets
        asked that made nothing (`Answer`) is needed for the scope's time, unless a size bounds it."""
        retain = self.spec.retain.values()
        bounded = any(keep.nbytes is not None for keep in retain)
        older = self._older(moment, max((keep.age for keep in retain), default=0))
        found = 0
        while (
            self.segments
            and all(self.segments[0].ports.get(p, (0, 0))[0] < f for p, f in floors.items())
            and (bounded or older(self.segments[0]))
        ):
            found = self._expired = self.segments.pop(0).number
            self._ahead.pop(found, None)
        return found


def _needed(need: Needs | None) -> Ssn:
    """The first SSN that a receiver needs, for its own recovery or for what it made; all if it is not known."""
    if need is None:
        return Ssn(1)
    first = min(Ssn(need.position.ssn + 1), *need.members, Ssn(1 << 62))
    return first if need.low is None else min(first, need.low)


def _beyond(port: PortName, most: int) -> Callable[[Segment], bool]:
    return lambda segment: segment.ports.get(port, (0, 0))[1] <= most
