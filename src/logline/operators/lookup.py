"""Lookup joins: rows of a stream with those of a table that have the same keys.

`Lookup` reads the table itself: one that is given, a file, or what a function returns. It is stateless. What was put
out is in the log, so a crash changes nothing of it; what was not is joined with the table as it is then.

`StreamLookup` has another stream as its table (`ll.table`): the newest row of each key is the state of that key
(R31). A row of the stream is joined with what is known when its event is taken. Which event came after which is part
of what is logged, so recovery goes on with exactly the same table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from logline.engine.keyed import encode_key
from logline.errors import OptionError, SchemaError
from logline.graph.durations import duration
from logline.graph.operator import Batch, BatchOperator, Context, Dependency, Duration, Operator, SchemaLike
from logline.names import InsetId
from logline.operators.by_key import RowsByKey, check_keys, parameters_of
from logline.operators.checks import column_name
from logline.operators.grouping import count_to, lists
from logline.operators.join import ROWS
from logline.operators.join_columns import LEFT, RIGHT, JoinColumns, On
from logline.operators.kept_rows import check_kept, rows_of_states, rows_to_states
from logline.operators.lookup_tables import ReadTable, Refreshed
from logline.operators.tables import columns_of

LookupHow = Literal["left", "inner"]
IN, TABLE = "in", "table"
_NUMBER = pa.int64()


class Lookup(BatchOperator):
    """Joins each event with a table that it reads."""

    reuses_memory = False

    def __init__(
        self,
        input: pa.Schema,
        table: ReadTable,
        *,
        on: On,
        how: LookupHow = "left",
        refresh: Duration | None = None,
        select: Sequence[str] | None = None,
        suffix: str = "_right",
    ) -> None:
        self.columns = lookup_columns(input, table.schema, on, how, select, suffix)
        if refresh is not None and not table.changes:
            raise OptionError(
                f"refresh={refresh!r}: a table that is given never changes: give the path of a file, or a function"
            )
        self.table = table
        self.refresh = None if refresh is None else duration(refresh)
        if self.refresh is not None and self.refresh.total_seconds() < 0:
            raise OptionError(f"refresh={refresh!r}: the time must not be negative")

    def open(self, ctx: Context[None]) -> None:
        self._index = Refreshed(self._read, self.refresh)

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        return {"out": self.columns.output}

    def dependencies(self, inputs: Mapping[str, pa.Schema]) -> Iterable[Dependency]:
        return _of_stream(self.columns)

    def each(self, batch: Batch) -> Iterator[pa.Table]:
        index = self._index.get()
        pairs = index.pairs(RowsByKey.of(batch, self.columns.keys[LEFT]))
        yield from joined(self.columns, pairs, batch, index.rows)

    def _read(self) -> TableIndex:
        rows = self.table.read(self.columns.inputs[RIGHT].names)
        return TableIndex(rows, self.columns.keys[RIGHT], outer=self.columns.how == "left")

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_index"}


class TableIndex:
    """The rows of a table by key. It is made once for many events, so an event costs what its own keys cost."""

    def __init__(self, rows: Batch, keys: Sequence[str], *, outer: bool) -> None:
        """`outer`: whether a row without a match is paired with null."""
        self.rows = pa.Table.from_batches([rows])
        by_key = RowsByKey.of(rows, keys)
        self._numbers = {encode_key(key): number for number, key in enumerate(by_key.keys) if None not in key}
        self._none = len(by_key.keys)
        found = lists(by_key.numbers, count_to(rows.num_rows), self._none)
        nothing = pa.array([[None] if outer else []], found.type)
        self._lists = pa.concat_arrays([found, nothing])
        """By the number of a key: its rows. The last one is for keys that the table has not."""

    def pairs(self, by_key: RowsByKey) -> pa.Table:
        """Pairs of row numbers, in the order of the stream's rows, then of the table's."""
        numbers = [self._numbers.get(encode_key(key), self._none) for key in by_key.keys]
        found = self._lists.take(pa.array(numbers, _NUMBER).take(by_key.numbers))
        return pa.table({"l": pc.list_parent_indices(found), "r": pc.list_flatten(found)})


class StreamLookup(Operator[Batch, None]):
    """Joins each event of the port `in` with the newest row of each key that came on the port `table`.

    The state of a key is its row, without the key, as an Arrow record batch.
    """

    inputs = (IN, TABLE)
    reuses_memory = False
    ignores_time_of = (TABLE,)
    Keyed = bytes

    def __init__(
        self,
        input: pa.Schema,
        table: pa.Schema,
        key: Sequence[str],
        *,
        on: On,
        how: LookupHow = "left",
        select: Sequence[str] | None = None,
        suffix: str = "_right",
    ) -> None:
        self.columns = lookup_columns(input, table, on, how, select, suffix)
        self.input, self.table = input, table
        self.key = tuple(key)
        self.stream_key = stream_keys(self.columns, self.key, on)
        self.kept = pa.schema([table.field(name) for name in self.columns.names])
        check_kept(self.kept, "ll.table()")

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        return {"out": self.columns.output}

    def dependencies(self, inputs: Mapping[str, pa.Schema]) -> Iterable[Dependency]:
        return _of_stream(self.columns)

    def parameters(self) -> Mapping[str, object]:
        return {**parameters_of(self.key), "columns": columns_of(self.kept)}

    def key_rows(self) -> pa.Schema:
        return self.kept

    def generate(self, inset: InsetId, acc: Batch, ctx: Context[None]) -> Iterator[pa.Table]:
        if (ctx.port or self._port(acc)) == TABLE:
            self._keep(acc, ctx)
        else:
            yield from self._look_up(acc, ctx)

    def _port(self, batch: Batch) -> str:
        """For rows that somebody corrected by hand: which side's columns they have."""
        return TABLE if batch.schema.equals(self.table) and not batch.schema.equals(self.input) else IN

    def _keep(self, batch: Batch, ctx: Context[None]) -> None:
        by_key = RowsByKey.of(batch, self.key)
        rows = pa.table({"key": by_key.numbers, "row": count_to(batch.num_rows)})
        last = rows.group_by("key", use_threads=False).aggregate([("row", "max")]).sort_by("key")["row_max"]
        # A null equals nothing: a row with one in its key would never be found.
        known = [number for number, key in enumerate(by_key.keys) if None not in key]
        newest = batch.select(self.kept.names).take(last.combine_chunks().take(pa.array(known, _NUMBER)))
        ctx.keys.set_all([by_key.keys[number] for number in known], rows_to_states(newest, [1] * len(known)))

    def _look_up(self, batch: Batch, ctx: Context[None]) -> Iterator[pa.Table]:
        by_key = RowsByKey.of(batch, self.stream_key)
        asked = [number for number, key in enumerate(by_key.keys) if None not in key]
        table, of = rows_of_states(ctx.keys.get_all([by_key.keys[number] for number in asked]), self.kept)
        places: list[int | None] = [None] * len(by_key.keys)
        for place, which in enumerate(of.to_pylist()):
            places[asked[which]] = place
        found = pa.array(places, _NUMBER).take(by_key.numbers)
        pairs = pa.table({"l": count_to(batch.num_rows), "r": found})
        if self.columns.how == "inner":
            pairs = pairs.filter(pc.is_valid(found))
        yield from joined(self.columns, pairs, batch, table)


def lookup_columns(
    input: pa.Schema, table: pa.Schema, on: On, how: LookupHow, select: Sequence[str] | None, suffix: str
) -> JoinColumns:
    """The columns of a lookup: the stream is the left side, the table the right one."""
    if how not in get_args(LookupHow):
        raise OptionError(
            f"how={how!r}: a lookup takes 'left', every row of the stream, or 'inner', those that match"
        )
    if select is not None:
        table = _selected(table, on, select)
    columns = JoinColumns(input, table, on, how, suffix)
    check_keys(columns.keys[LEFT], input, "on")
    return columns


def stream_keys(columns: JoinColumns, key: Sequence[str], on: On) -> list[str]:
    """The columns of the stream that a table's key is compared with, in the order of the key."""
    pairs = dict(zip(columns.keys[RIGHT], columns.keys[LEFT], strict=True))
    if set(pairs) != set(key):
        raise OptionError(
            f"on={on!r}: the table has the key {list(key)!r}: name exactly its columns, as in "
            f"on={list(key)!r}, or on={{'column of the stream': {key[0]!r}}}"
        )
    return [pairs[name] for name in key]


def _selected(table: pa.Schema, on: On, select: Sequence[str]) -> pa.Schema:
    given: object = select
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise OptionError(f'select={select!r}: name columns of the table, as in select=["price"]')
    for name in select:
        if column_name(name, "select") not in table.names:
            raise SchemaError(f"select: the table has no column {name!r}: it has {columns_of(table)}")
    wanted = {*select, *(on.values() if isinstance(on, Mapping) else on)}
    return pa.schema([field for field in table if field.name in wanted])


def _of_stream(columns: JoinColumns) -> list[Dependency]:
    """A joined record is made of one of the stream. Those of the table are in no event, or in the state of a key."""
    return [Dependency(name, name, port=IN) for name in columns.inputs[LEFT].names]


def joined(columns: JoinColumns, pairs: pa.Table, batch: Batch, table: pa.Table) -> Iterator[pa.Table]:
    """The joined rows of these pairs, in tables of a bounded size."""
    left, most = pa.Table.from_batches([batch]), max(ROWS, batch.num_rows)
    for at in range(0, pairs.num_rows, most):
        yield columns.rows(pairs.slice(at, most), left, table)
