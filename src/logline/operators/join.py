"""Joins of two streams: rows of the same window, or rows whose times are near each other (ADR 0044).

An input set holds some rows of one side, and all rows of the other side that can match them. It is generated when the
watermark says that no more of them can come. So an outer row is put out exactly when nothing can match it any more,
and results do not depend on the order of arrival. Until then `update` only puts rows aside.

    a.join("paid", b, on=["id"], within=("0s", "10m"), time=("ordered", "paid"), how="left")

Rows that come when a set of theirs is out leave on port `late`, or `late_right`, as do rows without a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from logline.graph.operator import Batch, Context, Dependency, Emit, Event, Operator, SchemaLike
from logline.names import InsetId
from logline.operators.event_time import TimeAxis, earlier
from logline.operators.gathered import Gathered
from logline.operators.join_columns import LEFT, RIGHT, SIDES, JoinColumns, Side
from logline.operators.join_sets import LAST, Alike, Frame, timer
from logline.operators.matching import Kind, Matching, Near
from logline.operators.saving import batches_to_bytes, gathered_to_bytes, pack, read_batches, read_gathered, unpack

LATE: Mapping[Side, str] = {LEFT: "late", RIGHT: "late_right"}
"""The port of each side's late rows."""
ROWS = 1 << 16
"""Of one event that is put out, at most: rows may match many others."""


@dataclass(frozen=True, slots=True)
class Held:
    """The event state of one set: the rows of both sides, as they came."""

    left: Gathered | None = None
    right: Gathered | None = None

    def with_rows(self, side: Side, batch: Batch) -> Held:
        """The event state after rows of one side have come."""
        if not batch.num_rows:
            return self
        if side == LEFT:
            return replace(self, left=Gathered.after(self.left, batch))
        return replace(self, right=Gathered.after(self.right, batch))


class Part(NamedTuple):
    """A family of sets, and what is made of each."""

    name: str
    """Part of the sets' ids; empty for the first family, whose ids are times alone."""
    kind: Kind
    frames: Mapping[Side, Frame]
    columns: Mapping[Side, tuple[str, ...]]
    """Those of each side that its sets keep."""
    before: timedelta = timedelta(0)
    """How much earlier than its set a row of the other side may be."""
    behind: timedelta = timedelta(0)
    """How much later than its last row a set is due. What is due at one time has no order, so families differ."""

    def inset(self, start: datetime) -> InsetId:
        """The id of the set that begins there."""
        return (self.name, start) if self.name else start

    def due(self, start: int, axis: TimeAxis) -> datetime:
        """When no more rows of a set can come."""
        end = timer(axis, max(frame.end(start) for frame in self.frames.values()))
        return min(end, LAST - self.behind) + self.behind


class _Memo:
    """What was worked out last. It is no part of what the operator is: a copy begins without."""

    __slots__ = ("last", "said_late")

    def __init__(self) -> None:
        self.last: tuple[Side, int, Batch, pa.Array] | None = None
        """The ticks of a side's batch, and whose they are. The batch is held, so that its id is no other's."""
        self.said_late = False

    def __reduce__(self) -> tuple[type[_Memo], tuple[()]]:
        return _Memo, ()


class Join(Operator[Held | Batch, None]):
    """What all joins share: the columns, and how a set's rows become joined rows."""

    inputs = (LEFT, RIGHT)
    reuses_memory = False

    def __init__(self, columns: JoinColumns) -> None:
        self.columns = columns
        self._matching = Matching(columns)

    def parameters(self) -> Mapping[str, object]:
        on = zip(*self.columns.keys.values(), strict=True)
        return {"on": ", ".join(mine if mine == other else f"{mine}={other}" for mine, other in on)} | {
            "how": self.columns.how
        }

    def dependencies(self, inputs: Mapping[str, pa.Schema]) -> Iterable[Dependency]:
        return self.columns.dependencies()

    def encode(self, acc: Held | Batch) -> bytes:
        if isinstance(acc, Held):
            return pack((gathered_to_bytes(acc.left), gathered_to_bytes(acc.right)))
        return pack((batches_to_bytes([acc]),))  # late rows

    def decode(self, data: bytes) -> Held | Batch:
        match unpack(data):
            case [late]:
                return read_batches(late)[0]
            case [left, right]:
                return Held(read_gathered(left), read_gathered(right))
        raise ValueError("neither the rows of a set nor late ones")

    def _table(self, side: Side, held: Gathered | None, names: Iterable[str]) -> pa.Table:
        if held is not None:
            return held.table()
        schema = self.columns.inputs[side]
        return pa.schema([schema.field(name) for name in names]).empty_table()

    def _joined(self, pairs: pa.Table, left: pa.Table, right: pa.Table, bounds: Mapping[str, Any]) -> Iterator[Emit]:
        for at in range(0, pairs.num_rows, ROWS):
            made = self.columns.rows(pairs.slice(at, ROWS), left, right)
            for position, (name, bound) in enumerate(bounds.items()):
                made = made.add_column(position, name, pa.repeat(bound, made.num_rows))
            yield Emit(made)


class TimedJoin(Join):
    """A join whose sets are closed by event time."""

    untimed = tuple(LATE.values())
    late_by: ClassVar[int]
    """By which of its sets, in order of time, a row is late when that is out: the first, 0, or the last, -1."""

    def __init__(
        self, columns: JoinColumns, time: Mapping[Side, str], axes: Mapping[Side, TimeAxis], parts: Iterable[Part]
    ) -> None:
        super().__init__(columns)
        # The engine keeps the event clock of an operator that says which columns hold the time.
        self.time: Mapping[str, str] = {str(side): column for side, column in time.items()}
        self.axes = axes
        self.parts = {part.name: part for part in parts}
        self.near: Near | None = None
        self._memo = _Memo()

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        late = {LATE[side]: schema for side, schema in self.columns.inputs.items()}
        return {"out": self.columns.output, **late}

    def parameters(self) -> Mapping[str, object]:
        return {**super().parameters(), "time": ", ".join(self.time[side] for side in SIDES)}

    def earliest(self, inset: InsetId, acc: Held | Batch) -> datetime | None:
        """A set's rows, matched or not, are not before its start, or a little before it on the other side."""
        if (found := self._part(inset)) is None:
            return None
        part, start = found
        return earlier(start, part.before)

    def assign(self, event: Event, ctx: Context[None]) -> Mapping[InsetId, Any]:
        side = side_of(event)
        axis, ticks = self.axes[side], self._ticks(side, event.batch)
        alike = {name: part.frames[side].of(ticks) for name, part in self.parts.items()}
        closed = {name: self._closed(name, groups, axis, ctx.watermark) for name, groups in alike.items()}
        after = self._after(alike, closed)
        sets: dict[InsetId, Any] = {}
        for name, groups in alike.items():
            part = self.parts[name]
            starts = {start for one in groups if after is None or one.last >= after for start in one.sets}
            for start in sorted(starts - closed[name]):
                inset = part.inset(axis.instant(start))
                # The note holds what `update` can't know: which rows were late when the event came.
                sets[inset] = after
                ctx.fire(inset, at=part.due(start, axis), clock="event")
            if missed := starts & closed[name]:
                ctx.count("late_in_part", _count(ticks, after, part.frames[side].end(max(missed))))
        if after is not None or ticks.null_count:
            late = (LATE[side], event.name)
            sets[late] = after
            ctx.fire(late)
        return sets

    def _closed(self, name: str, groups: list[Alike], axis: TimeAxis, watermark: datetime | None) -> set[int]:
        """The sets that are out."""
        if watermark is None:
            return set()
        part, starts = self.parts[name], {start for one in groups for start in one.sets}
        return {start for start in starts if part.due(start, axis) <= watermark}

    def _after(self, alike: Mapping[str, list[Alike]], closed: Mapping[str, set[int]]) -> int | None:
        """The tick before which rows are late; None if none is. Sets close in order of time, so late rows are the
        earliest ones."""
        late = [
            one.last + 1
            for name, groups in alike.items()
            for one in groups
            if one.sets and one.sets[self.late_by] in closed[name]
        ]
        return max(late, default=None)

    def update(self, inset: InsetId, acc: Held | Batch | None, event: Event) -> Held | Batch:
        side, batch = side_of(event), event.batch
        ticks = self._ticks(side, batch)
        if (found := self._part(inset)) is None:
            late = pc.is_null(ticks)
            return batch.filter(late if event.note is None else pc.or_kleene(late, pc.less(ticks, event.note)))
        part, start = found
        inside = part.frames[side].within(ticks, self.axes[side].start(start))
        if event.note is not None:
            inside = pc.and_(inside, pc.greater_equal(ticks, event.note))
        kept = batch.select(list(part.columns[side]))
        all_of_it = pc.all(inside, skip_nulls=False).as_py()
        held = acc if isinstance(acc, Held) else Held()
        return held.with_rows(side, kept if all_of_it else kept.filter(inside))

    def generate(self, inset: InsetId, acc: Held | Batch, ctx: Context[None]) -> Iterator[Emit]:
        if not isinstance(acc, Held):
            assert isinstance(inset, tuple)
            yield self._late(acc, str(inset[0]), ctx)
            return
        found = self._part(inset)
        assert found is not None
        part, start = found
        left = self._table(LEFT, acc.left, part.columns[LEFT])
        right = self._table(RIGHT, acc.right, part.columns[RIGHT])
        times = (self._ticks(LEFT, left), self._ticks(RIGHT, right)) if self.near is not None else None
        pairs = self._matching.rows(part.kind, left, right, self.near, times)
        yield from self._joined(pairs, left, right, self._bounds(start))

    def _bounds(self, start: datetime) -> Mapping[str, Any]:
        """Columns that say which set a joined row is of."""
        return {}

    def _part(self, inset: InsetId) -> tuple[Part, datetime] | None:
        """What a set is of, and where it begins; None for one of late rows."""
        name, start = inset if isinstance(inset, tuple) else ("", inset)
        if name in LATE.values():
            return None
        assert isinstance(start, datetime)
        return self.parts[str(name)], start

    def _late(self, rows: Batch, port: str, ctx: Context[None]) -> Emit:
        side = RIGHT if port == LATE[RIGHT] else LEFT
        timeless = rows[self.time[side]].null_count
        if timeless:
            ctx.count("no_time", timeless)
        if rows.num_rows > timeless:
            ctx.count(port, rows.num_rows - timeless)
            if not self._memo.said_late:  # once per life: a stream may have many
                self._memo.said_late = True
                ctx.log.info("records are late: what they could match is out. They are on port %r", port)
        return Emit(rows, port)

    def _ticks(self, side: Side, rows: Batch | pa.Table) -> Any:
        """The times of rows; of a batch worked out once, since `assign` asks and then `update` for each set."""
        if isinstance(rows, pa.Table):
            column = rows.column(self.time[side])
            ticks = [self.axes[side].ticks(chunk) for chunk in column.chunks]
            return pa.chunked_array(ticks, pa.int64())
        if self._memo.last is None or self._memo.last[:2] != (side, id(rows)):
            self._memo.last = (side, id(rows), rows, self.axes[side].ticks(rows.column(self.time[side])))
        return self._memo.last[3]


def side_of(event: Event) -> Side:
    """The side that an event comes on."""
    return RIGHT if event.port == RIGHT else LEFT


def _count(ticks: pa.Array, after: int | None, until: int) -> int:
    there = pc.less(ticks, until)
    if after is not None:
        there = pc.and_(there, pc.greater_equal(ticks, after))
    return int(pc.sum(there).as_py() or 0)
