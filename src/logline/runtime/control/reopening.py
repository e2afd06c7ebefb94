"""Takes the ends of streams back in a log (R11'): for the holder of the lease.

`reopen_after` goes downstream of instances whose end was just taken back. `finish_reopening` does what somebody who
died half way has left to do; a start calls it before any life begins. One of a run that reads what is there by now
then calls `take_back_ends`. `engine/reopening.py` says why this is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from logline.engine.reopening import must_reopen, reopen_step
from logline.engine.spec import InstanceSpec
from logline.errors import Fenced
from logline.graph.instances import Expansion, expand
from logline.graph.record import GraphRecord, graph_of
from logline.names import ChannelName, InstanceName, Ssn
from logline.store.seam import Store


def specs_of(record: GraphRecord) -> list[InstanceSpec]:
    """The instances of a recorded graph, senders before receivers, as far as reopening has to know them."""
    expansion = expand(graph_of(record))
    return in_order([spec_of(record, expansion, name) for name in expansion.instances])


def spec_of(record: GraphRecord, expansion: Expansion, name: InstanceName) -> InstanceSpec:
    """One instance of a recorded graph, as far as reopening has to know it."""
    known = record.operators[expansion.operator_of(name)]
    return InstanceSpec(
        name,
        inputs=expansion.into(name),
        ports={port: expansion.out_of(name, port) for port in known.outputs},
        stateless=known.stateless,
    )


def in_order(specs: Sequence[InstanceSpec]) -> list[InstanceSpec]:
    """The same instances, senders before their receivers."""
    found: dict[InstanceName, InstanceSpec] = {}
    rest = list(specs)
    while rest:
        ready = [spec for spec in rest if all(channel.sender in found for channel in spec.inputs)]
        found.update((spec.name, spec) for spec in ready)
        rest = [spec for spec in rest if spec.name not in found]
    return list(found.values())


def reopen(store: Store, specs: Sequence[InstanceSpec], first: Iterable[InstanceName]) -> list[InstanceName]:
    """Takes back the ends of these instances and of all that is downstream. Returns those whose lives, if they have
    one, are fenced off."""
    wanted = set(first)
    for spec in specs:
        if spec.name in wanted:
            _reopen_one(store, spec, always=True)
    return [*wanted, *reopen_after(store, specs, wanted)]


def reopen_after(store: Store, specs: Sequence[InstanceSpec], first: Iterable[InstanceName]) -> list[InstanceName]:
    """The same for all that is downstream of instances whose end is taken back. Also one that has not ended is fenced
    off: it may have taken the end, and be about to give its own."""
    found = receivers_after(specs, first)
    for spec in found:
        _reopen_one(store, spec, always=False)
    return [spec.name for spec in found]


def receivers_after(specs: Sequence[InstanceSpec], first: Iterable[InstanceName]) -> list[InstanceSpec]:
    """All that is downstream of these instances, senders before receivers."""
    down, found = set(first), []
    for spec in specs:
        if any(channel.sender in down for channel in spec.inputs):
            down.add(spec.name)
            found.append(spec)
    return found


def finish_reopening(store: Store, specs: Sequence[InstanceSpec]) -> None:
    """Reopens what has ended while a sender has gone on. Nobody lives."""
    known = set(store.instances())
    for spec in specs:
        if spec.name in known and must_reopen(store.read(spec.name).outline(), spec, _heads(store, spec)):
            _reopen_one(store, spec, always=False)


def take_back_ends(store: Store, specs: Sequence[InstanceSpec]) -> None:
    """Reopens the sources that have ended in an earlier run, and all that is downstream. Nobody lives, or is late: a
    life of an earlier run that closes its streams could log an end after the look, so each source is claimed first
    (R10). One that died when its partitions had ended and it had not reads on, too."""
    known = store.instances()
    sources = [spec for spec in specs if not spec.inputs and spec.name in known]
    ended = [spec.name for spec in sources if _reopen_one(store, spec, always=True)]
    reopen_after(store, specs, ended)


def _reopen_one(store: Store, spec: InstanceSpec, *, always: bool) -> bool:
    """Whether an end was taken back. Fences off whoever lives."""
    while True:
        journal = store.claim(spec.name)
        try:
            if not always and not must_reopen(journal.image, spec, _heads(store, spec)):
                return False
            step = reopen_step(journal.image, spec)
            if not step.empty:
                step.number = journal.image.commits + 1
                journal.commit(step)
            return step.reopened
        except Fenced:
            continue  # a life of it began in between: the next claim fences that one off
        finally:
            journal.close()


def _heads(store: Store, spec: InstanceSpec) -> dict[ChannelName, Ssn]:
    return {channel.name: store.read(channel.sender).head(channel.out).last for channel in spec.inputs}
