"""Aggregates over windows of event time (LOG.io Examples 4 and 7).

The id of an input set is the start of its window; an event with records of several windows belongs to
several sets. A window is generated when the watermark reaches its end. Records of a window that has closed
leave on port `late`, as do records without a time: nothing is dropped in silence.

    orders.window("hourly", ll.tumbling("1h", on="date"), by=["item_id"], agg={"total": ("amount", "sum")})
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from logline.errors import OptionError, SchemaError
from logline.graph.operator import Batch, Context, Dependency, Emit, Event, Operator, SchemaLike
from logline.names import InsetId
from logline.operators.aggregates import Aggregates, Reduction, grouped
from logline.operators.blocks import BlockAggregate
from logline.operators.event_time import TimeAxis
from logline.operators.functions import Agg
from logline.operators.tables import columns_of
from logline.operators.windows import Events, Tumbling, Window

START, END = "window_start", "window_end"
_LATE = "late"


def WindowAggregate(  # reads as a constructor: one class per kind of window
    window: Window, by: Sequence[str], agg: Mapping[str, Agg]
) -> Operator[Any, Any]:
    """The operator that computes these aggregates over these windows."""
    aggregates = Aggregates(by, agg)
    match window:
        case Tumbling():
            return TumblingAggregate(window, aggregates)
        case Events():
            return BlockAggregate(window, aggregates)
    raise OptionError(f"{window!r} is not a window: use ll.tumbling(...) or ll.events(...)")


@dataclass(frozen=True, slots=True)
class _Open:
    """The event state of one window."""

    axis: TimeAxis
    parts: Any


class _Times(NamedTuple):
    """When the records of a batch happened."""

    batch: Batch
    axis: TimeAxis
    ticks: pa.Array
    starts: list[int]
    """Of the windows that they fall in."""


class _Memo:
    """What was worked out last. It is no part of what the operator is: a copy, here or in a worker, begins without,
    and the digest of the operator's code does not see it."""

    __slots__ = ("said_late", "times")

    def __init__(self) -> None:
        self.times: _Times | None = None
        self.said_late = False

    def __reduce__(self) -> tuple[type[_Memo], tuple[()]]:
        return _Memo, ()


class TumblingAggregate(Operator[_Open | Batch, None]):
    """One output event per window: its bounds, the group's columns, the aggregates."""

    reuses_memory = False

    def __init__(self, window: Tumbling, aggregates: Reduction[Any]) -> None:
        self.window = window
        self.aggregates = aggregates
        # The engine keeps the event clock of an operator that says which column holds the time.
        self.time = {"in": window.on}
        self.lateness = window.lateness
        self.idle = window.idle
        self._memo = _Memo()

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        schema = inputs["in"]
        if self.window.on not in schema.names:
            raise SchemaError(f"there is no time column {self.window.on!r}: the input has {columns_of(schema)}")
        bound = TimeAxis.of(schema.field(self.window.on).type, self.window.size).type
        bounds = [pa.field(START, bound), pa.field(END, bound)]
        made = self.aggregates.output(schema)
        if taken := sorted({START, END} & set(made.names)):
            raise OptionError(f"the window adds the column {taken[0]!r} itself; give yours another name")
        return {"out": pa.schema([*bounds, *made]), _LATE: schema}

    def dependencies(self, inputs: Mapping[str, pa.Schema]) -> Iterable[Dependency]:
        bounds = [Dependency(START, self.window.on, "from"), Dependency(END, self.window.on, "until")]
        return [*bounds, *grouped(self.aggregates)]

    def parameters(self) -> Mapping[str, object]:
        return {"size": self.window.size, "on": self.window.on}

    def assign(self, event: Event, ctx: Context[None]) -> Mapping[InsetId, Any]:
        _, axis, ticks, starts = self._times(event.batch)
        watermark = ctx.watermark
        sets: dict[InsetId, Any] = {}
        closed: list[datetime] = []
        for tick in starts:
            start, end = axis.instant(tick), axis.instant(tick + axis.size)
            if watermark is not None and end <= watermark:
                closed.append(start)
            else:
                sets[start] = None
                ctx.fire(start, at=end, clock="event")
        if closed or ticks.null_count:
            late = (_LATE, event.name)
            # The note holds what `update` can't know: which windows had closed when the event came.
            sets[late] = closed
            ctx.fire(late)
        return sets

    def update(self, inset: InsetId, acc: _Open | Batch | None, event: Event) -> _Open | Batch:
        batch, axis, ticks, starts = self._times(event.batch)
        if not isinstance(inset, datetime):
            closed = pa.array([axis.start(start) for start in event.note], pa.int64())
            late = pc.is_in(axis.floor(ticks), value_set=closed)
            return batch.filter(pc.or_(late, pc.is_null(ticks)))
        start = axis.start(inset)
        # The usual case, an event within one window, is spared the copy.
        whole = starts == [start] and not ticks.null_count
        rows = batch if whole else batch.filter(axis.within(ticks, start))
        return _Open(axis, self.aggregates.add(acc.parts if isinstance(acc, _Open) else None, rows))

    def generate(self, inset: InsetId, acc: _Open | Batch, ctx: Context[None]) -> Iterator[Emit]:
        if not isinstance(acc, _Open):
            timeless = acc[self.window.on].null_count
            if timeless:
                ctx.count("no_time", timeless)
            if acc.num_rows > timeless:
                ctx.count("late", acc.num_rows - timeless)
                self._say_late(acc.num_rows - timeless, ctx)
            yield Emit(acc, _LATE)
            return
        assert isinstance(inset, datetime)
        made = self.aggregates.result(acc.parts)
        start = acc.axis.start(inset)
        end = acc.axis.instant(start + acc.axis.size)
        for position, (name, instant) in enumerate([(START, inset), (END, end)]):
            bound = pa.repeat(pa.scalar(acc.axis.tick(instant), acc.axis.type), made.num_rows)
            made = made.add_column(position, name, bound)
        yield Emit(made)

    def _say_late(self, rows: int, ctx: Context[None]) -> None:
        """Once per life: a stream may have many. The counter `late` of the status has them all."""
        if not self._memo.said_late:
            self._memo.said_late = True
            ctx.log.info("%d records are late: their windows are out. They are on port %r", rows, _LATE)

    def _times(self, batch: Batch) -> _Times:
        """Worked out once per event: `assign` asks first, `update` for each of its sets after it."""
        last = self._memo.times
        if last is not None and last.batch is batch:
            return last
        column = batch.column(self.window.on)
        if last is not None and last.axis.type == column.type:
            axis = last.axis
        else:
            axis = TimeAxis.of(column.type, self.window.size)
        ticks = axis.ticks(column)
        self._memo.times = found = _Times(batch, axis, ticks, axis.starts(ticks))
        return found
