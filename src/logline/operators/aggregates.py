"""Incremental, mergeable aggregates: `agg={"total": ("amount", "sum")}`, grouped by columns.

A set's state is a few small *partial* tables instead of its records: one row per group, one column per
part (a mean is a sum and a count). To make one takes far longer than a small event has rows, so batches wait until
there are enough of them for the next. Partials merge in any number; the final table is sorted by the group's
columns and computed on one thread, so that equal sets give equal outputs, also when recovery repeats them.

    >>> sums = Aggregates(["item"], {"total": ("amount", "sum")})
    >>> batch = pa.record_batch({"item": ["b", "a", "b"], "amount": [1, 2, 3]})
    >>> sums.final(sums.merge([sums.partial(batch), sums.partial(batch)])).to_pylist()
    [{'item': 'a', 'total': 4}, {'item': 'b', 'total': 8}]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from logline.errors import OptionError, SchemaError
from logline.graph.operator import Batch, Dependency
from logline.operators.gathered import Gathered
from logline.operators.tables import columns_of, nulls

_PARTS: dict[str, tuple[str, ...]] = {
    "sum": ("sum",),
    "count": ("count",),
    "min": ("min",),
    "max": ("max",),
    "mean": ("sum", "count"),
}
"""The function an author names -> the parts that are kept for it."""
_MERGE = {"sum": "sum", "count": "sum", "min": "min", "max": "max"}
"""How a part of several partials becomes one: counts add up."""

_WAITING, _BYTES = 64, 256 << 10
"""Batches of one set, and what they hold, before a partial is made of them."""
_MANY = 16
"""Partials of one set before they are merged: to merge each time would cost as much as the partial itself."""
_size = pa.ipc.get_record_batch_size

P = TypeVar("P")


class Parts(NamedTuple):
    """The state of a set: partials of its first batches, and the batches after them."""

    partials: tuple[pa.Table, ...]
    waiting: Gathered | None
    nbytes: int
    """Of those that wait."""


class Reduction(Protocol[P]):
    """What is made of the records of a set: aggregates, or whatever else can be gathered batch by batch."""

    by: tuple[str, ...]
    """The columns by which records are grouped: an output record comes of those with the same values."""

    made_of: Mapping[str, str]
    """Output column -> the input column that it is computed from, as far as that is known."""

    def add(self, parts: P | None, batch: Batch) -> P:
        """The parts of a set with one more batch; pure, since recovery repeats it."""

    def result(self, parts: P) -> pa.Table: ...

    def output(self, schema: pa.Schema) -> pa.Schema:
        """The schema of `result`, for records of this one."""


def grouped(reduction: Reduction[Any]) -> list[Dependency]:
    """What is known of the columns that it makes."""
    same = [Dependency(column, column) for column in reduction.by]
    return [*same, *(Dependency(out, into, "of") for out, into in reduction.made_of.items())]


_NOTHING = Parts((), None, 0)


class _Narrow:
    """By value: the type that its sum has, unless it had to be computed in a wider one. Each partial says so; like
    what `operators.window` keeps of an event, it is no part of what the operator is."""

    __slots__ = ("types",)

    def __init__(self) -> None:
        self.types: dict[str, pa.DataType] = {}

    def __reduce__(self) -> tuple[type[_Narrow], tuple[()]]:
        return _Narrow, ()


class Aggregates:
    """The aggregates of one operator: which columns group, which functions of which columns are computed."""

    def __init__(self, by: Sequence[str], agg: Mapping[str, tuple[str, str]]) -> None:
        self.by = (by,) if isinstance(by, str) else tuple(by)
        self.agg = {name: _spec(name, spec) for name, spec in agg.items()}
        self.made_of: Mapping[str, str] = {name: column for name, (column, _) in self.agg.items()}
        if not self.agg:
            raise OptionError('agg= needs at least one aggregate, as in agg={"total": ("amount", "sum")}')
        names = [*self.by, *self.agg]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise OptionError(f"by= and agg= give the same output column twice: {', '.join(twice)}")
        wanted = [(column, part) for column, fn in self.agg.values() for part in _PARTS[fn]]
        self._parts = list(dict.fromkeys(wanted))
        self._needed = list(dict.fromkeys([*self.by, *(column for column, _ in self._parts)]))
        # Names of our own within a partial: a user's columns could collide ("amount_sum").
        self._keys = [f"k{i}" for i in range(len(self.by))]
        self._values = [f"v{i}" for i in range(len(self._parts))]
        self._narrow = _Narrow()

    def partial(self, records: Batch | pa.Table) -> pa.Table:
        """The aggregates of these records."""
        columns = [records[name] for name in self.by] + [records[column] for column, _ in self._parts]
        table = pa.Table.from_arrays(columns, names=self._keys + self._values)
        for value, (_, part) in zip(self._values, self._parts, strict=True):
            if part == "sum" and (narrow := _sum_type(table[value].type)) is not None:
                self._narrow.types[value] = narrow
        return self._group(table, [part for _, part in self._parts])

    def merge(self, partials: Sequence[pa.Table]) -> pa.Table:
        """Several partials as one."""
        if len(partials) == 1:
            return partials[0]
        return self._group(_joined(partials, self._values), [_MERGE[part] for _, part in self._parts])

    def add(self, parts: Parts | None, batch: Batch) -> Parts:
        """The state of a set with one more batch; the given one stays as it is."""
        partials, waiting, nbytes = parts or _NOTHING
        waiting = Gathered.after(waiting, batch)
        nbytes += _size(batch)
        if waiting.many < _WAITING and nbytes < _BYTES:
            return Parts(partials, waiting, nbytes)
        partials = (*partials, self._partial_of(waiting))
        return Parts(partials if len(partials) <= _MANY else (self.merge(partials),), None, 0)

    def _partial_of(self, waiting: Gathered) -> pa.Table:
        # Joined first: Arrow groups chunk by chunk, at the price of a batch each.
        return self.partial(waiting.table().select(self._needed).combine_chunks())

    def final(self, partial: pa.Table) -> pa.Table:
        """The output columns: the group's, then the aggregates, sorted by group."""
        if self._keys:
            partial = partial.sort_by([(key, "ascending") for key in self._keys])
        columns = [partial[key] for key in self._keys]
        columns += [self._value(partial, column, fn) for column, fn in self.agg.values()]
        return pa.Table.from_arrays(columns, names=[*self.by, *self.agg])

    def result(self, parts: Parts) -> pa.Table:
        """What a set in this state comes to."""
        partials, waiting, _ = parts
        return self.final(self.merge(partials if waiting is None else (*partials, self._partial_of(waiting))))

    def output(self, schema: pa.Schema) -> pa.Schema:
        """The schema of `final` for this input; SchemaError if a column or its type won't do."""
        for name in self._needed:
            if name not in schema.names:
                raise SchemaError(f"there is no column {name!r}: the input has {columns_of(schema)}")
        for name in self.by:
            _probe(f"group by column {name!r}", schema, Aggregates([name], {"n of": (name, "count")}))
        for column, fn in self.agg.values():
            _probe(f"compute the {fn} of column {column!r}", schema, Aggregates([], {"of": (column, fn)}))
        row = nulls(schema).to_batches()[0]
        return self.final(self.partial(row)).schema

    def _group(self, table: pa.Table, functions: Sequence[str]) -> pa.Table:
        for value, function in zip(self._values, functions, strict=True):
            if function == "sum" and (wide := _wide_type(table[value])) is not None:
                at = table.schema.get_field_index(value)
                table = table.set_column(at, value, table[value].cast(wide))
        grouped = table.group_by(self._keys, use_threads=False)
        made = grouped.aggregate(list(zip(self._values, functions, strict=True)))
        names = self._keys + [f"{v}_{f}" for v, f in zip(self._values, functions, strict=True)]
        return made.select(names).rename_columns(self._keys + self._values)

    def _value(self, partial: pa.Table, column: str, fn: str) -> pa.ChunkedArray:
        parts = [partial[self._values[self._parts.index((column, part))]] for part in _PARTS[fn]]
        if fn == "sum":
            return self._narrowed(parts[0], column)
        if fn != "mean":
            return parts[0]
        total, count = (part.cast(pa.float64(), safe=False) for part in parts)
        return pc.divide(total, count)  # of nothing but nulls: the sum is null, and so is the mean

    def _narrowed(self, total: pa.ChunkedArray, column: str) -> pa.ChunkedArray:
        narrow = self._narrow.types.get(self._values[self._parts.index((column, "sum"))], total.type)
        try:
            return total if total.type == narrow else total.cast(narrow)
        except pa.ArrowInvalid as error:
            raise OverflowError(
                f"the sum of column {column!r} does not fit {narrow} ({error}): cast the column to a wider type "
                "before it is summed, a decimal or a double"
            ) from error


def _sum_type(kind: pa.DataType) -> pa.DataType | None:
    """The type that Arrow gives a sum, of types whose sums it lets wrap."""
    if pa.types.is_signed_integer(kind):
        return pa.int64()
    if pa.types.is_unsigned_integer(kind):
        return pa.uint64()
    return pa.decimal128(38, kind.scale) if pa.types.is_decimal128(kind) else None


def _wide_type(column: pa.ChunkedArray) -> pa.DataType | None:
    """A type that holds the sum of these values, where Arrow's own might not; None if it does."""
    narrow = _sum_type(column.type)
    if narrow is None:
        return None
    ends = pc.min_max(column).as_py()
    if ends["min"] is None:
        return None
    scale = 0 if pa.types.is_integer(narrow) else narrow.scale
    limit = 2**63 if narrow == pa.int64() else 2**64 if narrow == pa.uint64() else Decimal(10) ** (38 - scale)
    if max(abs(ends["min"]), abs(ends["max"])) * len(column) < limit:
        return None
    return pa.decimal256(76, scale)


def _joined(partials: Sequence[pa.Table], values: Sequence[str]) -> pa.Table:
    """Partials as one table, in the wider type where one of them has a sum that needed it."""
    for value in values:
        wide = next((p[value].type for p in partials if pa.types.is_decimal256(p[value].type)), None)
        if wide is not None:
            at = partials[0].schema.get_field_index(value)
            partials = [p.set_column(at, value, p[value].cast(wide)) for p in partials]
    return pa.concat_tables(partials)


def _spec(name: str, spec: object) -> tuple[str, str]:
    if not (isinstance(spec, (tuple, list)) and len(spec) == 2 and all(isinstance(x, str) for x in spec)):
        raise OptionError(f'agg={{{name!r}: {spec!r}}}: write (column, function), as in ("amount", "sum")')
    column, fn = spec
    if fn not in _PARTS:
        raise OptionError(f"agg={{{name!r}: ...}}: there is no function {fn!r}; use {', '.join(_PARTS)}")
    return column, fn


def _probe(what: str, schema: pa.Schema, aggregates: Aggregates) -> None:
    """Tries one column by itself, so that the message can name it."""
    try:
        aggregates.final(aggregates.partial(nulls(schema).to_batches()[0]))
    except pa.ArrowException as error:
        raise SchemaError(f"can't {what}: {error}: the input has {columns_of(schema)}") from error
