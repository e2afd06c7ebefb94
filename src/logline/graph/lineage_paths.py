"""Which ports capture lineage: the paths between the ports of each scope (LOG.io section 3.1, Example 5).

A scope is a pair of output ports (start, target). Every path from one to the other is a data lineage path;
where it passes through an operator, from an input port to an output port, capture is enabled for these two.
Within an operator every input port may feed every output port, so the paths through it are all pairs of an
input port that `start` reaches and an output port that reaches `target`. The paths are therefore never
listed: two searches, one from each end, find the same ports also where the number of paths explodes.

Rows that an operator rejected are on its port `errors`, and a retry takes them in again. So a path may turn there: an
operator that is on a path captures for `errors` too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from logline.errors import BadName, GraphError
from logline.graph.model import Graph, Scope
from logline.names import ERRORS, OperatorName, PortName

Port = tuple[OperatorName, PortName]


@dataclass(frozen=True, slots=True)
class Enabled:
    """The ports of one operator between which lineage is captured."""

    inputs: frozenset[PortName]
    outputs: frozenset[PortName]


@dataclass(frozen=True, slots=True)
class Kept:
    """How long the events of an output port are kept for lineage: the most that a scope asks for."""

    span: timedelta | None
    """Counted from the port's own events, and from what was made of them. None: as long as there is room."""
    size: int | None
    """Bytes, at most. None: no bound."""


def kept_ports(graph: Graph) -> Mapping[Port, Kept]:
    """The output ports whose events scopes keep: on the paths, and where they start, since a query ends there."""
    found: dict[Port, Kept] = {}
    for scope in graph.scopes:
        _, outs = _on_paths(graph, scope)
        for port in outs | ({scope.start} if scope.start is not None else set()):
            new, old = Kept(scope.keep, scope.size), found.get(port)
            found[port] = new if old is None else Kept(_most(old.span, new.span), _most(old.size, new.size))
    return found


def _most(a: Any, b: Any) -> Any:
    return None if a is None or b is None else max(a, b)


def enabled_ports(graph: Graph) -> Mapping[OperatorName, Enabled]:
    """The operators that capture, with their enabled ports; those that capture nothing are left out.

    A scope without a start begins at the sources, and at their reads; one without a target ends nowhere.
    """
    inputs: dict[OperatorName, set[PortName]] = {}
    outputs: dict[OperatorName, set[PortName]] = {}
    for scope in graph.scopes:
        ins, outs = _on_paths(graph, scope)
        for operator, port in ins:
            inputs.setdefault(operator, set()).add(port)
        for operator, port in outs:
            outputs.setdefault(operator, set()).add(port)
    return {
        name: Enabled(frozenset(inputs.get(name, ())), frozenset(outputs.get(name, ())))
        for name in graph.nodes
        if name in inputs or name in outputs
    }


def _on_paths(graph: Graph, scope: Scope) -> tuple[set[Port], set[Port]]:
    """The input ports and output ports inside the paths of one scope."""
    for end in (scope.start, scope.target):
        if end is not None:
            _check_port(graph, end)
    if scope.start is not None and not any(graph.out_of(*scope.start)):
        raise GraphError(
            f"lineage: the start {_name(scope.start)} is connected to nothing: start at a port that has receivers"
        )
    taken, made = _forward(graph, scope.start)
    if scope.target is None:
        return taken, made
    leading_in, leading_out = _backward(graph, scope.target)
    if scope.target not in made:
        start = "the sources" if scope.start is None else _name(scope.start)
        raise GraphError(
            f"lineage: no path leads from {start} to {_name(scope.target)}: exchange them, or choose other ports"
        )
    return taken & leading_in, made & leading_out


def _forward(graph: Graph, start: Port | None) -> tuple[set[Port], set[Port]]:
    """What `start` (or every source) reaches: input ports, and the output ports of their operators."""
    made: set[Port] = set()
    if start is None:
        made = {(name, port) for name, node in graph.nodes.items() if not node.inputs for port in node.outputs}
    taken: set[Port] = set()
    open_ports = list(made if start is None else [start])
    while open_ports:
        operator, port = open_ports.pop()
        for c in graph.out_of(operator, port):
            taken.add((c.receiver, c.port))
            new = {(c.receiver, out) for out in graph.nodes[c.receiver].outputs} - made
            made |= new
            open_ports += new
    return taken, made


def _backward(graph: Graph, target: Port) -> tuple[set[Port], set[Port]]:
    """What reaches `target`: input ports, and output ports (itself among them)."""
    leading_in: set[Port] = set()
    leading_out = {target}
    operators = [target[0]]
    while operators:
        receiver = operators.pop()
        if ERRORS in graph.nodes[receiver].outputs:
            leading_out.add((receiver, ERRORS))
        for c in graph.into(receiver):
            leading_in.add((receiver, c.port))
            if (c.sender, c.out) not in leading_out:
                leading_out.add((c.sender, c.out))
                operators.append(c.sender)
    return leading_in, leading_out


def _check_port(graph: Graph, port: Port) -> None:
    operator, out = port
    if operator not in graph.nodes:
        raise BadName(f"lineage: there is no operator {operator!r}; there are {_names(graph.nodes)}")
    if out not in graph.nodes[operator].outputs:
        raise BadName(
            f"lineage: operator {operator!r} has no output port {out!r}; "
            f"it has {_names(graph.nodes[operator].outputs)}"
        )


def _name(port: Port) -> str:
    return f"{port[0]}.{port[1]}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
