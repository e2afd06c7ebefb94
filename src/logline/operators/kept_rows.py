"""Rows as the states of keys: the rows of each key are one Arrow record batch, without its schema.

>>> rows = pa.record_batch({"n": [1, 2, 3]})
>>> states = rows_to_states(rows, [2, 1])
>>> table, of = rows_of_states([states[0], None, states[1]], rows.schema)
>>> table["n"].to_pylist(), of.to_pylist()
([1, 2, 3], [0, 0, 2])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from logline.errors import SchemaError


def check_kept(schema: pa.Schema, what: str) -> None:
    """Raises unless rows of this schema can be kept. The values of a dictionary are no part of its batch."""
    for field in schema:
        if _has_dictionary(field.type):
            plain = f" to {field.type.value_type}" if pt.is_dictionary(field.type) else " to one without a dictionary"
            raise SchemaError(f"column {field.name!r} is {field.type}: cast it{plain} before {what}")


def _has_dictionary(kind: Any) -> bool:
    return pt.is_dictionary(kind) or any(_has_dictionary(kind.field(at).type) for at in range(kind.num_fields))


def rows_to_states(rows: pa.RecordBatch, counts: Iterable[int]) -> list[bytes]:
    """The states of keys whose rows lie one behind the other, with so many rows each."""
    at, states = 0, []
    for count in counts:
        states.append(rows.slice(at, count).serialize().to_pybytes())
        at += count
    return states


def rows_of_states(states: Sequence[bytes | None], schema: pa.Schema) -> tuple[pa.Table, pa.Array]:
    """The rows of all states, and of each row which state it is from."""
    there = [(number, raw) for number, raw in enumerate(states) if raw is not None]
    batches = [pa.ipc.read_record_batch(pa.py_buffer(raw), schema) for _, raw in there]
    numbers: list[int] = []
    for (number, _), batch in zip(there, batches, strict=True):
        numbers += [number] * batch.num_rows
    return pa.Table.from_batches(batches, schema=schema).combine_chunks(), pa.array(numbers, pa.int64())
