"""Incremental, mergeable aggregates: `agg={"total": ("amount", "sum")}`, grouped by columns.

A set's state is a few small *partial* tables instead of its records: one row per group, one column per
part (a mean is a sum and a count; `operators.functions` has the others). To make one takes far longer than a small
event has rows, so batches wait until there are enough of them for the next. Partials merge in any number; the final
table is sorted by the group's columns and computed on one thread, so that equal sets give equal outputs, also when
recovery repeats them.

    >>> sums = Aggregates(["item"], {"total": ("amount", "sum")})
    >>> batch = pa.record_batch({"item": ["b", "a", "b"], "amount": [1, 2, 3]})
    >>> sums.final(sums.merge([sums.partial(batch), sums.partial(batch)])).to_pylist()
    [{'item': 'a', 'total': 4}, {'item': 'b', 'total': 8}]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from logline.errors import OptionError, SchemaError
from logline.graph.operator import Batch, Dependency
from logline.operators.functions import Agg, Spec, spec
from logline.operators.gathered import Gathered
from logline.operators.grouping import Groups, comparable, count_to, reduce, whole
from logline.operators.kernels import by_kernels
from logline.operators.parts import Own
from logline.operators.saving import (
    gathered_to_bytes,
    pack,
    read_gathered,
    read_table,
    read_types,
    table_to_bytes,
    types_to_bytes,
    unpack,
)
from logline.operators.sums import Narrow, joined, narrowed, sum_type, wide_type
from logline.operators.tables import columns_of, nulls

_MERGE = {"sum": "sum", "count": "sum", "min": "min", "max": "max"}
"""How a part that is a kernel of Arrow becomes one of several: counts add up."""

_WAITING, _BYTES = 64, 256 << 10
"""Batches of one set, and what they hold, before a partial is made of them."""
_MANY = 16
"""Partials of one set before they are merged: to merge each time would cost as much as the partial itself."""
_size = pa.ipc.get_record_batch_size

P = TypeVar("P")
_GROUP = "group"
"""The column with the number of a row's group."""
_Reduce = Callable[[pa.Array, Groups], pa.Array]


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

    def encode(self, parts: P) -> bytes:
        """The parts of a set for a checkpoint; they come back exactly as they are (R22)."""

    def decode(self, data: bytes) -> P: ...

    def layout(self) -> str:
        """What `encode` writes, as text; a StateError if it can't be written."""


def grouped(reduction: Reduction[Any]) -> list[Dependency]:
    """What is known of the columns that it makes."""
    same = [Dependency(column, column) for column in reduction.by]
    return [*same, *(Dependency(out, into, "of") for out, into in reduction.made_of.items())]


_NOTHING = Parts((), None, 0)


class Aggregates:
    """The aggregates of one operator: which columns group, which functions of which columns are computed."""

    def __init__(self, by: Sequence[str], agg: Mapping[str, Agg | Spec]) -> None:
        self.by = (by,) if isinstance(by, str) else tuple(by)
        self.agg = {name: spec(name, given) for name, given in agg.items()}
        self.made_of: Mapping[str, str] = {name: one.column for name, one in self.agg.items()}
        self.in_order = any(one.in_order for one in self.agg.values())
        if not self.agg:
            raise OptionError('agg= needs at least one aggregate, as in agg={"total": ("amount", "sum")}')
        names = [*self.by, *self.agg]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise OptionError(f"by= and agg= give the same output column twice: {', '.join(twice)}")
        wanted = [(one.column, part) for one in self.agg.values() for part in one.parts]
        self._parts = list(dict.fromkeys(wanted))
        self._needed = list(dict.fromkeys([*self.by, *(column for column, _ in self._parts)]))
        # Names of our own within a partial: a user's columns could collide ("amount_sum").
        self._keys = [f"k{i}" for i in range(len(self.by))]
        self._values = [f"v{i}" for i in range(len(self._parts))]
        self._narrow = Narrow()

    def partial(self, records: Batch | pa.Table) -> pa.Table:
        """The aggregates of these records."""
        keys = [comparable(records[name]) for name in self.by]
        table = pa.Table.from_arrays(
            [*keys, *(records[column] for column, _ in self._parts)], names=self._keys + self._values
        )
        for value, (_, part) in zip(self._values, self._parts, strict=True):
            if part == "sum" and (narrow := sum_type(table[value].type)) is not None:
                self._narrow.types[value] = narrow
        return self._group(table, [part if isinstance(part, str) else part.of for _, part in self._parts])

    def merge(self, partials: Sequence[pa.Table]) -> pa.Table:
        """Several partials as one."""
        if len(partials) == 1:
            return partials[0]
        merges = [_MERGE[part] if isinstance(part, str) else part.merge for _, part in self._parts]
        return self._group(joined(partials, self._values), merges)

    def add(self, parts: Parts | None, batch: Batch) -> Parts:
        """The state of a set with one more batch; the given one stays as it is."""
        partials, waiting, nbytes = parts or _NOTHING
        waiting = Gathered.after(waiting, batch)
        nbytes += _size(batch)
        if waiting.many < _WAITING and nbytes < _BYTES:
            return Parts(partials, waiting, nbytes)
        partials = (*partials, self._partial_of(waiting))
        return Parts(partials if len(partials) <= _MANY else (self.merge(partials),), None, 0)

    def joined(self, parts: Parts, later: Parts) -> Parts:
        """The state of two sets as one: the batches of the second after those of the first. It comes to what `add` of
        all batches in that order comes to, but for the rounding of floating-point sums."""
        partials, waiting, _ = parts
        if not later.partials and later.waiting is not None:
            found = parts
            for batch in later.waiting.batches():
                found = self.add(found, batch)
            return found
        if waiting is not None:
            partials = (*partials, self._partial_of(waiting))
        partials = (*partials, *later.partials)
        return later._replace(partials=partials if len(partials) <= _MANY else (self.merge(partials),))

    def _partial_of(self, waiting: Gathered) -> pa.Table:
        # Joined first: Arrow groups chunk by chunk, at the price of a batch each.
        # Column by column first: those that came back from a checkpoint have no others.
        batches = [batch.select(self._needed) for batch in waiting.batches()]
        return self.partial(pa.Table.from_batches(batches).combine_chunks())

    def final(self, partial: pa.Table) -> pa.Table:
        """The output columns: the group's, then the aggregates, sorted by group."""
        if self._keys and partial.num_rows > 1:
            partial = partial.sort_by([(key, "ascending") for key in self._keys])
        columns = [partial[key] for key in self._keys]
        columns += [self._value(partial, one) for one in self.agg.values()]
        return pa.Table.from_arrays(columns, names=[*self.by, *self.agg])

    def whole(self, parts: Parts) -> pa.Table:
        """The state of a set as one partial."""
        partials, waiting, _ = parts
        return self.merge(partials if waiting is None else (*partials, self._partial_of(waiting)))

    def result(self, parts: Parts) -> pa.Table:
        """What a set in this state comes to."""
        return self.final(self.whole(parts))

    def encode(self, parts: Parts) -> bytes:
        """The state of a set, for a checkpoint: its partials, the columns that count of the batches after them, and
        the types of sums, which partials of a later life may never tell."""
        partials = [table_to_bytes(self._without_pickles(partial)) for partial in parts.partials]
        waiting = gathered_to_bytes(parts.waiting, self._needed)
        return pack((partials, waiting, parts.nbytes, types_to_bytes(self._narrow.types)))

    def decode(self, data: bytes) -> Parts:
        """The state that was encoded."""
        partials, waiting, nbytes, narrow = unpack(data)
        self._narrow.types.update(read_types(narrow))
        found = (self._with_pickles(read_table(partial)) for partial in partials)
        return Parts(tuple(found), read_gathered(waiting), nbytes)

    def layout(self) -> str:
        """Groups and aggregates, by the columns that they are of."""
        for one in self._own.values():
            one.check_encodes()
        kept = [f"{column}: {type(part).__name__ if type(part) is Own else part}" for column, part in self._parts]
        return f"by=({', '.join(self.by)}) {', '.join(kept)}"

    @property
    def _own(self) -> dict[str, Own]:
        """The parts that are accumulators of an author's aggregate, by the name of their column."""
        return {value: part for value, (_, part) in zip(self._values, self._parts, strict=True) if type(part) is Own}

    def _without_pickles(self, partial: pa.Table) -> pa.Table:
        for value, part in self._own.items():
            partial = partial.set_column(partial.schema.get_field_index(value), value, part.encoded(partial[value]))
        return partial

    def _with_pickles(self, partial: pa.Table) -> pa.Table:
        for value, part in self._own.items():
            partial = partial.set_column(partial.schema.get_field_index(value), value, part.decoded(partial[value]))
        return partial

    def output(self, schema: pa.Schema) -> pa.Schema:
        """The schema of `final` for this input; SchemaError if a column or its type won't do."""
        for name in self._needed:
            if name not in schema.names:
                raise SchemaError(f"there is no column {name!r}: the input has {columns_of(schema)}")
        row = nulls(schema)
        # Each column by itself, so that the message can name it.
        for name in self.by:
            with _told(f"group by column {name!r}", schema, name):
                Groups.number([comparable(row[name])], 1)
                row.select([name]).sort_by(name)  # groups come out sorted
        for one in self.agg.values():
            with _told(f"compute the {one.said} of column {one.column!r}", schema, one.column):
                only = Aggregates([], {"of": one})
                only.final(only.merge([only.partial(row)] * 2).slice(0, 0))
        # Without rows: an author's function need not be asked.
        return self.final(self.partial(row).slice(0, 0)).schema

    def _group(self, table: pa.Table, functions: Sequence[str | _Reduce]) -> pa.Table:
        for value, function in zip(self._values, functions, strict=True):
            if function == "sum" and (wide := wide_type(table[value])) is not None:
                at = table.schema.get_field_index(value)
                table = table.set_column(at, value, table[value].cast(wide))
        kernels = [(value, one) for value, one in zip(self._values, functions, strict=True) if isinstance(one, str)]
        if len(kernels) == len(functions):
            return by_kernels(table, self._keys, kernels)
        if not self._keys and not table.num_rows:  # there is a group nevertheless, and nulls count for nothing
            table = nulls(table.schema)
        groups = Groups.number([table[key] for key in self._keys], table.num_rows)
        made = by_kernels(table.append_column(_GROUP, groups.of), [_GROUP], kernels)
        first = reduce(groups.of, count_to(table.num_rows), groups.many, "min")
        columns = [table[key].take(first) for key in self._keys]
        for value, function in zip(self._values, functions, strict=True):
            columns.append(made[value] if isinstance(function, str) else function(whole(table[value]), groups))
        return pa.Table.from_arrays(columns, names=self._keys + self._values)

    def _value(self, partial: pa.Table, one: Spec) -> pa.ChunkedArray | pa.Array:
        names = [self._values[self._parts.index((one.column, part))] for part in one.parts]
        if one.said == "sum":
            total = partial[names[0]]
            return narrowed(total, self._narrow.types.get(names[0], total.type), one.column)
        return one.finish([whole(partial[name]) for name in names])


@contextmanager
def _told(what: str, schema: pa.Schema, column: str) -> Iterator[None]:
    try:
        yield
    except pa.ArrowException as error:
        kind, advice = schema.field(column).type if column in schema.names else None, ""
        if isinstance(kind, pa.DictionaryType):
            cast = f"with_columns(..., {column}=pc.field({column!r}).cast({str(kind.value_type)!r}))"
            advice = f"; it has a dictionary: cast it before, with {cast}"
        raise SchemaError(f"can't {what}: {error}: the input has {columns_of(schema)}{advice}") from error
