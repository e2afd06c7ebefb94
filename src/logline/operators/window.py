"""Aggregates over windows of event time (LOG.io Examples 4 and 7).

The id of an input set is the start of its window; an event with records of several windows belongs to
several sets. A window is generated when the watermark reaches its end. Records whose last window has closed
leave on port `late`, as do records without a time: nothing is dropped in silence.

A window may be put out several times: early, and again for records that come after its end (`updates`). It is fired
and kept open then (`ctx.fire(keep=True)`), so that each version is made of an input set of its own.

    orders.window("hourly", ll.tumbling("1h", on="date"), by=["item_id"], agg={"total": ("amount", "sum")})
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from logline.graph.operator import Batch, Context, Dependency, Emit, Event, Operator, SchemaLike
from logline.names import InsetId
from logline.operators.aggregates import Reduction, grouped
from logline.operators.bounds import END, START, bounded, check_time_column, with_bounds, with_version
from logline.operators.event_time import TimeAxis, earlier
from logline.operators.late import LATE, LateRecords
from logline.operators.saving import batches_to_bytes, pack, read_batches, read_types, types_to_bytes, unpack
from logline.operators.windows import Sliding, Tumbling

_LAST = datetime.max.replace(tzinfo=UTC)
_SORTED = 4
"""Panes from which on an event is sorted by them."""
_SHARE = 4
"""How much smaller than the mean of its event a window's part may be."""


@dataclass(frozen=True, slots=True)
class OpenWindow:
    """The event state of one window."""

    axis: TimeAxis
    parts: Any


class Times(NamedTuple):
    """When the records of a batch happened."""

    batch: Batch
    axis: TimeAxis
    ticks: pa.Array
    panes: list[int]
    """Where the panes begin that they fall in."""


class _Memo:
    """What was worked out last. It is no part of what the operator is: a copy, here or in a worker, begins without,
    and the digest of the operator's code does not see it."""

    __slots__ = ("by_pane", "times")

    def __init__(self) -> None:
        self.times: Times | None = None
        self.by_pane: tuple[Batch, dict[int, tuple[int, int]]] | None = None
        """The same records pane by pane, and where each pane begins and how many it has; if it was wanted."""

    def __reduce__(self) -> tuple[type[_Memo], tuple[()]]:
        return _Memo, ()


class TumblingAggregate(Operator[OpenWindow | Batch, Any]):
    """One output event per window: its bounds, the group's columns, the aggregates."""

    reuses_memory = False
    untimed = (LATE,)

    def __init__(self, window: Tumbling | Sliding, aggregates: Reduction[Any]) -> None:
        self.window = window
        self.aggregates = aggregates
        # The engine keeps the event clock of an operator that says which column holds the time.
        self.on = window.on or ""  # none where the windows are of processing time
        self.time: Mapping[str, str] = {"in": self.on}
        self.lateness = window.lateness
        self.idle = window.idle
        self._memo = _Memo()
        self._late = LateRecords()
        self._versions = self.moves_members = bool(window.updates) or window.early is not None

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        schema = inputs["in"]
        check_time_column(schema, self.on)
        bound = self._axis(schema.field(self.on).type).type
        return {"out": bounded(self.aggregates, schema, bound, versions=self._versions), LATE: schema}

    def dependencies(self, inputs: Mapping[str, pa.Schema]) -> Iterable[Dependency]:
        bounds = [Dependency(START, self.on, "from"), Dependency(END, self.on, "until")]
        return [*bounds, *grouped(self.aggregates)]

    def parameters(self) -> Mapping[str, object]:
        window = self.window
        moved = {"offset": window.offset} if window.offset else {}
        zoned = {"zone": window.zone} if window.zone else {}
        return {"size": window.size, "on": self.on, **moved, **zoned}

    def passes(self, watermark: datetime) -> datetime:
        """The start of the earliest window that is not closed: what comes out carries the start of its window."""
        watermark = earlier(watermark, self.window.updates)
        axis = self._axis(pa.timestamp("us", "UTC"))
        (pane,) = axis.panes(pa.array([axis.tick(watermark)], pa.int64()))
        return next((start for start in map(axis.instant, axis.windows(pane))), watermark)

    def earliest(self, inset: InsetId, acc: OpenWindow | Batch) -> datetime | None:
        return inset if isinstance(inset, datetime) else None

    def assign(self, event: Event, ctx: Context[Any]) -> Mapping[InsetId, Any]:
        _, axis, ticks, panes = self._times(event.batch)
        watermark = ctx.watermark
        sets: dict[InsetId, Any] = {}
        closed: dict[int, datetime] = {}
        windows = {pane: axis.windows(pane) for pane in panes}
        for tick in sorted({start for starts in windows.values() for start in starts}):
            start, end = axis.instant(tick), axis.instant(axis.end(tick))
            close = min(end, _LAST - self.window.updates) + self.window.updates
            if watermark is not None and close <= watermark:
                closed[tick] = start
            else:
                sets[start] = None
                ctx.fire(start, at=close, clock="event")
                if self._versions:
                    self._fire_versions(start, end, watermark, ctx)
        # The last window of a record closes last.
        over = [closed[tick] for tick in sorted({starts[-1] for starts in windows.values()}) if tick in closed]
        if over or ticks.null_count:
            late = (LATE, event.name)
            # The note holds what `update` can't know: which windows had closed when the event came.
            sets[late] = over
            ctx.fire(late)
        partly = [pane for pane, starts in windows.items() if starts[0] in closed and starts[-1] not in closed]
        if partly:
            inside = pc.is_in(axis.pane_of(ticks), value_set=pa.array(partly, pa.int64()))
            ctx.count("late_in_part", pc.sum(inside).as_py())
        return sets

    def _fire_versions(self, start: datetime, end: datetime, watermark: datetime | None, ctx: Context[Any]) -> None:
        """The window is to be put out before it closes."""
        if watermark is not None and end <= watermark:
            ctx.fire(start, keep=True)  # it was put out, and this event changes it
            return
        if self.window.updates:
            ctx.fire(start, at=end, clock="event", keep=True)
        if self.window.early is not None:
            ctx.fire(start, after=self.window.early, keep=True)

    def update(self, inset: InsetId, acc: OpenWindow | Batch | None, event: Event) -> OpenWindow | Batch:
        times = self._times(event.batch)
        batch, axis, ticks, _ = times
        if not isinstance(inset, datetime):
            closed = pa.array([axis.start(start) for start in event.note], pa.int64())
            late = pc.is_in(axis.floor(ticks), value_set=closed)
            return batch.filter(pc.or_(late, pc.is_null(ticks)))
        parts = acc.parts if isinstance(acc, OpenWindow) else None
        return OpenWindow(axis, self._add(parts, times, axis.start(inset)))

    def _add(self, parts: Any, times: Times, start: int) -> Any:
        """The state of the window that begins at `start`, with its rows of an event."""
        batch, axis, ticks, panes = times
        # The usual case, an event within one window, is spared the copy.
        inside = not ticks.null_count and start <= panes[0] and panes[-1] < axis.end(start)
        return self.aggregates.add(parts, batch if inside else self._rows(times, start))

    def _rows(self, times: Times, start: int) -> Batch:
        """The rows of the window that begins at `start`, in their order. An event of many windows is sorted by window
        once: to look at all of its rows for each of them costs the square of its size."""
        batch, axis, ticks, panes = times
        if len(panes) < _SORTED or axis.size != axis.step:
            return batch.filter(axis.within(ticks, start))
        if self._memo.by_pane is None:
            order, places = axis.by_pane(ticks)
            self._memo.by_pane = batch.take(order), places
        rows, places = self._memo.by_pane
        first, many = places.get(start, (0, 0))
        found = rows.slice(first, many)
        # A slice keeps all rows of the event in memory. Windows that have their share of them hold it together; the
        # one row that came late by far is copied.
        return found if many * len(panes) * _SHARE >= rows.num_rows else found.take(pa.array(range(many), pa.int64()))

    def _result(self, parts: Any) -> pa.Table:
        return self.aggregates.result(parts)

    def generate(self, inset: InsetId, acc: OpenWindow | Batch, ctx: Context[Any]) -> Iterator[Emit]:
        if not isinstance(acc, OpenWindow):
            yield from self._late.leave(acc, self.on, ctx)
            return
        assert isinstance(inset, datetime)
        if not ctx.changed:
            return  # it closes, and its last version has all
        axis = acc.axis
        end = axis.instant(axis.end(axis.start(inset)))
        made = with_bounds(self._result(acc.parts), axis.type, axis.tick(inset), axis.tick(end))
        yield Emit(with_version(made, ctx.version, 2) if self._versions else made)

    def encode(self, acc: OpenWindow | Batch) -> bytes:
        if not isinstance(acc, OpenWindow):
            return pack((None, batches_to_bytes([acc])))
        axis = acc.axis
        bounds = (types_to_bytes({"type": axis.type}), axis.size, axis.step, axis.offset, axis.zone)
        return pack((bounds, self._encode_parts(acc.parts)))

    def decode(self, data: bytes) -> OpenWindow | Batch:
        bounds, parts = unpack(data)
        if bounds is None:
            return read_batches(parts)[0]
        kind, *rest = bounds
        return OpenWindow(TimeAxis(read_types(kind)["type"], *rest), self._decode_parts(parts))

    def layout(self) -> str:
        return f"{super().layout()} {self.aggregates.layout()}"

    def _encode_parts(self, parts: Any) -> bytes:
        return self.aggregates.encode(parts)

    def _decode_parts(self, data: bytes) -> Any:
        return self.aggregates.decode(data)

    def _times(self, batch: Batch) -> Times:
        """Worked out once per event: `assign` asks first, `update` for each of its sets after it."""
        last = self._memo.times
        if last is not None and last.batch is batch:
            return last
        column = batch.column(self.on)
        if last is not None and last.axis.type == column.type:
            axis = last.axis
        else:
            axis = self._axis(column.type)
        ticks = axis.ticks(column)
        self._memo.times = found = Times(batch, axis, ticks, axis.panes(ticks))
        self._memo.by_pane = None
        return found

    def _axis(self, column: pa.DataType) -> TimeAxis:
        window = self.window
        return TimeAxis.of(column, window.size, window.step, window.offset, window.zone)
