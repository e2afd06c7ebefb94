"""The receiving side: events of each channel, read ahead from the sender's journal, taken in order (R4)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from logline.engine import actions as do
from logline.engine.events import Output, Position
from logline.engine.image import Image
from logline.engine.spec import InstanceSpec, Limits
from logline.errors import EngineError
from logline.names import ChannelName, Ssn


class _Channel:
    __slots__ = ("events", "fetched", "fetching", "name", "nbytes", "nothing_after", "position", "stale")

    def __init__(self, name: ChannelName) -> None:
        self.name = name
        self.events: deque[Output] = deque()
        self.nbytes = 0
        self.position = Position()
        """What has been handed to the phases."""
        self.fetched = Ssn(0)
        self.fetching = False
        self.stale = True
        """Whether there may be more in the sender's journal than has been fetched."""
        self.nothing_after: Ssn | None = None
        """Where a look found nothing more."""

    @property
    def over(self) -> bool:
        """Whether its end was taken in, and is not taken back: a look behind it has found nothing (R11')."""
        return self.position.ended and self.nothing_after == self.position.ssn


class Inbox:
    """The channels into one instance."""

    def __init__(self, spec: InstanceSpec) -> None:
        self.limits: Limits = spec.limits
        self.channels = {c.name: _Channel(c.name) for c in spec.inputs}
        self._turn: deque[_Channel] = deque(self.channels.values())
        self.marked = False
        """Whether the last run that was taken has a mark in it."""
        self._stored: dict[ChannelName, Position] = {}
        """Where channels were that are not among those of now."""

    def restore(self, image: Image) -> None:
        """Above the stored position an event is new; at or below it, it is a member or done with (R5)."""
        self._stored = dict(image.positions)
        for channel in self.channels.values():
            self._begin(channel)

    def _begin(self, channel: _Channel) -> None:
        channel.position = self._stored.get(channel.name, Position())
        channel.fetched = channel.position.ssn

    def rewire(self, spec: InstanceSpec) -> None:
        """Senders have come or gone. One that has come begins where its channel was last; what was read ahead of one
        that has gone is dropped: it was not taken."""
        if not spec.inputs:
            raise EngineError(f"{spec.name} would be left without an input: it could never end")
        for name, channel in self.channels.items():
            self._stored[name] = channel.position
        known = self.channels
        self.channels = {c.name: known.get(c.name) or _Channel(c.name) for c in spec.inputs}
        for name, channel in self.channels.items():
            if name not in known:
                self._begin(channel)
        self._turn = deque(self.channels.values())

    def rung(self) -> None:
        """Remembers that any sender may have more events."""
        for channel in self.channels.values():
            channel.stale = True

    def fetches(self) -> list[do.Action]:
        """The fetches that read ahead now."""
        found: list[do.Action] = []
        for channel in self.channels.values():
            if (
                channel.stale
                and not channel.fetching
                and not channel.over
                and channel.nbytes < self.limits.inbox_bytes
            ):
                channel.fetching = True
                channel.stale = False
                found.append(do.Fetch(channel.name, channel.fetched))
        return found

    def fetched(self, name: ChannelName, after: Ssn, events: Sequence[Output]) -> None:
        """A run of events; where there was something there may be more."""
        channel = self.channels.get(name)
        if channel is None:
            return  # of a sender that has gone meanwhile
        channel.fetching = False
        if not events:
            channel.nothing_after = after
            return
        if after != channel.fetched or events[0].ssn != after + 1:
            raise EngineError(f"{name}: asked for events after {after}, got {events[0].ssn} (R4)")
        channel.events.extend(events)
        channel.nbytes += sum(e.nbytes for e in events)
        channel.fetched = events[-1].ssn
        channel.stale = True

    @property
    def waiting(self) -> bool:
        """Whether an event is at hand."""
        return any(channel.events for channel in self.channels.values())

    def take(self, most: int) -> tuple[list[tuple[ChannelName, Output]], dict[ChannelName, Position]]:
        """The next run, channel by channel in turn, and the positions after it."""
        run: list[tuple[ChannelName, Output]] = []
        self.marked = False
        positions: dict[ChannelName, Position] = {}
        for _ in range(len(self._turn)):
            channel = self._turn[0]
            self._turn.rotate(-1)
            name, events = channel.name, channel.events
            last, marks = None, channel.position.marks
            while events and len(run) < most:
                last = events.popleft()
                channel.nbytes -= last.nbytes
                if last.kind != "event":
                    self.marked = True
                    marks += last.kind in ("end", "reopened")
                run.append((name, last))
            if last is not None:
                channel.position = positions[name] = Position(last.ssn, last.total, marks)
            if len(run) >= most:
                break
        return run, positions

    @property
    def ended(self) -> bool:
        """Whether every channel has ended, and its end has been taken in."""
        return all(channel.over for channel in self.channels.values())
