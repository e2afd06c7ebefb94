"""The part of a life that needs nothing but the log: claim, commit, ring, and looks at other journals.

It is all that a janitor needs (`runtime/lives/sweeping.py`); `runtime/lives/life.py` adds user code. Events are read
through channels (`store/channels.py`), which know where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.events import Output
from logline.engine.image import Claim
from logline.engine.machine import Machine
from logline.engine.spec import InstanceSpec, write_port
from logline.engine.user_errors import UserError, failure_of
from logline.errors import CodecError, Collected, Fenced
from logline.names import ChannelName, Serial, Ssn
from logline.store.channels import Gone, open_channel
from logline.store.faults import point
from logline.store.seam import Journal, Journals


class EventChannel(Protocol):
    """Where a life reads the events of an input."""

    def events(self, after: Ssn, *, limit: int, max_bytes: int) -> Sequence[Output] | Gone: ...

    def pick(self, ssns: Sequence[Ssn]) -> Sequence[Output] | Gone: ...


class PayloadMissing(Exception):
    """No place has these events any more."""

    def __init__(self, channel: ChannelName, ssns: tuple[Ssn, ...]) -> None:
        super().__init__(channel, ssns)
        self.channel = channel
        self.ssns = ssns


class LogLife:
    """Executes the actions of one machine on the log."""

    def __init__(self, spec: InstanceSpec, store: Journals, machine: Machine) -> None:
        self.spec = spec
        self.store = store
        self.machine = machine
        self.journal: Journal | None = None
        self.closed = False
        self._connections = spec.channels
        self._inputs: dict[ChannelName, EventChannel] = {}
        """Opened when first read: the hand-over keeps events for those who do."""
        self._do: dict[type, Callable[[Any], Iterable[on.Stimulus]]] = {
            do.ClaimJournal: self._claim,
            do.Commit: self._commit,
            do.Ring: self._ring,
            do.Fetch: self._fetch,
            do.FetchMembers: self._fetch_members,
            do.FetchWrites: self._fetch_writes,
            do.Observe: self._observe,
            do.ObserveTaken: self._observe_taken,
            do.ObserveBases: self._observe_bases,
        }

    def execute(self, action: do.Action) -> list[on.Stimulus]:
        """Does it, and says what came of it. `Wake`, `Halt` and `Leave` are the driver's."""
        try:
            return list(self._do[type(action)](action))
        except Fenced:
            return [on.FencedOff()]
        except PayloadMissing as missing:
            return [on.FencedOff() if self.fenced() else on.PayloadGone(missing.channel, missing.ssns)]
        except Collected:
            if self.fenced():
                return [on.FencedOff()]
            raise
        except UserError as error:
            return [on.Broke(error.failure, error.event)]

    def fenced(self) -> bool:
        """Only a life that is over may look for what is collected; in another one R12 is broken."""
        return self.journal is not None and self.store.read(self.spec.name).incarnation() != self.journal.incarnation

    def rewire(self, spec: InstanceSpec) -> None:
        """Channels of this instance have come or gone (R28)."""
        self.spec = spec
        self._connections = spec.channels
        self._inputs = {name: opened for name, opened in self._inputs.items() if name in self._connections}

    def set_name(self, serial: Serial) -> str:
        """The id of an open set, for messages; empty if it is not known."""
        return ""

    def close(self, *, in_order: bool) -> None:
        """The life is over. One that ends in order lets user code clean up."""
        self.closed = True
        if self.journal is not None:
            self.journal.close()

    def close_outside(self) -> None:
        """Closes what it has open outside of the log, on the thread that has opened it."""

    # ---- own journal ----------------------------------------------------------------------------------

    def _claim(self, _: do.ClaimJournal) -> Iterable[on.Stimulus]:
        self.journal = self.store.claim(self.spec.name)
        if self.store.fresh is not None:
            self.store.fresh.claimed(self.spec.name, self.journal.incarnation)
        if self.closed:  # while the claim was under way, on another thread
            self.journal.close()
        yield on.Claimed(Claim(self.journal.incarnation, self.journal.image))

    def _commit(self, action: do.Commit) -> Iterable[on.Stimulus]:
        assert self.journal is not None
        point(self.spec.name, "commit.before")
        try:
            self.journal.commit(action.step)
        except CodecError as error:  # of an id, a note, an answer: nothing of the step is in the log
            raise UserError(failure_of(error)) from error
        if self.store.fresh is not None:
            self.store.fresh.committed(self.spec.name, self.journal.incarnation, action.step)
        point(self.spec.name, "commit.after")
        yield on.Committed(action.step.number)

    def _ring(self, action: do.Ring) -> Iterable[on.Stimulus]:
        for instance in action.instances:
            self.store.ring(instance)
        return ()

    def _fetch_writes(self, action: do.FetchWrites) -> Iterable[on.Stimulus]:
        reader = self.store.read(self.spec.name)
        port = write_port(action.target)
        yield on.WritesFetched(
            action.target,
            reader.events(port, action.after, limit=1 << 30, max_bytes=1 << 62),  # type: ignore[arg-type]
        )

    # ---- inputs ---------------------------------------------------------------------------------------

    def _input(self, name: ChannelName) -> EventChannel:
        found = self._inputs.get(name)
        if found is None:
            found = self._inputs[name] = open_channel(self.store, self._connections[name])
        return found

    def _fetch(self, action: do.Fetch) -> Iterable[on.Stimulus]:
        limits = self.spec.limits
        events = self._input(action.channel).events(
            action.after, limit=limits.fetch_events, max_bytes=limits.fetch_bytes
        )
        if isinstance(events, Gone):
            raise PayloadMissing(action.channel, events.ssns)
        yield on.Fetched(action.channel, action.after, events)

    def _fetch_members(self, action: do.FetchMembers) -> Iterable[on.Stimulus]:
        yield on.MembersFetched(action.channel, self.pick(action.channel, action.ssns))

    def pick(self, channel: ChannelName, ssns: Sequence[Ssn]) -> Sequence[Output]:
        """Exactly these events of an input."""
        events = self._input(channel).pick(ssns)
        if isinstance(events, Gone):
            raise PayloadMissing(channel, events.ssns)
        return events

    # ---- neighbours -----------------------------------------------------------------------------------

    def _observe(self, action: do.Observe) -> Iterable[on.Stimulus]:
        yield on.Observed({c: self.store.read(self._connections[c].receiver).needs(c) for c in action.channels})

    def _observe_taken(self, action: do.ObserveTaken) -> Iterable[on.Stimulus]:
        yield on.TakenObserved({c: self.store.read(self._connections[c].receiver).taken(c) for c in action.channels})

    def _observe_bases(self, action: do.ObserveBases) -> Iterable[on.Stimulus]:
        bases = {}
        for name in action.channels:
            channel = self._connections[name]
            bases[name] = self.store.read(channel.sender).base(channel.out)
        yield on.BasesObserved(bases)
