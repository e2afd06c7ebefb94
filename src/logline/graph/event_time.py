"""Which ports of a pipeline say how far their event time is (R30). Known from the graph alone.

A source does that declares a time column. An operator does if every one of its inputs has event time, at least one of
them from its sender; the others from a column of its own (`Operator.time`). A pipeline whose sources declare no time
has none of it, and costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa

from logline.errors import DefinitionError, OptionError, SchemaError
from logline.graph.connector import Source
from logline.graph.durations import duration
from logline.graph.model import Connection, Graph, Node, NodeOptions
from logline.names import ERRORS, OperatorName, PortName

Port = tuple[OperatorName, PortName]
_SOME_TIME = datetime(2000, 1, 1, tzinfo=UTC)


def declared_time(
    name: str, source: Source, schema: pa.Schema, options: NodeOptions, given: Sequence[str]
) -> NodeOptions:
    """The options of a source with its event time: as `given` with the source, else as its author declares it."""
    found = options if "time" in given else replace(options, time=source.time)
    if found.time is None:
        extra = [option for option in ("lateness", "idle") if option in given]
        if extra:
            raise OptionError(f"source {name!r}: option {extra[0]} is about event time: give its column, as time=")
        return found
    if "lateness" not in given:
        found = replace(found, lateness=duration(source.lateness))
    if "idle" not in given and source.idle is not None:
        found = replace(found, idle=duration(source.idle))
    if found.idle is not None and found.idle <= found.within:
        raise OptionError(
            f"source {name!r}: idle={found.idle} is not longer than within={found.within}: rows that are gathered "
            "for an event would count as silence"
        )
    if found.time not in schema.names:
        columns = ", ".join(schema.names)
        raise SchemaError(f"source {name!r}: there is no time column {found.time!r}: it has {columns}")
    kind = schema.field(found.time).type
    if not pa.types.is_timestamp(kind) and not pa.types.is_date(kind):
        raise SchemaError(f"source {name!r}: column {found.time!r} is {kind}; a time column is a timestamp or a date")
    return found


def timed_ports(graph: Graph) -> frozenset[Port]:
    """The output ports that have a watermark."""
    found: dict[OperatorName, frozenset[PortName]] = {}
    for name in graph.nodes:
        _look_at(graph, name, found)
    return frozenset((name, port) for name, ports in found.items() for port in ports)


def _look_at(graph: Graph, name: OperatorName, found: dict[OperatorName, frozenset[PortName]]) -> frozenset[PortName]:
    if name not in found:
        node, inputs = graph.nodes[name], timed_inputs(graph, name)
        told = [c.out in _look_at(graph, c.sender, found) for c in inputs]
        found[name] = frozenset(_ports(node, inputs, told))
    return found[name]


def timed_inputs(graph: Graph, name: OperatorName) -> list[Connection]:
    """The connections into an operator whose event time counts."""
    op = graph.nodes[name].op
    return [c for c in graph.into(name) if op is None or c.port not in op.ignores_time_of]


def _ports(node: Node, inputs: list[Connection], told: list[bool]) -> Iterator[PortName]:
    if node.source is not None:
        if node.options.time is not None:
            yield from node.outputs
        return
    assert node.op is not None
    known = all(says or c.port in node.op.time for says, c in zip(told, inputs, strict=True))
    if any(told) and known and passes_time(node):
        yield from (port for port in node.outputs if port != ERRORS and port not in node.op.untimed)


def passes_time(node: Node) -> bool:
    """Whether the outputs of an operator have event time if its inputs do."""
    assert node.op is not None
    try:
        return node.op.passes(_SOME_TIME) is not None
    except Exception as error:
        raise DefinitionError(
            f"operator {node.name!r}: passes({_SOME_TIME}) raised {type(error).__name__}: {error}: it must take any "
            "time, and return one with a time zone, or None"
        ) from error


def where_from(graph: Graph) -> Mapping[str, str]:
    """For people: where the event time of each operator that has one comes from."""
    timed, found = timed_ports(graph), dict[str, str]()
    for name, node in graph.nodes.items():
        options, op = node.options, node.op
        if node.source is not None and options.time is not None:
            late = f", {options.lateness} late at most" if options.lateness else ""
            idle = f", idle after {options.idle}" if options.idle is not None else ""
            found[name] = f"column {options.time}{late}{idle}"
        elif op is not None:
            inputs = timed_inputs(graph, name)
            senders = [c.sender for c in inputs if (c.sender, c.out) in timed]
            columns = [op.time[c.port] for c in inputs if c.port in op.time and (c.sender, c.out) not in timed]
            said = [f"watermark of {sender}" for sender in senders] + [f"column {column}" for column in columns]
            if said:
                found[name] = ", ".join(dict.fromkeys(said))
    return found
