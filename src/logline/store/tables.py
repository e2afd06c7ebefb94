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

import base64
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from logline.engine import codec
from logline.engine.image import Image, Member, Output, Position, Progress, own_id
from logline.engine.spec import write_port
from logline.errors import BadName, Collected
from logline.graph.lineage_paths import Enabled, enabled_ports
from logline.graph.model import Connection, Graph, Node, Scope
from logline.names import (
    OUT,
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

Record = Mapping[str, Any]
"""What `Meta.graph` holds: `graph.evolve.record`, the texts of the read actions under "actions", and the exact schema
of each port under "schemas"."""

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


def event_log(store: Store, record: Record, only: Collection[str] | None = None) -> pa.Table:
    """Every event on every connection with its status and input set; reads and writes among them."""
    rows: list[tuple[Any, ...]] = []
    for name, known in _operators(record, only):
        instance = InstanceName(name)
        reader = store.read(instance)
        if _stages(known):
            for partition, progress in _reads(reader, record, name):
                if progress.status != "incomplete":
                    status = "done" if progress.status == "done" else "undone"
                    action = _action(name, partition, progress)
                    rows.append((action, status, name, partition, name, None, None))
        for port in known["outputs"]:
            # The sender first: what it has now, its receivers can only have taken meanwhile.
            events = _events(reader, PortName(port))
            for sender, out, receiver, into in record["connections"]:
                if (sender, out) == (name, port):
                    sets = Sets(store, record, InstanceName(receiver))
                    channel = ChannelName(f"{sender}.{out}>{receiver}.{into}")
                    for event in events:
                        event_id = event_name(instance, event.port, event.ssn)
                        for status, inset in sets.of(channel, event.ssn):
                            rows.append((event_id, status, name, port, receiver, into, inset))
        for target, event in _writes(reader, known):
            done = event.ssn <= reader.image().written.get(target, 0)
            event_id = event_name(instance, event.port, event.ssn)
            rows.append((event_id, "done" if done else "undone", name, None, name, target, None))
    return _table(rows, EVENT_LOG)


def event_data(store: Store, record: Record, only: Collection[str] | None = None) -> pa.Table:
    """The payload of every event and write action that is not collected, as an Arrow IPC stream.

    The effect of a read that is not replayable is staged on the port itself: its row has a reference.
    """
    rows: list[tuple[Any, ...]] = []
    for name, known in _operators(record, only):
        reader = store.read(InstanceName(name))
        if _stages(known):
            for partition, progress in _reads(reader, record, name):
                if progress.status == "complete":
                    first = event_name(InstanceName(name), OUT, Ssn(reader.head(OUT).last + 1))
                    header = json.dumps({"effect": f"{first}..{progress.until}"})
                    rows.append((_action(name, partition, progress), name, None, None, None, header, None))
        for port in known["outputs"]:
            rows += (_data_row(name, port, event) for event in _events(reader, PortName(port)))
        rows += (_data_row(name, None, event) for _, event in _writes(reader, known))
    return _table(rows, EVENT_DATA)


def read_action(store: Store, record: Record, only: Collection[str] | None = None) -> pa.Table:
    """The latest read action of each connection (partition) of a source."""
    rows = []
    for name, _ in _operators(record, only):
        texts = record.get("actions", {}).get(name, {})
        for partition, progress in _reads(store.read(InstanceName(name)), record, name):
            status = "incomplete" if progress.status == "incomplete" else "complete"
            action = _action(name, partition, progress)
            rows.append((action, status, name, partition, texts.get(partition)))
    return _table(rows, READ_ACTION)


def state(store: Store, record: Record, only: Collection[str] | None = None) -> pa.Table:
    """The latest global state of each operator that has one, as JSON; of a source, its offsets."""
    rows = []
    for name, known in _operators(record, only):
        reader = store.read(InstanceName(name))
        image = reader.image()
        text = None
        if known["read"] is not None:
            offsets = {p: _offset(image, known, progress) for p, progress in _reads(reader, record, name)}
            text = json.dumps(offsets, default=str) if offsets else None
        elif image.state is not None:
            text = _state_text(image.state)
        if text is not None:
            rows.append((f"{name}:s", name, text))
    return _table(rows, STATE)


def event_lineage(store: Store, record: Record, only: Collection[str] | None = None) -> pa.Table:
    """Which input set an output event was made from, where lineage is captured (LOG.io 3.1 and 7.3)."""
    rows = []
    for name, ports in enabled(record).items():
        if not ports.inputs or not ports.outputs or (only is not None and name not in only):
            continue
        reader = store.read(InstanceName(name))
        events = [e for port in sorted(ports.outputs) for e in _events(reader, port) if e.serial]
        sets = Sets(store, record, InstanceName(name))
        traced = {c for c, port in sets.ports.items() if port in ports.inputs}
        for event in events:
            inset = sets.traced(event.serial, traced)
            if inset is not None:
                event_id = event_name(InstanceName(name), event.port, event.ssn)
                rows.append((event_id, name, event.port, inset))
    return _table(rows, EVENT_LINEAGE)


class MakeTable(Protocol):
    """Makes one of the tables; `only` restricts it to the rows that have these operators as their sender."""

    def __call__(self, store: Store, record: Record, only: Collection[str] | None = None) -> pa.Table: ...


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


def schemas_record(outputs: Mapping[OperatorName, Mapping[PortName, pa.Schema]]) -> dict[str, dict[str, str]]:
    """The schemas of all ports as `Meta.graph` holds them: in Arrow's form, since a type's text can't be read."""
    return {
        str(name): {str(port): base64.b64encode(schema.serialize()).decode() for port, schema in ports.items()}
        for name, ports in outputs.items()
    }


def port_schema(record: Record, name: str, port: str) -> pa.Schema:
    """The schema of a port; BadName says which operators and ports there are."""
    operators = record["operators"]
    if name not in operators:
        raise BadName(f"there is no operator {name!r}; there are {', '.join(operators)}")
    if port not in operators[name]["outputs"]:
        raise BadName(f"{name!r} has no port {port!r}; it has {', '.join(operators[name]['outputs'])}")
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(record["schemas"][name][port])))


def inset_text(inset: InsetId, serial: Serial) -> str:
    """A set as the tables show it: `2010-10-02T05:00:00+00:00#1`. Within an operator the serial is unique."""
    return f"{_id_text(inset)}#{serial}"


def _id_text(inset: InsetId) -> str:
    if isinstance(inset, tuple):
        return f"({', '.join(_id_text(part) for part in inset)})"
    return inset.isoformat() if isinstance(inset, datetime) else str(inset)


class Sets:
    """The input sets of one receiver, open and done, and how far it is on each channel."""

    def __init__(self, store: Store, record: Record, receiver: InstanceName) -> None:
        self.stateless: bool = record["operators"][receiver]["stateless"]
        self.ports = {
            ChannelName(f"{sender}.{out}>{to}.{port}"): PortName(port)
            for sender, out, to, port in record["connections"]
            if to == receiver
        }
        self._by_event: dict[tuple[ChannelName, Ssn], dict[Serial, tuple[str, str]]] = {}
        self._members: dict[Serial, tuple[str, Sequence[Member]]] = {}
        reader = store.read(receiver)
        # In this order: a set that is finished in between is in both, and done; in the other one it would be
        # in neither.
        image = reader.image()
        self._positions = image.positions
        for serial, opened in image.sets.items():
            self._add(serial, opened.id, opened.members, "undone")
        for finished in reader.history():
            self._add(finished.serial, finished.id, finished.members, "done")

    def _add(self, serial: Serial, inset: InsetId, members: Sequence[Member], status: str) -> None:
        text = str(own_id(members[0])) if self.stateless else inset_text(inset, serial)
        self._members[serial] = (text, members)
        for member in members:
            self._by_event.setdefault((member.channel, member.ssn), {})[serial] = (status, text)

    def of(self, channel: ChannelName, ssn: Ssn) -> Sequence[tuple[str, str | None]]:
        """(status, input set) of an event, once per set."""
        found = self._by_event.get((channel, ssn))
        if found is not None:
            return [found[serial] for serial in sorted(found)]
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


def stored_events(reader: Reader, port: PortName, first: int = 1, last: int | None = None) -> Iterator[Output]:
    """The port's events that are visible and not collected, the end left out; `first` to `last` of them."""
    for ssn in reader.stored(port):
        if ssn < first or (last is not None and ssn > last):
            continue
        try:
            (event,) = reader.pick(port, [ssn])
        except Collected:
            continue  # since the look at `stored`
        if not event.end:
            yield event


def _events(reader: Reader, port: PortName) -> list[Output]:
    return list(stored_events(reader, port))


def _writes(reader: Reader, known: Record) -> Iterator[tuple[TargetName, Output]]:
    for target in known["targets"]:
        for event in _events(reader, write_port(TargetName(target))):
            yield TargetName(target), event


def _data_row(name: str, port: str | None, event: Output) -> tuple[Any, ...]:
    event_id = event_name(InstanceName(name), event.port, event.ssn)
    return event_id, name, port, event.rows, event.nbytes, None, _ipc(event.payload)


def _ipc(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


# ---- reads ----------------------------------------------------------------------------------------------


def _stages(known: Record) -> bool:
    """Whether its reads are staged (R9): neither replayable nor destructive."""
    read = known["read"]
    return read is not None and not read["replayable"] and not read["destructive"]


def _reads(reader: Reader, record: Record, name: str) -> list[tuple[PartitionName, Progress]]:
    """The current read of each partition; Algorithm 1 step 1: r is "incomplete" from the start."""
    reads = reader.image().reads
    begun = list(record.get("actions", {}).get(name, ())) if reader.incarnation() else []
    names = dict.fromkeys(map(PartitionName, (*begun, *reads)))
    return [(name, reads.get(name, Progress())) for name in names]


def _action(name: str, partition: PartitionName, progress: Progress) -> str:
    return f"{name}.{partition}:r{progress.action}"


def _offset(image: Image, known: Record, progress: Progress) -> dict[str, Any]:
    found: dict[str, Any] = {"offset": None if progress.offset is None else codec.decode(progress.offset)}
    if _stages(known) and progress.status == "complete":
        found |= {"shown": image.head(OUT).last, "until": progress.until}
    return found


def _state_text(raw: bytes) -> str:
    value = msgspec.msgpack.decode(raw)
    try:
        return msgspec.json.encode(value).decode()
    except TypeError:  # keys that JSON does not have
        return json.dumps(repr(value))


def _operators(record: Record, only: Collection[str] | None) -> list[tuple[str, Any]]:
    return [(name, known) for name, known in record["operators"].items() if only is None or name in only]


# ---- the graph ------------------------------------------------------------------------------------------


def enabled(record: Record) -> Mapping[OperatorName, Enabled]:
    """Where the log's scopes capture lineage."""
    return enabled_ports(graph_of(record)) if record["scopes"] else {}


def graph_of(record: Record) -> Graph:
    """The pipeline's shape and scopes, as the log knows them; without its code."""
    nodes = {
        OperatorName(name): Node(
            OperatorName(name),
            None,
            None,
            tuple(PortName(port) for port in known["inputs"]),
            {PortName(port): pa.schema([]) for port in known["outputs"]},
        )
        for name, known in record["operators"].items()
    }
    connections = tuple(
        Connection(OperatorName(a), PortName(out), OperatorName(b), PortName(port))
        for a, out, b, port in record["connections"]
    )
    scopes = tuple(
        Scope(
            _port(scope["start"]),
            _port(scope["target"]),
            None if scope["keep"] is None else timedelta(seconds=scope["keep"]),
            scope.get("size"),
        )
        for scope in record["scopes"]
    )
    return Graph(record["pipeline"], nodes, connections, scopes)


def _port(port: Sequence[str] | None) -> tuple[OperatorName, PortName] | None:
    return None if port is None else (OperatorName(port[0]), PortName(port[1]))


def _table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
