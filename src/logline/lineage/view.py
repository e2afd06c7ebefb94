"""The log as a lineage query sees it: operators, ports, channels, and where lineage is captured.

Here instances go by what users call them today (`Called`), which need not be their names in the log (R14).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from logline.engine.clock import port_marks_key
from logline.engine.history import Finished
from logline.errors import BadName, LogError
from logline.graph.instances import Channel, expand
from logline.graph.lineage_paths import Enabled
from logline.graph.record import OperatorRecord, goes_by, graph_of, whole_record
from logline.names import (
    ERRORS,
    IN,
    OUT,
    Called,
    ChannelName,
    EventRange,
    OperatorName,
    PortName,
    Ssn,
    event_name,
    is_word,
    parse_events,
    parse_port,
    port_name,
)
from logline.store.seam import Reader, Store
from logline.store.tables import again_channel_of, enabled, inset_text, record_in

Port = tuple[Called, PortName]
Event = tuple[Called, PortName, Ssn]


class LogView:
    """One look at a log; readers are shared by all that is asked of it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.record = whole_record(record_in(store))
        self.expansion = expand(graph_of(self.record))
        self._readers: dict[Called, Reader] = {}

    def reader(self, instance: Called) -> Reader:
        """A reader of the instance's journal, opened when it is first asked for."""
        found = self._readers.get(instance)
        if found is None:
            found = self._readers[instance] = self.store.read(self.expansion.find(instance))
        return found

    @cached_property
    def instances(self) -> Sequence[Called]:
        """All instances, senders before receivers."""
        return [node.called for node in self.expansion.instances.values()]

    @cached_property
    def enabled(self) -> Mapping[OperatorName, Enabled]:
        """The ports between which lineage is captured, by operator."""
        return enabled(self.record)

    @cached_property
    def channels(self) -> Mapping[ChannelName, Channel]:
        """Every channel with its two ends; those of retried rows, from a port `errors` back, among them."""
        again = (self.again(instance) for instance in self.instances)
        return {**self.expansion.channels, **{channel.name: channel for channel in again if channel is not None}}

    def again(self, instance: Called) -> Channel | None:
        """The channel by which the instance takes in rejected rows that are retried, if it can."""
        return again_channel_of(self.record, self.expansion, self.expansion.find(instance))

    def sender(self, channel: ChannelName) -> Port:
        """The output port from which the events of a channel come."""
        found = self.channels[channel]
        return self.expansion.called(found.sender), found.out

    def receiver(self, channel: Channel) -> Called:
        """The instance that takes the events of a channel."""
        return self.expansion.called(channel.receiver)

    def inputs(self, instance: Called) -> Sequence[Channel]:
        """The channels into an instance."""
        return self.expansion.into(self.expansion.find(instance))

    def ports_between(self, event: Event, receiver: Called) -> Sequence[PortName]:
        """The input ports of an instance that an event comes on: more than one if a stream is joined with itself."""
        found = [channel.port for channel in self.inputs(receiver) if self.sender(channel.name) == event[:2]]
        return found or [IN]

    def receivers(self, port: Port, ssn: Ssn | None = None) -> Sequence[Channel]:
        """Where the events of an output port go, or where one of them went."""
        channels = self.expansion.out_of(self.expansion.find(port[0]), port[1])
        return channels if ssn is None else [c for c in channels if goes_by(self.record, c.name, ssn)]

    @cached_property
    def rank(self) -> Mapping[Called, int]:
        """Instances in the order of the stream: senders before receivers."""
        return {name: at for at, name in enumerate(self.instances)}

    @property
    def operators(self) -> Mapping[OperatorName, OperatorRecord]:
        """What the log knows of each operator."""
        return self.record.operators

    def operator(self, instance: Called) -> OperatorRecord:
        """What the log knows of the operator of an instance."""
        return self.operators[self.expansion.operator_of(self.expansion.find(instance))]

    @cached_property
    def changed(self) -> frozenset[ChannelName]:
        """Channels by which rows come, or came once, as ephemeral operators make them: which row came of which is not
        in the log."""
        return frozenset(self.record.ridden)

    def traced_in(self, channel: ChannelName) -> bool:
        """Whether lineage is captured of what comes by this channel."""
        found = self.channels[channel]
        enabled = self.ports_enabled(self.receiver(found))
        if channel not in self.expansion.channels:  # retried rows came of all that the operator takes
            return bool(enabled.inputs) and ERRORS in enabled.outputs
        return found.port in enabled.inputs

    def ports_enabled(self, instance: Called) -> Enabled:
        """The ports of an instance between which lineage is captured."""
        operator = self.expansion.operator_of(self.expansion.find(instance))
        return self.enabled.get(operator, Enabled(frozenset(), frozenset()))

    def inset(self, instance: Called, known: Finished) -> str:
        """A set as the log's tables show it."""
        return str(known.id) if self.operator(instance).stateless else inset_text(known.id, known.serial)

    # ---- names -------------------------------------------------------------------------------------------

    def port(self, text: str) -> Port:
        """The port that a text names: `hourly` (its port `out`) or `hourly.late`. Raises BadName if there is none."""
        instance, port = parse_port(text)
        self._check(instance, port)
        return instance, port

    def _check(self, instance: Called, port: PortName) -> None:
        ports = self.operator(instance).outputs
        if port not in ports:
            there = f"it has {', '.join(ports)}" if ports else "it has none"
            raise BadName(f"operator {instance!r} has no output port {port!r}; {there}")

    def events(self, asked: str | Iterable[str]) -> list[Event]:
        """The events that names, ranges (`hourly:12..40`) and ports (all that the log has of `hourly`) stand for."""
        found: dict[Event, None] = {}
        for text in [asked] if isinstance(asked, str) else asked:
            if is_word(re.sub("[./@]", "", text.strip())):
                instance, port = self.port(text)
                reader = self.reader(instance)
                stored = reader.stored(port)
                image = reader.outline()
                # A stream that was never reopened has one, and it is the last. Watermarks may be anywhere.
                several = image.marks > 1 or port_marks_key(port) in image.clock
                marks = _marks(reader, port, stored if several else stored[-1:])
                found |= {(instance, port, ssn): None for ssn in stored if ssn not in marks}
            else:
                found |= dict.fromkeys(self._range(parse_events(text), text))
        return list(found)

    def _range(self, wanted: EventRange, text: str) -> list[Event]:
        self._check(wanted.called, wanted.port)
        reader = self.reader(wanted.called)
        last = reader.head(wanted.port).last
        if wanted.last >= last and reader.outline().ended:  # the end of the stream is no event of records
            last = Ssn(last - 1)
        if wanted.last > last:
            has = f"has put out 1..{last}" if last else "has put out nothing yet"
            raise LogError(f"{text!r} is not in the log: {port_name(wanted.called, wanted.port)} {has}")
        asked = [Ssn(ssn) for ssn in range(wanted.first, wanted.last + 1)]
        marks = _marks(reader, wanted.port, asked)
        if len(marks) == len(asked):
            raise LogError(
                f"{text!r} is the end of a stream, says that the end was taken back, or how far event time is: no "
                "event of records"
            )
        return [(wanted.called, wanted.port, ssn) for ssn in asked if ssn not in marks]


def _marks(reader: Reader, port: PortName, ssns: Sequence[Ssn]) -> set[Ssn]:
    """Those that hold no records: ends, and that one was taken back."""
    return {o.ssn for o in reader.headers(port, ssns) if o is not None and o.mark}


def name_of(event: Event) -> str:
    """The event's name as users write it: `orders:17`."""
    return event_name(*event)


def port_text(port: Port) -> str:
    """The port as users write it: `orders` for port `out`, `hourly.late` for another one."""
    return f"{port[0]}" if port[1] == OUT else port_name(*port)
