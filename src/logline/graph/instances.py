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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from logline.graph.model import Connection, Graph, Policy
from logline.names import ChannelName, InstanceName, OperatorName, PortName, channel_name, instance_name


@dataclass(frozen=True, slots=True)
class InstanceNode:
    """One instance of an operator."""

    operator: OperatorName
    replica: int | None = None
    """Its number among the operator's replicas; None if the operator has none."""
    policy: Policy = "pessimistic"

    @property
    def name(self) -> InstanceName:
        """The operator's name, `hourly`; of a replica with its number, `hourly/2`."""
        return instance_name(self.operator, self.replica)


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

    @classmethod
    def between(
        cls,
        sender: InstanceName,
        out: PortName,
        receiver: InstanceName,
        port: PortName,
        policy: Policy = "pessimistic",
    ) -> Channel:
        """The channel that joins these two ports."""
        return cls(channel_name(sender, out, receiver, port), sender, out, receiver, port, policy)


@dataclass(frozen=True)
class Expansion:
    """The instances and channels of a graph, in the order in which its operators and connections were defined."""

    instances: Mapping[InstanceName, InstanceNode]
    channels: Mapping[ChannelName, Channel]
    _of_operator: Mapping[OperatorName, tuple[InstanceNode, ...]]
    _of_connection: Mapping[Connection, tuple[Channel, ...]]
    _into: Mapping[InstanceName, tuple[Channel, ...]]
    _out_of: Mapping[tuple[InstanceName, PortName], tuple[Channel, ...]]

    @classmethod
    def of(cls, instances: Iterable[InstanceNode], connections: Iterable[Connection]) -> Expansion:
        """Every instance of a connection's sender joined to every instance of its receiver."""
        of_operator: dict[OperatorName, tuple[InstanceNode, ...]] = {}
        for instance in instances:
            of_operator[instance.operator] = (*of_operator.get(instance.operator, ()), instance)
        of_connection = {
            c: tuple(
                Channel.between(sender.name, c.out, receiver.name, c.port, receiver.policy)
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

    def operator_of(self, instance: InstanceName) -> OperatorName:
        """The operator of which this is an instance."""
        return self.instances[instance].operator


def expand(graph: Graph) -> Expansion:
    """The instances and channels of a graph: one instance per operator and one channel per connection for now."""
    nodes = [InstanceNode(name, None, node.options.policy) for name, node in graph.nodes.items()]
    return Expansion.of(nodes, graph.connections)
