"""Payloads as stores on disk keep them: Arrow batches without their schema, which stands in a row of its own.

A schema that changes midway gets the next number. Dictionaries travel only in a whole stream, so batches with such
columns are kept as one.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_read_batch, _buffer = pa.ipc.read_record_batch, pa.py_buffer
NONE, SAME, STREAM = 0, 0xFFFE, 0xFFFF
"""Schema numbers with a meaning of their own: no payload at all (the end), that of an event in another journal, and a
whole stream."""


def has_dictionary(kind: Any) -> bool:
    """Whether a type, or one inside it, is a dictionary."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_dictionary(kind):
        return True
    return any(has_dictionary(kind.field(i).type) for i in range(kind.num_fields))


def needs_stream(schema: pa.Schema) -> bool:
    """Whether a batch can't be read back with its schema alone."""
    return len(schema) == 0 or any(has_dictionary(field.type) for field in schema)


def write_stream(batch: pa.RecordBatch) -> pa.Buffer:
    """A batch with everything it needs."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def read_stream(raw: bytes) -> pa.RecordBatch:
    """The inverse of `write_stream`."""
    with pa.ipc.open_stream(raw) as reader:
        return reader.read_next_batch()


def write_batch(batch: pa.RecordBatch) -> pa.Buffer:
    """A batch without its schema."""
    return batch.serialize()


def read_batch(raw: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """The inverse of `write_batch`. `raw` belongs to nobody else: user code may keep it."""
    return _read_batch(_buffer(raw), schema)
