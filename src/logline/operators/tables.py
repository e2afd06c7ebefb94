"""What several operators need of a schema: its columns as text for messages, and what its types can do."""

from __future__ import annotations

import pyarrow as pa

from logline.graph.operator import Dependency


def same_columns(schema: pa.Schema) -> list[Dependency]:
    """The dependencies of records that pass unchanged."""
    return [Dependency(name, name) for name in dict.fromkeys(schema.names)]


def nulls(schema: pa.Schema) -> pa.Table:
    """One row of nulls: what a kernel can't do with a column's type shows on it, before data moves."""
    columns = [pa.nulls(1, field.type) for field in schema]
    return pa.Table.from_arrays(columns, names=schema.names)


def columns_of(schema: pa.Schema) -> str:
    """The columns with their types, for messages."""
    return ", ".join(f"{field.name} {field.type}" for field in schema) or "no columns"
