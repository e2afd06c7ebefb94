"""The columns that a window adds to what is made of its records: when it begins and ends, which version it is.

>>> with_bounds(pa.table({"total": [7]}), pa.timestamp("s"), 3600, 7200).column_names
['window_start', 'window_end', 'total']
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from logline.errors import OptionError, SchemaError
from logline.operators.aggregates import Reduction
from logline.operators.tables import columns_of

START, END, VERSION = "window_start", "window_end", "window_version"
_NUMBER = pa.int64()


def check_time_column(schema: pa.Schema, on: str) -> None:
    """SchemaError if the input has no such column."""
    if on not in schema.names:
        raise SchemaError(f"there is no time column {on!r}: the input has {columns_of(schema)}")


def bounded(
    reduction: Reduction[Any], schema: pa.Schema, bound: pa.DataType | None, *, versions: bool = False
) -> pa.Schema:
    """What comes out of a window: its bounds, if it has any, its version, if it has several, what is made of it."""
    added = [pa.field(START, bound), pa.field(END, bound)] if bound is not None else []
    added += [pa.field(VERSION, _NUMBER)] if versions else []
    made = reduction.output(schema)
    if taken := sorted({field.name for field in added} & set(made.names)):
        raise OptionError(f"the window adds the column {taken[0]!r} itself; give yours another name")
    return pa.schema([*added, *made])


def with_bounds(made: pa.Table, bound: pa.DataType, start: int, end: int) -> pa.Table:
    """The table with the bounds, given in ticks, before its columns."""
    for position, (name, tick) in enumerate([(START, start), (END, end)]):
        made = made.add_column(position, name, pa.repeat(pa.scalar(tick, bound), made.num_rows))
    return made


def with_version(made: pa.Table, version: int, position: int) -> pa.Table:
    """The table with the number of the version as one more column."""
    return made.add_column(position, VERSION, pa.repeat(pa.scalar(version, _NUMBER), made.num_rows))
