"""The event states of ready-made operators as bytes, for checkpoints (R22): Arrow streams, and what goes with them.

A state comes back as it was, partial by partial and batch by batch. To merge them first would be smaller, but a sum
of floats depends on the order of its terms: a set that was rebuilt would come to another result than one that was
not.

    >>> batches = [pa.record_batch({"n": [1, 2]}), pa.record_batch({"n": [3]})]
    >>> [batch.num_rows for batch in read_batches(batches_to_bytes(batches))]
    [2, 1]
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa

from logline.graph.operator import Batch
from logline.operators.gathered import Gathered

pack = msgspec.msgpack.Encoder().encode
unpack = msgspec.msgpack.Decoder().decode


def batches_to_bytes(batches: Sequence[Batch]) -> bytes:
    """Batches of one schema as one stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def read_batches(data: bytes) -> list[Batch]:
    """The inverse of `batches_to_bytes`."""
    return list(pa.ipc.open_stream(data))


def table_to_bytes(table: pa.Table) -> bytes:
    """A table as a stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def read_table(data: bytes) -> pa.Table:
    """The inverse of `table_to_bytes`."""
    return pa.ipc.open_stream(data).read_all()


def types_to_bytes(types: dict[str, pa.DataType]) -> bytes:
    """The types of columns as bytes, for a checkpoint."""
    return pa.schema(list(types.items())).serialize().to_pybytes()  # type: ignore[no-any-return]


def read_types(data: bytes) -> dict[str, pa.DataType]:
    """The inverse of `types_to_bytes`."""
    return dict(_types(data))


@lru_cache(maxsize=64)
def _types(data: bytes) -> Sequence[tuple[str, pa.DataType]]:
    """The checkpoints of an operator, of which there may be 10^5, have the same types."""
    return tuple((field.name, field.type) for field in pa.ipc.read_schema(pa.py_buffer(data)))


def gathered_to_bytes(gathered: Gathered | None, columns: Sequence[str] | None = None) -> bytes | None:
    """Gathered batches, or some of their columns."""
    if gathered is None:
        return None
    batches = gathered.batches()
    return batches_to_bytes(batches if columns is None else [batch.select(columns) for batch in batches])


def read_gathered(data: Any) -> Gathered | None:
    """The inverse of `gathered_to_bytes`."""
    found: Gathered | None = None
    for batch in read_batches(data) if data is not None else ():
        found = Gathered.after(found, batch)
    return found
