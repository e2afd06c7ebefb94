"""The log as a lineage query sees it: operators, ports, channels, and where lineage is captured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from logline.engine.image import Finished
from logline.errors import BadName, LogError
from logline.graph.lineage_paths import Enabled
from logline.names import (
    OUT,
    ChannelName,
    EventRange,
    InstanceName,
    OperatorName,
    PortName,
    Ssn,
    event_name,
    is_word,
    parse_events,
    port_name,
)
from logline.store.seam import Reader, Store
from logline.store.tables import Record, enabled, inset_text

Port = tuple[InstanceName, PortName]
Event = tuple[InstanceName, PortName, Ssn]
Channel = tuple[Port, Port]
"""From an output port to an input port."""


class LogView:
    """One look at a log; readers are shared by all that is asked of it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        meta = store.meta()
        if meta is None:
            raise LogError("the log has not been used: start a pipeline on it first")
        self.record: Record = meta.graph
        self._readers: dict[InstanceName, Reader] = {}

    def reader(self, instance: InstanceName) -> Reader:
        """Its journal."""
        found = self._readers.get(instance)
        return found if found is not None else self._readers.setdefault(instance, self.store.read(instance))

    @cached_property
    def enabled(self) -> Mapping[OperatorName, Enabled]:
        """The ports between which lineage is captured, by operator."""
        return enabled(self.record)

    @cached_property
    def channels(self) -> Mapping[ChannelName, Channel]:
        """Every channel with its two ends."""
        return {
            ChannelName(f"{a}.{out}>{b}.{port}"): (
                (InstanceName(a), PortName(out)),
                (InstanceName(b), PortName(port)),
            )
            for a, out, b, port in self.record["connections"]
        }

    @cached_property
    def receivers(self) -> Mapping[Port, Sequence[tuple[ChannelName, Port]]]:
        """Where the events of an output port go."""
        found: dict[Port, list[tuple[ChannelName, Port]]] = {}
        for name, (sender, receiver) in self.channels.items():
            found.setdefault(sender, []).append((name, receiver))
        return found

    @cached_property
    def rank(self) -> Mapping[str, int]:
        """Operators in the order of the stream: senders before receivers."""
        return {name: at for at, name in enumerate(self.operators)}

    @property
    def operators(self) -> Mapping[str, Any]:
        """What the log knows of each operator."""
        found: Mapping[str, Any] = self.record["operators"]
        return found

    def traced_in(self, channel: ChannelName) -> bool:
        """Whether lineage is captured of what comes by this channel."""
        receiver, port = self.channels[channel][1]
        return port in self.outputs_enabled(receiver).inputs

    def outputs_enabled(self, instance: InstanceName) -> Enabled:
        """The enabled ports of an operator."""
        return self.enabled.get(OperatorName(instance), Enabled(frozenset(), frozenset()))

    def inset(self, instance: InstanceName, known: Finished) -> str:
        """A set as the log's tables show it."""
        return str(known.id) if self.operators[instance]["stateless"] else inset_text(known.id, known.serial)

    # ---- names -------------------------------------------------------------------------------------------

    def port(self, text: str) -> Port:
        """`hourly`, or `hourly.late`."""
        operator, _, port = text.strip().partition(".")
        self._check(operator, port or OUT)
        return InstanceName(operator), PortName(port or OUT)

    def _check(self, operator: str, port: str) -> None:
        if operator not in self.operators:
            raise BadName(f"there is no operator {operator!r}; there are {', '.join(self.operators)}")
        ports = self.operators[operator]["outputs"]
        if port not in ports:
            there = f"it has {', '.join(ports)}" if ports else "it has none"
            raise BadName(f"operator {operator!r} has no output port {port!r}; {there}")

    def events(self, asked: str | Iterable[str]) -> list[Event]:
        """The events that names, ranges (`hourly:12..40`) and ports (all that the log has of `hourly`) stand for."""
        found: dict[Event, None] = {}
        for text in [asked] if isinstance(asked, str) else asked:
            if is_word(text.strip().replace(".", "")):
                instance, port = self.port(text)
                reader = self.reader(instance)
                stored = reader.stored(port)
                ends = {o.ssn for o in reader.headers(port, stored[-1:]) if o is not None and o.end}
                found |= {(instance, port, ssn): None for ssn in stored if ssn not in ends}
            else:
                found |= dict.fromkeys(self._range(parse_events(text), text))
        return list(found)

    def _range(self, wanted: EventRange, text: str) -> list[Event]:
        self._check(wanted.instance, wanted.port)
        reader = self.reader(wanted.instance)
        last = reader.head(wanted.port).last
        if wanted.last >= last:  # the end of the stream is no event of records
            last = Ssn(last - int(reader.image().ended))
        if wanted.last > last:
            has = f"has put out 1..{last}" if last else "has put out nothing yet"
            raise LogError(f"{text!r} is not in the log: {port_name(wanted.instance, wanted.port)} {has}")
        return [(wanted.instance, wanted.port, Ssn(ssn)) for ssn in range(wanted.first, wanted.last + 1)]


def name_of(event: Event) -> str:
    """`orders:17`."""
    return event_name(*event)


def port_text(port: Port) -> str:
    """`orders`, or `hourly.late`."""
    return f"{port[0]}" if port[1] == OUT else port_name(*port)
