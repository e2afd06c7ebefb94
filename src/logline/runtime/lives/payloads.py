"""Between user code and the log: what `generate` yields becomes a batch with its size, checked against the port."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from math import ceil
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from logline.engine.results import Failure, Produced
from logline.engine.sets import Answer, Member, own_id
from logline.engine.spec import write_port
from logline.errors import GraphError, SchemaError, loggable
from logline.graph.model import ERRORS_SCHEMA, Node
from logline.graph.operator import Emit, Made, Reject, Tabular, Write, is_tabular
from logline.graph.schemas import to_batches, to_table
from logline.names import ERRORS, OUT, InsetId, OperatorName, PortName, TargetName
from logline.runtime.lives.dead_letters import answers_for, rows_of, rows_to_bytes

HEADER = 64
"""Bytes counted for an event beside its payload, so that empty events are bounded too (R13)."""


class Payloads(Protocol):
    """How payloads are made. The simulator has one of its own, for plain tuples."""

    def made(
        self, inset: InsetId, made: Made, members: Iterable[Member], calls: RowAnswers | None = None
    ) -> Produced | None:
        """What leaves, if anything does. `calls`: what was answered so far; the answers of rejected rows go with
        them."""

    def taken(self, batch: Any) -> Any:
        """What a source gave, safe from what the source does to its memory afterwards."""

    def read(self, batch: Any) -> Produced: ...

    def chunk(self, batches: Sequence[Any], rows: int) -> Sequence[Any]: ...

    def diverted(
        self, inset: InsetId, members: Sequence[Any], events: Sequence[str], failure: Failure
    ) -> Produced: ...

    def rejected(self, batch: Any) -> Any: ...

    def greatest_time(self, port: PortName, batch: Any) -> int | None: ...

    def schema_of(self, port: PortName) -> pa.Schema: ...

    def joined(self, payloads: Sequence[Any]) -> Any:
        """Several of one schema as one."""


class RowAnswers(Protocol):
    """What was answered to the calls of a set, by row."""

    def of_row(self, row: int) -> Sequence[Answer]: ...


class ArrowPayloads:
    """Record batches of the declared schemas."""

    def __init__(self, node: Node) -> None:
        self.operator = node.name
        self._schemas: Mapping[PortName, pa.Schema] = node.outputs
        self._known = {port: (schema, row_bytes(schema)) for port, schema in node.outputs.items()}
        """By port: the schema, and what a row takes where that is the same for all. Of a target: the last one."""
        self._targets = {t: write_port(t) for t in node.targets}
        authored = node.op if node.op is not None else node.source
        self._joins: tuple[pa.Schema, bool] | None = None
        """The last schema that was copied, and whether joining copies all of it (see `_is_joined_by_copy`)."""
        self._copies = authored is not None and authored.reuses_memory
        self._time = {PortName(p): c for p, c in (node.op.time if node.op is not None else {}).items()}
        """By input port, or of a source by its output port: the column of the event time."""
        if node.options.time is not None:
            self._time[OUT] = node.options.time

    def schema_of(self, port: PortName) -> pa.Schema:
        """The declared schema of an output port."""
        return self._schemas[port]

    def joined(self, payloads: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Batches of one port as one batch."""
        return pa.concat_batches(payloads)

    def made(
        self, inset: InsetId, made: Made, members: Iterable[Member], calls: RowAnswers | None = None
    ) -> Produced | None:
        """One thing that `generate` yielded. A `Reject` without rows is nothing: there is nothing to look into, and
        a retry of it would reject nothing again, for ever."""
        batch: Any
        port, batch = (PortName(made.port), made.data) if type(made) is Emit else (OUT, made)
        known = self._known.get(port)
        if type(batch) is pa.RecordBatch and known is not None and batch.schema.equals(known[0]):
            return _produced(port, self._own(batch), known[1])  # nearly always
        if isinstance(made, Write):
            return self._write(made)
        if isinstance(made, Reject):
            batch = _as_batch(made.data, f"{self.operator}.errors")
            if not batch.num_rows:
                return None
            names = [str(own_id(member)) for member in members]
            kept = [] if calls is None else answers_for(made.rows, calls.of_row)
            return self._error(inset, names, made.reason, made.traceback, rows_to_bytes([batch], kept))
        port, data = (PortName(made.port), made.data) if isinstance(made, Emit) else (OUT, made)
        known = self._known.get(port)
        if known is None:
            raise GraphError(
                f"operator {self.operator!r} emitted on port {port!r}, which it does not have: "
                f"its output ports are {', '.join(map(repr, self._schemas))}"
            )
        return _produced(port, self._own(to_batches(data, known[0], f"{self.operator}.{port}")[0]), known[1])

    def _write(self, made: Write) -> Produced:
        port = self._targets.get(TargetName(made.to))
        if port is None:
            raise GraphError(
                f"operator {self.operator!r} writes to {made.to!r}, which is not among its targets: "
                f"{', '.join(map(repr, self._targets)) or 'it has none'}; give it in targets="
            )
        batch = _as_batch(made.data, f"{self.operator} -> {made.to}")
        known = self._known.get(port)
        if known is None or not batch.schema.equals(known[0]):
            known = self._known[port] = (batch.schema, row_bytes(batch.schema))
        return _produced(port, self._own(batch), known[1])

    def _own(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch, in memory that nobody changes: it is logged later, when the author's code has gone on."""
        if not self._copies or (batch.num_rows > _FEW and not _is_mutable(batch)):
            return batch  # of a few rows a copy costs no more than to ask whether they need one
        if self._joins is None or not batch.schema.equals(self._joins[0], check_metadata=True):
            self._joins = (batch.schema, all(_is_joined_by_copy(field.type) for field in batch.schema))
        return pa.concat_batches([batch]) if self._joins[1] else _copied(batch)

    def taken(self, batch: Any) -> Any:
        """A copy, if the source may fill the same memory again."""
        if isinstance(batch, pa.RecordBatch):
            return self._own(batch)
        if not self._copies or not is_tabular(batch):
            return batch  # what is no table is refused where it becomes an event
        return _copied(to_table(batch, f"{self.operator}.out"))

    def read(self, batch: pa.RecordBatch) -> Produced:
        """A batch that a source read."""
        return _produced(OUT, self._fitting(batch), self._known[OUT][1])

    def _fitting(self, batch: Any) -> pa.RecordBatch:
        schema, _ = self._known[OUT]
        if isinstance(batch, pa.RecordBatch) and batch.schema.equals(schema):
            return batch
        return to_batches(batch, schema, f"{self.operator}.out")[0]

    def chunk(self, batches: Sequence[Any], rows: int) -> Sequence[pa.RecordBatch]:
        """Batches that were read one after the other, as batches of at most so many rows."""
        if len(batches) == 1:
            batch = batches[0] if isinstance(batches[0], pa.RecordBatch) else self._fitting(batches[0])
            if batch.num_rows <= rows:
                return [batch]
            return [batch.slice(at, rows) for at in range(0, batch.num_rows, rows)]
        batches = [self._fitting(batch) for batch in batches]
        if self._known[OUT][1] is None and sum(b.get_total_buffer_size() for b in batches) > _JOINED:
            return [part for group in _groups(batches) for part in self._joined(group, rows)]
        return self._joined(batches, rows)

    def _joined(self, batches: Sequence[pa.RecordBatch], rows: int) -> Sequence[pa.RecordBatch]:
        if len(batches) == 1:
            return self.chunk(batches, rows)
        table = pa.Table.from_batches(batches)
        return [
            part.combine_chunks().to_batches()[0] if part.num_rows else batches[0]
            for part in (table.slice(at, rows) for at in range(0, max(table.num_rows, 1), rows))
        ]

    def diverted(
        self, inset: InsetId, members: Sequence[pa.RecordBatch], events: Sequence[str], failure: Failure
    ) -> Produced:
        """A set that failed for good, as an event on port `errors`."""
        return self._error(inset, events, failure.reason, failure.traceback, rows_to_bytes(members))

    def _error(self, inset: InsetId, events: Sequence[str], reason: str, trace: str, data: bytes | None) -> Produced:
        return dead_letter(self.operator, str(inset), events, reason, trace, data)

    def rejected(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that an event on port `errors` carries."""
        return rows_of(batch)

    def greatest_time(self, port: PortName, batch: pa.RecordBatch) -> int | None:
        """The greatest event time of a batch, in microseconds since 1970; a naive time counts as UTC."""
        name = self._time[port]
        column = batch.column(name)
        found = column[0] if len(column) == 1 else pc.max(column)  # a kernel costs twenty times as much
        if not found.is_valid:
            return None
        kind = column.type
        if pa.types.is_timestamp(kind):
            scale, divisor = _UNITS[kind.unit]
            whole: int = found.value
            return whole * scale // divisor  # floor: a window must not close early
        if pa.types.is_date(kind):
            day: date = found.as_py()
            return (day - date(1970, 1, 1)).days * 86_400_000_000
        raise SchemaError(
            f"operator {self.operator!r}: column {name!r} is {kind}; a time column is a timestamp or a date"
        )


def dead_letter(
    operator: OperatorName, inset: str, events: Sequence[str], reason: str, trace: str, data: bytes | None
) -> Produced:
    """An event for port `errors`."""
    row = {
        "operator": operator,
        "inset": inset,
        "events": list(events),
        "reason": loggable(reason),
        "traceback": loggable(trace),
        "data": data,
    }
    return _produced(ERRORS, pa.RecordBatch.from_pylist([row], schema=ERRORS_SCHEMA), None)


def _groups(batches: Sequence[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Neighbours that one batch can hold."""
    group: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        size += batch.nbytes
        if group and size > _JOINED:
            yield group
            group, size = [], batch.nbytes
        group.append(batch)
    if group:
        yield group


_JOINED = 1 << 30
"""Bytes that are joined into one batch at most: Arrow holds no more than 2 GiB of texts in one column of it."""


def _is_mutable(batch: pa.RecordBatch) -> bool:
    """Whether somebody could change it: true of NumPy arrays that can be written to, and also of what Arrow has just
    computed, which can't be told apart. What comes from a log or a file is not."""
    if not batch.num_columns:
        return False
    for buffer in batch.to_struct_array().buffers():  # noqa: SIM110 - any(...) takes as long as all the rest
        if buffer is not None and buffer.is_mutable:
            return True
    return False


def _is_joined_by_copy(kind: Any) -> bool:
    """Whether Arrow makes new memory for all of a type when it joins arrays: a quarter of the cost of a message, and
    only the rows of a slice. It keeps the dictionaries, and the texts that views point to."""
    if any(is_flat(kind) for is_flat in _FLAT):
        return True
    nested = any(is_nested(kind) for is_nested in _NESTED)
    return nested and all(_is_joined_by_copy(kind.field(i).type) for i in range(kind.num_fields))


_FLAT = (
    pa.types.is_null,
    pa.types.is_primitive,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)
_NESTED = (pa.types.is_struct, pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_map)
_FEW = 64
"""Rows that are copied without a look at their memory."""


def _copied(data: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write(data)
    reader = pa.ipc.open_stream(sink.getvalue())
    return reader.read_next_batch() if isinstance(data, pa.RecordBatch) else reader.read_all()


_size = pa.ipc.get_record_batch_size
_UNITS = {"s": (1_000_000, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}


def _as_batch(data: Tabular, where: str) -> pa.RecordBatch:
    if isinstance(data, pa.RecordBatch):
        return data
    table = to_table(data, where)
    return to_batches(table, table.schema, where)[0]


def row_bytes(schema: pa.Schema) -> float | None:
    """What a row takes, where all rows take the same: no strings, lists or the like."""
    if any(pa.types.is_dictionary(field.type) for field in schema):
        return None
    try:
        return float(sum(field.type.bit_width + field.nullable for field in schema) / 8)
    except ValueError:  # a type without a fixed width
        return None


def _produced(port: PortName, batch: pa.RecordBatch, width: float | None) -> Produced:
    # Not batch.nbytes: that costs more than logging the event does, and even the size as a message is a dry run.
    rows = batch.num_rows
    return Produced(port, batch, rows, HEADER + (_size(batch) if width is None else ceil(width * rows)))
