"""Groups: which operators share a process, given how many processes there is room for.

An operator without `group=` is a group of its own while there is room. With less room, groups are fused along the
graph, the cheapest pair first: a filter goes with its neighbour before two windows share a process. Operators that
an author put into a group by name stay as they were put.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from logline.errors import OptionError
from logline.graph.model import Graph, Node
from logline.graph.operator import is_stateless
from logline.names import OperatorName


@dataclass(frozen=True)
class Grouping:
    """Every operator in exactly one group."""

    groups: Mapping[str, tuple[OperatorName, ...]]
    """In processes of their own."""
    on_driver: Mapping[str, tuple[OperatorName, ...]]
    """In the driver's process: their operators need what only it has."""
    least: int
    """Processes that are needed at least."""

    @property
    def all(self) -> dict[str, tuple[OperatorName, ...]]:
        """The groups with processes of their own, and those on the driver."""
        return {**self.groups, **self.on_driver}


def group(graph: Graph, room: int | None = None, *, tasks: bool = False) -> Grouping:
    """The groups of a graph, at most `room` of them in processes of their own.

    `tasks`: whether there are tasks to which a source that lives apart can go; it has a group to itself there.
    Raises an OptionError if the groups that the author named need more room than there is.
    """
    named: dict[str, list[OperatorName]] = {}
    pinned: set[str] = set()
    driver: set[str] = set()
    alone: set[str] = set()
    for name, node in graph.nodes.items():
        key = node.options.group or str(name)
        named.setdefault(key, []).append(name)
        lone = tasks and node.source is not None and node.source.apart
        if lone:
            alone.add(key)
        if lone or node.options.group is not None:
            pinned.add(key)
        if not lone and on_driver(node):
            driver.add(key)
    for key in alone:
        if len(named[key]) > 1:
            raise OptionError(
                f"group {key!r}: each partition of the source among {', '.join(named[key])} is a task of its own, "
                "which it can't share: take it out of the group"
            )
    free = [members for key, members in named.items() if key not in pinned | driver]
    fixed = sum(key not in driver for key in pinned)
    least = fixed + bool(free)
    if room is not None and room < least:
        raise OptionError(
            f"pipeline {graph.name!r} needs room for {least} processes at once, and there is room for {room}: "
            f"{fixed} for the groups that group= names and for DataFrames"
            + (", one for the other operators" if free else "")
        )
    if room is not None:
        _fuse(graph, free, room - fixed)
    fused = {_name(members): members for members in free}
    kept = {key: members for key, members in named.items() if key in pinned - driver}
    order = {name: at for at, name in enumerate(graph.nodes)}
    groups = sorted({**fused, **kept}.items(), key=lambda item: order[item[1][0]])
    return Grouping(
        {key: tuple(members) for key, members in groups},
        {key: tuple(members) for key, members in named.items() if key in driver},
        least,
    )


def on_driver(node: Node) -> bool:
    """Whether the operator must live in the driver's process."""
    return (node.op is not None and node.op.on_driver) or (node.source is not None and node.source.on_driver)


def _fuse(graph: Graph, groups: list[list[OperatorName]], room: int) -> None:
    """Joins pairs in place until there is room: neighbours first, the lightest pair first."""
    order = {name: at for at, name in enumerate(graph.nodes)}
    while len(groups) > max(room, 1):
        home = {name: at for at, members in enumerate(groups) for name in members}
        pairs = {
            (min(a, b), max(a, b))
            for c in graph.connections
            if (a := home.get(c.sender)) is not None and (b := home.get(c.receiver)) is not None and a != b
        } or {(a, b) for a in range(len(groups)) for b in range(a + 1, len(groups))}
        a, b = min(pairs, key=lambda pair: (_weight(graph, groups[pair[0]]) + _weight(graph, groups[pair[1]]), pair))
        groups[a] = sorted([*groups[a], *groups[b]], key=order.__getitem__)
        del groups[b]


def _weight(graph: Graph, members: list[OperatorName]) -> int:
    """Roughly how much a group has to do."""
    return sum(_work(graph.nodes[name]) for name in members)


def _work(node: Node) -> int:
    if node.op is None or node.targets or node.options.concurrency > 1:
        return 2  # it waits for the outside
    return 1 if is_stateless(node.op) else 3


def _name(members: list[OperatorName]) -> str:
    """`orders`, `orders+checked`; no operator can have a name with a plus."""
    name = "+".join(members)
    return name if len(name) <= 60 else f"{members[0]}+{len(members) - 1}"
