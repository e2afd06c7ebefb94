"""One event and what became of it: its records, the input set it was made from, who took it and into which sets."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from logline.engine.sets import own_id
from logline.graph.instances import expand
from logline.graph.record import graph_of
from logline.names import InstanceName, event_name, parse_events, port_name
from logline.runtime.log.log import Log
from logline.store.tables import Sets, record_in, sets_of


@dataclass(frozen=True, slots=True)
class Taken:
    """An event at one of its receivers."""

    by: str
    """The receiver's port: `hourly.in`."""
    status: str
    """`done`, or `undone`: not taken yet, or in a set that is not generated."""
    inset: str | None
    """The input set; None if it is in none."""


@dataclass(frozen=True, slots=True)
class About:
    """What the log knows of one event: who sent it, what it was made from, and who took it."""

    event: str
    sender: str
    """The output port: `orders.out`."""
    nbytes: int
    made_from: str | None
    """The input set; None of a source, and where memberships are not remembered any more."""
    members: tuple[str, ...]
    taken: tuple[Taken, ...]
    records: pa.Table


def about(log: Log, event: str) -> About:
    """The event of that name. Raises BadName or LogError if there is none, as `Log.read` does."""
    records = log.read(event)
    wanted = parse_events(event)
    record = record_in(log.store)
    expansion = expand(graph_of(record))
    instance = expansion.find(wanted.called)
    reader = log.store.read(instance)

    def sets(instance: InstanceName) -> Sets:
        return sets_of(log.store, record.operators[expansion.operator_of(instance)], instance)

    (output,) = reader.pick(wanted.port, [wanted.first])
    made_from: str | None = None
    members: tuple[str, ...] = ()
    if output.serial:
        own = sets(instance).set_of(output.serial)
        if own is not None:
            made_from, members = own[0], tuple(str(own_id(member)) for member in own[1])
    taken = [
        Taken(port_name(expansion.called(channel.receiver), channel.port), status, inset)
        for channel in expansion.out_of(instance, wanted.port)
        for status, inset in sets(channel.receiver).of(channel.name, wanted.first)
    ]
    return About(
        event_name(wanted.called, wanted.port, wanted.first),
        port_name(wanted.called, wanted.port),
        output.nbytes,
        made_from,
        members,
        tuple(taken),
        records,
    )
