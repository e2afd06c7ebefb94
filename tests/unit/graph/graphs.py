"""Small operators, connectors and graphs that several tests use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from logline.graph.connector import Guarantee, Sink, Source
from logline.graph.model import ERRORS_SCHEMA, Connection, Graph, Node, NodeOptions, Scope
from logline.graph.operator import Operator
from logline.names import ERRORS, OperatorName, PortName, TargetName

ID = pa.schema([("id", pa.int64())])


class Numbers(Source):
    schema = ID

    def __init__(self, items: int = 3) -> None:
        self.items = items

    def read(self, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, int] | None]:
        for n in range(offset or 0, self.items):
            yield pa.record_batch({"id": [n] * 4}), n + 1


class Pass(Operator[Any, None]):
    def generate(self, inset: Any, acc: Any, ctx: Any) -> Iterator[Any]:
        yield acc


class Keep(Sink):
    def __init__(self, guarantee: Guarantee = "named") -> None:
        self.guarantee = guarantee

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        raise AssertionError("nothing is written here")


def source(name: str, source: Source | None = None, options: NodeOptions | None = None) -> Node:
    outputs = {PortName("out"): ID}
    return Node(OperatorName(name), source or Numbers(), None, (), outputs, options=options or NodeOptions())


def middle(
    name: str,
    inputs: str = "in",
    outputs: str = "out",
    *,
    op: Operator[Any, Any] | None = None,
    options: NodeOptions | None = None,
    targets: dict[str, Sink] | None = None,
    schema: pa.Schema = ID,
) -> Node:
    return Node(
        OperatorName(name),
        None,
        op or Pass(),
        tuple(PortName(port) for port in inputs.split()),
        {**{PortName(port): schema for port in outputs.split()}, ERRORS: ERRORS_SCHEMA},
        {TargetName(target): sink for target, sink in (targets or {}).items()},
        options or NodeOptions(),
    )


def sink(name: str, guarantee: Guarantee = "named", options: NodeOptions | None = None) -> Node:
    return middle(name, outputs="", targets={"out": Keep(guarantee)}, options=options)


def connection(text: str) -> Connection:
    """`orders.out>hourly.in`, where `.out` and `.in` may be left out."""
    sender, receiver = text.split(">")
    a, _, out = sender.partition(".")
    b, _, port = receiver.partition(".")
    return Connection(OperatorName(a), PortName(out or "out"), OperatorName(b), PortName(port or "in"))


def graph(nodes: list[Node], connections: str = "", scopes: tuple[Scope, ...] = (), name: str = "sales") -> Graph:
    return Graph(name, {n.name: n for n in nodes}, tuple(map(connection, connections.split())), scopes)
