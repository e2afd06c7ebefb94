"""What a pipeline is: nodes, ports and connections. Describes, never runs.

The public `Pipeline` and `Stream` (logline.pipeline) build a `Graph`; `graph.validate` says whether it can
run; the engine is made from its nodes. Nothing here knows how an operator is executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from logline.graph.connector import Sink, Source
from logline.graph.eventual import Eventual
from logline.graph.operator import Duration, Operator
from logline.names import (
    ERRORS,
    ChannelName,
    OperatorId,
    OperatorName,
    PortName,
    TargetName,
    channel_name,
    instance_name,
    operator_id,
)

OnError = Literal["stop", "divert", "drop"]
Policy = Literal["pessimistic", "replay", "causal", "eventual", "aligned", "ephemeral"]
NodeKind = Literal["source", "middle", "sink"]

ERRORS_SCHEMA = pa.schema(
    [
        pa.field("operator", pa.string()),
        pa.field("inset", pa.string()),
        pa.field("events", pa.list_(pa.string())),
        pa.field("reason", pa.string()),
        pa.field("traceback", pa.string()),
        pa.field("data", pa.binary()),  # the rows themselves, as an Arrow IPC stream
    ]
)
"""What an event on a port `errors` looks like: a diverted set, or the rows of one Reject."""


@dataclass(frozen=True, slots=True)
class Retry:
    """How often code that raised an exception is tried, before `on_error` decides.

    >>> Retry(attempts=5, wait="200ms", on=(ConnectionError,)).factor
    2.0
    """

    attempts: int = 3
    """Tries in all, the first one included."""
    wait: Duration = timedelta(seconds=1)
    """The pause before the second try."""
    factor: float = 2.0
    """Each further pause is so many times the one before."""
    on: tuple[type[BaseException], ...] = (Exception,)
    """Other exceptions are not tried again."""


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """The options of one operator, resolved and checked."""

    policy: Policy = "pessimistic"
    eventual: Eventual | None = None
    """With the policy `eventual`: when open sets have checkpoints."""
    deterministic: bool = False
    group: str | None = None
    concurrency: int = 1
    ordered: bool = True
    rate: str | None = None
    timeout: timedelta | None = None
    retry: Retry | None = None
    on_error: OnError = "stop"
    version: str | None = None
    was: OperatorName | None = None
    """Its name before a rename."""
    accept: str | None = None
    rows: int = 10_000
    """Sources: records per event, at most."""
    depends: Mapping[str, str] | None = None
    """Output column -> input column, as declared; None: as the operator knows."""
    within: timedelta = timedelta(milliseconds=100)
    """Sources: how long records are gathered for one event."""
    time: str | None = None
    """Sources: the column of the event time; None if it has none."""
    lateness: timedelta = timedelta(0)
    idle: timedelta | None = None
    """Sources: how late a row may be, and how long a partition may be silent and still be waited for."""


@dataclass(frozen=True, slots=True)
class Node:
    """One operator of the graph: a source, or an operator with inputs."""

    name: OperatorName
    source: Source | None
    op: Operator[Any, Any] | None
    inputs: tuple[PortName, ...]
    outputs: Mapping[PortName, pa.Schema]
    """Every output port with its schema; an operator's `errors` among them."""
    targets: Mapping[TargetName, Sink] = field(default_factory=dict)
    options: NodeOptions = NodeOptions()

    @property
    def kind(self) -> NodeKind:
        """Source (no input), middle, or sink (no output but `errors`)."""
        if self.source is not None:
            return "source"
        return "middle" if any(port != ERRORS for port in self.outputs) else "sink"


class Connection(NamedTuple):
    """An operator's output port joined to an operator's input port; `graph.instances` has its channels."""

    sender: OperatorName
    out: PortName
    receiver: OperatorName
    port: PortName

    def __str__(self) -> str:
        return f"{self.sender}.{self.out}>{self.receiver}.{self.port}"


class Rider(NamedTuple):
    """An ephemeral operator on a connection: what comes of each event goes on by this output port of it (R24)."""

    node: Node
    port: PortName


class Wire(NamedTuple):
    """A connection by the ids of its operators, which a rename does not change."""

    sender: OperatorId
    out: PortName
    receiver: OperatorId
    port: PortName

    @property
    def channel(self) -> ChannelName:
        """The channel of this connection, as the log names it."""
        return channel_name(instance_name(self.sender), self.out, instance_name(self.receiver), self.port)


@dataclass(frozen=True, slots=True)
class Scope:
    """A lineage scope: the output port where capture starts and the one where it ends (LOG.io 3.1)."""

    start: tuple[OperatorName, PortName] | None
    target: tuple[OperatorName, PortName] | None
    keep: timedelta | None
    """How long an event of the target is kept, with all that it was made of. None: bounded by size alone."""
    size: int | None = None
    """How many bytes each port on the paths keeps at most."""


@dataclass(frozen=True)
class Graph:
    """A whole pipeline, in the order in which it was defined (senders before receivers)."""

    name: str
    nodes: Mapping[OperatorName, Node]
    connections: tuple[Connection, ...]
    scopes: tuple[Scope, ...] = ()
    ids: Mapping[OperatorName, OperatorId] = field(default_factory=dict)
    """The ids of operators in a log (`graph.identity`), where they are not what a fresh log would give them."""
    closed: tuple[Wire, ...] = ()
    """Connections of the log that are gone. Open sets and lineage may still need what was taken by them."""
    script: str | None = None
    """FILE[:NAME]: where the pipeline is made, if that is a file (`graph.authored.place_of`)."""
    through: Mapping[Connection, tuple[Rider, ...]] = field(default_factory=dict)
    """The ephemeral operators on a connection, in the order of the stream (`graph.ephemeral`)."""

    def id_of(self, operator: OperatorName) -> OperatorId:
        """The operator's id in the log: it keys the journal, the targets and `ctx.id`, whatever its name is (R14)."""
        return self.ids.get(operator) or operator_id(operator, 1)

    def schema_of(self, connection: Connection) -> pa.Schema:
        """The schema of what comes by a connection."""
        riders = self.through.get(connection)
        if riders:
            return riders[-1].node.outputs[riders[-1].port]
        return self.nodes[connection.sender].outputs[connection.out]

    def into(self, receiver: OperatorName) -> Iterator[Connection]:
        """The connections into an operator, in the order of definition."""
        return (c for c in self.connections if c.receiver == receiver)

    def out_of(self, sender: OperatorName, port: PortName | None = None) -> Iterator[Connection]:
        """The connections out of an operator, or out of one of its ports."""
        return (c for c in self.connections if c.sender == sender and port in (None, c.out))
