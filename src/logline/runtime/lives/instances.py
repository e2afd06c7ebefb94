"""What each life is made of: an instance of the expanded graph (`graph.instances`) with the user's objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from logline.engine.spec import (
    FOREVER,
    InstanceSpec,
    Limits,
    Retain,
    RetrySpec,
    Targets,
    again_channel,
    write_port,
)
from logline.errors import BadName, ConnectorError, LoglineError
from logline.graph.connector import Sink, Source
from logline.graph.durations import duration
from logline.graph.event_time import timed_ports
from logline.graph.eventual import Eventual
from logline.graph.instances import Channel, expand
from logline.graph.lineage_paths import Enabled, Kept, enabled_ports, kept_ports
from logline.graph.model import Graph, Node, Rider
from logline.graph.operator import Operator, is_batch_operator, is_stateless
from logline.graph.sample import Sample
from logline.names import (
    ERRORS,
    Called,
    ChannelName,
    InstanceName,
    LogId,
    OperatorName,
    PartitionName,
    TargetName,
    parse_called,
)
from logline.runtime.lives.inherited import Inherits
from logline.runtime.lives.payloads import ArrowPayloads, Payloads
from logline.runtime.lives.riding import Ride
from logline.store.seam import Store

_MICRO = timedelta(microseconds=1)


def micros(span: timedelta) -> int:
    """A duration in microseconds."""
    return span // _MICRO


@dataclass(frozen=True)
class Instance:
    """One instance: what the protocol knows of it, and the user's objects."""

    operator: OperatorName
    spec: InstanceSpec
    payloads: Payloads
    called: Called
    """What users call it."""
    op: Operator[Any, Any] | None = None
    source: Source | None = None
    sinks: Mapping[TargetName, Sink] | None = None
    retry_on: tuple[type[BaseException], ...] = ()
    lateness: int = 0
    idle: int | None = None
    ttl: int | None = None
    rows: int = 10_000
    within: int = 100_000
    items: int = 256
    """Events that one read brings at most; fewer if they are large."""
    inherits: Inherits | None = None
    """Whose answers it takes over; None if it is of the first generation."""
    riders: Mapping[ChannelName, tuple[Ride, ...]] = field(default_factory=dict)
    """The ephemeral operators on the way of each channel (R24)."""


def instances_of(
    graph: Graph,
    log_id: LogId,
    *,
    limits: Limits | None = None,
    until_now: bool = False,
    closes: bool = False,
    collect: bool = True,
    payloads: Callable[[Node], Payloads] = ArrowPayloads,
) -> dict[InstanceName, Instance]:
    """Every instance of the graph. `payloads`: how the payloads of a node are made."""
    lineage, retained, expansion, timed = enabled_ports(graph), kept_ports(graph), expand(graph), timed_ports(graph)
    senders = expansion.instances
    found: dict[InstanceName, Instance] = {}
    for instance in expansion.instances.values():
        node, inputs = graph.nodes[instance.operator], expansion.into(instance.name)
        traced = lineage.get(node.name, Enabled(frozenset(), frozenset()))
        never = {write_port(target) for target, sink in node.targets.items() if sink.kept}
        spec = InstanceSpec(
            name=instance.name,
            log_id=log_id,
            policy=instance.policy,
            checkpoints=_targets(node.options.eventual),
            inputs=inputs,
            closed=expansion.closed_into(instance.name),
            ports={port: expansion.needing(instance.name, port) for port in node.outputs},
            targets={target: sink.guarantee for target, sink in node.targets.items()},
            tells=frozenset(t for t, sink in node.targets.items() if type(sink).highest is not Sink.highest),
            concurrency=node.options.concurrency,
            ordered=node.options.ordered,
            on_error=node.options.on_error,
            keep=frozenset(never),
            retain={port: retain(kept) for (name, port), kept in retained.items() if name == node.name},
            traced_in=frozenset(_traced_in(instance.name, (*inputs, *expansion.closed_into(instance.name)), traced)),
            traced_out=traced.outputs,
            timed_in=frozenset(
                c.name
                for c in inputs
                if (senders[c.sender].operator, c.out) in timed
                and not (node.op is not None and c.port in node.op.ignores_time_of)
            ),
            timed_out=frozenset(port for port in node.outputs if (node.name, port) in timed),
            collect=collect,
            limits=limits or Limits(),
            until_now=until_now,
            closes=closes,
        )
        riders = {
            channel.name: rides_on(way, payloads)
            for c, way in graph.through.items()
            if c.receiver == node.name
            for channel in expansion.channels_of(c)
            if channel.receiver == instance.name
        }
        found[spec.name] = replace(_with_code(node, spec, instance.called, payloads(node)), riders=riders)
    return found


def rides_on(way: Iterable[Rider], payloads: Callable[[Node], Payloads] = ArrowPayloads) -> tuple[Ride, ...]:
    """The functions on a connection, in the order of the stream."""
    return tuple(Ride(rider.node, rider.port, payloads(rider.node)) for rider in way)


def _traced_in(name: InstanceName, inputs: Iterable[Channel], traced: Enabled) -> Iterator[ChannelName]:
    """The channels of enabled ports, and the one of retried rows: what comes of them came of the rejected event."""
    yield from (channel.name for channel in inputs if channel.port in traced.inputs)
    if traced.inputs and ERRORS in traced.outputs:
        yield again_channel(name)


def find(instances: Mapping[InstanceName, Instance], text: object) -> InstanceName:
    """The instance that a user calls so, `hourly` or `hourly/2`; BadName says which there are."""
    wanted, there = parse_called(text), {one.called: name for name, one in instances.items()}
    if wanted not in there:
        raise BadName(f"there is no operator {wanted!r}; there are {', '.join(there)}")
    return there[wanted]


def of_operator(instances: Mapping[InstanceName, Instance], operator: OperatorName) -> list[Instance]:
    """The instances of that operator among these."""
    return [instance for instance in instances.values() if instance.operator == operator]


def next_partition(instance: Instance, store: Store) -> PartitionName | None:
    """The first partition that was not read to its end, as the log knows it."""
    reads = store.read(instance.spec.name).outline().reads
    return next((p for p in instance.spec.partitions if p not in reads or not reads[p].ended), None)


def for_partition(instance: Instance, partition: PartitionName | None) -> Instance:
    """A source for a life that can read this partition alone, or none any more."""
    here = frozenset() if partition is None else frozenset({partition})
    return replace(instance, spec=replace(instance.spec, here=here))


def retain(kept: Kept) -> Retain:
    """What a scope asks of a port, as the engine counts it."""
    return Retain(FOREVER if kept.span is None else micros(kept.span), kept.size)


def _targets(wanted: Eventual | None) -> Targets:
    """What checkpoints are for, as the engine counts it."""
    if wanted is None:
        return Targets()
    return Targets(wanted.events, wanted.records, float(wanted.budget), micros(duration(wanted.every)))


def _with_code(node: Node, spec: InstanceSpec, name: Called, payloads: Payloads) -> Instance:
    retry = node.options.retry
    if retry is not None:
        wanted = RetrySpec(retry.attempts, micros(duration(retry.wait)), retry.factor)
        spec = replace(spec, retry=wanted, limits=replace(spec.limits, write_retry=wanted))
    instance = Instance(
        node.name,
        spec,
        payloads,
        name,
        retry_on=retry.on if retry is not None else (),
        rows=node.options.rows,
        within=micros(node.options.within),
    )
    if node.source is not None:
        source = node.source
        spec = replace(
            spec,
            partitions=_partitions(node.name, source),
            replayable=source.replayable or source.destructive,
            destructive=source.destructive,
            in_turn=source.in_turn,
            grows=source.grows,
            lateness=micros(node.options.lateness),
            idle=None if node.options.idle is None else micros(node.options.idle),
        )
        return replace(instance, spec=spec, source=source)
    op = node.op
    assert op is not None
    return replace(
        instance,
        spec=replace(spec, stateless=is_stateless(op), plain=_is_plain(op, spec), keyed=op.Keyed is not None),
        op=op,
        sinks=dict(node.targets),
        lateness=micros(duration(op.lateness)),
        idle=None if op.idle is None else micros(duration(op.idle)),
        ttl=None if op.ttl is None else micros(duration(op.ttl)),
    )


def _partitions(name: str, source: Source) -> tuple[PartitionName, ...]:
    """What `partitions()` gives: names that key the progress, each once."""
    of = source.source if isinstance(source, Sample) else source
    what = f"source {name!r}: partitions() of {type(of).__name__}"
    try:
        found: Any = source.partitions()
    except LoglineError:
        raise
    except Exception as error:
        raise ConnectorError(f"{what} failed: {type(error).__name__}: {error}") from error
    if isinstance(found, str) or not isinstance(found, Iterable):
        raise ConnectorError(f"{what} gave {found!r}: return a list of names, as in ['0']")
    names = tuple(found)
    for partition in names:
        if not isinstance(partition, str):
            raise ConnectorError(f"{what} gave {partition!r} among its names: a partition is named by a text")
    if twice := [partition for partition, times in Counter(names).items() if times > 1]:
        raise ConnectorError(
            f"{what} gave {', '.join(map(repr, twice))} twice: progress is kept by name, give each partition its own"
        )
    return names


def _is_plain(op: Operator[Any, Any], spec: InstanceSpec) -> bool:
    """Where several sets are at work at once, or one may be set aside, each has to be known by itself."""
    return is_batch_operator(op) and spec.concurrency == 1 and spec.on_error == "stop"
