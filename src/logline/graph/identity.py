"""Who an operator is in a log, whatever it is called today (R14).

A log knows an operator by its id: the name under which it first came, and its generation. The id keys its journal,
its targets and `ctx.id`. `identify` finds the ids for a pipeline that goes on with a log:

- an operator of the same name keeps its id, and so does one that says `was=` its former name;
- one that is made anew (`fresh`), and all that is downstream of it, get the next generation;
- a new one gets its own name, or the next generation of it if the name was used before.

    >>> from logline.graph.model import Connection
    >>> from logline.names import IN, OUT
    >>> orders, hourly = OperatorName("orders"), OperatorName("hourly")
    >>> nodes = {name: Node(name, None, None, (), {}) for name in (orders, hourly)}
    >>> sales = Graph("sales", nodes, (Connection(orders, OUT, hourly, IN),))
    >>> before = {name: operator_id(name, 1) for name in nodes}
    >>> identify(sales, before, (), [hourly]).ids
    {'orders': 'orders', 'hourly': 'hourly@2'}
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from logline.errors import BadName, OptionError
from logline.graph.model import Graph, Node
from logline.names import OperatorId, OperatorName, generation_of, operator_id


def identify(
    graph: Graph,
    known: Mapping[OperatorName, OperatorId],
    former: Collection[OperatorId] = (),
    fresh: Collection[OperatorName] = (),
) -> Graph:
    """The graph with the ids that its operators have in a log. `known` are the operators of the log with their ids,
    `former` the ids of those that were removed, `fresh` those that shall be made anew."""
    used = {*known.values(), *former}
    anew = downstream(graph, _checked(graph, fresh))
    ids: dict[OperatorName, OperatorId] = {}
    for name, node in graph.nodes.items():
        found = _kept(graph, node, known)
        if found is None:
            found = _next(operator_id(name, 1), used) if operator_id(name, 1) in used else operator_id(name, 1)
        elif name in anew:
            found = _next(found, used)
        ids[name] = found
        used.add(found)
    return replace(graph, ids=ids)


def downstream(graph: Graph, first: Iterable[OperatorName]) -> set[OperatorName]:
    """These operators and all that gets something of theirs."""
    found, todo = set(first), list(first)
    while todo:
        new = {c.receiver for c in graph.out_of(todo.pop())} - found
        found |= new
        todo += new
    return found


def _kept(graph: Graph, node: Node, known: Mapping[OperatorName, OperatorId]) -> OperatorId | None:
    was = node.options.was
    if node.name in known:
        if was in known and was not in graph.nodes:
            raise OptionError(
                f"operator {node.name!r}: was={str(was)!r}, but the log has a {node.name!r} of its own. Leave was= "
                f"out if {node.name!r} is still that one and {str(was)!r} was removed; or give the renamed operator "
                "a name that the log does not have"
            )
        if was is not None and was in graph.nodes and graph.nodes[was].options.was == node.name:
            raise OptionError(
                f"operators {node.name!r} and {str(was)!r} each say was= the other: rename them in two runs, by way "
                "of a name that the log does not have"
            )
        return known[node.name]
    if was is None or not known:
        return None
    if was in graph.nodes:
        raise OptionError(
            f"operator {node.name!r}: was={str(was)!r}, but the pipeline still has an operator {str(was)!r}: "
            "leave was= out, or rename that one"
        )
    if was not in known:
        there = ", ".join(known)
        raise OptionError(
            f"operator {node.name!r}: was={str(was)!r}, but the log has no operator of that name; it has {there}"
        )
    return known[was]


def _checked(graph: Graph, fresh: Collection[OperatorName]) -> Collection[OperatorName]:
    for name in fresh:
        if name not in graph.nodes:
            raise BadName(f"fresh: there is no operator {name!r}; there are {', '.join(graph.nodes)}")
    return fresh


def _next(of: OperatorId, used: Collection[OperatorId]) -> OperatorId:
    """The next generation of an operator."""
    first, _ = generation_of(of)
    generations = [generation for name, generation in map(generation_of, used) if name == first]
    return operator_id(first, 1 + max(generations))
