"""Ephemeral operators: they log nothing, and ride on the connections behind them (R24).

The n-th item of an ephemeral operator *is* what its n-th input event made, possibly nothing. So nobody has to run it
by itself: whoever receives from it reads the events of its sender, under their own SSNs, and applies the function to
each on the way. Positions, members of open sets and needs are then those of the sender's events (R3, R5, R12). A
restart applies the function to the same events again, and nothing of it is ever to be recovered.

    orders -> parse (ephemeral) -> hourly -> store        as the author writes it
    orders ------- by parse -----> hourly -> store        as it runs and is logged

`logged` makes the second graph of the first one. `check_ephemeral` refuses what could not be exact: what is not
deterministic may say something else of an event that an open set has as a member.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from logline.errors import GraphError, LoglineError, OptionError
from logline.graph.model import Connection, Graph, Node, NodeOptions, Rider
from logline.graph.operator import Operator, is_batch_operator
from logline.names import ERRORS, OperatorName, PortName

_PLAIN = NodeOptions()
_OF_SETS = ("concurrency", "ordered", "on_error", "retry", "rate", "timeout")
"""Options that are about input sets, calls and errors, which only an operator with a life of its own has."""


def logged(graph: Graph) -> Graph:
    """The graph of what runs and is logged: ephemeral operators are on its connections."""
    riders = {name for name, node in graph.nodes.items() if node.options.policy == "ephemeral"}
    if not riders:
        return graph
    connections: list[Connection] = []
    through: dict[Connection, tuple[Rider, ...]] = {}
    for c in graph.connections:
        if c.receiver not in riders:
            joined, way = _followed(graph, c)
            connections.append(joined)
            if way:
                through[joined] = way
    return replace(
        graph,
        nodes={name: node for name, node in graph.nodes.items() if name not in riders},
        connections=tuple(connections),
        scopes=tuple(replace(scope, start=_origin(graph, scope.start)) for scope in graph.scopes),
        through=through,
    )


def _followed(graph: Graph, c: Connection) -> tuple[Connection, tuple[Rider, ...]]:
    """A connection from where its events are logged, and the ephemeral operators on the way."""
    way: list[Rider] = []
    at = c
    while (sender := graph.nodes[at.sender]).options.policy == "ephemeral":
        way.insert(0, Rider(sender, at.out))
        (at,) = graph.into(at.sender)
    return Connection(at.sender, at.out, c.receiver, c.port), tuple(way)


def _origin(graph: Graph, port: tuple[OperatorName, PortName] | None) -> tuple[OperatorName, PortName] | None:
    """The port where the events are logged of which this one's are made."""
    while port is not None and graph.nodes[port[0]].options.policy == "ephemeral":
        (at,) = graph.into(port[0])
        port = at.sender, at.out
    return port


def rides(graph: Graph) -> Mapping[str, tuple[str, ...]]:
    """Of a graph that `logged` made: each ephemeral operator, and the operators in which it runs."""
    found: dict[str, dict[str, None]] = {}
    for c, way in graph.through.items():
        for rider in way:
            found.setdefault(rider.node.name, {})[c.receiver] = None
    return {name: tuple(where) for name, where in found.items()}


def check_ephemeral(graph: Graph, node: Node) -> Iterator[LoglineError]:
    """What is wrong with an ephemeral operator by itself."""
    op, options, what = node.op, node.options, f"operator {node.name!r}: the policy 'ephemeral' is refused:"
    assert op is not None
    if not is_batch_operator(op) or node.targets:
        yield OptionError(
            f"{what} {type(op).__name__} is more than a function of one batch, so something of it has to be logged; "
            "leave the policy out"
        )
        return
    if len(list(graph.into(node.name))) > 1:
        yield OptionError(
            f"{what} it has several inputs, and in which order their events come has to be logged; leave the policy "
            "out, or give the policy to the operators before it"
        )
    if not options.deterministic:
        yield OptionError(
            f"{what} after a crash it is called again for the same events, and must make the same of them: say "
            "deterministic=True if that is so, or leave the policy out"
        )
    for option in _OF_SETS:
        if getattr(options, option) != getattr(_PLAIN, option):
            yield OptionError(f"{what} nothing of it is logged, so it can't have {option}=; leave one of the two out")
    if type(op).open is not Operator.open:
        yield OptionError(f"{what} {type(op).__name__} defines open(), and it has no life of its own; leave it out")
    if type(op).passes is not Operator.passes or op.untimed:
        yield OptionError(f"{what} {type(op).__name__} has an event time of its own; leave the policy out")


def check_riding(graph: Graph) -> Iterator[LoglineError]:
    """What is wrong with the ways of ephemeral operators in a whole graph."""
    seen: dict[Connection, tuple[Rider, ...]] = {}
    for c in graph.connections:
        sender = graph.nodes[c.sender]
        if sender.options.policy == "ephemeral" and c.out == ERRORS:
            yield GraphError(
                f"operator {c.sender!r} is ephemeral and has no port 'errors', which {c.receiver!r} is connected to: "
                "leave the policy out if rows of it are to be set aside"
            )
        if graph.nodes[c.receiver].options.policy == "ephemeral":
            continue
        joined, way = _followed(graph, c)
        other = seen.setdefault(joined, way)
        if other is not way and (way or other):
            names = " and ".join(repr(str(one[-1].node.name)) if one else "directly" for one in (other, way))
            yield GraphError(
                f"events of {joined.sender}.{joined.out} come to {c.receiver}.{c.port} by two ways ({names}), and "
                "its log could not tell them apart: let one of the operators on the way be pessimistic"
            )
    for name, node in graph.nodes.items():
        if node.options.policy == "ephemeral" and not any(graph.out_of(name)):
            yield GraphError(
                f"operator {name!r} is ephemeral and connected to nothing: it runs in its receivers, and has none"
            )
    for scope in graph.scopes:
        if scope.target is not None and graph.nodes[scope.target[0]].options.policy == "ephemeral":
            yield GraphError(
                f"lineage: the target {scope.target[0]}.{scope.target[1]} is ephemeral, so its events are not in the "
                "log: end the scope at what receives them"
            )
