"""Arrow's grouped kernels, with NaN as Spark SQL and DuckDB have it: greater than any number.

>>> table = pa.table({"k": [1, 1, 2], "v": [3.0, float("nan"), 4.0]})
>>> by_kernels(table, ["k"], [("v", "max")]).to_pylist()
[{'k': 1, 'v': nan}, {'k': 2, 'v': 4.0}]
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


def by_kernels(table: pa.Table, keys: Sequence[str], kernels: Sequence[tuple[str, str]]) -> pa.Table:
    """A row for each group, in the order in which they come: the keys, and each value by its kernel."""
    flags: dict[str, tuple[str, str]] = {}
    for value, function in kernels:
        if function in ("min", "max") and pa.types.is_floating(table[value].type):
            nan = pc.is_nan(table[value])
            if pc.any(nan).as_py():
                at, flag = table.schema.get_field_index(value), f"{value} nan"
                table = table.set_column(at, value, pc.if_else(nan, None, table[value]))
                # The greatest is NaN if one is, the least if all are.
                table = table.append_column(flag, nan.cast(pa.int8()))
                flags[value] = (flag, function)
    made = table.group_by(list(keys), use_threads=False).aggregate([*kernels, *flags.values()])
    columns = [made[key] for key in keys]
    for value, function in kernels:
        column = made[f"{value}_{function}"]
        if value in flags:
            is_nan = pc.equal(pc.fill_null(made["_".join(flags[value])], 0), 1)
            column = pc.if_else(is_nan, pa.scalar(float("nan"), column.type), column)
        columns.append(column)
    return pa.Table.from_arrays(columns, names=[*keys, *(value for value, _ in kernels)])
