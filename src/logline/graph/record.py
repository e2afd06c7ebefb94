"""The record of a graph: what a log keeps of its pipeline, for the next run (R14) and for those who read the log.

It holds nothing of where connectors point to, so that no secret goes into a log. A store keeps it as JSON, the form
that `to_plain` gives and `from_plain` takes:

    >>> made = GraphRecord(pipeline="sales", operators={}, connections=(), scopes=())
    >>> from_plain(to_plain(made)) == made
    True

A field that later versions of the same format add is ignored here. A field that earlier versions did not write has a
default; one without a default was always there. Another format is a LogError that says so.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from logline.errors import BadName, LogError
from logline.graph.authored import module_of
from logline.graph.connector import Guarantee, Sink, Source
from logline.graph.dependencies import dependencies
from logline.graph.digest import code_digest
from logline.graph.event_states import layout_of
from logline.graph.instances import expand
from logline.graph.model import Connection, Graph, Node, NodeKind, NodeOptions, Policy, Rider, Scope, Wire
from logline.graph.operator import Dependency, is_stateless
from logline.graph.secrets import refers_to_secret
from logline.graph.states import state_fields
from logline.names import (
    Called,
    ChannelName,
    InstanceName,
    OperatorId,
    OperatorName,
    PartitionName,
    PortName,
    Ssn,
    TargetName,
    generation_of,
    operator_id,
)

FORMAT = 1


class Column(NamedTuple):
    """A column of a port's schema. The type is a text to compare and to show; `GraphRecord.schemas` has the type."""

    name: str
    type: str
    nullable: bool


class ReadRecord(msgspec.Struct, frozen=True):
    """How a source reads."""

    type: str
    replayable: bool
    destructive: bool


class PlaceRecord(msgspec.Struct, frozen=True):
    """Where a target is, as `Sink.dataset` says it."""

    digest: str
    text: str | None
    """None where a secret tells it: what that refers to is in no log."""

    def __str__(self) -> str:
        return self.text or "a place that a secret tells"


class OperatorRecord(msgspec.Struct, frozen=True):
    """What a log keeps of one operator: its ports with their schemas, its targets, and how it runs."""

    kind: NodeKind
    inputs: tuple[PortName, ...]
    outputs: Mapping[PortName, tuple[Column, ...]]
    targets: Mapping[TargetName, Guarantee]
    policy: Policy
    version: str
    """Of its code: what the author gave, or a digest."""
    stateless: bool
    state: Mapping[str, str] | None
    """The fields of its global state with their types; None if it has no state."""
    read: ReadRecord | None
    """None if it is not a source."""
    depends: tuple[Dependency, ...] = ()
    parameters: Mapping[str, str] | None = None
    """What gives its open sets their meaning; None if the log does not know."""
    id: OperatorId | None = None
    """What it is called in the log for good; None: its name, in the first generation."""
    type: str = ""
    """The class of a middle operator or sink: what is ready-made is known by it. Empty in older logs."""
    places: Mapping[TargetName, PlaceRecord] = {}
    """Where its targets are, as far as they say so."""
    keyed: Mapping[str, str] | None = None
    """The fields of the state of a key with their types; None if it has none."""
    migrates: bool = False
    """Whether it makes states of those that an earlier type logged."""
    key_rows: str | None = None
    """The columns of the rows that the state of a key is, as a serialized schema; None if it is something else."""
    event_state: str | None = None
    """The layout of its event states in checkpoints (R22); None if it has none, or none that can be written."""
    moves_members: bool = False
    """Whether it gives the members of a set to another one, which a set with a checkpoint can't."""

    @property
    def stages(self) -> bool:
        """Whether its reads are staged (R9): neither replayable nor destructive."""
        return self.read is not None and not self.read.replayable and not self.read.destructive


class RiderRecord(NamedTuple):
    """An ephemeral operator on a connection (R24)."""

    operator: OperatorName
    port: PortName
    version: str
    columns: tuple[Column, ...] = ()
    """Of the port."""


class ScopeRecord(msgspec.Struct, frozen=True):
    """A lineage scope; see `graph.model.Scope`."""

    start: tuple[OperatorName, PortName] | None
    target: tuple[OperatorName, PortName] | None
    keep: float | None
    """In seconds."""
    size: int | None = None


class FormerRecord(msgspec.Struct, frozen=True):
    """An operator that is not in the pipeline any more: lineage may still lead to it."""

    name: OperatorName
    """What it was called last."""
    operator: OperatorRecord
    schemas: Mapping[PortName, str] = {}


class VersionRecord(msgspec.Struct, frozen=True):
    """From when on a version of an operator's code made what it put out."""

    version: str
    at: float
    """The time of the start, in seconds since 1970."""
    after: Mapping[PortName, Ssn] = {}
    """The last event of each port that an earlier version made."""


class GraphRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A whole pipeline, as its log knows it."""

    format: int = FORMAT
    pipeline: str
    operators: Mapping[OperatorName, OperatorRecord]
    connections: tuple[Connection, ...]
    scopes: tuple[ScopeRecord, ...]
    schemas: Mapping[OperatorName, Mapping[PortName, str]] = {}
    """The exact schema of each port in Arrow's own form, in base 64: a type's text can't be read back."""
    through: tuple[tuple[Connection, tuple[RiderRecord, ...]], ...] = ()
    """The connections that have ephemeral operators on them, and which."""

    # What a run adds.
    actions: Mapping[OperatorName, Mapping[PartitionName, str]] = {}
    """The partitions of each source, with the text that describes reading it."""
    keep: Mapping[OperatorName, tuple[PortName, ...]] = {}
    """The ports whose events nobody may collect. An operator that is missing here keeps everything."""
    script: str | None = None
    """FILE[:NAME]: the file that defines the pipeline, if it is one, and the function there that makes it."""
    closed: tuple[Wire, ...] = ()
    """Connections that are gone."""
    former: Mapping[OperatorId, FormerRecord] = {}
    """Operators that are gone."""
    spans: Mapping[ChannelName, tuple[tuple[Ssn, Ssn | None], ...]] = {}
    """Of channels that have come or gone: after which event something was taken, and up to which; None: up to now."""
    passed: Mapping[ChannelName, int] = {}
    """Of channels that have come: how many events their senders had put out before, for others to take. The number of
    one that came back leaves out what it had taken before, so that it may be negative."""
    ridden: tuple[ChannelName, ...] = ()
    """Channels that have, or ever had, ephemeral operators on them."""
    versions: Mapping[OperatorId, tuple[VersionRecord, ...]] = {}
    """Which code made what, of each operator that is or was there; in the order of the starts."""


def record_of(graph: Graph) -> GraphRecord:
    """What a log keeps of a graph; a run adds what only it knows."""
    return GraphRecord(
        pipeline=graph.name,
        script=graph.script,
        operators={name: _operator(graph, node) for name, node in graph.nodes.items()},
        connections=graph.connections,
        scopes=tuple(
            ScopeRecord(s.start, s.target, None if s.keep is None else s.keep.total_seconds(), s.size)
            for s in graph.scopes
        ),
        schemas={
            name: {port: _serialized(schema) for port, schema in node.outputs.items()}
            for name, node in graph.nodes.items()
        },
        through=tuple(
            (c, tuple(RiderRecord(one.node.name, one.port, _version(one.node), _columns(one)) for one in way))
            for c, way in graph.through.items()
        ),
    )


def _columns(rider: Rider) -> tuple[Column, ...]:
    schema = rider.node.outputs[rider.port]
    return tuple(Column(field.name, str(field.type), field.nullable) for field in schema)


def _version(node: Node) -> str:
    return node.options.version or code_digest(node.op if node.op is not None else node.source)


def _serialized(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()


def read_serialized(text: str) -> pa.Schema:
    """A schema that a record holds."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def _operator(graph: Graph, node: Node) -> OperatorRecord:
    source, op = node.source, node.op
    return OperatorRecord(
        kind=node.kind,
        inputs=node.inputs,
        outputs={
            port: tuple(Column(field.name, str(field.type), field.nullable) for field in schema)
            for port, schema in node.outputs.items()
        },
        targets={target: sink.guarantee for target, sink in node.targets.items()},
        policy=node.options.policy,
        version=_version(node),
        stateless=op is None or is_stateless(op),
        state=None if op is None or op.State is None else state_fields(op.State),
        keyed=None if op is None or op.Keyed is None else state_fields(op.Keyed),
        migrates=op is not None and op.migrate is not None,
        read=None if source is None else _read(source),
        depends=tuple(dependencies(graph, node)),
        parameters={} if op is None else {name: str(value) for name, value in op.parameters().items()},
        id=graph.id_of(node.name),
        type="" if op is None else _type(op),
        places={target: place for target, sink in node.targets.items() if (place := _place(sink)) is not None},
        key_rows=None if op is None or (rows := op.key_rows()) is None else _serialized(rows),
        event_state=None if op is None or is_stateless(op) else layout_of(node.name, op),
        moves_members=op is not None and op.moves_members,
    )


def _place(sink: Sink) -> PlaceRecord | None:
    found = sink.dataset()
    if found is None:
        return None
    text = " ".join(found)
    return PlaceRecord(hashlib.sha256(text.encode()).hexdigest()[:16], None if refers_to_secret(sink) else text)


def _read(source: Source) -> ReadRecord:
    return ReadRecord(_type(source), source.replayable, source.destructive)


def _type(thing: object) -> str:
    return f"{module_of(type(thing))}.{type(thing).__qualname__}"


def graph_of(record: GraphRecord) -> Graph:
    """The pipeline's shape, policies and scopes, as the log knows them; without its code."""
    nodes = {
        name: Node(
            name,
            None,
            None,
            known.inputs,
            {port: pa.schema([]) for port in known.outputs},
            options=NodeOptions(policy=known.policy),
        )
        for name, known in record.operators.items()
    }
    scopes = tuple(
        Scope(s.start, s.target, None if s.keep is None else timedelta(seconds=s.keep), s.size) for s in record.scopes
    )
    through = {
        c: tuple(Rider(Node(one.operator, None, None, (), {}), one.port) for one in way) for c, way in record.through
    }
    return Graph(record.pipeline, nodes, record.connections, scopes, ids_in(record), record.closed, through=through)


def whole_record(record: GraphRecord) -> GraphRecord:
    """The record with the operators and connections that are gone among the others, for those who look back. One
    whose name another operator has by now is called by its generation: `clean@1`."""
    if not record.former and not record.closed:
        return record
    last = {former.name: id_ for id_, former in record.former.items()}
    names = {id_: name for name, id_ in ids_in(record).items()}
    for id_, former in record.former.items():
        free = former.name not in record.operators and last[former.name] == id_
        first, generation = generation_of(id_)
        names[id_] = former.name if free else OperatorName(f"{first}@{generation}")
    gone = [Connection(names[w.sender], w.out, names[w.receiver], w.port) for w in record.closed]
    connections = tuple(dict.fromkeys((*record.connections, *gone)))
    operators = {**{names[id_]: former.operator for id_, former in record.former.items()}, **record.operators}
    return msgspec.structs.replace(
        record,
        operators={name: operators[name] for name in _in_order(operators, connections)},
        schemas={**{names[id_]: former.schemas for id_, former in record.former.items()}, **record.schemas},
        connections=connections,
        scopes=tuple(_scopes_of_all(record, names, connections)),
        closed=(),
        former={},
    )


def _scopes_of_all(
    record: GraphRecord, names: Mapping[OperatorId, OperatorName], connections: Collection[Connection]
) -> Iterator[ScopeRecord]:
    """The lineage scopes, also of earlier generations of the operators that they name: what these have made is kept
    for as long as the scope says (R12)."""
    ids = ids_in(record)
    earlier: dict[OperatorName, list[OperatorName]] = {}
    for name, id_ in ids.items():
        first = generation_of(id_)[0]
        earlier[name] = [names[former] for former in record.former if generation_of(former)[0] == first]

    def ends(port: tuple[OperatorName, PortName] | None) -> list[tuple[OperatorName, PortName] | None]:
        return [None] if port is None else [port, *((one, port[1]) for one in earlier.get(port[0], ()))]

    for scope in record.scopes:
        for start in ends(scope.start):
            for target in ends(scope.target):
                if (start, target) == (scope.start, scope.target) or _leads(start, target, connections):
                    yield msgspec.structs.replace(scope, start=start, target=target)


def _leads(
    start: tuple[OperatorName, PortName] | None,
    target: tuple[OperatorName, PortName] | None,
    connections: Collection[Connection],
) -> bool:
    """Whether a way leads from the one port to the other; from where there is none, from anywhere before it."""
    if start is None or target is None:
        return any(c.receiver == target[0] for c in connections) if target is not None else True
    found = {c.receiver for c in connections if (c.sender, c.out) == start}
    todo = list(found)
    while todo:
        at = todo.pop()
        new = {c.receiver for c in connections if c.sender == at} - found
        found |= new
        todo += new
    return target[0] in found


def goes_by(record: GraphRecord, channel: ChannelName, ssn: Ssn) -> bool:
    """Whether this event went, or will go, by a channel: another one may have been in its place then (R14)."""
    spans = record.spans.get(channel, ((Ssn(0), None),))
    return any(after < ssn and (upto is None or ssn <= upto) for after, upto in spans)


def _in_order(names: Iterable[OperatorName], connections: Collection[Connection]) -> Iterator[OperatorName]:
    """Senders before receivers, also where former connections make a circle of two graphs: then as they are."""
    rest = list(names)
    while rest:
        ready = [name for name in rest if not any(c.receiver == name and c.sender in rest for c in connections)]
        yield from ready or rest
        rest = [name for name in rest if name not in ready] if ready else []


def riders_of(record: GraphRecord) -> dict[Wire, tuple[RiderRecord, ...]]:
    """The ephemeral operators on each connection that has some."""
    ids = ids_in(record)
    return {Wire(ids[c.sender], c.out, ids[c.receiver], c.port): way for c, way in record.through}


def ids_in(record: GraphRecord) -> dict[OperatorName, OperatorId]:
    """The ids of the operators in the log."""
    return {name: known.id or operator_id(name, 1) for name, known in record.operators.items()}


def schema_of(record: GraphRecord, sender: Called, port: PortName) -> pa.Schema:
    """The schema of an instance's output port; BadName says which instances and ports there are."""
    expansion = expand(graph_of(record))
    operator = expansion.operator_of(expansion.find(sender))
    ports = record.operators[operator].outputs
    if port not in ports:
        raise BadName(f"{sender!r} has no port {port!r}; it has {', '.join(ports)}")
    return read_serialized(record.schemas[operator][port])


def find_instance(record: GraphRecord, text: Called) -> InstanceName:
    """The instance that users call so; BadName says which there are."""
    return expand(graph_of(record)).find(text)


def to_plain(record: GraphRecord) -> dict[str, Any]:
    """The record in values that JSON has."""
    found = msgspec.to_builtins(record)
    assert isinstance(found, dict)
    return found


def from_plain(plain: Mapping[str, Any]) -> GraphRecord:
    """The record that `to_plain` gave, in this version of Logline or another. LogError if it can't be read."""
    written = plain.get("format")
    if written != FORMAT:
        raise LogError(
            f"the log's record of the pipeline has format {written!r}, this version of Logline "
            f"reads {FORMAT}: finish the run with the version that began it"
        )
    try:
        return msgspec.convert(plain, GraphRecord)
    except msgspec.ValidationError as error:
        raise LogError(
            f"the log's record of the pipeline can't be read: {error}. "
            "Another version of Logline may have written it: finish the run with that one"
        ) from error
