"""A lookup as of event time: the row of a key that was valid at the time of the stream's row (R30, R31).

An input set is a bucket of time, with the rows of both sides in it. It is generated when the watermark of both has
reached its end: then no row of the table can come that was valid earlier. The state of a key is its newest row of all
buckets before. So what comes out follows from the event times, not from the order of arrival. One row is kept of each
key, beside the buckets that are open: nobody can ask for older ones any more.

    orders.lookup("priced", ll.table(prices, key=["item"]), on=["item"], as_of="date")

A row of the stream whose bucket is out is late: it leaves on the port `late`. A row of the table that is late counts
from the next bucket on. For rows that were put out it comes too late.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from logline.engine.keyed import encode_key
from logline.errors import OptionError, SchemaError
from logline.graph.durations import duration
from logline.graph.keys import Key
from logline.graph.operator import Batch, Context, Dependency, Duration, Emit, Event, Operator, SchemaLike
from logline.names import InsetId
from logline.operators.by_key import RowsByKey, parameters_of
from logline.operators.event_time import TimeAxis
from logline.operators.grouping import count_to
from logline.operators.join import Held
from logline.operators.join_columns import LEFT, RIGHT, On
from logline.operators.join_sets import timer
from logline.operators.joins import TimeColumns
from logline.operators.kept_rows import check_kept, rows_of_states, rows_to_states
from logline.operators.late import LATE, LateRecords
from logline.operators.lookup import IN, TABLE, LookupHow, joined, lookup_columns, stream_keys
from logline.operators.tables import columns_of

EVERY = timedelta(seconds=1)
_NUMBER = pa.int64()


class AsOfLookup(Operator[Held | Batch, None]):
    """Joins each row of the port `in` with the newest row of its key, on the port `table`, that is not after it."""

    inputs = (IN, TABLE)
    untimed = (LATE,)
    reuses_memory = False
    Keyed = bytes

    def __init__(
        self,
        input: pa.Schema,
        table: pa.Schema,
        key: Sequence[str],
        *,
        as_of: TimeColumns,
        on: On,
        how: LookupHow = "left",
        select: Sequence[str] | None = None,
        suffix: str = "_right",
        every: Duration | None = None,
        lateness: Duration | None = None,
        idle: Duration | None = None,
    ) -> None:
        self.columns = lookup_columns(input, table, on, how, select, suffix)
        self.input, self.table = input, table
        self.key = tuple(key)
        self.stream_key = stream_keys(self.columns, self.key, on)
        self.every = EVERY if every is None else duration(every)
        if not self.every:
            raise OptionError("every='0s': a bucket of time must be longer than that")
        self.lateness = duration("0s" if lateness is None else lateness)
        self.idle = None if idle is None else duration(idle)
        if self.idle is not None and not self.idle:
            raise OptionError("idle must be positive: leave it out to wait for a silent side for ever")
        sides = {IN: input, TABLE: table}
        self.time = _times(as_of, sides)
        self.axes = {port: TimeAxis.of(sides[port].field(self.time[port]).type, self.every) for port in sides}
        if self.axes[IN].type.unit != self.axes[TABLE].type.unit:
            kinds = [f"{self.time[port]!r} is {axis.type}" for port, axis in self.axes.items()]
            raise SchemaError(f"as_of: {' and '.join(kinds)}: give both one unit, as with_columns() can")
        names = dict.fromkeys([*self.columns.names, self.time[TABLE]])
        self.kept = pa.schema([table.field(name) for name in names])
        check_kept(self.kept, "ll.table()")
        self._late = LateRecords()

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        return {"out": self.columns.output, LATE: self.input}

    def dependencies(self, inputs: Mapping[str, pa.Schema]) -> Iterable[Dependency]:
        """A joined record is made of one of the stream. That of the table may be in the state of a key."""
        stream = [Dependency(name, name, port=IN) for name in self.columns.inputs[LEFT].names]
        keys = zip(*self.columns.keys.values(), strict=True)
        return [*stream, *(Dependency(mine, other, port=TABLE) for mine, other in keys)]

    def parameters(self) -> Mapping[str, object]:
        time = ", ".join(self.time[port] for port in self.inputs)
        return {**parameters_of(self.key), "columns": columns_of(self.kept), "time": time, "every": self.every}

    def passes(self, watermark: datetime) -> datetime:
        """The start of the bucket: what it holds is still to come out."""
        axis = TimeAxis.of(pa.timestamp("us", "UTC"), self.every)
        return axis.instant(axis.start(watermark))

    def earliest(self, inset: InsetId, acc: Held | Batch) -> datetime | None:
        return inset if isinstance(inset, datetime) else None

    # ---- which bucket a row is in -----------------------------------------------------------------------

    def assign(self, event: Event, ctx: Context[None]) -> Mapping[InsetId, Any]:
        axis, ticks = self.axes[event.port], self._ticks(event)
        starts = axis.panes(ticks)
        out = [start for start in starts if ctx.watermark is not None and self._due(axis, start) <= ctx.watermark]
        after = axis.end(out[-1]) if out else None
        sets: dict[InsetId, Any] = dict.fromkeys(axis.instant(start) for start in starts[len(out) :])
        if event.port == TABLE:
            if after is not None:
                assert ctx.watermark is not None
                # The note holds what `update` can't know: which rows were late when the event came.
                sets[axis.instant(axis.start(ctx.watermark))] = after
                ctx.count("late_table", pc.sum(pc.less(ticks, after)).as_py())
            if ticks.null_count:
                ctx.count("no_time", ticks.null_count)
        for inset in sets:
            assert isinstance(inset, datetime)
            ctx.fire(inset, at=self._due(axis, axis.start(inset)), clock="event")
        if event.port == IN and (after is not None or ticks.null_count):
            late = (LATE, event.name)
            sets[late] = after
            ctx.fire(late)
        return sets

    @staticmethod
    def _due(axis: TimeAxis, start: int) -> datetime:
        return timer(axis, axis.end(start))

    def _ticks(self, event: Event) -> pa.Array:
        return self.axes[event.port].ticks(event.batch.column(self.time[event.port]))

    def update(self, inset: InsetId, acc: Held | Batch | None, event: Event) -> Held | Batch:
        axis, ticks, note = self.axes[event.port], self._ticks(event), event.note
        if not isinstance(inset, datetime):
            late = pc.is_null(ticks)
            return event.batch.filter(late if note is None else pc.or_kleene(late, pc.less(ticks, note)))
        inside = axis.within(ticks, axis.start(inset))
        if note is not None:
            inside = pc.or_(inside, pc.less(ticks, note))
        held = acc if isinstance(acc, Held) else Held()
        if event.port == IN:
            return held.with_rows(LEFT, event.batch.filter(inside))
        names = list(dict.fromkeys([*self.key, *self.kept.names]))
        return held.with_rows(RIGHT, event.batch.select(names).filter(inside))

    # ---- what it comes to -------------------------------------------------------------------------------

    def generate(self, inset: InsetId, acc: Held | Batch, ctx: Context[None]) -> Iterator[Emit | pa.Table]:
        if not isinstance(acc, Held):
            yield from self._late.leave(acc, self.time[IN], ctx)
            return
        left = _one(acc.left, self.input)
        right = _one(acc.right, pa.schema([self.table.field(name) for name in (*self.key, *self.kept.names)]))
        sides = [RowsByKey.of(left, self.stream_key), RowsByKey.of(right, self.key)]
        keys = _Keys.of(by_key.keys for by_key in sides)
        known, of = rows_of_states(ctx.keys.get_all(keys.found), self.kept)
        rows = pa.concat_batches([*known.to_batches(), right.select(self.kept.names)])
        numbers = [keys.numbers[at].take(by_key.numbers) for at, by_key in enumerate(sides)]
        versions = _Rows(pa.concat_arrays([of, numbers[1]]), self._times(TABLE, rows))
        if right.num_rows:
            self._keep(versions, rows, keys.found, ctx)
        if left.num_rows:
            found = newest_before(_Rows(numbers[0], self._times(IN, left)), versions)
            pairs = pa.table({"l": count_to(left.num_rows), "r": found})
            if self.columns.how == "inner":
                pairs = pairs.filter(pc.is_valid(found))
            yield from joined(self.columns, pairs, left, pa.Table.from_batches([rows]))

    def _times(self, port: str, rows: Batch) -> pa.Array:
        return self.axes[port].ticks(rows.column(self.time[port]))

    def _keep(self, versions: _Rows, rows: Batch, keys: Sequence[Key], ctx: Context[None]) -> None:
        """The newest row of each key is its state; of several of one time, the one that came last."""
        order = pc.sort_indices(versions.table(), _ORDER)
        groups = versions.key.take(order)
        last = pc.indices_nonzero(pc.fill_null(pc.not_equal(groups, _behind(groups)), pc.is_valid(groups)))
        newest = order.take(last)
        numbers = versions.key.take(newest).to_pylist()
        ctx.keys.set_all([keys[number] for number in numbers], rows_to_states(rows.take(newest), [1] * len(numbers)))


class _Rows(NamedTuple):
    """Rows of one side: the number of each one's key, null for none that matches, and its time."""

    key: pa.Array
    tick: pa.Array

    def table(self) -> pa.Table:
        """In the order in which they came."""
        return pa.table({"key": self.key, "tick": self.tick, "row": count_to(len(self.key))})


_ORDER = [("key", "ascending"), ("tick", "ascending"), ("row", "ascending")]


def newest_before(left: _Rows, right: _Rows) -> pa.Array:
    """For each row of the left side the newest one of the right side that has its key and is not after it.

    >>> right = _Rows(pa.array([0, 0, 1]), pa.array([10, 20, 10]))
    >>> newest_before(_Rows(pa.array([0, 0, 0, 1, None]), pa.array([9, 15, 20, 30, 30])), right).to_pylist()
    [None, 0, 1, 2, None]
    """
    many = len(left.key)
    both = pa.table(
        {
            "key": pa.concat_arrays([right.key, left.key]),
            "tick": pa.concat_arrays([right.tick, left.tick]),
            "row": count_to(len(right.key) + many),  # the right side's rows are first: one of the same time counts
        }
    )
    order = pc.sort_indices(both, _ORDER).cast(_NUMBER)
    of_right = pc.less(order, len(right.key))
    last = pc.fill_null_forward(pc.if_else(of_right, order, pa.scalar(None, _NUMBER)))
    key = both["key"].combine_chunks()
    same = pc.fill_null(pc.equal(key.take(order), key.take(last)), False)
    found = pc.if_else(same, last, pa.scalar(None, _NUMBER)).filter(pc.invert(of_right))
    places = order.filter(pc.invert(of_right))
    return found.take(pc.sort_indices(places))


class _Keys(NamedTuple):
    """The keys of both sides: those that can match, and by side the number of each of its keys."""

    found: list[Key]
    numbers: list[pa.Array]

    @classmethod
    def of(cls, sides: Iterable[Sequence[Key]]) -> _Keys:
        known: dict[bytes, int] = {}
        found: list[Key] = []
        numbers = []
        for keys in sides:
            mine: list[int | None] = []
            for key in keys:
                if None in key:  # a null equals nothing
                    mine.append(None)
                    continue
                number = known.setdefault(encode_key(key), len(found))
                if number == len(found):
                    found.append(key)
                mine.append(number)
            numbers.append(pa.array(mine, _NUMBER))
        return cls(found, numbers)


def _behind(values: pa.Array) -> pa.Array:
    """For each value the next one, null for the last."""
    return pa.concat_arrays([values.slice(1), pa.nulls(min(len(values), 1), values.type)])


def _one(held: Any, schema: pa.Schema) -> Batch:
    if held is None:
        return pa.RecordBatch.from_pylist([], schema=schema)
    return pa.concat_batches(held.batches())


def _times(as_of: object, sides: Mapping[str, pa.Schema]) -> dict[str, str]:
    both = (as_of, as_of) if isinstance(as_of, str) else as_of
    if not isinstance(both, tuple | list) or len(both) != 2 or not all(isinstance(one, str) for one in both):
        raise OptionError(
            f'as_of={as_of!r}: name the event-time column of both, as in as_of="date", or ("that of the stream", '
            '"that of the table")'
        )
    for name, (port, schema) in zip(both, sides.items(), strict=True):
        if name not in schema.names:
            side = "stream" if port == IN else "table"
            raise SchemaError(f"as_of: the {side} has no column {name!r}: it has {columns_of(schema)}")
    return dict(zip(sides, both, strict=True))
