"""The five tables of LOG.io section 3.2 as Arrow, derived from the journals: a sender's outputs joined with
its receivers' images.

EVENT_LOG has a row per (event, connection, input set). Above the receiver's position an event is undone and
in no set; a member of an open or due set is undone, a member of a generated one is done; an event that was
taken into no set is done. What is collected has no row, and the end of a stream, no batch of records, has none
either. A read (not replayable, Algorithm 1 step 2.b) has its connection as sender port and no receiver port; a
write has no sender port and its connection as receiver port.

The id of a set is shown as `id#serial` (R7); for a stateless operator a set is one event and shows its name.
A table is a look at journals that may go on growing: each row is true of some instant of the look.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from logline.engine import codec
from logline.engine.events import Output, Position
from logline.engine.image import Image
from logline.engine.progress import Progress
from logline.engine.sets import Member, own_id
from logline.engine.spec import again_of, write_port
from logline.errors import Collected, LogError
from logline.graph.instances import Channel, Expansion, InstanceNode, expand
from logline.graph.lineage_paths import Enabled, enabled_ports
from logline.graph.record import GraphRecord, OperatorRecord, goes_by, graph_of
from logline.names import (
    ERRORS,
    OUT,
    Called,
    ChannelName,
    InsetId,
    InstanceName,
    OperatorName,
    PartitionName,
    PortName,
    Serial,
    Ssn,
    TargetName,
    event_name,
)
from logline.store.seam import Reader, Store

_TEXT = pa.string()
EVENT_LOG = pa.schema(
    [(c, _TEXT) for c in ("event_id", "status", "send_op", "send_port", "rec_op", "rec_port", "inset_id")]
)
EVENT_DATA = pa.schema(
    [
        ("event_id", _TEXT),
        ("send_op", _TEXT),
        ("send_port", _TEXT),
        ("rows", pa.int64()),
        ("nbytes", pa.int64()),
        ("header", _TEXT),
        ("body", pa.binary()),
    ]
)
READ_ACTION = pa.schema([(c, _TEXT) for c in ("action_id", "status", "op_id", "conn_id", "action_desc")])
STATE = pa.schema([(c, _TEXT) for c in ("state_id", "op_id", "state")])
EVENT_LINEAGE = pa.schema([(c, _TEXT) for c in ("event_id", "send_op", "send_port", "inset_id")])


def event_log(store: Store, record: GraphRecord, only: Collection[str] | None = None) -> pa.Table:
    """Every event on every connection with its status and input set; reads and writes among them."""
    rows: list[tuple[Any, ...]] = []
    expansion = expand(graph_of(record))
    for instance, known in _instances(record, expansion, only):
        reader, op = store.read(instance.name), instance.operator
        if known.stages:
            for partition, progress in _reads(reader, record, instance):
                if progress.status != "incomplete":
                    status = "done" if progress.status == "done" else "undone"
                    action = _action(instance.called, partition, progress)
                    rows.append((action, status, op, partition, op, None, None))
        for port in known.outputs:
            # The sender first: what it has now, its receivers can only have taken meanwhile.
            events = _events(reader, port)
            for channel in expansion.out_of(instance.name, port):
                receiver = expansion.operator_of(channel.receiver)
                sets = sets_of(store, record.operators[receiver], channel.receiver)
                for event in (event for event in events if goes_by(record, channel.name, event.ssn)):
                    event_id = event_name(instance.called, event.port, event.ssn)
                    for status, inset in sets.of(channel.name, event.ssn):
                        rows.append((event_id, status, op, port, receiver, channel.port, inset))
        again = again_channel_of(record, expansion, instance.name)
        if again is not None:
            sets = sets_of(store, known, instance.name)
            for event in _events(reader, ERRORS):
                event_id = event_name(instance.called, event.port, event.ssn)
                for status, inset in sets.known(again.name, event.ssn):
                    rows.append((event_id, status, op, ERRORS, op, again.port, inset))
        written = reader.outline().written
        for target, event in _writes(reader, known):
            done = event.ssn <= written.get(target, 0)
            event_id = event_name(instance.called, event.port, event.ssn)
            rows.append((event_id, "done" if done else "undone", op, None, op, target, None))
    return _table(rows, EVENT_LOG)


def event_data(store: Store, record: GraphRecord, only: Collection[str] | None = None) -> pa.Table:
    """The payload of every event and write action that is not collected, as an Arrow IPC stream.

    The effect of a read that is not replayable is staged on the port itself: its row has a reference.
    """
    rows: list[tuple[Any, ...]] = []
    for instance, known in _instances(record, expand(graph_of(record)), only):
        reader = store.read(instance.name)
        if known.stages:
            for partition, progress in _reads(reader, record, instance):
                if progress.status == "complete":
                    action = _action(instance.called, partition, progress)
                    first = event_name(instance.called, OUT, Ssn(reader.head(OUT).last + 1))
                    header = json.dumps({"effect": f"{first}..{progress.until}"})
                    rows.append((action, instance.operator, None, None, None, header, None))
        for port in known.outputs:
            rows += (_data_row(instance, port, event) for event in _events(reader, port))
        rows += (_data_row(instance, None, event) for _, event in _writes(reader, known))
    return _table(rows, EVENT_DATA)


def read_action(store: Store, record: GraphRecord, only: Collection[str] | None = None) -> pa.Table:
    """The latest read action of each connection (partition) of a source."""
    rows = []
    for instance, _ in _instances(record, expand(graph_of(record)), only):
        texts = record.actions.get(instance.operator, {})
        for partition, progress in _reads(store.read(instance.name), record, instance):
            status = "incomplete" if progress.status == "incomplete" else "complete"
            action = _action(instance.called, partition, progress)
            rows.append((action, status, instance.operator, partition, texts.get(partition)))
    return _table(rows, READ_ACTION)


def state(store: Store, record: GraphRecord, only: Collection[str] | None = None) -> pa.Table:
    """The latest global state of each operator that has one, as JSON; of a source, its offsets."""
    rows = []
    for instance, known in _instances(record, expand(graph_of(record)), only):
        reader = store.read(instance.name)
        image = reader.image()
        text = None
        if known.read is not None:
            offsets = [_offset(image, known, read) for read in _reads(reader, record, instance)]
            text = f"{{{', '.join(offsets)}}}" if offsets else None
        elif image.state is not None:
            text = state_text(image.state)
        if text is not None:
            rows.append((f"{instance.name}:s", instance.operator, text))
    return _table(rows, STATE)


def event_lineage(store: Store, record: GraphRecord, only: Collection[str] | None = None) -> pa.Table:
    """Which input set an output event was made from, where lineage is captured (LOG.io 3.1 and 7.3)."""
    rows = []
    expansion, captured = expand(graph_of(record)), enabled(record)
    for instance, known in _instances(record, expansion, only):
        ports = captured.get(instance.operator)
        if ports is None or not ports.inputs or not ports.outputs:
            continue
        reader = store.read(instance.name)
        events = [e for port in sorted(ports.outputs) for e in _events(reader, port) if e.serial]
        sets = sets_of(store, known, instance.name)
        traced = {channel.name for channel in expansion.into(instance.name) if channel.port in ports.inputs}
        again = again_channel_of(record, expansion, instance.name)
        if again is not None and ERRORS in ports.outputs:
            traced.add(again.name)
        for event in events:
            inset = sets.traced(event.serial, traced)
            if inset is not None:
                event_id = event_name(instance.called, event.port, event.ssn)
                rows.append((event_id, instance.operator, event.port, inset))
    return _table(rows, EVENT_LINEAGE)


class MakeTable(Protocol):
    """Makes one of the tables; `only` restricts it to the rows that have these operators as their sender."""

    def __call__(self, store: Store, record: GraphRecord, only: Collection[str] | None = None) -> pa.Table: ...


TABLES: Mapping[str, MakeTable] = {
    "event_log": event_log,
    "event_data": event_data,
    "read_action": read_action,
    "state": state,
    "event_lineage": event_lineage,
}


SCHEMAS: Mapping[str, pa.Schema] = {
    "event_log": EVENT_LOG,
    "event_data": EVENT_DATA,
    "read_action": READ_ACTION,
    "state": STATE,
    "event_lineage": EVENT_LINEAGE,
}


def inset_text(inset: InsetId, serial: Serial) -> str:
    """A set as the tables show it: `2010-10-02T05:00:00+00:00#1`. Within an operator the serial is unique."""
    return f"{id_text(inset)}#{serial}"


def id_text(inset: InsetId) -> str:
    """The id of a set without its serial."""
    if isinstance(inset, tuple):
        return f"({', '.join(id_text(part) for part in inset)})"
    return inset.isoformat() if isinstance(inset, datetime) else str(inset)


class Sets:
    """The input sets of one receiver, open and done, and how far it is on each channel."""

    def __init__(self, reader: Reader, *, stateless: bool) -> None:
        self.stateless = stateless
        self._by_event: dict[tuple[ChannelName, Ssn], dict[Serial, tuple[str, str]]] = {}
        self._members: dict[Serial, tuple[str, Sequence[Member]]] = {}
        # In this order: a set that is finished in between is in both, and done; in the other one it would be
        # in neither.
        image = reader.image()
        self._positions = image.positions
        for serial, opened in image.sets.items():
            covered = () if opened.checkpoint is None else reader.covered(serial)
            self._add(serial, opened.id, [*covered, *opened.members], "undone")
        for finished in reader.history():
            self._add(finished.serial, finished.id, finished.members, "done")

    def _add(self, serial: Serial, inset: InsetId, members: Sequence[Member], status: str) -> None:
        text = str(own_id(members[0])) if self.stateless else inset_text(inset, serial)
        self._members[serial] = (text, members)
        for member in members:
            self._by_event.setdefault((member.channel, member.ssn), {})[serial] = (status, text)

    def known(self, channel: ChannelName, ssn: Ssn) -> Sequence[tuple[str, str]]:
        """(status, input set) of an event, once per set that is remembered."""
        found = self._by_event.get((channel, ssn), {})
        return [found[serial] for serial in sorted(found)]

    def of(self, channel: ChannelName, ssn: Ssn) -> Sequence[tuple[str, str | None]]:
        """(status, input set) of an event, once per set."""
        known = self.known(channel, ssn)
        if known:
            return known
        if ssn > self._positions.get(channel, Position()).ssn:
            return [("undone", None)]
        # Sets of one event come and go within a step; nothing but the position tells of them.
        return [("done", str(own_id(Member(channel, ssn))) if self.stateless else None)]

    def set_of(self, serial: Serial) -> tuple[str, Sequence[Member]] | None:
        """A set with its members, as far as they are remembered."""
        return self._members.get(serial)

    def traced(self, serial: Serial, channels: set[ChannelName]) -> str | None:
        """The set, if one of its events came by one of these channels."""
        text, members = self._members.get(serial, ("", ()))
        return text if any(member.channel in channels for member in members) else None


def again_channel_of(record: GraphRecord, expansion: Expansion, instance: InstanceName) -> Channel | None:
    """The channel by which an instance takes in rejected rows that are retried: those of a stateless operator."""
    known, inputs = record.operators[expansion.operator_of(instance)], expansion.into(instance)
    if not inputs or not known.stateless or ERRORS not in known.outputs:
        return None
    return again_of(instance, inputs[0].port)


def sets_of(store: Store, known: OperatorRecord, instance: InstanceName) -> Sets:
    """The input sets of an instance of that operator."""
    return Sets(store.read(instance), stateless=known.stateless)


def stored_events(reader: Reader, port: PortName, first: int = 1, last: int | None = None) -> Iterator[Output]:
    """The port's events that are visible and not collected, the end left out; `first` to `last` of them."""
    for ssn in reader.stored(port):
        if ssn < first or (last is not None and ssn > last):
            continue
        try:
            (event,) = reader.pick(port, [ssn])
        except Collected:
            continue  # since the look at `stored`
        if not event.mark:
            yield event


def _events(reader: Reader, port: PortName) -> list[Output]:
    return list(stored_events(reader, port))


def _writes(reader: Reader, known: OperatorRecord) -> Iterator[tuple[TargetName, Output]]:
    for target in known.targets:
        for event in _events(reader, write_port(target)):
            yield target, event


def _data_row(instance: InstanceNode, port: PortName | None, event: Output) -> tuple[Any, ...]:
    event_id = event_name(instance.called, event.port, event.ssn)
    return event_id, instance.operator, port, event.rows, event.nbytes, None, _ipc(event.payload)


def _ipc(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


# ---- reads ----------------------------------------------------------------------------------------------


def _reads(reader: Reader, record: GraphRecord, instance: InstanceNode) -> list[tuple[PartitionName, Progress]]:
    """The current read of each partition; Algorithm 1 step 1: r is "incomplete" from the start."""
    reads = reader.outline().reads
    begun = record.actions.get(instance.operator, {}) if reader.incarnation() else {}
    return [(partition, reads.get(partition, Progress())) for partition in dict.fromkeys((*begun, *reads))]


def _action(instance: Called, partition: PartitionName, progress: Progress) -> str:
    return f"{instance}.{partition}:r{progress.action}"


def _offset(image: Image, known: OperatorRecord, read: tuple[PartitionName, Progress]) -> str:
    partition, progress = read
    found = f'{json.dumps(partition, ensure_ascii=False)}: {{"offset": {offset_text(progress.offset)}'
    if known.stages and progress.status == "complete":
        found += f', "shown": {image.head(OUT).last}, "until": {progress.until}'
    return f"{found}}}"


def offset_text(raw: bytes | None) -> str:
    """Where a read is, as JSON; what JSON does not have as text."""
    value = None if raw is None else codec.decode(raw)
    try:
        return json.dumps(value, default=str)
    except TypeError:  # keys that JSON does not have
        return json.dumps(repr(value))


def state_text(raw: bytes) -> str:
    """The global state as JSON."""
    value = msgspec.msgpack.decode(raw)
    try:
        return msgspec.json.encode(value).decode()
    except TypeError:  # keys that JSON does not have
        return json.dumps(repr(value))


def _instances(
    record: GraphRecord, expansion: Expansion, only: Collection[str] | None
) -> Iterator[tuple[InstanceNode, OperatorRecord]]:
    """The instances of the log, or of these operators."""
    for instance in expansion.instances.values():
        if only is None or instance.operator in only:
            yield instance, record.operators[instance.operator]


def one_table(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Events of a port as one table. Its schema may have changed between them (R14): what an event lacks is null."""
    if all(batch.schema.equals(batches[0].schema) for batch in batches):
        return pa.Table.from_batches(batches)
    try:
        return pa.concat_tables([pa.Table.from_batches([batch]) for batch in batches], promote_options="permissive")
    except pa.ArrowException as error:
        raise LogError(
            f"the schema of the port has changed, and its events don't fit into one table ({error}): read fewer of "
            "them, as in 'hourly:12..40'"
        ) from error


# ---- the log as a whole -----------------------------------------------------------------------------------


def record_in(store: Store) -> GraphRecord:
    """What the log knows of its pipeline; LogError if no pipeline has run on it."""
    meta = store.meta()
    if meta is None:
        raise LogError("the log has not been used: start a pipeline on it first")
    return meta.graph


def enabled(record: GraphRecord) -> Mapping[OperatorName, Enabled]:
    """Where the log's scopes capture lineage."""
    return enabled_ports(graph_of(record)) if record.scopes else {}


def _table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
