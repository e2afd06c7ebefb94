"""From a graph and a log to a run, whichever engine executes it (R14).

Everything that can be refused is refused before a life begins: a log in use, a log that is not what `resume`
asks for, a pipeline that changed beyond what its log can live with.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec
import pyarrow as pa

from logline.engine.events import CLOSED
from logline.engine.spec import Limits
from logline.errors import LogError, LogInUse, PipelineChanged
from logline.graph.groups import Grouping, group
from logline.graph.instances import Channel
from logline.graph.model import Graph
from logline.graph.record import ids_in, record_of
from logline.names import InstanceName, OperatorName, PortName, instance_name
from logline.runtime.control.engine import Engine
from logline.runtime.control.evolution import admit, begin, close, fence, with_counts, with_history, with_inheritance
from logline.runtime.control.reopening import finish_reopening, in_order, take_back_ends
from logline.runtime.control.run import Run
from logline.runtime.control.settings import StartSettings, Until
from logline.runtime.control.supervisor import Supervisor
from logline.runtime.hosts.processes import ProcessHost
from logline.runtime.hosts.seam import Group, Host
from logline.runtime.hosts.threads import ThreadHost
from logline.runtime.lives.inline import InlineEngine
from logline.runtime.lives.instances import Instance, instances_of, of_operator
from logline.runtime.lives.stories import story_length
from logline.runtime.lives.sweeping import sweep
from logline.runtime.log.cleaning import compact_if_mostly_empty
from logline.runtime.log.log import Log
from logline.runtime.log.log_status import DRIVER, specs_of
from logline.store.address import absolute, find_store, open_store
from logline.store.memory import MemoryStore
from logline.store.seam import Lease, Meta, Store

logger = logging.getLogger("logline")


Make = Callable[[Graph, Mapping[InstanceName, Instance], Store, str, Lease], Engine]
"""Makes what executes the pipeline: of the graph, its instances, the log, the log's address, and the lease."""


def inline(graph: Graph, instances: Mapping[InstanceName, Instance], store: Store, log: str, lease: Lease) -> Engine:
    """Makes an engine that runs everything in this process."""
    return InlineEngine(instances, store, lease)


def start(graph: Graph, settings: StartSettings, make: Make = inline) -> Run:
    """Starts the pipeline on the engine that `make` makes, or goes on with what the log holds."""
    log = settings.log
    store = open_store(log, durability=settings.durability)
    if log is None:
        logger.info("pipeline %r keeps its log in memory: it is gone with this process", graph.name)
    # Before the lease: a run that is refused must not fence another one.
    graph, _ = admit(store, graph, settings.resume, settings.fresh)
    limits = Limits(story=story_length())
    instances = instances_of(
        graph, store.log_id, limits=limits, until_now=settings.until == "now", closes=settings.close
    )
    _refuse_gaps(store, graph, instances)
    lease = store.lease(uuid.uuid4().hex[:8], takeover=settings.takeover)
    try:
        store.mail(DRIVER).drop()  # commands to a run that is over
        compact_if_mostly_empty(store)
        # Once more, for nothing changes any more: another run may have begun between the look and the lease.
        again, found = admit(store, graph, settings.resume, settings.fresh)
        if fence(store, found):
            again, found = admit(store, graph, settings.resume, settings.fresh)
        if again.ids != graph.ids:
            raise LogInUse("another run has changed the pipeline on this log meanwhile: start again")
        for change in found.accepted:
            logger.info("pipeline %r has changed: %s", graph.name, change)
        _check_journals(store, instances)
        begin(store, found, graph)
        if settings.until == "end":
            _tell_unread(store, graph, instances)
        store.set_meta(meta_of(store, graph, instances))
        close(store, graph)
        _sweep_former(store, instances)
        instances = with_counts(store, with_inheritance(store, instances))
        if settings.takeover:
            for instance in store.instances():
                store.ring(instance)  # an idle run would not look at its lease for a while
        _reopen(store, instances, settings)
        if _finished(store, instances):
            logger.info("pipeline %r has finished on this log: nothing is run twice", graph.name)
            lease.release()
            return Run(graph, instances, Log(store, log), None)
        made = make(graph, instances, store, absolute(log or ""), lease)
        return Run(graph, instances, Log(store, log), made, settings.openlineage)
    except BaseException:
        lease.release()
        raise


def has_finished(graph: Graph, log: str | None, until: Until) -> bool:
    """Whether there is nothing to run: the log has finished, and `start` answers from it. Makes neither a log nor an
    engine: a Spark session takes seconds to start."""
    store = None if log is None else find_store(log)
    if store is None or store.meta() is None or until == "now":
        return False
    return _finished(store, instances_of(graph, store.log_id))


def _check_journals(store: Store, instances: Mapping[InstanceName, Instance]) -> None:
    """Journal against journal (R14): nobody has taken what its sender does not have. A log of which one journal
    was restored from an older copy, or lost its tail with the power, would go on with wrong results."""
    for part in instances.values():
        for channel in part.spec.inputs:
            if _has_taken_too_much(store, channel):
                raise LogError(
                    f"the log is damaged: {channel.receiver!r} has taken events of {channel.sender}.{channel.out} "
                    f"that the journal of {channel.sender!r} does not hold."
                    " Restore the whole log from one copy, or begin "
                    "with a fresh log"
                )


def _has_taken_too_much(store: Store, channel: Channel) -> bool:
    """Lives of a run that is taken over may still commit: the receiver is looked at first, since a sender only goes
    on; and again if something seems to be missing, since what it needed may have been let go of in between."""
    needs = store.read(channel.receiver).needs(channel.name)
    while True:
        head = store.read(channel.sender).head(channel.out)
        there = set(store.read(channel.sender).stored(channel.out)) if needs.members else set()
        beyond = needs.position.ssn > head.last and needs.position != CLOSED
        if not beyond and all(ssn in there for ssn in needs.members):
            return False
        before, needs = needs, store.read(channel.receiver).needs(channel.name)
        if needs == before:
            return True


def processes(
    graph: Graph, instances: Mapping[InstanceName, Instance], store: Store, log: str, lease: Lease
) -> Engine:
    """One process per operator; operators with the same `group=` share one."""
    host = ProcessHost(log, store.log_id)
    return Supervisor(on_hosts(group(graph), instances, host, ThreadHost(store)), store, lease, host.close)


def on_hosts(
    grouping: Grouping, instances: Mapping[InstanceName, Instance], host: Host, driver: Host
) -> list[tuple[Group, Host]]:
    """Each group with the host on which it lives."""
    return [
        (Group(name, {one.spec.name: one for m in members for one in of_operator(instances, m)}), where)
        for groups, where in ((grouping.groups, host), (grouping.on_driver, driver))
        for name, members in groups.items()
    ]


def preview(graph: Graph, operator: OperatorName, port: PortName, rows: int) -> pa.Table:
    """The first rows of a port of a bounded graph without targets that matter; nothing outlives the call."""
    store = MemoryStore()
    instances = instances_of(graph, store.log_id, collect=False)
    with Run(graph, instances, Log(store, None), InlineEngine(instances, store)) as run:
        run.wait()
    readers = [store.read(one.spec.name) for one in of_operator(instances, operator)]
    batches = [o.payload for reader in readers for o in reader.pick(port, reader.stored(port)) if not o.mark]
    table = pa.Table.from_batches(batches, schema=graph.nodes[operator].outputs[port])
    return table.slice(0, rows)


def meta_of(store: Store, graph: Graph, instances: Mapping[InstanceName, Instance]) -> Meta:
    """What the log remembers of the pipeline: its graph, what was there before, and for those who read the log the
    texts of its read actions and the ports that nobody may collect."""
    actions = {
        part.operator: {p: part.source.describe(p) for p in part.spec.partitions}
        for part in instances.values()
        if part.source is not None
    }
    keep = {part.operator: tuple(sorted(part.spec.keep)) for part in instances.values()}
    record = msgspec.structs.replace(record_of(graph), actions=actions, keep=keep)
    return Meta(graph.name, with_history(store, record))


def _refuse_gaps(store: Store, graph: Graph, instances: Mapping[InstanceName, Instance]) -> None:
    """A partition that was not read to its end and is gone (a file, say) would be left out without a word."""
    meta, known = store.meta(), store.instances()
    for name, actions in ({} if meta is None else meta.graph.actions).items():
        assert meta is not None
        wanted = instance_name(ids_in(meta.graph)[name])  # whatever it is called now
        parts = [part for part in instances.values() if part.spec.name == wanted and wanted in known]
        if not parts:
            continue
        there = {p for part in parts for p in part.spec.partitions}
        ended = {p for part in parts for p, read in store.read(part.spec.name).outline().reads.items() if read.ended}
        gone = [p for p in actions if p not in there and p not in ended]
        if gone:
            raise PipelineChanged(
                f"pipeline {graph.name!r} can't go on with this log: source {name!r} has not read all of "
                f"{_some(actions[p] for p in gone)}, and it is gone; bring it back, or take a fresh log"
            )


def _tell_unread(store: Store, graph: Graph, instances: Mapping[InstanceName, Instance]) -> None:
    """A run to the end does not take an end back (R11): a file that came after it is not read, and that is said."""
    known = store.instances()
    for part in instances.values():
        if part.source is None or part.spec.name not in known:
            continue
        outline = store.read(part.spec.name).outline()
        new = [partition for partition in part.spec.partitions if partition not in outline.reads]
        if outline.ended and new:
            logger.warning(
                "pipeline %r: source %r has come to its end on this log and does not read what came after it: %s. "
                'To read it, run with until="now" (--until now), which goes on with the stream',
                graph.name,
                str(part.operator),
                _some(part.source.describe(partition) for partition in new),
            )


def _some(texts: Iterable[str]) -> str:
    """The first few of what may be thousands."""
    first, *more = texts
    return f"{', '.join([first, *more[:2]])}" + (f" and {len(more) - 2} more" if len(more) > 2 else "")


def _reopen(store: Store, instances: Mapping[InstanceName, Instance], settings: StartSettings) -> None:
    """Finishes what was begun to be reopened; and where this run reads what is there by now, the ends of earlier runs
    are taken back (R11')."""
    specs = in_order([part.spec for part in instances.values()])
    finish_reopening(store, specs)
    if settings.until == "now":
        take_back_ends(store, specs)


def _sweep_former(store: Store, instances: Collection[InstanceName]) -> None:
    """Of operators that are gone somebody may need something, as of those that have left (R12)."""
    meta, there = store.meta(), store.instances()
    assert meta is not None
    for name, spec in reversed(specs_of(meta.graph).items()):
        if name not in instances and name in there:
            sweep(spec, store, all_rest=True)


def _finished(store: Store, instances: Collection[InstanceName]) -> bool:
    known = set(store.instances())
    return all(name in known and store.read(name).outline().left for name in instances)
