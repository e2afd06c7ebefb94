"""The joins that there are: by an interval of time, by windows, and of everything.

StreamJoin(left, right, ("-5m", "10m"), on=["id"], time="at")
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from logline.errors import OptionError, SchemaError
from logline.graph.durations import duration, shown, shown_signed, signed
from logline.graph.operator import Batch, Context, Dependency, Duration, Emit, Event, Operator, SchemaLike
from logline.names import InsetId
from logline.operators.bounds import END, START
from logline.operators.checks import column_name
from logline.operators.event_time import TimeAxis, earlier
from logline.operators.join import Held, Join, Part, TimedJoin, side_of
from logline.operators.join_columns import LEFT, RIGHT, SIDES, How, JoinColumns, On, Side
from logline.operators.join_sets import Panes, Reach, ticks_of
from logline.operators.matching import Near
from logline.operators.tables import columns_of
from logline.operators.whole import ALL
from logline.operators.windows import Sliding, Tumbling, Whole

Within = tuple[Duration, Duration] | Tumbling | Sliding | Whole
TimeColumns = str | tuple[str, str]
"""The event-time column of both sides, or of the left and of the right one."""
UNMATCHED = "unmatched"
_SHORTEST = timedelta(seconds=1)
_WAIT = "and give the window lateness= to wait for rows that come late"
_SOONER = "and join within ll.tumbling(...) or an interval of time to have rows before the end"


class IntervalJoin(TimedJoin):
    """A row of the left side matches rows of the right side whose times are from `low` to `high` after its own.

    A set is a bucket of the left side's time with the right rows in reach. A right join goes by buckets of the right
    side. An outer join has both: what a left row matches, and apart from that right rows that match nothing.
    """

    # A row that has missed a set would be joined in part, or be put out as unmatched though it is not.
    late_by = 0

    def __init__(
        self,
        columns: JoinColumns,
        low: timedelta,
        high: timedelta,
        every: timedelta,
        time: Mapping[Side, str],
        lateness: timedelta,
        idle: timedelta | None,
    ) -> None:
        self.low, self.high, self.every = low, high, every
        self.lateness, self.idle = lateness, idle
        axes = _axes(columns, time, every)
        kind = columns.inputs[LEFT].field(time[LEFT]).type
        near = Near(ticks_of(low, kind), ticks_of(high, kind))
        super().__init__(columns, time, axes, self._parts(columns, time, axes, near))
        self.near = near

    def _parts(
        self, columns: JoinColumns, time: Mapping[Side, str], axes: Mapping[Side, TimeAxis], near: Near
    ) -> Iterator[Part]:
        by_left = {LEFT: Reach(axes[LEFT]), RIGHT: Reach(axes[RIGHT], near.low, near.high)}
        by_right = {LEFT: Reach(axes[LEFT], -near.high, -near.low), RIGHT: Reach(axes[RIGHT])}
        whole = {LEFT: True, RIGHT: columns.how not in ("semi", "anti")}
        names = {side: columns.needed(side, whole[side], time[side]) for side in SIDES}
        right_before, left_before = max(-self.low, timedelta(0)), max(self.high, timedelta(0))
        if columns.how == "right":
            yield Part("", "right", by_right, names, left_before)
            return
        yield Part("", "left" if columns.how == "outer" else columns.how, by_left, names, right_before)
        if columns.how == "outer":
            keys = columns.needed(LEFT, False, time[LEFT])
            behind = timedelta(microseconds=1)
            yield Part(UNMATCHED, "unmatched", by_right, {**names, LEFT: keys}, left_before, behind)

    def passes(self, watermark: datetime) -> datetime:
        """A bucket that is not closed ends at most so long before the watermark, and has rows that far before it."""
        return earlier(watermark, self.every + 2 * max(abs(self.low), abs(self.high)))

    def parameters(self) -> Mapping[str, object]:
        within = f"{shown_signed(self.low)} to {shown_signed(self.high)}"
        return {**super().parameters(), "within": within, "every": self.every}


class WindowJoin(TimedJoin):
    """Rows of the same window match; the window's bounds are the first columns of what comes out."""

    # As in `window`: a row that some of its windows have missed is in the others.
    late_by = -1

    def __init__(self, columns: JoinColumns, window: Tumbling | Sliding, time: Mapping[Side, str]) -> None:
        self.window = window
        self.lateness, self.idle = window.lateness, window.idle
        axes = _axes(columns, time, window.size, window.step, window.offset, window.zone)
        whole = {LEFT: True, RIGHT: columns.how not in ("semi", "anti")}
        names = {side: columns.needed(side, whole[side], time[side]) for side in SIDES}
        frames = {side: Panes(axis) for side, axis in axes.items()}
        super().__init__(columns, time, axes, [Part("", columns.how, frames, names)])

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        made = dict(super().schemas(inputs))
        bound = self.axes[LEFT].type
        return {**made, "out": pa.schema([(START, bound), (END, bound), *self.columns.output])}

    def dependencies(self, inputs: Mapping[str, pa.Schema]) -> Iterator[Dependency]:
        for side in SIDES:
            yield Dependency(START, self.time[side], "from", side)
            yield Dependency(END, self.time[side], "until", side)
        yield from super().dependencies(inputs)

    def passes(self, watermark: datetime) -> datetime:
        """What comes out carries the start of its window, of one that is not closed."""
        shorter = timedelta(days=1) if self.window.zone else timedelta(0)  # a day may have an hour more
        return earlier(watermark, self.window.size + shorter)

    def parameters(self) -> Mapping[str, object]:
        window = self.window
        more = {"step": window.step, "offset": window.offset, "zone": window.zone}
        changed = {name: value for name, value in more.items() if value and value != window.size}
        return {**super().parameters(), "size": window.size, **changed}

    def _bounds(self, start: datetime) -> Mapping[str, Any]:
        axis = self.axes[LEFT]
        end = axis.instant(axis.end(axis.start(start)))
        return {name: pa.scalar(axis.tick(at), axis.type) for name, at in ((START, start), (END, end))}


class WholeJoin(Join):
    """Rows match whenever they came. There is one set, which is generated at the end."""

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        return {"out": self.columns.output}

    def assign(self, event: Event, ctx: Context[None]) -> list[InsetId]:
        return [ALL]

    def update(self, inset: InsetId, acc: Held | Batch | None, event: Event) -> Held:
        side, held = side_of(event), acc if isinstance(acc, Held) else Held()
        return held.with_rows(side, event.batch.select(list(self._names(side))))

    def generate(self, inset: InsetId, acc: Held | Batch, ctx: Context[None]) -> Iterator[Emit]:
        assert isinstance(acc, Held)
        left = self._table(LEFT, acc.left, self._names(LEFT))
        right = self._table(RIGHT, acc.right, self._names(RIGHT))
        yield from self._joined(self._matching.rows(self.columns.how, left, right), left, right, {})

    def _names(self, side: Side) -> tuple[str, ...]:
        return self.columns.needed(side, side == LEFT or self.columns.how not in ("semi", "anti"), None)


def StreamJoin(  # reads as a constructor: one class per kind of join
    left: pa.Schema,
    right: pa.Schema,
    within: Within,
    *,
    on: On,
    how: How = "inner",
    time: TimeColumns | None = None,
    every: Duration | None = None,
    suffix: str = "_right",
    lateness: Duration | None = None,
    idle: Duration | None = None,
) -> Operator[Any, Any]:
    """The operator that joins rows of these two schemas."""
    given = {"every": every, "lateness": lateness, "idle": idle}
    match within:
        case Tumbling(on=None) | Sliding(on=None):
            raise OptionError(
                "within: a join goes by event time, and a window without on= is of processing time: name the "
                "column, as in ll.tumbling('1h', on='date')"
            )
        case Tumbling() | Sliding():
            _refuse(given, "say it in the window" if every is None else "the window says it")
            _refuse_versions({"updates": within.updates or None, "early": within.early}, _WAIT)
            columns = JoinColumns(left, right, on, how, suffix, (START, END))
            return WindowJoin(columns, within, _times(columns, _window_times(within.on or "", time)))
        case Whole():
            _refuse({**given, "time": time}, "ll.whole() goes by no time")
            _refuse_versions({"every": within.every, "events": within.events}, _SOONER)
            return WholeJoin(JoinColumns(left, right, on, how, suffix))
    low, high = _interval(within)
    if time is None:
        raise OptionError('time: name the event-time columns: time="at" for both sides, or time=("ordered", "paid")')
    columns = JoinColumns(left, right, on, how, suffix)
    span = max(high - low, _SHORTEST) if every is None else duration(every)
    if not span:
        raise OptionError("every='0s': a bucket of time must be longer than that")
    late, silent = duration("0s" if lateness is None else lateness), None if idle is None else duration(idle)
    if silent is not None and not silent:
        raise OptionError("idle must be positive: leave it out to wait for a silent side for ever")
    return IntervalJoin(columns, low, high, span, _times(columns, time), late, silent)


def _refuse(given: Mapping[str, object], why: str) -> None:
    for option, value in given.items():
        if value is not None:
            raise OptionError(f"{option}={value!r}: {why}")


def _refuse_versions(given: Mapping[str, timedelta | int | None], instead: str) -> None:
    """A join puts each window out once: an outer row that was out could not be taken back when a match comes."""
    for option, value in given.items():
        if value is not None:
            said = shown(value) if isinstance(value, timedelta) else value
            raise OptionError(
                f"within: {option}={said!r} of the window: a join puts each window out once, when no more rows of it "
                f"can come; leave {option}= out, {instead}"
            )


def _interval(within: object) -> tuple[timedelta, timedelta]:
    if not isinstance(within, tuple | list) or len(within) != 2:
        raise OptionError(
            f'within={within!r}: write how far apart rows may be, as in ("-5m", "10m"), or a window: '
            "ll.tumbling, ll.sliding or ll.whole"
        )
    low, high = (signed(one) for one in within)
    if low > high:
        raise OptionError(f"within={within!r}: the first bound is after the second one: exchange them")
    return low, high


def _window_times(on: str, time: object) -> TimeColumns:
    if time is None:
        return on
    if not isinstance(time, tuple | list) or len(time) != 2 or time[0] != on:
        raise OptionError(
            f"time={time!r}: the window names {on!r}; if the right side has another column, write "
            f"time=({on!r}, 'its column')"
        )
    return time[0], time[1]


def _times(columns: JoinColumns, time: TimeColumns) -> dict[Side, str]:
    both = (time, time) if isinstance(time, str) else tuple(time)
    if len(both) != 2:
        raise OptionError(f'time={time!r}: write one column, or ("that of the left side", "that of the right side")')
    found: dict[Side, str] = {}
    for side, name in zip(SIDES, both, strict=True):
        schema = columns.inputs[side]
        if column_name(name, "time") not in schema.names:
            raise SchemaError(f"time: the {side} side has no column {name!r}: it has {columns_of(schema)}")
        found[side] = name
    return found


def _axes(columns: JoinColumns, time: Mapping[Side, str], *cut: Any) -> dict[Side, TimeAxis]:
    axes = {side: TimeAxis.of(columns.inputs[side].field(time[side]).type, *cut) for side in SIDES}
    units = {side: axis.type.unit for side, axis in axes.items()}
    if units[LEFT] != units[RIGHT]:
        kinds = [
            f"{time[side]!r} of the {side} side is {columns.inputs[side].field(time[side]).type}" for side in SIDES
        ]
        raise SchemaError(f"time: {' and '.join(kinds)}: give both one unit, as with_columns() before the join can")
    return axes
