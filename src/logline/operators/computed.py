"""Columns that are computed of a batch, row by row: by Arrow expressions, SQL texts, or functions of the batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from logline.errors import OptionError, SchemaError, a_kind
from logline.graph.functions import check_takes
from logline.graph.operator import Batch
from logline.operators.sql_text import INPUT, Query
from logline.operators.tables import columns_of, nulls

Computation: TypeAlias = "pc.Expression | str | Callable[[Batch], Any]"
"""An Arrow expression, an SQL text, or a function of the batch that gives one value per row."""


class Computed:
    """Named columns, each by its computation. All of them see the columns of the input."""

    def __init__(self, what: str, given: Mapping[str, Computation]) -> None:
        self.what = what
        self.given = dict(given)
        if not given:
            raise OptionError(f"{what} needs at least one, as in {what}(..., large=pc.field('amount') > 100)")
        for name, one in given.items():
            if not isinstance(one, pc.Expression | str):
                if not callable(one):
                    raise OptionError(f"{name}= is {a_kind(one)}: give an Arrow expression, SQL, or a function")
                check_takes(one, f"{what}({name}=...)", "batch")
        self._texts = {name: one for name, one in given.items() if isinstance(one, str)}
        self._expressions = {name: one for name, one in given.items() if isinstance(one, pc.Expression)}
        # A line of its own: a text may end in a comment.
        columns = ", ".join(f"(\n{one}\n) as c{at}" for at, one in enumerate(self._texts.values()))
        self._query = Query(f"select {columns} from {INPUT}") if self._texts else None

    def types(self, schema: pa.Schema) -> dict[str, pa.DataType]:
        """The types of the columns; SchemaError if one can't be computed of this input."""
        empty = pa.RecordBatch.from_pylist([], schema=schema)
        if self._query is not None:
            self._query.schema(schema)
            two = pa.concat_tables([nulls(schema)] * 2)
            if self._query.run(two).num_rows != 2:
                raise SchemaError(f"the SQL of {self.what} must give one value for each row: {self._query.text}")
        found = {}
        for name, one in self.given.items():
            try:
                found[name] = self._one(name, one, empty).type
            except (pa.ArrowException, TypeError, ValueError, LookupError) as error:
                raise SchemaError(f"{name}= can't be computed of {columns_of(schema)}: {error}") from error
            if pa.types.is_null(found[name]):
                raise SchemaError(f"{name}= has no type when there are no rows: give an array that has one")
        return found

    def of(self, batch: Batch) -> dict[str, pa.Array]:
        """The columns of a batch."""
        found: dict[str, pa.Array] = {}
        if self._query is not None:
            made = self._query.run(batch)
            found |= {name: _whole(made.column(at)) for at, name in enumerate(self._texts)}
        if self._expressions:
            found |= _projected(batch, self._expressions)
        return {n: found[n] if n in found else self._called(n, one, batch) for n, one in self.given.items()}

    def _one(self, name: str, one: Computation, batch: Batch) -> pa.Array:
        if isinstance(one, str):
            return Query(f"select (\n{one}\n) from {INPUT}").run(batch).column(0)
        if isinstance(one, pc.Expression):
            return _projected(batch, {name: one})[name]
        return self._called(name, one, batch)

    def _called(self, name: str, fn: Any, batch: Batch) -> pa.Array:
        made = fn(batch)
        if isinstance(made, pa.Scalar):
            made = pa.repeat(made, batch.num_rows)
        array = _whole(made) if isinstance(made, pa.Array | pa.ChunkedArray) else pa.array(made)
        if len(array) != batch.num_rows:
            raise ValueError(f"the function of {name}= gave {len(array)} values for {batch.num_rows} rows")
        return array


class Conditions(Computed):
    """Columns of truths. Null is not true."""

    def types(self, schema: pa.Schema) -> dict[str, pa.DataType]:
        found = super().types(schema)
        for name, kind in found.items():
            if not pa.types.is_boolean(kind):
                raise SchemaError(f"{name}= gives {kind}, not true or false")
        return found

    def masks(self, batch: Batch) -> dict[str, pa.BooleanArray]:
        """For each condition the rows for which it is true."""
        return {name: pc.fill_null(one.cast(pa.bool_()), False) for name, one in self.of(batch).items()}


def _projected(batch: Batch, expressions: Mapping[str, pc.Expression]) -> dict[str, pa.Array]:
    from pyarrow import acero  # here: it imports pyarrow.dataset, and that imports pandas where it is installed

    plan = acero.Declaration.from_sequence(
        [
            acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([batch]))),
            acero.Declaration("project", acero.ProjectNodeOptions(list(expressions.values()), list(expressions))),
        ]
    )
    made = plan.to_table(use_threads=False)
    return {name: _whole(made.column(name)) for name in expressions}


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
