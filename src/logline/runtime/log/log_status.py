"""A log seen from outside: who runs it, and how far each operator is. It works while the pipeline runs, and after.

How far each operator is comes from the journals, so that it is right whoever wrote them last. What only a run knows
(restarts, sets in generation, counters) comes from the note that the run writes once a second, under `@driver`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from logline.engine.spec import InstanceSpec, write_port
from logline.graph.ephemeral import rides
from logline.graph.instances import Channel, expand
from logline.graph.lineage_paths import kept_ports
from logline.graph.record import GraphRecord, OperatorRecord, graph_of, whole_record
from logline.names import BoxName, Called, InstanceName, PortName
from logline.runtime.lives.instances import retain
from logline.runtime.messages.notes import DRIVER_NOTES, DriverNote, read_note
from logline.runtime.messages.wire import encode
from logline.runtime.status import AT_WORK, OperatorStatus, Phase, Status, logged_status
from logline.store.seam import Store

DRIVER = BoxName("@driver")
"""Whoever holds the lease: the name of its status and of its mailbox. No operator can have it."""

LogPhase = Phase | Literal["starting", "died"]


@dataclass(frozen=True, slots=True)
class LogStatus:
    """What is known of a log at one moment."""

    pipeline: str
    phase: LogPhase
    """That of the run that holds the lease, or of the last one. `died`: its process went without a word."""
    operators: Mapping[str, OperatorStatus]
    error: str = ""
    run: str | None = None
    """The run that holds the lease; None if nobody does."""
    pid: int | None = None
    silent: float | None = None
    """Seconds since a run wrote down how it goes; None if none ever did."""
    ephemeral: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Operators that log nothing, and in which operators they run."""


def note_status(store: Store, run: str, pid: int, status: Status) -> None:
    """Writes down what a run knows of itself, for other processes."""
    store.put_status(DRIVER, encode(DriverNote(run, pid, time.time(), status.phase, status.error, status.operators)))


def log_status(store: Store) -> LogStatus:
    """Reads the log as it is now. It must have been used (`Store.meta`)."""
    meta = store.meta()
    assert meta is not None
    noted = read_note(store, DRIVER, DRIVER_NOTES)
    holder = store.running()  # after the note: a run that ends in between has said so in it
    lives = noted is not None and holder is not None and noted.run == holder.run
    expansion, every = expand(graph_of(meta.graph)), specs_of(meta.graph)
    specs = {
        name: replace(every[name], inputs=into, passed=passed_by(meta.graph, into))
        for name, into in ((name, expansion.into(name)) for name in expansion.instances)
    }
    operators = {}
    for name, node in expansion.instances.items():
        known = (noted.operators if noted is not None else {}).get(node.called, OperatorStatus())
        operators[str(node.called)] = logged_status(store, specs[name], known if lives else _at_rest(known))
    return LogStatus(
        meta.pipeline,
        _phase(store, specs, noted, None if holder is None else holder.run),
        operators,
        "" if noted is None else noted.error,
        None if holder is None else holder.run,
        None if holder is None else holder.pid,
        None if noted is None else max(time.time() - noted.at, 0.0),
        rides(graph_of(meta.graph)),
    )


def _at_rest(known: OperatorStatus) -> OperatorStatus:
    """What a note of an earlier run still says: how often it restarted, what it counted."""
    return OperatorStatus(restarts=known.restarts, counters=known.counters, keys=known.keys)


def _phase(
    store: Store, specs: Mapping[InstanceName, InstanceSpec], noted: DriverNote | None, run: str | None
) -> LogPhase:
    if run is not None:
        return noted.phase if noted is not None and noted.run == run else "starting"
    if all(store.read(name).outline().left for name in specs):
        return "finished"
    return "died" if noted is None or noted.phase in AT_WORK else noted.phase


def specs_of(record: GraphRecord) -> dict[InstanceName, InstanceSpec]:
    """The instances of a log's pipeline as its record has them, senders before receivers: enough to read and to
    collect, not to run. Those of operators that are gone are among them (R14)."""
    record = whole_record(record)
    graph = graph_of(record)
    expansion, retained = expand(graph), kept_ports(graph)
    found: dict[InstanceName, InstanceSpec] = {}
    for name, instance in expansion.instances.items():
        operator, known = instance.operator, record.operators[instance.operator]
        found[name] = InstanceSpec(
            name=name,
            policy=instance.policy,
            inputs=expansion.into(name),
            ports={port: expansion.out_of(name, port) for port in known.outputs},
            targets=known.targets,
            retain={port: retain(kept) for (owner, port), kept in retained.items() if owner == operator},
            keep=frozenset(record.keep.get(operator, _all_ports(known))),
            stateless=known.stateless,
        )
    return found


def passed_by(record: GraphRecord, channels: Iterable[Channel]) -> int:
    """Events that had passed before these channels were there (`InstanceSpec.passed`)."""
    return sum(record.passed.get(channel.name, 0) for channel in channels)


def names_in(record: GraphRecord) -> dict[InstanceName, Called]:
    """What users call the instances of a log, those of operators that are gone among them (R14)."""
    instances = expand(graph_of(whole_record(record))).instances
    return {name: instance.called for name, instance in instances.items()}


def _all_ports(known: OperatorRecord) -> tuple[PortName, ...]:
    """For a log that does not say what is to be kept: everything."""
    return (*known.outputs, *map(write_port, known.targets))
