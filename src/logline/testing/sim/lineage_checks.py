"""Lineage in a simulated run: what is captured is what user code was given, and it is there as long as a scope asks.

The oracle is the phases: the members of a set when its `generate` begins, or when it is diverted instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import sub

from logline.engine.image import Image
from logline.engine.moments import Moment
from logline.engine.sets import Member
from logline.engine.spec import InstanceSpec, again_channel
from logline.graph.instances import Channel
from logline.names import ERRORS, ChannelName, InstanceName, PortName, Serial, Ssn
from logline.runtime.lives.instances import Instance
from logline.store.memory import MemoryStore
from logline.testing.sim.looks import Looks
from logline.testing.sim.outside import Violation

Event = tuple[InstanceName, PortName, Ssn]


def _again(spec: InstanceSpec) -> Sequence[Channel]:
    return [spec.again] if spec.inputs else []


class LineageChecks:
    """Watches one simulated run."""

    def __init__(
        self,
        instances: Mapping[InstanceName, Instance],
        store: MemoryStore,
        clock: Callable[[], Moment],
        looks: Looks,
    ) -> None:
        self._specs = {name: part.spec for name, part in instances.items() if part.spec.retain or part.spec.lineage}
        self._channels = {c.name: c for spec in self._specs.values() for c in (*spec.inputs, *_again(spec))}
        self._store = store
        self._clock = clock
        self._looks = looks
        self._given: dict[tuple[InstanceName, Serial], list[Member]] = {}
        self._seen: dict[tuple[InstanceName, PortName], Ssn] = {}
        self._made: dict[Event, Serial] = {}
        self._sets: dict[tuple[InstanceName, Serial], set[tuple[ChannelName, Ssn]]] = {}
        self._at: dict[Event, Moment] = {}
        """When an event on a scope's path was put out: how much time has passed since, and its logged time."""
        self._retried_late: set[Event] = set()
        """Errors that were retried when the scope's time was over for them: what they were made of was gone."""

    def evolved(self, instances: Mapping[InstanceName, Instance]) -> None:
        """The pipeline has changed (R14). What operators that are gone have made is kept as before."""
        self._specs |= {name: part.spec for name, part in instances.items() if part.spec.retain or part.spec.lineage}
        for spec in self._specs.values():
            self._channels |= {c.name: c for c in (*spec.inputs, *spec.closed, *_again(spec))}

    def generates(self, name: InstanceName, serial: Serial, members: Sequence[Member]) -> None:
        """User code is given these events; or they leave on port `errors`."""
        if name in self._specs:
            self._given[name, serial] = list(members)

    def after_commit(self, name: InstanceName, image: Image) -> None:
        """What is new is captured as it was given; nothing that a scope keeps is gone."""
        if name in self._specs:
            self._look_at_new(name, image)
            self.check_kept()

    def _look_at_new(self, name: InstanceName, image: Image) -> None:
        spec = self._specs[name]
        for port in {*spec.retain, *spec.traced_out}:
            last = image.head(port).last
            for ssn in map(Ssn, range(self._seen.get((name, port), 0) + 1, last + 1)):
                row = self._store.data(name).events.ports[port][ssn]
                if row.mark:
                    continue
                event = (name, port, ssn)
                if port in spec.retain and image.segments:
                    self._at[event] = Moment(self._clock().monotonic, image.segments[max(image.segments)].at)
                if row.serial and port in spec.traced_out:
                    self._look_at_set(event, row.serial)
            self._seen[name, port] = last

    def _look_at_set(self, event: Event, serial: Serial) -> None:
        name, spec = event[0], self._specs[event[0]]
        found = self._store.read(name).inset(serial)
        got = (
            {(m.channel, m.ssn) for m in found.members if m.channel in spec.traced_in} if found is not None else set()
        )
        given = self._given.get((name, serial))
        want = {(m.channel, m.ssn) for m in given or () if m.channel in spec.traced_in}
        if got != want:
            raise Violation(f"LINEAGE {event} was made of {sorted(want)}, captured is {sorted(got)}")
        self._made[event] = serial
        self._sets[name, serial] = got
        for error in ((name, ERRORS, ssn) for channel, ssn in got if channel == again_channel(name)):
            if error in self._made and self._store.read(name).inset(self._made[error]) is None:
                self._retried_late.add(error)

    def forget_old(self) -> None:
        """What is too old may go, also if the wall clock is set back then."""
        now = self._clock()
        kept = {e: at for e, at in self._at.items() if max(map(sub, now, at)) < self._specs[e[0]].retain[e[1]].age}
        self._at = kept

    def check_kept(self) -> None:
        """R12: an event on a path, and all it was made of, can be read for as long as the scope says: until it has
        that age by the wall clock. Where that clock was set back, it may go when so much time has passed."""
        self.forget_old()
        todo = list(self._at)
        seen = set(todo)
        while todo:
            event = todo.pop()
            name, port, ssn = event
            if ssn not in self._store.data(name).events.ports.get(port, {}):
                raise Violation(f"LINEAGE {event} is collected and a scope keeps it")
            serial = None if event in self._retried_late else self._made.get(event)
            members = self._sets.get((name, serial), set()) if serial is not None else set()
            if serial is not None and members:
                self._looks.once(name, serial, partial(self._check_set, event, serial, members))
            for channel, member in members:
                made = self._channels[channel]
                before = (made.sender, made.out, member)
                if made.sender in self._specs and made.out in self._specs[made.sender].retain and before not in seen:
                    seen.add(before)
                    todo.append(before)

    def _check_set(self, event: Event, serial: Serial, members: Iterable[tuple[ChannelName, Ssn]]) -> None:
        """The set that an event was made of is known, from the event and from its members."""
        name = event[0]
        if self._store.read(name).inset(serial) is None:
            raise Violation(f"LINEAGE {event} is kept, and what it was made of is forgotten")
        for channel, member in members:
            if serial not in self._store.read(name).insets_of(channel, member):
                raise Violation(f"LINEAGE {channel} {member} does not lead to set {serial} of {name}")

    def at_end(self) -> None:
        """All has left and time has not moved on."""
        self.check_kept()
