"""From operators to instances: who runs, and which channels join them.

A graph speaks of operators and connections. What runs, logs and recovers are instances; what they read are channels.
`expand` makes the one from the other. Today an operator has one instance and a connection one channel. Whoever
needs the instances of an operator, or the channels of a connection, looks them up here and takes all there are, so
that replicas will change this module and not its callers.

    >>> from logline.names import IN, OUT
    >>> orders, hourly, store = map(OperatorName, ("orders", "hourly", "store"))
    >>> made = Expansion.of(
    ...     [InstanceNode(orders), InstanceNode(hourly, 1), InstanceNode(hourly, 2), InstanceNode(store)],
    ...     [Connection(orders, OUT, hourly, IN), Connection(hourly, OUT, store, IN)],
    ... )
    >>> [instance.name for instance in made.instances_of(hourly)]
    ['hourly/1', 'hourly/2']
    >>> [channel.name for channel in made.channels_of(Connection(hourly, OUT, store, IN))]
    ['hourly/1.out>store.in', 'hourly/2.out>store.in']
    >>> [channel.name for channel in made.into(made.instances_of(hourly)[1].name)]
    ['orders.out>hourly/2.in']
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from logline.errors import BadName
from logline.graph.model import Connection, Graph, Policy
from logline.names import (
    Called,
    ChannelName,
    InstanceName,
    OperatorId,
    OperatorName,
    PortName,
    Ssn,
    called,
    channel_name,
    event_name,
    instance_name,
    operator_id,
)


@dataclass(frozen=True, slots=True)
class InstanceNode:
    """One instance of an operator."""

    operator: OperatorName
    replica: int | None = None
    """Its number among the operator's replicas; None if the operator has none."""
    policy: Policy = "pessimistic"
    id: OperatorId | None = None
    """The operator's id in the log; None: the one that a fresh log gives to its name."""

    @property
    def name(self) -> InstanceName:
        """The operator's id, `hourly`; of a replica with its number, `hourly/2`."""
        return instance_name(self.id or operator_id(self.operator, 1), self.replica)

    @property
    def called(self) -> Called:
        """The same with the operator's name of today: how users call it."""
        return called(self.operator, self.replica)


@dataclass(frozen=True, slots=True)
class Channel:
    """From one instance's output port to one instance's input port."""

    name: ChannelName
    sender: InstanceName
    out: PortName
    receiver: InstanceName
    port: PortName
    policy: Policy = "pessimistic"
    """The receiver's: it decides what the receiver needs of the channel."""
    called: Called | None = None
    """What users call the sender, if not by its name in the log."""
    gone: bool = False
    """Whether its receiver is not there any more: it was removed, or made anew (R14)."""

    @classmethod
    def between(
        cls,
        sender: InstanceName,
        out: PortName,
        receiver: InstanceName,
        port: PortName,
        policy: Policy = "pessimistic",
        called: Called | None = None,
    ) -> Channel:
        """The channel that joins these two ports."""
        return cls(channel_name(sender, out, receiver, port), sender, out, receiver, port, policy, called)


@dataclass(frozen=True)
class Expansion:
    """The instances and channels of a graph, in the order in which its operators and connections were defined."""

    instances: Mapping[InstanceName, InstanceNode]
    channels: Mapping[ChannelName, Channel]
    _of_operator: Mapping[OperatorName, tuple[InstanceNode, ...]]
    _of_connection: Mapping[Connection, tuple[Channel, ...]]
    _into: Mapping[InstanceName, tuple[Channel, ...]]
    _out_of: Mapping[tuple[InstanceName, PortName], tuple[Channel, ...]]
    closed: tuple[Channel, ...] = ()
    """By which nothing is taken any more (R14): those of connections that are gone."""

    @classmethod
    def of(cls, instances: Iterable[InstanceNode], connections: Iterable[Connection]) -> Expansion:
        """Every instance of a connection's sender joined to every instance of its receiver."""
        of_operator: dict[OperatorName, tuple[InstanceNode, ...]] = {}
        for instance in instances:
            of_operator[instance.operator] = (*of_operator.get(instance.operator, ()), instance)
        of_connection = {
            c: tuple(
                Channel.between(sender.name, c.out, receiver.name, c.port, receiver.policy, sender.called)
                for sender in of_operator[c.sender]
                for receiver in of_operator[c.receiver]
            )
            for c in connections
        }
        channels = [channel for joined in of_connection.values() for channel in joined]
        into: dict[InstanceName, tuple[Channel, ...]] = {}
        out_of: dict[tuple[InstanceName, PortName], tuple[Channel, ...]] = {}
        for channel in channels:
            into[channel.receiver] = (*into.get(channel.receiver, ()), channel)
            out_of[channel.sender, channel.out] = (*out_of.get((channel.sender, channel.out), ()), channel)
        return cls(
            {one.name: one for several in of_operator.values() for one in several},
            {channel.name: channel for channel in channels},
            of_operator,
            of_connection,
            into,
            out_of,
        )

    def instances_of(self, operator: OperatorName) -> tuple[InstanceNode, ...]:
        """The instances of an operator; it has at least one."""
        return self._of_operator[operator]

    def channels_of(self, connection: Connection) -> tuple[Channel, ...]:
        """The channels of a connection; it has at least one."""
        return self._of_connection[connection]

    def into(self, instance: InstanceName) -> tuple[Channel, ...]:
        """The channels by which an instance takes events."""
        return self._into.get(instance, ())

    def out_of(self, instance: InstanceName, port: PortName) -> tuple[Channel, ...]:
        """The channels by which the events of an output port go."""
        return self._out_of.get((instance, port), ())

    def closed_into(self, instance: InstanceName) -> tuple[Channel, ...]:
        """The closed channels by which an instance has taken events."""
        return tuple(channel for channel in self.closed if channel.receiver == instance)

    def needing(self, instance: InstanceName, port: PortName) -> tuple[Channel, ...]:
        """Whoever may need events of an output port: its receivers, and those that were (R12)."""
        were = (channel for channel in self.closed if (channel.sender, channel.out) == (instance, port))
        return (*self.out_of(instance, port), *were)

    def operator_of(self, instance: InstanceName) -> OperatorName:
        """The operator of which this is an instance."""
        return self.instances[instance].operator

    # ---- what users call them ----------------------------------------------------------------------------

    @cached_property
    def _called(self) -> Mapping[Called, InstanceName]:
        return {node.called: name for name, node in self.instances.items()}

    def find(self, text: Called) -> InstanceName:
        """The instance that users call so; BadName says which there are."""
        found = self._called.get(text)
        if found is None:
            raise BadName(f"there is no operator {text!r}; there are {', '.join(self._called)}")
        return found

    def called(self, instance: InstanceName) -> Called:
        """What users call an instance."""
        return self.instances[instance].called

    def event_name(self, instance: InstanceName, port: PortName, ssn: Ssn) -> str:
        """What users call an event."""
        return event_name(self.called(instance), port, ssn)


def expand(graph: Graph) -> Expansion:
    """The instances and channels of a graph: one instance per operator and one channel per connection for now."""
    nodes = [InstanceNode(name, None, node.options.policy, graph.id_of(name)) for name, node in graph.nodes.items()]
    made = Expansion.of(nodes, graph.connections)
    return replace(made, closed=tuple(_closed(graph, made)))


def _closed(graph: Graph, made: Expansion) -> Iterator[Channel]:
    for wire in graph.closed:
        if wire.channel not in made.channels:
            sender, receiver = instance_name(wire.sender), instance_name(wire.receiver)
            policy = made.instances[receiver].policy if receiver in made.instances else "pessimistic"
            called = made.instances[sender].called if sender in made.instances else None
            gone = receiver not in made.instances
            yield Channel(wire.channel, sender, wire.out, receiver, wire.port, policy, called, gone)
