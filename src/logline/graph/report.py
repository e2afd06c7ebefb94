"""What `check` found: the guarantees, the groups, what deserves a look, and what changed against the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape

from logline.graph.ephemeral import rides
from logline.graph.event_time import where_from
from logline.graph.evolve import Changes
from logline.graph.groups import Grouping, group
from logline.graph.model import Graph, Node
from logline.graph.operator import is_stateless
from logline.graph.sample import ancestors
from logline.names import ERRORS, OperatorName


@dataclass(frozen=True)
class Report:
    """The result of `Pipeline.check`; nothing has moved."""

    pipeline: str
    guarantees: Mapping[str, str]
    """Target -> how a repeated write is told apart; the sink's name, or operator.target."""
    groups: Mapping[str, tuple[OperatorName, ...]]
    """Operators that share a process and fail together; one without a group is a group of its own."""
    warnings: tuple[str, ...] = ()
    changes: Changes | None = None
    """Against the log; None if no log was given, or if it is fresh."""
    event_time: Mapping[str, str] = field(default_factory=dict)
    """Operator -> where its event time comes from; without those that have none."""
    slots: str = ""
    """How many processes it wants at once, and how many there is room for."""
    policies: Mapping[str, str] = field(default_factory=dict)
    """Operator -> how it survives a failure, and what that takes back."""

    @property
    def can_resume(self) -> bool:
        """Whether a run on that log would be accepted."""
        return self.changes is None or not self.changes.refused

    def sections(self) -> Mapping[str, list[str]]:
        """The report as headings and lines."""
        sections = {
            "guarantees": [f"{target}: {_MEANING.get(g, g)}" for target, g in self.guarantees.items()],
            "groups": [f"{group}: {', '.join(members)}" for group, members in self.groups.items()],
            "slots": [self.slots] if self.slots else [],
            "policies": [f"{name}: {text}" for name, text in self.policies.items()],
            "warnings": list(self.warnings),
        }
        if self.event_time:
            sections["event time"] = [f"{name}: {text}" for name, text in self.event_time.items()]
        if self.changes is not None:
            sections["changed, accepted"] = self.changes.accepted
            sections["changed, refused"] = self.changes.refused
        return sections

    def __str__(self) -> str:
        lines = [f"pipeline {self.pipeline!r}"]
        for heading, items in self.sections().items():
            lines.append(f"  {heading}: {'none' if not items else ''}".rstrip())
            lines += [f"    {item}" for item in items]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left;vertical-align:top'>{escape(heading)}</th>"
            f"<td style='text-align:left'>{'<br>'.join(escape(i) for i in items) or 'none'}</td></tr>"
            for heading, items in self.sections().items()
        )
        return f"<table><caption>pipeline {escape(repr(self.pipeline))}</caption>{rows}</table>"


_MEANING = {
    "positioned": "exactly once (positioned)",
    "guarded": "exactly once (guarded)",
    "named": "exactly once (named)",
    "at_least_once": "at least once (accepted)",
}


def report(graph: Graph, changes: Changes | None = None, slots: int | None = None, spare: int = 0) -> Report:
    """The report on a graph that has been validated. `slots`: how many tasks a session can run at once; `spare`: how
    many of these are kept free."""
    grouping = group(graph, None if slots is None else slots - spare, tasks=True)
    guarantees: dict[str, str] = {}
    for name, node in graph.nodes.items():
        for target, sink in node.targets.items():
            guarantees[name if node.kind == "sink" and target == "out" else f"{name}.{target}"] = sink.guarantee
    return Report(
        graph.name,
        guarantees,
        grouping.all,
        tuple(_warnings(graph)),
        changes,
        where_from(graph),
        _slots(graph, grouping, slots, spare),
        policies_of(graph),
    )


def policies_of(graph: Graph) -> Mapping[str, str]:
    """For people: how each operator survives a failure. Of a graph that `graph.ephemeral.logged` made."""
    found = {str(name): _policy(node) for name, node in graph.nodes.items()}
    for name, where in rides(graph).items():
        found[name] = f"ephemeral: logs nothing, runs in {', '.join(where)} and is applied again with them"
    return found


def _policy(node: Node) -> str:
    if node.source is not None:
        text = (
            "goes on where its log ends"
            if node.source.replayable
            else "what it has read is staged before it is shown"
        )
        return f"{node.options.policy}: {text}"
    text = "comes back to its last commit"
    if node.options.policy == "eventual":
        text += ", and its open sets to their checkpoints"
    elif node.op is not None and not is_stateless(node.op):
        text += ", and takes the members of its open sets in again"
    return f"{node.options.policy}: {text}"


def _slots(graph: Graph, grouping: Grouping, there: int | None, spare: int) -> str:
    wanted = len(group(graph, tasks=True).groups)
    text = f"{wanted} for a process per group"
    if wanted > grouping.least:
        text += f", at least {grouping.least}"
    if there is not None:
        text += f"; there are {there}" + (f", {spare} kept free for other jobs" if spare else "")
    return text + (", operators share processes" if len(grouping.groups) < wanted else "")


def _warnings(graph: Graph) -> list[str]:
    found: list[str] = []
    for name, node in graph.nodes.items():
        found += [
            f"{name}.{port} is connected to nothing: its events are counted, nobody gets them"
            for port in node.outputs
            if port != ERRORS and not any(graph.out_of(name, port))
        ]
        for target, sink in node.targets.items():
            if sink.guarantee == "at_least_once":
                found.append(f"{name}: target {target!r} may be written twice after a crash, as accepted")
    writers = [name for name, node in graph.nodes.items() if node.targets]
    if not writers:
        found.append("the pipeline writes nowhere: no operator has a target")
    else:
        reached = set().union(*(ancestors(graph, name) for name in writers))
        found += [
            f"source {name!r} reaches no target"
            for name, node in graph.nodes.items()
            if node.source is not None and name not in reached
        ]
    return found
