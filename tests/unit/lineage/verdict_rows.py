"""What `Log.explain` found, for tests to compare."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def verdicts(table: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    """These columns of each row; source, row, verdict and operator if none is named."""
    return [tuple(row[c] for c in columns or ("source", "row", "what", "operator")) for row in table.to_pylist()]


def detail(table: pa.Table) -> str:
    """The sentence of the only row."""
    (found,) = table["detail"].to_pylist()
    return str(found)
