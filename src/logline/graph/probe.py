"""Finds the schema that a function makes: calls it with an empty batch when the pipeline is defined."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from logline.errors import SchemaError, a_kind
from logline.graph.operator import Batch, is_tabular
from logline.graph.schemas import schema, to_table

_REMEDY = "pass schema=, for example schema='id long, score double'"


def probe(name: str, fn: Callable[[Batch], Any], input: pa.Schema) -> pa.Schema:
    """What `fn` makes of an empty batch of the schema `input`; a SchemaError asks for `schema=` instead."""
    batch = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in input], schema=input)
    try:
        made: Any = fn(batch)
        if isinstance(made, Iterable) and not is_tabular(made):
            made = next(iter(made), None)
    except Exception as error:
        raise SchemaError(
            f"operator {name!r}: its schema is not known, since the function failed on an empty batch "
            f"({type(error).__name__}: {error}): correct it, or, if it can't run on an empty batch, {_REMEDY}"
        ) from error
    if made is None:
        raise SchemaError(
            f"operator {name!r}: its schema is not known, "
            f"since the function makes nothing of an empty batch: {_REMEDY}"
        )
    if not is_tabular(made):
        raise SchemaError(
            f"operator {name!r}: the function gave {a_kind(made)}; it must return a table (pyarrow, pandas, polars), "
            "several of them, or None"
        )
    found = schema(to_table(made, f"{name}.out").schema)
    if type(made).__module__.partition(".")[0] == "pandas":
        found = _as_it_came(found, input)
    for field in found:
        if pt.is_null(field.type):
            raise SchemaError(f"operator {name!r}: the column {field.name!r} has no type when it is empty: {_REMEDY}")
    return found


def _as_it_came(found: pa.Schema, input: pa.Schema) -> pa.Schema:
    """A column of texts is one of objects in pandas, which has no type while it is empty: one that came in with the
    same name is taken to be as it was."""
    return pa.schema(
        input.field(field.name) if pt.is_null(field.type) and field.name in input.names else field for field in found
    )
