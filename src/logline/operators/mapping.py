"""Stateless operators on whole batches: map, filter, union.

Each event is an input set of its own; `generate` sees its batch.

    >>> MapBatches(lambda batch: batch.select(["id"]), pa.schema({"id": pa.int64()}))
    MapBatches()
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from logline.errors import OptionError, SchemaError, a_kind
from logline.graph.functions import check_takes
from logline.graph.operator import (
    ArrowArray,
    ArrowStream,
    Batch,
    BatchOperator,
    Dependency,
    SchemaLike,
    Tabular,
    is_tabular,
)
from logline.operators.tables import columns_of, same_columns

MapFn = Callable[[Batch], Tabular | Iterable[Tabular] | None]
AsyncMapFn = Callable[[Batch], Awaitable[Tabular | Iterable[Tabular] | None] | AsyncIterable[Tabular]]
Where: TypeAlias = "pc.Expression | Callable[[Batch], Any]"
"""A condition: an Arrow expression, or a function that makes a mask (Arrow, NumPy, a list of bools)."""


class MapBatches(BatchOperator):
    """Applies a function to each batch; every table it makes is an event of its own."""

    def __init__(self, fn: MapFn, schema: pa.Schema) -> None:
        check_takes(fn, "map_batches", "batch")
        self.fn = fn
        self.schema = schema

    def __repr__(self) -> str:
        return "MapBatches()"

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        return {"out": self.schema}

    def each(self, batch: Batch) -> Iterable[Tabular]:
        return tables_of(self.fn(batch))


class Filter(BatchOperator):
    """Keeps the rows for which the condition is true; null is not true."""

    reuses_memory = False

    def __init__(self, where: Where) -> None:
        if not isinstance(where, pc.Expression) and not callable(where):
            raise OptionError(f"filter takes an Arrow expression or a function, not {type(where).__name__}")
        if not isinstance(where, pc.Expression):
            check_takes(where, "filter", "batch")
        self.where = where

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        schema = inputs["in"]
        if isinstance(self.where, pc.Expression):
            try:
                schema.empty_table().filter(self.where)
            except (pa.ArrowException, TypeError) as error:
                raise SchemaError(
                    f"the condition {self.where} can't be applied to {columns_of(schema)}: {error}"
                ) from error
        return {"out": schema}

    def dependencies(self, inputs: Mapping[str, pa.Schema]) -> Iterable[Dependency]:
        return same_columns(inputs["in"])

    def each(self, batch: Batch) -> Iterable[Tabular]:
        if isinstance(self.where, pc.Expression):
            kept = batch.filter(self.where)
        else:
            kept = batch.filter(_mask(self.where(batch), batch.num_rows))
        return (kept,) if kept.num_rows else ()


class Union(BatchOperator):
    """Passes on what comes in, from however many senders."""

    reuses_memory = False

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        (first, schema), *others = inputs.items()
        for port, other in others:
            if not other.equals(schema):
                raise SchemaError(
                    f"a union needs the same schema everywhere: {first!r} has {columns_of(schema)}; "
                    f"{port!r} has {columns_of(other)}"
                )
        return {"out": schema}

    def dependencies(self, inputs: Mapping[str, pa.Schema]) -> Iterable[Dependency]:
        return same_columns(inputs["in"])

    def each(self, batch: Batch) -> Iterable[Tabular]:
        return (batch,)


def tables_of(made: Any) -> Iterable[Tabular]:
    """What the function of `map_batches` made: a table, several, or none."""
    if made is None:
        return ()
    # A frame may be iterable too (by column): what is tabular is one table.
    return (made,) if type(made) is pa.RecordBatch or is_tabular(made) else _tables(made)


def _tables(made: Any) -> Iterator[Tabular]:
    for table in made if isinstance(made, Iterable) else (made,):
        if not is_tabular(table):
            raise TypeError(
                f"the function of map_batches gave {a_kind(table)}; it must return a table "
                "(pyarrow, pandas, polars), several of them, or None"
            )
        yield table


def _array(value: Any) -> pa.Array:
    if not (isinstance(value, Iterable) or is_tabular(value)) or isinstance(value, str):
        raise TypeError(
            f"the function of filter gave {a_kind(value)}; it must return one bool per row: "
            "an Arrow or NumPy array, or a list"
        )
    return pa.array(value)


def _mask(value: Any, rows: int) -> pa.BooleanArray:
    if isinstance(value, ArrowStream) and not isinstance(value, (pa.Array, ArrowArray)):
        value = pa.chunked_array(value)
    if isinstance(value, pa.ChunkedArray):
        value = value.combine_chunks()
    mask = value if isinstance(value, pa.Array) else _array(value)
    if pa.types.is_null(mask.type):  # an empty list, or nothing but None
        mask = mask.cast(pa.bool_())
    if not pa.types.is_boolean(mask.type):
        raise TypeError(f"the function of filter gave {mask.type} values; it must return one bool per row")
    if len(mask) != rows:
        raise ValueError(f"the function of filter gave {len(mask)} values for {rows} rows")
    return mask
