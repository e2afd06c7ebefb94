"""Resume of a changed pipeline (R14): which changes a log can live with, told from two records (`graph.record`).

Operators are compared by their ids, so that a rename is no more than another name. What was sent is never computed
again, so changed code is accepted. A change that gives another meaning to something in the log is accepted if there
is nothing of the kind: no open set that began with the old parameters, no event of the old schema that somebody has
yet to take, no write that is not done. Else it is refused, with what is in its way and what to do: run the pipeline
as it was until that is done, or make the operator anew (`fresh`), with all that follows it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from logline.graph.model import Wire
from logline.graph.record import (
    Column,
    GraphRecord,
    OperatorRecord,
    ReadRecord,
    RiderRecord,
    ids_in,
    riders_of,
)
from logline.graph.rewiring import Beginning, Flow, plan, some, wires_of
from logline.names import OperatorId, OperatorName, PortName, TargetName, generation_of


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs between the log's pipeline and this one, one sentence each."""

    accepted: list[str]
    refused: list[str]
    beginnings: list[Beginning] = field(default_factory=list)
    """Where new connections begin."""
    closed: list[Wire] = field(default_factory=list)
    """Connections that are gone."""


class LogContents(Flow, Protocol):
    """What the log holds of an operator, as far as it decides whether a change can be lived with."""

    def state_fits(self, operator: OperatorId) -> bool:
        """Whether the pipeline's State can read the state that the log holds."""

    def checkpoints(self, operator: OperatorId) -> Mapping[str, str]:
        """The sets that are not done and have a checkpoint, with the layout of the event state in it."""

    def keys(self, operator: OperatorId) -> int:
        """How many keys have a state or a timer."""

    def unwritten(self, operator: OperatorId, target: TargetName) -> int:
        """How many write actions of the target are not known to be done."""

    def written(self, operator: OperatorId, target: TargetName) -> int:
        """How many write actions the target has had."""


def compare(old: GraphRecord, new: GraphRecord, contents: LogContents | None = None) -> Changes:
    """What changed from the log's record to that of the pipeline at hand. Without `contents` the worst is assumed."""
    changes = Changes([], [])
    if old.pipeline != new.pipeline:
        changes.refused.append(
            f"the log belongs to pipeline {old.pipeline!r}, this is {new.pipeline!r}: "
            "use another log, or give it the log's name"
        )
    before, after = _by_id(old), _by_id(new)
    for id_ in before.keys() & after.keys():
        name, known = after[id_]
        if before[id_][0] != name:
            changes.accepted.append(f"operator {before[id_][0]!r} is called {name!r} now")
        _Comparison(id_, name, before[id_][1], known, old, contents, changes).compare()
    _compare_presence(before, after, changes)
    rewiring = plan(old, new, contents)
    changes.accepted.extend(rewiring.accepted)
    changes.refused.extend(rewiring.refused)
    changes.beginnings.extend(rewiring.beginnings)
    changes.closed.extend(rewiring.closed)
    _compare_riders(old, new, contents, changes)
    if _scopes(old) != _scopes(new):
        changes.accepted.append("the lineage scopes changed: events so far were captured under the old ones")
    changes.accepted.sort()
    changes.refused.sort()
    return changes


def _compare_riders(old: GraphRecord, new: GraphRecord, contents: LogContents | None, changes: Changes) -> None:
    """Ephemeral operators on connections. A member of an open set is read again after a crash, and what comes of it
    must be what came of it when it joined (R5, R24): also of one that came by a connection that is gone."""
    before, after, now = riders_of(old), riders_of(new), wires_of(new)
    names = {id_: name for record in (old, new) for name, id_ in ids_in(record).items()}
    staying = set(ids_in(new).values())
    for wire in (wire for wire in wires_of(old) if wire.receiver in staying):
        was, way = before.get(wire, ()), after.get(wire, ()) if wire in now else None
        if way is not None and [one[1:3] for one in was] == [one[1:3] for one in way]:
            continue  # a rename is no more than another name
        if way is None and not was:
            continue  # its members are read as they are logged
        what = f"what {names[wire.receiver]!r} took of {names[wire.sender]}.{wire.out} came by {_way(was)}"
        what += " and does not come by it any more" if way is None else f" and comes by {_way(way)} now"
        sets = ["(unknown)"] if contents is None else contents.sets_with(wire)
        if sets:
            changes.refused.append(
                f"{what}: events of input sets that are not done would be read as something else: {some(sets)}; "
                f"{_CLOSE.format(name=names[wire.receiver])}{_same_version(was, way)}"
            )
        else:
            changes.accepted.append(f"{what}: no input set is open that has taken anything of it")


def _way(riders: Sequence[RiderRecord]) -> str:
    return " and ".join(f"{one.operator!r} (version {one.version})" for one in riders) or "nothing in between"


def _same_version(was: Sequence[RiderRecord], now: Sequence[RiderRecord] | None) -> str:
    """The way out for code that was mended and makes the same of what was taken."""
    if now is None or [one.port for one in was] != [one.port for one in now]:
        return ""
    said = ", ".join(f"{new.operator}: version={old.version!r}" for old, new in zip(was, now, strict=True))
    return f". If it makes the same of those events as before, say so by the version that it had ({said})"


def _by_id(record: GraphRecord) -> dict[OperatorId, tuple[OperatorName, OperatorRecord]]:
    return {id_: (name, record.operators[name]) for name, id_ in ids_in(record).items()}


def _scopes(record: GraphRecord) -> list[Any]:
    """The scopes with the ids of their ports."""
    ids = ids_in(record)

    def port(end: tuple[OperatorName, PortName] | None) -> Any:
        return None if end is None else (ids.get(end[0], end[0]), end[1])

    return [(port(scope.start), port(scope.target), scope.keep, scope.size) for scope in record.scopes]


@dataclass
class _Comparison:
    """One operator that stays."""

    id: OperatorId
    name: OperatorName
    old: OperatorRecord
    new: OperatorRecord
    record: GraphRecord
    contents: LogContents | None
    changes: Changes

    def compare(self) -> None:
        old, new = self.old, self.new
        if (old.kind == "source") != (new.kind == "source"):
            self._refuse(f"it was a {old.kind} and is now a {new.kind}", "its journal means something else", _RENAME)
            return
        for port in sorted(old.outputs.keys() | new.outputs.keys()):
            self._compare_port(port)
        for target in sorted(old.targets.keys() | new.targets.keys()):
            self._compare_target(target)
        if {old.policy, new.policy} == {"pessimistic", "eventual"}:
            self._accept(
                f"its policy was {old.policy!r} and is now {new.policy!r}",
                "checkpoints that the log has are used, whichever it is",
            )
        elif old.policy != new.policy:
            self._refuse(
                f"its policy was {old.policy!r} and is now {new.policy!r}",
                "the log was kept under the old one",
                _UNDO,
            )
        if old.read != new.read:
            self._refuse(
                f"it read as {_reading(old.read)} and now reads as {_reading(new.read)}",
                "offsets belong to the kind of source",
                "give the new source another name, without was=: then it is read from its beginning, and what came "
                "of the old one stays",
            )
        if old.stateless != new.stateless:
            kind = "stateful" if old.stateless else "stateless"
            self._unless_open(f"it has become {kind}", "its input sets in the log are of the other kind")
        elif old.state != new.state:
            self._compare_state()
        if old.keyed != new.keyed:
            self._compare_keyed()
        if old.stateless == new.stateless and old.parameters == new.parameters:  # else any open set is in the way
            self._compare_checkpoints()
        if old.parameters is not None and new.parameters is not None and old.parameters != new.parameters:
            if old.keyed is not None and self._keys():
                what = f"it had {_pairs(old.parameters)} and now has {_pairs(new.parameters)}"
                self._refuse(what, f"the log has the states of {self._keys()} keys by the old ones", _FRESH)
                return
            self._unless_open(
                f"it had {_pairs(old.parameters)} and now has {_pairs(new.parameters)}",
                "input sets that began with the old ones would be rebuilt as something else",
            )
        if old.version != new.version:
            self._accept(
                f"its code changed (version {old.version} to {new.version})",
                "what was made stays, what comes is made by the new code",
            )

    def _accept(self, what: str, why: str) -> None:
        self.changes.accepted.append(f"operator {self.name!r}: {what}: {why}")

    def _refuse(self, what: str, why: str, remedy: str) -> None:
        self.changes.refused.append(f"operator {self.name!r}: {what}: {why}; {remedy.format(name=self.name)}")

    def _unless_open(self, what: str, why: str) -> None:
        """A change that sets which are not done stand in the way of."""
        sets = ["(unknown)"] if self.contents is None else self.contents.sets(self.id)
        if sets:
            self._refuse(what, f"{why}, and these are not done: {some(sets)}", _CLOSE)
        else:
            self._accept(what, "no input set is open that began before")

    def _compare_checkpoints(self) -> None:
        """A checkpoint takes the place of members (R22): code that can't go on from it can't rebuild its set."""
        old, new = self.old, self.new
        if self.contents is not None:
            saved = self.contents.checkpoints(self.id)
        else:
            saved = {"(unknown)": old.event_state or ""} if old.policy == "eventual" else {}
        if saved and new.moves_members:
            what = "it merges input sets or puts them out several times now, which sets with a checkpoint can't"
            self._refuse(what, f"these have one, and are not done: {some(list(saved))}", _CLOSE)
            return
        others = {inset: layout for inset, layout in saved.items() if layout != new.event_state}
        if others:
            now = "can't be written to a checkpoint" if new.event_state is None else f"is now {new.event_state!r}"
            what = f"the event state of its input sets was {next(iter(others.values()))!r} and {now}"
            why = f"the log has checkpoints of the old one, of sets that are not done: {some(list(others))}"
            self._refuse(what, why, _CLOSE)

    def _compare_port(self, port: PortName) -> None:
        was, now = self.old.outputs.get(port), self.new.outputs.get(port)
        if was is None:
            self._accept(f"the output port {port!r} was added", "it begins empty")
        elif now is None:
            self._accept(f"the output port {port!r} was removed", "what it has put out stays in the log")
        elif was != now:
            what = f"the schema of port {port!r} changed from ({_text(was)}) to ({_text(now)})"
            held = self._held(port)
            if held:
                self._refuse(what, f"events of the old one are in use: {'; '.join(held)}", _CLOSE)
            else:
                self._accept(what, "everybody is done with events of the old one")

    def _held(self, port: PortName) -> list[str]:
        """Who still needs events of a port."""
        names = {id_: name for name, id_ in ids_in(self.record).items()}
        wires = [wire for wire in wires_of(self.record) if (wire.sender, wire.out) == (self.id, port)]
        if self.contents is None:
            return [f"{names[wire.receiver]!r} may have" for wire in wires]
        found = []
        for wire in wires:
            if untaken := self.contents.untaken(wire):
                found.append(f"{names[wire.receiver]!r} has not taken {untaken}")
            if sets := self.contents.sets_with(wire):
                found.append(f"{names[wire.receiver]!r} has them in the sets {some(sets)}")
        return found

    def _compare_target(self, target: TargetName) -> None:
        was, now = self.old.targets.get(target), self.new.targets.get(target)
        if was == now:
            self._compare_place(target)
            return
        if was is None:
            self._accept(f"the target {target!r} was added", "its writes begin with number 1")
            return
        written = 1 if self.contents is None else self.contents.written(self.id, target)
        unwritten = 1 if self.contents is None else self.contents.unwritten(self.id, target)
        if now is not None and written:
            self._refuse(
                f"the target {target!r} was {was} and is now {now}",
                "it could not tell which of its writes are done",
                _RENAME,
            )
        elif now is not None:
            self._accept(f"the target {target!r} was {was} and is now {now}", "nothing was written yet")
        elif unwritten:
            count = "writes" if self.contents is None else f"{unwritten} write{'s'[: unwritten != 1]}"
            self._refuse(f"the target {target!r} was removed", f"{count} of it are not done", _DRAIN)
        else:
            self._accept(f"the target {target!r} was removed", "all of its writes are done")

    def _compare_place(self, target: TargetName) -> None:
        """Accepted, since a target may have been moved with all that it has. Its position is kept there, per log,
        instance and target (R8): a positioned one that has not got it refuses the first write."""
        was, now = self.old.places.get(target), self.new.places.get(target)
        if was is None or now is None or was.digest == now.digest:
            return
        what = f"the target {target!r} was {was} and is now {now}"
        written = 1 if self.contents is None else self.contents.written(self.id, target)
        if not written:
            self._accept(what, "nothing was written yet")
        elif self.new.targets[target] == "positioned":
            self._accept(
                what,
                "what was written stays in the old one, and the new one must be a copy of it, with its positions: it "
                "is asked for the writes that it has, and takes the next one only. To begin with an empty one, give "
                f'the sink another name, without was=, or make it anew: fresh=["{self.name}"] (--fresh {self.name})',
            )
        else:
            self._accept(what, "what was written stays in the old one, and what comes is written to the new one")

    def _compare_state(self) -> None:
        """A state may gain fields: they have defaults, since State() takes no arguments. A field may get another type
        if that one can hold what is logged: the way out for a state whose values outgrew their types."""
        old, new = self.old.state, self.new.state
        if old is not None and new is not None and old.items() <= new.items():
            added = _list(sorted(new.keys() - old.keys()))
            self.changes.accepted.append(
                f"operator {self.name!r}: its state has new fields, which begin at their defaults: {added}"
            )
            return
        kept = old is not None and new is not None and old.keys() <= new.keys()
        what = f"its state had {_pairs(old)} and now has {_pairs(new)}"
        if kept and self.contents is not None and self.contents.state_fits(self.id):
            self._accept(what, "what the log holds can be read as that")
        elif old is None:
            self._accept(what, "it begins as State() makes it")
        else:
            self._refuse(what, "the state in the log could not be read", _FRESH)

    def _keys(self) -> int | str:
        return "some" if self.contents is None else self.contents.keys(self.id)

    def _compare_keyed(self) -> None:
        """The states of keys are read when they are next asked for. Fields that were added have their defaults;
        otherwise `migrate` makes the new state of the old one."""
        old, new, keys = self.old.keyed, self.new.keyed, self._keys()
        what = f"the state of a key had {_pairs(old)} and now has {_pairs(new)}"
        if old is None or not keys:
            self._accept(what, "the log has no state of a key")
        elif new is not None and old.items() <= new.items():
            added = _list(sorted(new.keys() - old.keys()))
            self._accept(f"the state of a key has new fields: {added}", "they begin at their defaults")
        elif new is not None and self.new.migrates:
            self._accept(what, "migrate= makes the new ones of the old ones, when they are next asked for")
        else:
            remedy = "give migrate=, a function from the old state, as a dict, to the new one; or "
            self._refuse(what, f"the log has the states of {keys} keys", remedy + _FRESH)


_DRAIN = "run the pipeline as it was until that is done (stop it with drain), then change it"
_FRESH = (
    "undo the change, or make it anew with all that follows it, from what the log still has: "
    'fresh=["{name}"] (--fresh {name})'
)
_CLOSE = (
    "run the pipeline as it was until they are done (with --close if they are windows, and see `logline errors LOG` "
    "for those set aside), then change it; or make it anew, with all that follows it, from what the log still has: "
    'fresh=["{name}"] (--fresh {name})'
)
_RENAME = "undo the change, or give the new one another name, without was="
_UNDO = "undo the change, or start with a fresh log"


def _compare_presence(
    before: Mapping[OperatorId, tuple[OperatorName, OperatorRecord]],
    after: Mapping[OperatorId, tuple[OperatorName, OperatorRecord]],
    changes: Changes,
) -> None:
    gone = {before[id_][0]: id_ for id_ in before.keys() - after.keys()}
    for id_ in after.keys() - before.keys():
        name, known = after[id_]
        if name in gone:
            changes.accepted.append(
                f"operator {name!r} is made anew, from what the log still has"
                + (
                    f"; what the old one wrote stays in its target{'s'[: len(known.targets) > 1]}"
                    if known.targets
                    else ""
                )
            )
        elif known.kind == "source":
            changes.accepted.append(f"source {name!r} was added" + _if_back(id_))
        else:
            changes.accepted.append(f"operator {name!r} was added")
    names = {name for name, _ in after.values()}
    for name, id_ in gone.items():
        if name not in names:
            kind = "source" if before[id_][1].kind == "source" else "operator"
            changes.accepted.append(f"{kind} {name!r} was removed: what it had not finished is not finished")


def _if_back(id_: OperatorId) -> str:
    """A source that was removed is another one when it comes back, of the next generation: the channels of the old
    one are closed, and how far it was may be about something else of the same name."""
    if generation_of(id_)[1] == 1:
        return ""
    return (
        ". One of that name was removed before: it is read again from its beginning, and what came of the old one "
        "stays, so that its rows come twice; if that is not wanted, let it read only what is new"
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
