"""Resume of a changed graph (R14): which changes a log can live with, told from two records (`graph.record`).

Accepted are end branches that were added or removed, since nothing that stays ever received from them, and
changed code, since under pessimistic logging what was sent is never computed again. Everything else would
give positions, open sets, numbered writes or offsets another meaning, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from logline.graph.model import Connection
from logline.graph.record import Column, GraphRecord, OperatorRecord, ReadRecord
from logline.names import OperatorName

_SHOWN = 5
_REMEDY = "undo the change, or start with a fresh log"


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs between the log's pipeline and this one, one sentence each."""

    accepted: list[str]
    refused: list[str]


class LogContents(Protocol):
    """What the log holds of an operator, as far as it decides whether a change can be lived with."""

    def state_fits(self, operator: OperatorName) -> bool:
        """Whether the pipeline's State can read the state that the log holds."""

    def sets(self, operator: OperatorName) -> Sequence[str]:
        """The ids of the input sets that are not generated for good: open, due, or waiting to be retried."""


def compare(old: GraphRecord, new: GraphRecord, contents: LogContents | None = None) -> Changes:
    """What changed from the log's record to that of the pipeline at hand. Without `contents` the worst is assumed."""
    changes = Changes([], [])
    if old.pipeline != new.pipeline:
        changes.refused.append(
            f"the log belongs to pipeline {old.pipeline!r}, this is {new.pipeline!r}: "
            "use another log, or give it the log's name"
        )
    before, after = old.operators, new.operators
    for name in before.keys() & after.keys():
        _compare_operator(name, before[name], after[name], changes, contents)
    _compare_branches(before, after, changes)
    _compare_connections(old.connections, new.connections, before.keys(), after.keys(), changes)
    if old.scopes != new.scopes:
        changes.accepted.append("the lineage scopes changed: events so far were captured under the old ones")
    changes.accepted.sort()
    changes.refused.sort()
    return changes


def _compare_operator(
    name: OperatorName, old: OperatorRecord, new: OperatorRecord, changes: Changes, contents: LogContents | None
) -> None:
    def refuse(what: str, why: str) -> None:
        changes.refused.append(f"operator {name!r}: {what}: {why}; {_REMEDY}")

    if old.kind != new.kind:
        refuse(f"it was a {old.kind} and is now a {new.kind}", "its journal means something else")
        return
    if old.inputs != new.inputs:
        refuse(f"its input ports were {_list(old.inputs)} and are now {_list(new.inputs)}",
               "positions belong to ports")  # fmt: skip
    for port in sorted(old.outputs.keys() | new.outputs.keys()):
        was, now = old.outputs.get(port), new.outputs.get(port)
        if was is None or now is None:
            verb = "added" if was is None else "removed"
            refuse(f"the output port {port!r} was {verb}", "the log has its events by port")
        elif was != now:
            refuse(f"the schema of port {port!r} changed from ({_text(was)}) to ({_text(now)})",
                   "the events in the log have the old one")  # fmt: skip
    if old.targets != new.targets:
        refuse(f"its targets were {_pairs(old.targets)} and are now {_pairs(new.targets)}",
               "writes are numbered per target")  # fmt: skip
    if old.policy != new.policy:
        refuse(
            f"its policy was {old.policy!r} and is now {new.policy!r}",
            "the log was kept under the old one",
        )
    if old.read != new.read:
        refuse(f"it read as {_reading(old.read)} and now reads as {_reading(new.read)}",
               "offsets belong to the kind of source")  # fmt: skip
    if old.stateless != new.stateless:
        kind = "stateful" if old.stateless else "stateless"
        refuse(f"it has become {kind}", "its input sets in the log are of the other kind")
    elif old.state != new.state:
        _compare_state(refuse, name, old.state, new.state, changes, contents)
    if old.parameters is not None and new.parameters is not None and old.parameters != new.parameters:
        _compare_parameters(name, old.parameters, new.parameters, changes, contents)
    if old.version != new.version:
        changes.accepted.append(
            f"operator {name!r}: its code changed (version {old.version} to {new.version}): "
            "what was made stays, what comes is made by the new code"
        )


def _compare_state(
    refuse: Callable[[str, str], None],
    name: OperatorName,
    old: Mapping[str, str] | None,
    new: Mapping[str, str] | None,
    changes: Changes,
    contents: LogContents | None,
) -> None:
    """A state may gain fields: they have defaults, since State() takes no arguments. A field may get another type if
    that one can hold what is logged: the way out for a state whose values outgrew their types."""
    if old is not None and new is not None and old.items() <= new.items():
        added = _list(sorted(new.keys() - old.keys()))
        changes.accepted.append(
            f"operator {name!r}: its state has new fields, which begin at their defaults: {added}"
        )
        return
    kept = old is not None and new is not None and old.keys() <= new.keys()
    if kept and contents is not None and contents.state_fits(name):
        changes.accepted.append(
            f"operator {name!r}: its state had {_pairs(old)} and now has {_pairs(new)}: "
            "what the log holds can be read as that"
        )
        return
    refuse(f"its state had {_pairs(old)} and now has {_pairs(new)}", "the state in the log could not be read")


def _compare_parameters(
    name: OperatorName,
    old: Mapping[str, str],
    new: Mapping[str, str],
    changes: Changes,
    contents: LogContents | None,
) -> None:
    what = f"operator {name!r}: it had {_pairs(old)} and now has {_pairs(new)}"
    sets = ["(unknown)"] if contents is None else contents.sets(name)
    if not sets:
        changes.accepted.append(f"{what}: no input set is open that began with the old ones")
        return
    shown = ", ".join(sets[:_SHOWN]) + (f" and {len(sets) - _SHOWN} more" if len(sets) > _SHOWN else "")
    changes.refused.append(
        f"{what}: input sets that began with the old ones are not done, and would be rebuilt as something else: "
        f"{shown}; run it with the old ones until they are done (see `logline errors LOG` for those set aside), "
        f"then change; or {_REMEDY}"
    )


def _compare_branches(
    before: Mapping[OperatorName, OperatorRecord], after: Mapping[OperatorName, OperatorRecord], changes: Changes
) -> None:
    for name in after.keys() - before.keys():
        if after[name].kind == "source":
            changes.refused.append(f"source {name!r} was added: only branches that receive can be; {_REMEDY}")
        else:
            changes.accepted.append(f"operator {name!r} was added at the end of a branch")
    for name in before.keys() - after.keys():
        if before[name].kind == "source":
            changes.refused.append(f"source {name!r} was removed: only branches that receive can be; {_REMEDY}")
        else:
            changes.accepted.append(f"operator {name!r} was removed: what it had not finished is not finished")


def _compare_connections(
    old: Collection[Connection],
    new: Collection[Connection],
    before: Collection[OperatorName],
    after: Collection[OperatorName],
    changes: Changes,
) -> None:
    was, now = set(old), set(new)
    # A connection into an operator that comes or goes is part of its branch.
    for sender, out, receiver, port in now - was:
        if receiver in before:
            changes.refused.append(
                f"{sender}.{out} was connected to {receiver}.{port}, which is not new: "
                f"it has taken events without it; {_REMEDY}"
            )
    for sender, out, receiver, port in was - now:
        if receiver in after:
            changes.refused.append(
                f"{sender}.{out} is no longer connected to {receiver}.{port}, which is still there: "
                f"it may have open sets with events of it; {_REMEDY}"
            )


def _text(columns: Collection[Column]) -> str:
    return ", ".join(f"{name} {kind}{'' if nullable else ' not null'}" for name, kind, nullable in columns)


def _list(names: Collection[str]) -> str:
    return ", ".join(repr(name) for name in names) or "none"


def _reading(read: ReadRecord | None) -> str:
    return _pairs(None if read is None else msgspec.structs.asdict(read))


def _pairs(values: Mapping[Any, Any] | None) -> str:
    if values is None:
        return "none"
    return ", ".join(f"{key}: {value}" if key else f"{value}" for key, value in values.items()) or "none"
