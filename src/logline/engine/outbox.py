"""The sending side of an instance: SSNs, back-pressure (R13) and what may be collected (R12).

Receivers read events from this instance's journal by themselves; all the sender does is number them, know how
far its receivers are, and drop what nobody needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from logline.engine.events import MARK_BYTES, Collection, Head, Headers, Output
from logline.engine.image import Image, Needs, Taken
from logline.engine.policy import Asked
from logline.engine.results import Produced
from logline.engine.spec import InstanceSpec, write_port
from logline.engine.step import Step
from logline.names import ERRORS, ChannelName, PortName, Serial, Ssn, TargetName


class Outbox:
    """The ports of one instance."""

    def __init__(self, spec: InstanceSpec, needed: Asked) -> None:
        """`needed` asks the policy of a channel's receiver what it needs."""
        self.spec = spec
        self._needed = needed
        self.heads: dict[PortName, Head] = {}
        self.marks = 0
        """How many marks each port has; watermarks do not count."""
        self.durable: dict[PortName, Ssn] = {}
        """The last SSN of each port that is committed; the heads run ahead of it."""
        self.taken: dict[ChannelName, int] = {}
        self._looked_at: dict[PortName, tuple[Ssn, int]] = {}
        """Where each port was, in events and in bytes, when the needs of its receivers were last looked at."""
        self._resolved: set[Ssn] = set()
        """Errors that were retried or dropped and are not collected yet."""
        self._receivers = dict(spec.ports)

    def rewire(self, spec: InstanceSpec) -> None:
        """Receivers have come or gone. One that has come counts as far behind until it is observed."""
        self.spec = spec
        self._receivers = dict(spec.ports)
        there = [channel.name for channels in self._receivers.values() for channel in channels]
        self.taken = {name: self.taken.get(name, 0) for name in there}

    def restore(self, image: Image) -> None:
        """Takes over what the image says."""
        for port in (*self.spec.ports, *map(write_port, self.spec.targets)):
            known = image.head(port)
            self.heads[port] = Head(known.last, known.total, known.base, set(known.pinned))
            self.durable[port] = known.last
        self.marks = image.marks
        self._resolved = set(image.resolved)
        # Until it is observed, a receiver counts as far behind; that costs one look at its journal.
        for channels in self._receivers.values():
            for channel in channels:
                self.taken[channel.name] = 0

    def put(self, produced: Produced, serial: Serial) -> Output:
        """Gives an output the next SSN of its port."""
        port, payload, rows, nbytes, same = produced
        head = self.heads[port]
        head.last = ssn = Ssn(head.last + 1)
        head.total = total = head.total + nbytes
        return Output(port, ssn, payload, rows, nbytes, total, serial, "event", same)

    def put_run(self, made: Iterable[Iterable[Produced]], first: Serial) -> list[Output]:
        """Numbers the outputs of one set after the other."""
        put = self.put
        return [put(one, Serial(serial)) for serial, outputs in enumerate(made, first) for one in outputs]

    def end(self) -> list[Output]:
        """The end is an event on every port (R11)."""
        self.marks += 1
        for port in self._receivers:
            self.heads[port].last = Ssn(self.heads[port].last + 1)
        heads = [(port, self.heads[port]) for port in self._receivers]
        return [Output(port, head.last, None, 0, 0, head.total, Serial(0), "end") for port, head in heads]

    def watermark(self, port: PortName, headers: Headers) -> Output:
        """A mark that says how far event time is, where no event does (R30)."""
        head = self.heads[port]
        head.last = ssn = Ssn(head.last + 1)
        head.total = total = head.total + MARK_BYTES
        return Output(port, ssn, None, 0, MARK_BYTES, total, Serial(0), "watermark", None, headers)

    def committed(self, step: Step) -> Iterable[PortName]:
        """What the step put out is durable; returns the ports that have grown."""
        grown: dict[PortName, None] = {}  # in an order that a simulated run repeats
        for port, (last, _) in step.reads.reveal.items():
            self.durable[port] = last
            grown[port] = None
        newest = {output.port: output.ssn for output in step.outputs}
        self.durable.update(newest)
        grown.update(dict.fromkeys(newest))
        self._resolved.update(step.errors.resolved)
        return grown

    # ---- back-pressure --------------------------------------------------------------------------------

    def lag(self, port: PortName) -> int:
        """Bytes of the port that its slowest receiver has not taken."""
        total = self.heads[port].total
        return max((total - self.taken.get(c.name, 0) for c in self._receivers[port]), default=0)

    def blocked(self) -> bool:
        """Whether new events and generation have to wait (R13). Recovery, commits and reading never do."""
        return any(self.lag(port) >= self.spec.port_bytes(port) for port in self._receivers)

    def half_full(self) -> bool:
        """Whether it is time to look how far the receivers are."""
        return any(self.lag(port) * 2 >= self.spec.port_bytes(port) for port in self._receivers)

    # ---- collection -----------------------------------------------------------------------------------

    def grown(self) -> bool:
        """Whether enough has been put out since the last look that a look is worth it. A look goes through all that
        is pinned, so it waits for as many new events: a long-open set costs the same per event, however large. Large
        events are not waited for so long, and a port that a scope bounds by size is looked at by size."""
        for port, head in self.heads.items():
            last, total = self._looked_at.get(port, (0, 0))
            events, nbytes, pinned = self.durable[port] - last, head.total - total, len(head.pinned)
            if events >= max(self.spec.limits.collect_events, pinned) or nbytes * 2 >= self.spec.limits.port_bytes:
                return True
            size = self.spec.retained_bytes(port)
            if size is not None and events >= max(1, pinned) and nbytes >= self._worth_a_look(size):
                return True
        return False

    def _worth_a_look(self, size: int) -> int:
        """Bytes after which a port of that size may hold too much: an eighth of it, and a row's worth at least."""
        return max(size // 8, self.spec.limits.commit_bytes // 16)

    def observe(self, needs: Mapping[ChannelName, Needs | Taken]) -> None:
        """How far the receivers are, as their journals say."""
        for channels in self._receivers.values():
            for channel in channels:
                need = needs.get(channel.name)
                if need is not None:
                    self.taken[channel.name] = need.position.total

    def collect(
        self,
        needs: Mapping[ChannelName, Needs],
        written: Mapping[TargetName, int],
        floors: Mapping[PortName, Ssn] | None = None,
    ) -> dict[PortName, Collection]:
        """What may go, port by port: not above any receiver's position, not a member of an open set, nothing that a
        write action has yet to pass on, and of a port in a lineage scope nothing from its floor on (R12)."""
        found: dict[PortName, Collection] = {}
        for port, channels in self._receivers.items():
            self._look_at(port)
            if port in self.spec.keep or any(c.name not in needs for c in channels):
                continue
            upto = self.durable[port]
            pinned: set[Ssn] = set()
            bounds = [(floors or {}).get(port)]
            for channel in channels:
                needed = self._needed(channel, needs[channel.name])
                upto = min(upto, needed.after)
                bounds.append(needed.floor)
                pinned.update(needed.members)
            if port == ERRORS:
                upto, pinned = self._unresolved(upto, pinned)
            floor = min((bound for bound in bounds if bound is not None), default=None)
            if floor is not None:
                upto = min(upto, Ssn(floor - 1))
                pinned.update(ssn for ssn in self.heads[port].pinned if ssn >= floor)
            self._collect(port, upto, pinned, found)
        for target, number in written.items():
            port = write_port(target)
            self._look_at(port)
            if port not in self.spec.keep:
                self._collect(port, Ssn(number), (), found)
        return found

    def _look_at(self, port: PortName) -> None:
        self._looked_at[port] = (self.durable[port], self.heads[port].total)

    @property
    def unsettled_errors(self) -> int:
        """What was put on port `errors` and is not known, durably, to be retried or dropped; its end is none."""
        return self.heads[ERRORS].stored - len(self._resolved) - self.marks % 2 if ERRORS in self.heads else 0

    def _unresolved(self, upto: Ssn, needed: set[Ssn]) -> tuple[Ssn, set[Ssn]]:
        """On port `errors` an event is needed until it is retried or dropped, whoever has taken it."""
        head = self.heads[ERRORS]
        last = max((s for s in self._resolved if s <= upto), default=Ssn(0))
        kept = (*head.pinned, *map(Ssn, range(head.base, last + 1)))
        return last, needed | {s for s in kept if s not in self._resolved}

    def _collect(self, port: PortName, upto: Ssn, needed: Iterable[Ssn], found: dict[PortName, Collection]) -> None:
        head = self.heads[port]
        base = max(head.base, Ssn(upto + 1))
        pinned = {s for s in needed if s < base and (s >= head.base or s in head.pinned)}
        if base != head.base or pinned != head.pinned:
            head.base, head.pinned = base, pinned
            if port == ERRORS:
                self._resolved = {s for s in self._resolved if s >= base or s in pinned}
            found[port] = Collection(base, frozenset(pinned))
