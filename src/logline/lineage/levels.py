"""What a query asks of the log, a level at a time: all events that are as many operators away, at once.

A log in PostgreSQL answers over a network. What a level needs is asked with a few calls for each operator on it,
however many events there are; `trace.py` then follows the events one by one and finds the answers here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from logline.engine.events import Output
from logline.engine.history import Finished
from logline.engine.image import Needs
from logline.engine.sets import Answer
from logline.graph.instances import Channel
from logline.lineage.view import Event, LogView, Port
from logline.names import ERRORS, Called, ChannelName, PortName, Serial, Ssn

Set = tuple[Called, Serial]


class Levels:
    """What is known of the events of a query, and of the sets that they were in or were made of."""

    def __init__(self, view: LogView) -> None:
        self._view = view
        self.headers: dict[Event, Output | None] = {}
        self.insets: dict[Set, Finished] = {}
        """Those that lineage keeps."""
        self.answers: dict[Set, Sequence[Answer]] = {}
        self.serials: dict[tuple[ChannelName, Ssn], Sequence[Serial]] = {}
        """The done sets that an event of a channel was in."""
        self.made: dict[Set, Sequence[tuple[PortName, Ssn]]] = {}
        self._needs: dict[ChannelName, Needs] = {}
        self._members: dict[ChannelName, set[Ssn]] = {}

    def ask_headers(self, events: Iterable[Event]) -> None:
        """What the events are, without their records."""
        ports: dict[Port, list[Ssn]] = defaultdict(list)
        for instance, port, ssn in events:
            ports[instance, port].append(ssn)
        for (instance, port), ssns in ports.items():
            found = self._view.reader(instance).headers(port, ssns)
            self.headers |= {(instance, port, ssn): header for ssn, header in zip(ssns, found, strict=True)}

    def ask_backward(self, events: Iterable[Event]) -> None:
        """The sets of these events, whose headers are known, and the answers that these got."""
        wanted: dict[Called, dict[Serial, None]] = defaultdict(dict)
        for event in events:
            header = self.headers[event]
            if header is not None and header.serial and self._view.operator(event[0]).kind != "source":
                wanted[event[0]][header.serial] = None
        for instance, serials in wanted.items():
            reader = self._view.reader(instance)
            known = reader.insets(list(serials))
            self.insets |= {(instance, serial): inset for serial, inset in known.items()}
            self.answers |= {(instance, serial): found for serial, found in reader.all_answers(list(known)).items()}

    def ask_forward(self, events: Iterable[Event]) -> None:
        """The sets that these events were in, at each receiver, and what these put out."""
        channels: dict[ChannelName, tuple[Channel, list[Ssn]]] = {}
        for event in events:
            for channel in self._candidates(event):
                channels.setdefault(channel.name, (channel, []))[1].append(event[2])
        wanted: dict[Called, dict[Serial, None]] = defaultdict(dict)
        for channel, ssns in channels.values():
            receiver = self._view.receiver(channel)
            found = self._view.reader(receiver).all_insets_of(channel.name, ssns)
            self.serials |= {(channel.name, ssn): serials for ssn, serials in found.items()}
            wanted[receiver].update((serial, None) for serials in found.values() for serial in serials)
        for receiver, serials in wanted.items():
            reader, ports = self._view.reader(receiver), sorted(self._view.ports_enabled(receiver).outputs)
            asked = [serial for serial in serials if (receiver, serial) not in self.made]
            if asked:
                self.insets |= {(receiver, serial): inset for serial, inset in reader.insets(asked).items()}
                self.made |= {(receiver, serial): made for serial, made in reader.all_made_from(asked, ports).items()}

    def _candidates(self, event: Event) -> Sequence[Channel]:
        instance, port, ssn = event
        again = self._view.again(instance) if port == ERRORS else None
        receivers = [channel for channel in self._view.receivers((instance, port), ssn) if self.is_traced(channel)]
        return receivers if again is None else [*receivers, again]

    def is_traced(self, channel: Channel) -> bool:
        """Whether lineage is captured of what comes by a channel, and of what is made of it."""
        view = self._view
        return view.traced_in(channel.name) and bool(view.ports_enabled(view.receiver(channel)).outputs)

    def receivers(self, event: Event) -> Sequence[Channel]:
        """Where the event goes. Rows that were rejected go back to their operator if somebody retries them."""
        instance, port, ssn = event
        receivers = self._view.receivers((instance, port), ssn)
        again = self._view.again(instance) if port == ERRORS else None
        if again is None:
            return receivers
        retried = self.serials.get((again.name, ssn)) or self._is_member(again, ssn)
        return (*receivers, again) if retried else receivers

    def is_waited_for(self, event: Event) -> bool:
        """Whether something may still come of it: a receiver has not taken it, or has it in a set that is open."""
        instance, _, ssn = event
        for channel in self.receivers(event):
            above = ssn > self._need(channel).position.ssn and self._view.receiver(channel) != instance
            if above or self._is_member(channel, ssn):
                return True
        return False

    def _need(self, channel: Channel) -> Needs:
        found = self._needs.get(channel.name)
        if found is None:
            reader = self._view.reader(self._view.receiver(channel))
            found = self._needs[channel.name] = reader.needs(channel.name)
            self._members[channel.name] = set(found.members)
        return found

    def _is_member(self, channel: Channel, ssn: Ssn) -> bool:
        self._need(channel)
        return ssn in self._members[channel.name]
