"""Stateless operators that shape the rows of a batch: select, with_columns, split, explode.

>>> Split({"large": pc.field("amount") > 5})
Split(large)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from logline.errors import BadName, SchemaError
from logline.graph.operator import Batch, BatchOperator, Dependency, Emit, SchemaLike, Tabular
from logline.names import ERRORS, NAME_RULE, may_name
from logline.operators.checks import column_name
from logline.operators.computed import Computation, Computed, Conditions
from logline.operators.sql_text import Query
from logline.operators.tables import columns_of, same_columns

REST = "rest"
"""The port of rows that no condition of a split takes."""


class Select(BatchOperator):
    """What an SQL text gives of each batch."""

    reuses_memory = False

    def __init__(self, sql: str) -> None:
        self.query = Query(sql)

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        return {"out": self.query.schema(inputs["in"])}

    def dependencies(self, inputs: Mapping[str, pa.Schema]) -> Iterable[Dependency]:
        return self.query.passed(inputs["in"])

    def each(self, batch: Batch) -> Iterable[Tabular]:
        made = self.query.run(batch)
        return (made,) if made.num_rows else ()


class WithColumns(BatchOperator):
    """The rows as they come, with columns added or replaced."""

    def __init__(self, columns: Mapping[str, Computation]) -> None:
        self.columns = Computed("with_columns", columns)

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        schema = inputs["in"]
        types = self.columns.types(schema)
        kept = [pa.field(one.name, types[one.name]) if one.name in types else one for one in schema]
        return {"out": pa.schema([*kept, *(pa.field(n, t) for n, t in types.items() if n not in schema.names)])}

    def dependencies(self, inputs: Mapping[str, pa.Schema]) -> Iterable[Dependency]:
        return [one for one in same_columns(inputs["in"]) if one.out not in self.columns.given]

    def each(self, batch: Batch) -> Iterable[Tabular]:
        if not batch.num_rows:
            return ()
        columns = {name: batch.column(at) for at, name in enumerate(batch.schema.names)}
        return (pa.table(columns | self.columns.of(batch)),)


class Split(BatchOperator):
    """Each row leaves on the port of the first condition that is true for it, or on port `rest`."""

    reuses_memory = False

    def __init__(self, where: Mapping[str, Computation]) -> None:
        for port in where:
            if not may_name(port) or port in (REST, ERRORS):
                raise BadName(f"{port!r} can't name a port of a split: {NAME_RULE}; 'rest' and 'errors' are taken")
        self.where = Conditions("split", where)

    def __repr__(self) -> str:
        return f"Split({', '.join(self.where.given)})"

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        self.where.types(inputs["in"])
        return dict.fromkeys((*self.where.given, REST), inputs["in"])

    def dependencies(self, inputs: Mapping[str, pa.Schema]) -> Iterable[Dependency]:
        return same_columns(inputs["in"])

    def each(self, batch: Batch) -> Iterable[Emit]:
        if not batch.num_rows:
            return
        left = pa.repeat(pa.scalar(True), batch.num_rows)
        for port, mask in self.where.masks(batch).items():
            if (rows := batch.filter(pc.and_(left, mask))).num_rows:
                yield Emit(rows, port)
            left = pc.and_not(left, mask)
        if (rows := batch.filter(left)).num_rows:
            yield Emit(rows, REST)


class Explode(BatchOperator):
    """A row for each element of a list, with the other columns repeated."""

    def __init__(self, column: str, outer: bool = False) -> None:
        self.column = column_name(column, "column")
        self.outer = outer

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        schema = inputs["in"]
        at = schema.get_field_index(self.column)
        if at < 0:
            raise SchemaError(f"there is no column {self.column!r}: the input has {columns_of(schema)}")
        kind = schema.field(at).type
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
            raise SchemaError(f"explode takes a column of lists, and {self.column!r} is {kind}")
        return {"out": schema.set(at, pa.field(self.column, kind.value_type))}

    def dependencies(self, inputs: Mapping[str, pa.Schema]) -> Iterable[Dependency]:
        return [one for one in same_columns(inputs["in"]) if one.out != self.column]

    def each(self, batch: Batch) -> Iterable[Tabular]:
        lists = batch.column(self.column)
        rows, values = pc.list_parent_indices(lists).cast(pa.int64()), pc.list_flatten(lists)
        # Under a list that is null there may lie values: they have parents, and flatten leaves them out.
        rows = rows.filter(pc.is_valid(lists).take(rows))
        if self.outer:
            none = pc.fill_null(pc.equal(pc.list_value_length(lists), 0), True)
            rows = pa.concat_arrays([rows, pc.indices_nonzero(none).cast(pa.int64())])
            values = pa.concat_arrays([values, pa.nulls(len(rows) - len(values), values.type)])
            order = pc.sort_indices(rows)  # stable: elements keep their order
            rows, values = rows.take(order), values.take(order)
        if not len(rows):
            return ()
        made = pa.Table.from_batches([batch]).take(rows)
        at = batch.schema.get_field_index(self.column)
        return (made.set_column(at, pa.field(self.column, values.type), values),)
