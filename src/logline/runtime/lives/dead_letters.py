"""The rows of a dead letter: an event on port `errors` holds them as an Arrow IPC stream, in its column `data`.

They hold nothing of their neighbours. A slice of a batch shares the memory of the whole batch; a stream of it has the
texts and lists of the slice alone, but whole dictionaries, and whatever views point to. `compacted` leaves those out.

    >>> words = pa.array(["much", "that", "nobody", "needs"]).dictionary_encode()
    >>> row = compacted(pa.record_batch({"word": words}).slice(2, 1))
    >>> row["word"].dictionary.to_pylist()
    ['nobody']

What `ctx.call` was answered for rejected rows goes with them, in the metadata of the stream: a retry does not ask
again (R9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from logline.engine.sets import Answer

_ANSWERS = b"logline.answers"


def rows_to_bytes(batches: Sequence[pa.RecordBatch], answers: Sequence[Answer] = ()) -> bytes | None:
    """Batches as one Arrow IPC stream; None where there is nothing or the schemas differ."""
    if not batches or any(not b.schema.equals(batches[0].schema) for b in batches):
        return None
    schema = batches[0].schema
    if answers:
        schema = schema.with_metadata({**(schema.metadata or {}), _ANSWERS: msgspec.msgpack.encode(answers)})
    sink = pa.BufferOutputStream()
    # One dictionary per batch: those of several batches may differ, once they are made small.
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=False)) as writer:
        for batch in batches:
            writer.write_batch(compacted(batch).replace_schema_metadata(schema.metadata))
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def rows_of(error: pa.RecordBatch) -> pa.RecordBatch:
    """The rows that an event on port `errors` carries."""
    reader = pa.ipc.open_stream(error.column("data")[0].as_py())
    first, *more = reader  # a table without rows has no batches: what was rejected may have none
    return _without_answers(pa.concat_batches([first, *more]) if more else first)


def _without_answers(batch: pa.RecordBatch) -> pa.RecordBatch:
    metadata = dict(batch.schema.metadata or {})
    return batch.replace_schema_metadata(metadata or None) if metadata.pop(_ANSWERS, None) is not None else batch


def answers_for(rows: Iterable[int], of_row: Callable[[int], Sequence[Answer]]) -> list[Answer]:
    """The answers of these rows of a set, which are the first, the second, ... of a dead letter."""
    return [answer._replace(row=at) for at, row in enumerate(rows) for answer in of_row(row)]


def answers_of(error: pa.RecordBatch) -> list[Answer]:
    """The answers that came with rejected rows; in older logs there are none."""
    data = error.column("data")[0].as_py()
    metadata = {} if data is None else pa.ipc.open_stream(data).schema.metadata or {}
    return msgspec.msgpack.decode(metadata[_ANSWERS], type=list[Answer]) if _ANSWERS in metadata else []


def compacted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows, with dictionaries of their own values alone."""
    if not batch.num_rows and batch.num_columns:  # Arrow would write all offsets of a slice without rows
        return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in batch.schema], schema=batch.schema)
    if not any(_shares(field.type) for field in batch.schema):
        return batch
    return pa.RecordBatch.from_arrays([_compacted(column) for column in batch.columns], schema=batch.schema)


def _shares(kind: Any) -> bool:
    """Whether a stream of a slice has more than the slice: dictionaries, and what views point to."""
    if pt.is_dictionary(kind) or kind in (pa.string_view(), pa.binary_view()):
        return True
    if isinstance(kind, pa.BaseExtensionType):
        return _shares(kind.storage_type)
    return any(_shares(kind.field(at).type) for at in range(kind.num_fields))


def _compacted(array: Any) -> Any:
    kind = array.type
    if not _shares(kind):
        return array
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _compacted(array.storage))
    if pt.is_dictionary(kind):
        used = pc.unique(array.indices.drop_null())
        used = used.take(pc.array_sort_indices(used))  # an ordered dictionary keeps its order
        indices = pc.index_in(array.indices, value_set=used).cast(kind.index_type)
        return pa.DictionaryArray.from_arrays(indices, _compacted(array.dictionary.take(used)), ordered=kind.ordered)
    if kind in _WITHOUT_VIEWS:
        return array.cast(_WITHOUT_VIEWS[kind]).cast(kind)
    if pt.is_struct(kind):
        columns = [_compacted(array.field(at)) for at in range(kind.num_fields)]
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=array.is_null())
    if pt.is_fixed_size_list(kind):
        values = array.values.slice(array.offset * kind.list_size, len(array) * kind.list_size)
        return pa.FixedSizeListArray.from_arrays(_compacted(values), type=kind, mask=array.is_null())
    return _compacted_lists(array) if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_map(kind) else array


def _compacted_lists(array: Any) -> Any:
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    offsets = pc.subtract(array.offsets, array.offsets[0])
    parts = (array.keys, array.items) if pt.is_map(array.type) else (array.values,)
    own = [_compacted(part.slice(first, last - first)) for part in parts]
    return type(array).from_arrays(offsets, *own, type=array.type, mask=array.is_null())


_WITHOUT_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
