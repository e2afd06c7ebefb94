"""Windows of processing time: a row is in the window in which its event came, by the wall clock (`ctx.now()`).

The time is read once, in `assign`. What it says is logged with the event's membership: the id of the input set is
the start of a window, and the note holds the rest. So recovery neither asks again nor moves a row (R5). A window
closes at a timer of the wall clock, which is logged too (R6). No row is late.

    clicks.window("busy", ll.tumbling("10s"), by=["user"], agg={"clicks": ("url", "count")})

Somebody may set the wall clock back. A timer then waits little longer than it would have (`PATIENCE`). A window that
is out is not opened again as long as the clock is behind by no more than a window: rows go into the first one that is
not out. A clock that is further behind is believed, and windows of that time may come out once more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pyarrow as pa

from logline.engine.codec import micros
from logline.graph.operator import Batch, Context, Dependency, Emit, Event, Operator, SchemaLike
from logline.names import InsetId
from logline.operators.aggregates import Aggregates, Parts, Reduction, grouped
from logline.operators.bounds import bounded, with_bounds
from logline.operators.saving import pack, unpack
from logline.operators.session_runs import runs_of, taken
from logline.operators.sessions import SESSION
from logline.operators.sliding import SlidingAggregate
from logline.operators.window import OpenWindow, Times, TumblingAggregate
from logline.operators.windows import Session, Sliding, Tumbling

BOUND = pa.timestamp("us", "UTC")
"""The type of the bounds."""
PATIENCE = timedelta(seconds=1)
"""How much longer than planned a timer waits for a wall clock that was set back."""
_TICKS = pa.int64()
_ANY = pa.nulls(0, _TICKS)  # made of no Python objects: for these Arrow imports pandas
_CLOCK = {"clock": "wall"}


class Progress(msgspec.Struct):
    """How far the windows are."""

    newest: datetime | None = None
    """Where the latest one begins that was opened."""


class TumblingArrivals(TumblingAggregate):
    """One output event per window: its bounds, the group's columns, the aggregates."""

    # The bounds are no event time: what is behind it goes by a column of its own.
    untimed = ("out",)
    State = Progress

    def __init__(self, window: Tumbling | Sliding, aggregates: Reduction[Any]) -> None:
        super().__init__(window, aggregates)
        self.time = {}
        self.axis = self._axis(BOUND)

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        return {"out": bounded(self.aggregates, inputs["in"], BOUND, versions=self._versions)}

    def dependencies(self, inputs: Mapping[str, pa.Schema]) -> Iterable[Dependency]:
        return grouped(self.aggregates)

    def parameters(self) -> Mapping[str, object]:
        return {name: value for name, value in super().parameters().items() if name != "on"} | _CLOCK

    def assign(self, event: Event, ctx: Context[Progress]) -> Mapping[InsetId, Any]:
        if not event.batch.num_rows:
            return {}
        axis, now, opened = self.axis, ctx.now(), ctx.open_sets()
        pane = self._pane_at(self._time(now, opened, ctx.state))
        newest = ctx.state.newest
        sets: dict[InsetId, Any] = {}
        for tick in axis.windows(pane):
            start, end = axis.instant(tick), axis.instant(axis.end(tick))
            if newest is not None and start <= newest and start not in opened:
                continue  # it is out
            # The note holds what `update` can't know: in which pane of its windows the event came.
            sets[start] = pane
            ctx.fire(start, at=end, after=end - now + PATIENCE, clock="wall")
            if self.window.early is not None:
                ctx.fire(start, after=self.window.early, keep=True)
            ctx.state.newest = start if ctx.state.newest is None else max(start, ctx.state.newest)
        return sets

    def _time(self, now: datetime, opened: Collection[InsetId], state: Progress) -> datetime:
        """The time that counts: the wall clock's, or the first one that is not over if that was set back a little."""
        axis, newest = self.axis, state.newest
        start = axis.instant(axis.windows(self._pane_at(now))[-1])
        if newest is None or start > newest or start in opened:
            return now
        if newest - start > self.window.size:
            state.newest = None  # it was set back in earnest: what it says now counts
            return now
        return newest if newest in opened else axis.instant(axis.end(axis.start(newest)))

    def _pane_at(self, instant: datetime) -> int:
        (pane,) = self.axis.panes(pa.array([self.axis.tick(instant)], _TICKS))
        return pane

    def update(self, inset: InsetId, acc: OpenWindow | Batch | None, event: Event) -> OpenWindow:
        assert isinstance(inset, datetime)
        parts = acc.parts if isinstance(acc, OpenWindow) else None
        times = Times(event.batch, self.axis, _ANY, [event.note])  # all rows came at once
        return OpenWindow(self.axis, self._add(parts, times, self.axis.start(inset)))


class SlidingArrivals(TumblingArrivals, SlidingAggregate):
    """The same, of windows that overlap."""


@dataclass(frozen=True, slots=True)
class Visit:
    """The event state of a session: when its first and its last event came, in microseconds."""

    first: int
    last: int
    parts: Parts


class SessionArrivals(Operator[Visit, None]):
    """One output event per session: its bounds, the group's columns, the aggregates.

    A session is over when a gap has passed without a row of its group. None ever merges with another one.
    """

    reuses_memory = False
    untimed = ("out",)

    def __init__(self, window: Session, aggregates: Aggregates) -> None:
        self.window = window
        self.aggregates = aggregates

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        return {"out": bounded(self.aggregates, inputs["in"], BOUND)}

    def dependencies(self, inputs: Mapping[str, pa.Schema]) -> Iterable[Dependency]:
        return grouped(self.aggregates)

    def parameters(self) -> Mapping[str, object]:
        # The groups are part of the ids: with others, nobody would find the sessions that are open.
        return {"gap": self.window.gap, "by": ", ".join(self.aggregates.by), **_CLOCK}

    def assign(self, event: Event, ctx: Context[None]) -> Mapping[InsetId, Any]:
        gap, now = self.window.gap, ctx.now()
        at_once = pa.repeat(pa.scalar(0, _TICKS), event.batch.num_rows)
        sets: dict[InsetId, Any] = {}
        for run in runs_of(event.batch, at_once, self.aggregates.by, 0):
            known = ctx.open_sets((SESSION, *run.key))
            # One whose timer has come, and that is still to be looked at, is over.
            going = [inset for inset, visit in known.items() if micros(now) < visit.last + self._gap]
            into = going[-1] if going else (SESSION, *run.key, now)
            # The note holds what `update` can't know: when the event came, and which of its rows are of this group.
            sets[into] = [micros(now), *run.rows]
            ctx.fire(into, at=now + gap, after=gap + PATIENCE, clock="wall")
        return sets

    @property
    def _gap(self) -> int:
        return self.window.gap // timedelta(microseconds=1)

    def update(self, inset: InsetId, acc: Visit | None, event: Event) -> Visit:
        came, *rows = event.note
        part = taken(event.batch, rows)
        if acc is None:
            return Visit(came, came, self.aggregates.add(None, part))
        parts = self.aggregates.add(acc.parts, part)
        return Visit(min(came, acc.first), max(came, acc.last), parts)

    def generate(self, inset: InsetId, acc: Visit, ctx: Context[None]) -> Iterator[Emit]:
        yield Emit(with_bounds(self.aggregates.result(acc.parts), BOUND, acc.first, acc.last + self._gap))

    def encode(self, acc: Visit) -> bytes:
        return pack((acc.first, acc.last, self.aggregates.encode(acc.parts)))

    def decode(self, data: bytes) -> Visit:
        first, last, parts = unpack(data)
        return Visit(first, last, self.aggregates.decode(parts))

    def layout(self) -> str:
        return f"{super().layout()} {self.aggregates.layout()}"
