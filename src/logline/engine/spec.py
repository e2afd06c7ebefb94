"""What the engine must know of an instance and its neighbours, and the limits within which it works."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from logline.graph.connector import Guarantee
from logline.graph.instances import Channel
from logline.graph.model import OnError, Policy
from logline.names import (
    ERRORS,
    ChannelName,
    InstanceName,
    LogId,
    PartitionName,
    PortName,
    TargetName,
    channel_name,
)


@dataclass(frozen=True, slots=True)
class RetrySpec:
    """`Retry` with its waits in microseconds."""

    attempts: int = 1
    wait: int = 0
    factor: float = 2.0

    def delay(self, tries: int) -> int:
        """How long to wait after the try of this number."""
        return int(self.wait * self.factor ** (tries - 1))


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on runs, buffers and waits. Times are in microseconds."""

    run_events: int = 256
    """Events handed to user code at once."""
    commit_events: int = 1024
    commit_bytes: int = 4 << 20
    """A commit that has grown to one of these is not kept waiting for more steps to share it."""
    fetch_events: int = 512
    fetch_bytes: int = 4 << 20
    inbox_bytes: int = 8 << 20
    """Events of a channel read ahead of their turn."""
    port_bytes: int = 64 << 20
    """Events of a port that a receiver has not taken (R13)."""
    ack_after: int = 200_000
    """How long positions may wait for a step to ride with (R3)."""
    collect_events: int = 256
    """Collection is looked at when a port has grown by this much."""
    write_retry: RetrySpec = RetrySpec(attempts=6, wait=100_000, factor=3.0)
    story: int = 0
    """Entries that a life keeps of its story, for debugging; 0 for none (`engine/story.py`)."""


@dataclass(frozen=True, slots=True)
class Targets:
    """What a recovery may cost at most, and what checkpoints may cost for that (R22; CEC's Q, U, CI/CP)."""

    replay: int | None = None
    """Events that recovery would take in again."""
    records: int | None = None
    """Checkpoints and records of members that it would read."""
    budget: float = 0.05
    """The share of time for checkpoints."""
    every: int = 1_000_000
    """Microseconds between two rounds of them."""


@dataclass(frozen=True, slots=True)
class Retain:
    """How long lineage keeps the events of a port (R12)."""

    age: int
    """The scope's time, in microseconds; counted from the port's own events, and from what was made of them."""
    nbytes: int | None = None
    """Not more than so many bytes of the port, whatever they lead to."""


FOREVER = 1 << 62
"""An age that is never reached: of a scope that is bounded by size alone."""


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """One instance, as the protocol sees it."""

    name: InstanceName
    log_id: LogId = LogId("")
    policy: Policy = "pessimistic"
    """How it survives a failure."""
    checkpoints: Targets = Targets()
    """With `eventual`: when open sets have checkpoints."""
    inputs: tuple[Channel, ...] = ()
    passed: int = 0
    """Events that its channels count and it has not taken: they had passed before these channels were there (R14)."""
    closed: tuple[Channel, ...] = ()
    """By which nothing is taken any more (R14); open sets and lineage may need what was."""
    ports: Mapping[PortName, tuple[Channel, ...]] = field(default_factory=dict)
    """Output ports with their receivers, and those that were (their position is CLOSED)."""
    targets: Mapping[TargetName, Guarantee] = field(default_factory=dict)
    tells: frozenset[TargetName] = frozenset()
    """Targets that are not positioned and can say the highest number they have."""
    partitions: tuple[PartitionName, ...] = ()
    replayable: bool = True
    destructive: bool = False
    in_turn: bool = False
    """Whether one partition is read to its end before the next."""
    here: frozenset[PartitionName] | None = None
    """The partitions that this life can read, None for all; when they have ended it hands over to the next life."""
    until_now: bool = False
    """Whether this life reads what is there, and no more."""
    closes: bool = False
    """With `until_now`: whether the stream ends then. Otherwise it stays open for the next run."""
    grows: bool = True
    """Whether a partition that was read to its end may have more later."""
    timed_in: frozenset[ChannelName] = frozenset()
    """Channels whose sender says how far its event time is (R30)."""
    timed_out: frozenset[PortName] = frozenset()
    """Ports that say it to their receivers."""
    lateness: int = 0
    idle: int | None = None
    """Of a source with event time, in microseconds: how late a row may be, and how long a partition may be silent."""
    stateless: bool = False
    plain: bool = False
    """Whether runs of events may be generated as they are taken in (`do.Apply`)."""
    keyed: bool = False
    """Whether it has a state per key: one input set at a time is taken in and generated (R31)."""
    concurrency: int = 1
    ordered: bool = True
    on_error: OnError = "stop"
    retry: RetrySpec = RetrySpec()
    keep: frozenset[PortName] = frozenset()
    """Ports whose events are never collected here: kept writes."""
    retain: Mapping[PortName, Retain] = field(default_factory=dict)
    """Ports on a lineage scope's paths, the one where it starts included."""
    traced_in: frozenset[ChannelName] = frozenset()
    traced_out: frozenset[PortName] = frozenset()
    """Lineage is captured from these channels to these ports."""
    collect: bool = True
    limits: Limits = Limits()

    def port_bytes(self, port: PortName) -> int:
        """How many bytes of the port its receivers may not have taken (R13). Where a scope bounds the port by size,
        what waits there is bounded alike, though never below what two commits hold: else a pipeline whose source is
        the fastest part would keep 64 MB of a port that is meant to keep 1 MB."""
        size, limits = self.retained_bytes(port), self.limits
        return limits.port_bytes if size is None else min(limits.port_bytes, max(size, 2 * limits.commit_bytes))

    def retained_bytes(self, port: PortName) -> int | None:
        """The size of the lineage scope that the port is in; None if it has none."""
        kept = self.retain.get(port)
        return None if kept is None else kept.nbytes

    @property
    def stays_open(self) -> bool:
        """Whether this run ends with what is there now, and a later one goes on."""
        return self.until_now and not self.closes

    @property
    def lineage(self) -> bool:
        """Whether it captures which input set made which output."""
        return bool(self.traced_in and self.traced_out)

    @property
    def channels(self) -> Mapping[ChannelName, Channel]:
        """Every channel that touches the instance."""
        found = {c.name: c for c in (*self.inputs, *self.closed)}
        for receivers in self.ports.values():
            found.update({c.name: c for c in receivers})
        if self.inputs:
            found[self.again.name] = self.again
        return found

    @property
    def again(self) -> Channel:
        """The way of rejected rows that are retried: from the instance's own port `errors` to itself."""
        return again_of(self.name, self.inputs[0].port)


def again_of(name: InstanceName, port: PortName) -> Channel:
    """The channel of retried rows, into this port."""
    return Channel(again_channel(name), name, ERRORS, name, port)


def again_channel(name: InstanceName) -> ChannelName:
    """The channel of retried rows; no input port can have this name."""
    return channel_name(name, ERRORS, name, PortName("@again"))


def write_port(target: TargetName) -> PortName:
    """The port under which the write actions of a target are logged."""
    return PortName(f"@{target}")
