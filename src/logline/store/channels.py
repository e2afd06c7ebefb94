"""Where the events of a connection are: a chain of places, the nearest first.

A life asks its channel for the events after an SSN, or for exact members of a set. The channel asks one place after
the other. Today there are two: events that this process has just committed, handed over as they are (`HandOver`), and
last the sender's journal, which has everything that is needed (R12). Correctness never depends on the places before
the journal.

>>> from logline.engine.events import Output
>>> from logline.engine.step import Step
>>> from logline.names import Incarnation, InstanceName, PortName, Serial, Ssn
>>> orders, out = InstanceName("orders"), PortName("out")
>>> fresh = HandOver()
>>> place = fresh.place(orders, out)            # a receiver in this process: from now on events are kept for it
>>> event = Output(out, Ssn(1), None, 1, 64, 64, Serial(1))
>>> fresh.committed(orders, Incarnation(1), Step(outputs=[event]))
>>> [output.ssn for output in place.after(Ssn(0), limit=10, max_bytes=1 << 20)]
[1]
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from logline.engine.events import Output
from logline.engine.step import Step
from logline.errors import Collected
from logline.graph import instances
from logline.names import Incarnation, InstanceName, PortName, Ssn
from logline.store.seam import Journals

MOST = 16 << 20
"""Bytes of fresh events that are handed over, for each journal."""


class Gone(NamedTuple):
    """No place has the payload of these events."""

    ssns: tuple[Ssn, ...]


class Place(Protocol):
    """Where events of one port may be."""

    def after(self, ssn: Ssn, *, limit: int, max_bytes: int) -> Sequence[Output] | None:
        """Visible events from `ssn + 1` on, without gaps; empty if it has none, None if it knows that `ssn + 1` is
        gone."""

    def pick(self, ssns: Sequence[Ssn]) -> Mapping[Ssn, Output]:
        """Those of these events that it has."""


class Channel:
    """The events of one connection, as its receiver reads them."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places

    def events(self, after: Ssn, *, limit: int, max_bytes: int) -> Sequence[Output] | Gone:
        """Visible events from `after + 1` on, without gaps; empty if there is nothing new (R4)."""
        found: Sequence[Output] | None = ()
        for place in self._places:
            found = place.after(after, limit=limit, max_bytes=max_bytes)
            if found:
                return found
        return Gone((Ssn(after + 1),)) if found is None else found

    def pick(self, ssns: Sequence[Ssn]) -> Sequence[Output] | Gone:
        """Exactly these events, in this order (R5)."""
        found: dict[Ssn, Output] = {}
        missing = tuple(ssns)
        for place in self._places:
            found.update(place.pick(missing))
            missing = tuple(ssn for ssn in missing if ssn not in found)
            if not missing:
                return [found[ssn] for ssn in ssns]
        return Gone(missing)


def open_channel(store: Journals, spec: instances.Channel) -> Channel:
    """The places of a connection, the nearest first."""
    places: list[Place] = []
    if store.fresh is not None:
        places.append(store.fresh.place(spec.sender, spec.out))
    # Here belongs memory that processes of one host share, and a reader of it for other hosts: places for outputs
    # that are shown before they are in the journal, or whose payload never gets there.
    places.append(InJournal(store, spec.sender, spec.out))
    return Channel(places)


class InJournal:
    """The sender's journal: the last place, which has all that is needed."""

    def __init__(self, store: Journals, sender: InstanceName, port: PortName) -> None:
        self._store = store
        self._sender = sender
        self._port = port

    def after(self, ssn: Ssn, *, limit: int, max_bytes: int) -> Sequence[Output] | None:
        """The events that the journal has committed (R2)."""
        try:
            return self._store.read(self._sender).events(self._port, ssn, limit=limit, max_bytes=max_bytes)
        except Collected:
            return None

    def pick(self, ssns: Sequence[Ssn]) -> Mapping[Ssn, Output]:
        """Those of these events that are not collected."""
        reader = self._store.read(self._sender)
        try:
            return {event.ssn: event for event in reader.pick(self._port, ssns)}
        except Collected:
            headers = reader.headers(self._port, ssns)
            there = [ssn for ssn, header in zip(ssns, headers, strict=True) if header is not None]
            if len(there) == len(ssns):  # an event that one of them passes on is gone
                raise
            return {event.ssn: event for event in reader.pick(self._port, there)}


class HandOver:
    """Events that were just committed, for receivers in this process: as they are, without a detour through bytes.

    Whoever commits tells it afterwards, so that nobody sees more than is committed (R2). It keeps events of those
    ports alone that somebody in this process reads, the newest first to stay.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._journals: dict[InstanceName, _Fresh] = {}
        self._lock = threading.Lock()

    def place(self, instance: InstanceName, port: PortName) -> Place:
        """The place where a receiver of that port looks."""
        with self._lock:
            fresh = self._journals.setdefault(instance, _Fresh(self._most))
        fresh.ports.add(port)
        return _FreshPort(fresh, port)

    def claimed(self, instance: InstanceName, incarnation: Incarnation) -> None:
        """A life begins: it is handed over what that one commits, and nothing of those before."""
        fresh = self._journals.get(instance)
        if fresh is not None:
            fresh.begin(incarnation)

    def committed(self, instance: InstanceName, incarnation: Incarnation, step: Step) -> None:
        """Keeps the events of a durable step that somebody in this process reads."""
        fresh = self._journals.get(instance)
        if fresh is not None:
            fresh.add(incarnation, step)


class _Fresh:
    """The newest events of one journal."""

    def __init__(self, most: int) -> None:
        self.ports: set[PortName] = set()
        self.events: OrderedDict[tuple[PortName, int], Output] = OrderedDict()
        self._most = most
        self._bytes = 0
        self._incarnation = Incarnation(0)
        self._floors: dict[PortName, int] = {}
        """Below these nothing is here."""
        self._lock = threading.Lock()

    def begin(self, incarnation: Incarnation) -> None:
        with self._lock:
            self._begin(incarnation)

    def _begin(self, incarnation: Incarnation) -> bool:
        """False if a newer life has begun."""
        if incarnation > self._incarnation:
            self._incarnation = incarnation
            self.events.clear()
            self._floors.clear()
            self._bytes = 0
        return incarnation == self._incarnation

    def add(self, incarnation: Incarnation, step: Step) -> None:
        """The newest come, the oldest go, and so does what is collected. Pinned events too: everybody has taken
        them, and who comes back reads them from the journal."""
        with self._lock:
            if not self._begin(incarnation):
                return
            for output in step.outputs:
                if output.port in self.ports:
                    self.events[output.port, output.ssn] = output
                    self._floors.setdefault(output.port, output.ssn)
                    self._bytes += output.nbytes
            for port, (base, _) in step.collected.items():
                for ssn in range(self._floors.get(port, base), base):
                    self._drop(self.events.pop((port, ssn), None))
                if port in self._floors:
                    self._floors[port] = max(self._floors[port], base)
            while self._bytes > self._most and self.events:
                (port, ssn), oldest = self.events.popitem(last=False)
                self._drop(oldest)
                self._floors[port] = max(self._floors[port], ssn + 1)

    def _drop(self, gone: Output | None) -> None:
        if gone is not None:
            self._bytes -= gone.nbytes


class _FreshPort:
    """One port of it, for its receivers."""

    def __init__(self, fresh: _Fresh, port: PortName) -> None:
        self._get = fresh.events.get
        self._port = port

    def after(self, ssn: Ssn, *, limit: int, max_bytes: int) -> Sequence[Output]:
        """The events after `ssn`, as far as they are here without a gap."""
        found: list[Output] = []
        size, get, port = 0, self._get, self._port
        for wanted in range(ssn + 1, ssn + 1 + limit):
            output = get((port, wanted))
            if output is None:
                break
            found.append(output)
            size += output.nbytes
            if size >= max_bytes:
                break
        return found

    def pick(self, ssns: Sequence[Ssn]) -> Mapping[Ssn, Output]:
        """Those of these events that are here."""
        found = {ssn: self._get((self._port, ssn)) for ssn in ssns}
        return {ssn: output for ssn, output in found.items() if output is not None}
