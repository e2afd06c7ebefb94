"""A log goes on with a pipeline that has changed (R14): what the log holds decides, and what has to be done is done.

The order makes it safe against a driver that dies half way. All is done under the lease, before any life begins:

1. `fence` ends lives of an earlier run that are late: what they took after the look would be taken twice, or never.
2. `begin` commits where new connections begin, in the journals of their receivers. The graph that the log knows does
   not have these connections yet, so nobody looks there; and where they begin follows from what does not change.
3. The new graph is set (`Store.set_meta`), with what was there before (`with_history`).
4. `close` closes the channels of connections that are gone. Every start looks for those that are not closed yet.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec

from logline.engine.events import CLOSED, Output, Position
from logline.engine.image import Image, Outline
from logline.engine.keyed import is_key_timer
from logline.engine.sets import OpenSet
from logline.engine.spec import write_port
from logline.engine.step import Step
from logline.errors import Fenced, LogError, PipelineChanged
from logline.graph.evolve import Changes, compare
from logline.graph.identity import identify
from logline.graph.instances import expand
from logline.graph.model import Graph, Wire
from logline.graph.record import FormerRecord, GraphRecord, VersionRecord, ids_in, record_of, riders_of
from logline.graph.rewiring import Beginning, wires_of
from logline.graph.secrets import Secret
from logline.graph.states import decode_state
from logline.names import (
    InstanceName,
    OperatorId,
    OperatorName,
    PortName,
    Serial,
    Ssn,
    TargetName,
    event_name,
    generation_of,
    instance_name,
    operator_id,
)
from logline.runtime.control.settings import Resume
from logline.runtime.lives.inherited import Inherits
from logline.runtime.lives.instances import Instance
from logline.runtime.log.log_status import passed_by
from logline.store.address import as_text, find_store
from logline.store.seam import Meta, Store

logger = logging.getLogger("logline")


def changes(graph: Graph, log: str | Secret, fresh: Collection[OperatorName] = ()) -> Changes | None:
    """What changed since the log was last used; None if it has not been used."""
    store = find_store(as_text(log))
    meta = None if store is None else store.meta()
    if store is None or meta is None:
        return None
    graph = _identified(meta, graph, fresh)
    return compare(meta.graph, record_of(graph), _Contents(store, graph))


def admit(store: Store, graph: Graph, resume: Resume, fresh: Collection[OperatorName]) -> tuple[Graph, Changes]:
    """The graph with the ids of its operators in this log, and what has changed; raises if the log is not one that
    this pipeline may go on with."""
    meta = store.meta()
    if meta is None:
        if resume == "must":
            raise LogError(
                f"resume='must': the log has not been used, there is nothing of pipeline {graph.name!r} "
                "to go on with; was another address meant?"
            )
        return identify(graph, {}), Changes([], [])
    if resume == "never":
        raise LogError(
            f"resume='never': the log has been used by pipeline {meta.pipeline!r}; "
            "take a fresh log, or resume='auto' to go on with it"
        )
    graph = _identified(meta, graph, fresh)
    found = compare(meta.graph, record_of(graph), _Contents(store, graph))
    if found.refused:
        listed = "".join(f"\n  - {change}" for change in found.refused)
        raise PipelineChanged(f"pipeline {graph.name!r} can't go on with this log; what changed:{listed}")
    return replace(graph, closed=_closed(meta.graph, record_of(graph))), found


def _identified(meta: Meta, graph: Graph, fresh: Collection[OperatorName]) -> Graph:
    return identify(graph, ids_in(meta.graph), meta.graph.former, fresh)


def _closed(old: GraphRecord, new: GraphRecord) -> tuple[Wire, ...]:
    """The connections that the log has had and the new graph does not have."""
    now = wires_of(new)
    return tuple(wire for wire in dict.fromkeys((*old.closed, *wires_of(old))) if wire not in now)


# ---- where new connections begin ------------------------------------------------------------------------------


def fence(store: Store, found: Changes) -> bool:
    """Fences off lives that may still take or send something by a connection that is gone (R10). Whether there are
    such connections: then the log may hold something else now."""
    there = store.instances()
    ends = {instance_name(end) for wire in found.closed for end in (wire.sender, wire.receiver)}
    for instance in (name for name in there if name in ends):
        store.claim(instance).close()
    return bool(ends)


def begin(store: Store, found: Changes, graph: Graph) -> None:
    """Commits where new connections begin, and gives new ports the marks that the others of their instance have."""
    positions: dict[InstanceName, dict[Wire, Position]] = {}
    for beginning in found.beginnings:
        receiver = instance_name(beginning.wire.receiver)
        positions.setdefault(receiver, {})[beginning.wire] = _position(store, beginning, graph)
    for instance, wanted in positions.items():
        known = store.read(instance).outline().positions
        new = {wire.channel: at for wire, at in wanted.items() if known.get(wire.channel, Position()) != at}
        if new:
            _commit(store, instance, Step(positions=new))
    known_instances = store.instances()
    for name, node in graph.nodes.items():
        instance = instance_name(graph.id_of(name))
        if instance in known_instances:
            _mark_new_ports(store, instance, node.outputs)


def _position(store: Store, beginning: Beginning, graph: Graph) -> Position:
    wire = beginning.wire
    if beginning.how == "after":
        former = beginning.after[0]
        return store.read(instance_name(former.receiver)).taken(former.channel).position
    reader = store.read(instance_name(wire.sender))
    head = reader.head(wire.out)
    if beginning.how == "now":
        return Position(head.last, head.total, reader.outline().marks)
    if head.base == 1:
        return Position()
    names = {id_: name for name, id_ in graph.ids.items()}
    logger.info(
        "operator %r begins with %s: earlier events are collected",
        str(names[wire.receiver]),
        event_name(instance_name(wire.sender), wire.out, head.base),
    )
    before = Ssn(head.base - 1)
    first = reader.pick(wire.out, [head.base])[0] if head.base <= head.last else None
    total = head.total if first is None else first.total - first.nbytes
    # Whether a stream has ended is the parity of its marks (R11'): those that are collected count.
    there = reader.headers(wire.out, [Ssn(ssn) for ssn in range(head.base, head.last + 1)])
    marks = reader.outline().marks - sum(one is not None and one.kind in ("end", "reopened") for one in there)
    return Position(before, total, marks=marks)


def _mark_new_ports(store: Store, instance: InstanceName, ports: Collection[PortName]) -> None:
    """All ports of an instance have the same marks (R11, R11'); one that was added gets those that it has missed."""
    image = store.read(instance).outline()
    added = [port for port in ports if image.marks and not image.head(port).last]
    if added:
        marks = [("reopened" if at % 2 else "end") for at in range(image.marks)]
        outputs = [
            Output(port, Ssn(at), None, 0, 0, 0, Serial(0), kind)  # type: ignore[arg-type]
            for port in added
            for at, kind in enumerate(marks, 1)
        ]
        _commit(store, instance, Step(outputs=outputs))


def close(store: Store, graph: Graph) -> None:
    """Closes the channels of connections that are gone, where that was not done yet."""
    for channel in expand(graph).closed:
        if store.read(channel.receiver).taken(channel.name).position != CLOSED:
            _commit(store, channel.receiver, Step(positions={channel.name: CLOSED}))


def _commit(store: Store, instance: InstanceName, step: Step) -> None:
    while True:
        journal = store.claim(instance)
        try:
            step.number = journal.image.commits + 1
            journal.commit(step)
            return
        except Fenced:
            continue  # by a life of an earlier run that was late
        finally:
            journal.close()


# ---- what the log remembers -----------------------------------------------------------------------------------


def with_history(store: Store, record: GraphRecord) -> GraphRecord:
    """The record of a graph with what the log knows of operators, connections and versions before it."""
    meta = store.meta()
    old = None if meta is None else meta.graph
    versions = dict(old.versions) if old is not None else {}
    for name, id_ in ids_in(record).items():
        known, version = versions.get(id_, ()), record.operators[name].version
        if not known or known[-1].version != version:
            heads = store.read(instance_name(id_)).outline().heads
            after = {port: heads[port].last for port in record.operators[name].outputs if port in heads}
            versions[id_] = (*known, VersionRecord(version, time.time(), after))
    riding = [wire.channel for one in (old, record) if one is not None for wire in riders_of(one)]
    ridden = tuple(dict.fromkeys((*(() if old is None else old.ridden), *riding)))
    if old is None:
        return msgspec.structs.replace(record, versions=versions, ridden=ridden)
    here, now = set(ids_in(record).values()), wires_of(record)
    former = dict(old.former)
    for name, id_ in ids_in(old).items():
        if id_ not in here:
            former[id_] = FormerRecord(name, old.operators[name], old.schemas.get(name, {}))
    before = wires_of(old)
    closed = _closed(old, record)
    spans, passed = dict(old.spans), dict(old.passed)
    for wire in (wire for wire in now if wire not in before):
        at = _taken(store, wire)
        spans[wire.channel] = (*spans.get(wire.channel, ()), (at.ssn, None))
        passed[wire.channel] = passed.get(wire.channel, 0) + at.ssn - at.marks
    for wire in (wire for wire in before if wire not in now):
        *earlier, last = spans.get(wire.channel, ((Ssn(0), None),))
        at = _taken(store, wire)
        spans[wire.channel] = (*earlier, (last[0], at.ssn))
        passed[wire.channel] = passed.get(wire.channel, 0) - (at.ssn - at.marks)
    script = record.script or old.script  # a run from a notebook has none
    return msgspec.structs.replace(
        record,
        ridden=ridden,
        closed=closed,
        former=former,
        versions=versions,
        spans=spans,
        passed=passed,
        script=script,
    )


def _taken(store: Store, wire: Wire) -> Position:
    return store.read(instance_name(wire.receiver)).taken(wire.channel).position


def with_counts(store: Store, instances: Mapping[InstanceName, Instance]) -> dict[InstanceName, Instance]:
    """The instances; those that began in the middle of a stream know how many events had passed, for their status."""
    meta = store.meta()
    assert meta is not None
    found = dict(instances)
    for name, one in instances.items():
        passed = passed_by(meta.graph, one.spec.inputs)
        if passed:
            found[name] = replace(one, spec=replace(one.spec, passed=passed))
    return found


def with_inheritance(store: Store, instances: Mapping[InstanceName, Instance]) -> dict[InstanceName, Instance]:
    """The instances; those of operators that were made anew know from whom they take answers over."""
    meta = store.meta()
    assert meta is not None
    ids = {instance_name(id_): (id_, name) for name, id_ in ids_in(meta.graph).items()}
    found = dict(instances)
    for instance, (id_, name) in ids.items():
        first, generation = generation_of(id_)
        former = [operator_id(first, earlier) for earlier in range(1, generation)]
        former = [earlier for earlier in former if earlier in meta.graph.former]
        if former and instance in found:
            same = meta.graph.former[former[-1]].operator.version == meta.graph.operators[name].version
            inherits = Inherits(tuple(map(instance_name, former)), same)
            found[instance] = replace(found[instance], inherits=inherits)
    return found


@dataclass(frozen=True)
class _Contents:
    """What a log holds of the operators of a graph."""

    store: Store
    graph: Graph

    def state_fits(self, operator: OperatorId) -> bool:
        name = next(name for name, id_ in self.graph.ids.items() if id_ == operator)
        op = self.graph.nodes[name].op
        kind = None if op is None else op.State
        try:
            for image in self._images(operator):
                if kind is not None and image.state is not None:
                    decode_state(image.state, kind)
        except Exception:  # of msgspec, or of the user's own __post_init__
            return False
        return True

    def sets(self, operator: OperatorId) -> list[str]:
        return [str(opened.id) for image in self._images(operator) for opened in image.sets.values()]

    def checkpoints(self, operator: OperatorId) -> dict[str, str]:
        return {
            str(opened.id): opened.checkpoint.layout
            for image in self._images(operator)
            for opened in image.sets.values()
            if opened.checkpoint is not None
        }

    def keys(self, operator: OperatorId) -> int:
        if instance_name(operator) not in self.store.instances():
            return 0
        reader = self.store.read(instance_name(operator))
        return max(reader.count_keys(), sum(is_key_timer(inset) for inset in reader.image().timers))

    def errors(self, operator: OperatorId) -> int:
        return sum(outline.unsettled_errors for outline in self._outlines(operator))

    def sets_with(self, wire: Wire) -> list[str]:
        reader = self.store.read(instance_name(wire.receiver))

        def has(serial: Serial, opened: OpenSet) -> bool:
            """Of events that a checkpoint covers, the names are left."""
            covered = () if opened.checkpoint is None else reader.covered(serial)
            return any(member.channel == wire.channel for member in (*opened.members, *covered))

        sets = (pair for image in self._images(wire.receiver) for pair in image.sets.items())
        return [str(opened.id) for serial, opened in sets if has(serial, opened)]

    def untaken(self, wire: Wire) -> int:
        at = self.store.read(instance_name(wire.receiver)).taken(wire.channel).position
        reader = self.store.read(instance_name(wire.sender))
        return max(reader.head(wire.out).last - reader.outline().marks - (at.ssn - at.marks), 0)

    def position(self, wire: Wire) -> int:
        return self.store.read(instance_name(wire.receiver)).taken(wire.channel).position.ssn

    def unwritten(self, operator: OperatorId, target: TargetName) -> int:
        return sum(
            outline.head(write_port(target)).last - outline.written.get(target, 0)
            for outline in self._outlines(operator)
        )

    def written(self, operator: OperatorId, target: TargetName) -> int:
        return sum(outline.head(write_port(target)).last for outline in self._outlines(operator))

    def _outlines(self, operator: OperatorId) -> Iterator[Outline]:
        if instance_name(operator) in self.store.instances():
            yield self.store.read(instance_name(operator)).outline()

    def _images(self, operator: OperatorId) -> Iterator[Image]:
        if instance_name(operator) in self.store.instances():
            yield self.store.read(instance_name(operator)).image()
