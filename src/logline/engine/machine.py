"""The protocol as a pure state machine: `handle(stimulus, now) -> actions`.

This is the part that every instance has: claiming its journal (R10), gathering steps into commits (R1-R3),
the end and leaving (R11), failing, and collecting (R12). `operating.OperatorMachine` adds inputs, input sets
and writes; `reading.SourceMachine` adds reads; `janitor.Janitor` collects for those that have left.

Nothing here knows a clock, a socket, a database or a thread; a crash simply drops the object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.image import Image, Needs, Step
from logline.engine.outbox import Outbox
from logline.engine.results import Failure
from logline.engine.retention import Retention
from logline.engine.spec import InstanceSpec
from logline.names import ChannelName, Incarnation, Serial, TargetName

Phase = Literal["new", "claiming", "recovering", "running", "failed", "gone"]


class Machine:
    """One life of one instance."""

    def __init__(self, spec: InstanceSpec) -> None:
        self.spec = spec
        self.phase: Phase = "new"
        self.now = 0
        self.incarnation = Incarnation(0)
        self.outbox = Outbox(spec)
        self.retention = Retention(spec)
        self.pending = Step()
        self.flying: Step | None = None
        self.stopping = False
        self.draining = False
        self.handing = False
        """Whether it stops because the rest is for another life."""
        self.end_given = False
        self.end_durable = False
        self._actions: list[do.Action] = []
        self._commits = 0
        self._unacknowledged_since: int | None = None
        self._wake_at: int | None = None
        self._observing = False
        self._look = False
        self._handlers: dict[type, Callable[[Any], None]] = {
            on.Started: self._on_started,
            on.Claimed: self._on_claimed,
            on.Committed: self._on_committed,
            on.FencedOff: self._on_fenced,
            on.Observed: self._on_observed,
            on.TakenObserved: self._on_taken_observed,
            on.Bell: self._on_bell,
            on.Tick: self._on_tick,
            on.Broke: self._on_broke,
            on.Command: self._on_command,
        }

    def handle(self, stimulus: on.Stimulus, now: int) -> list[do.Action]:
        """One stimulus in, the actions it leads to out."""
        if self.phase == "gone":
            return []
        self.now = max(self.now, now)
        self._handlers[type(stimulus)](stimulus)
        self._advance()
        found, self._actions = self._actions, []
        return found

    def _do(self, action: do.Action) -> None:
        self._actions.append(action)

    # ---- the life -------------------------------------------------------------------------------------

    def _on_started(self, _: on.Started) -> None:
        self.phase = "claiming"
        self._do(do.ClaimJournal())

    def _on_claimed(self, stimulus: on.Claimed) -> None:
        self.incarnation, image = stimulus.claim
        self._commits = image.commits
        self.outbox.restore(image)
        self.retention.restore(image)
        self.end_given = self.end_durable = image.ended
        if image.left:
            self._leave("left")  # a life for an instance that needs nothing any more
        else:
            self.phase = "recovering"
            self._look = True
            self._recover(image)

    def _recover(self, image: Image) -> None:
        raise AssertionError("each kind of machine recovers in its own way")

    def _on_fenced(self, _: on.FencedOff) -> None:
        self._leave("fenced")

    def _on_broke(self, stimulus: on.Broke) -> None:
        self._halt(stimulus.failure, event=stimulus.event)

    def _on_command(self, stimulus: on.Command) -> None:
        if stimulus.kind == "stop":
            self.stopping = True
        else:
            self.draining = True

    def _on_bell(self, _: on.Bell) -> None:
        self._look = True

    def _on_tick(self, _: on.Tick) -> None:
        if self._wake_at is not None and self.now >= self._wake_at:
            self._wake_at = None

    def _leave(self, why: str) -> None:
        self.phase = "gone"
        self._do(do.Leave(why))

    def _halt(self, failure: Failure, serial: Serial = Serial(0), event: str = "") -> None:
        """Nothing more is started; what is logged stays logged, and a later run goes on from it."""
        self.phase = "failed"
        self._do(do.Halt(failure, serial, event))

    def _wake(self, at: int) -> None:
        if self._wake_at is None or at < self._wake_at:
            self._wake_at = at
            self._do(do.Wake(at))

    # ---- the order of things --------------------------------------------------------------------------

    def _advance(self) -> None:
        """Starts whatever may be started now."""
        if self.phase == "running":
            if self.stopping:
                self._wind_up()
            else:
                self._work()
            self._observe()
        if self.phase in ("recovering", "running"):
            self._commit()
            self._depart()

    def _work(self) -> None:
        """What this kind of machine does when it runs."""

    def _wind_up(self) -> None:
        """Told to stop: nothing new is begun, what is finished is committed."""

    def _busy(self) -> bool:
        """Whether something is under way that must end before this life can end in order."""
        return False

    def quiet(self) -> bool:
        """Whether nothing is under way and nothing is pending: what a drain waits for."""
        return self.phase == "running" and self.flying is None and self.pending.empty and not self._busy()

    def _finished(self) -> bool:
        """Whether nothing is left but the end itself (R11)."""
        return False

    def _effects_done(self) -> bool:
        """Whether external effects are done, so that the instance may leave."""
        return True

    def _depart(self) -> None:
        if self.phase != "running" or self.flying is not None:
            return
        if self.stopping:
            if self.pending.empty and not self._busy():
                self._leave("handed" if self.handing else "stopped")
        elif self.end_durable and self._effects_done() and not self._observing:
            self.pending.left = True
            self._send()

    # ---- commits --------------------------------------------------------------------------------------

    def _urgent(self) -> bool:
        """Whether somebody waits for what is pending; positions alone can ride along later (R3)."""
        step = self.pending
        return bool(
            step.outputs or step.staged or step.reveal or step.answers or step.ended or step.left or self.stopping
        )

    def _may_grow(self) -> bool:
        """Whether more steps are about to come that can share the commit."""
        return False

    def _commit(self) -> None:
        """Several steps share one commit when input is waiting; a lone event is committed at once."""
        step = self.pending
        if self.flying is not None or step.empty:
            return
        if self._urgent():
            if self.stopping or not self._may_grow() or self._full(step):
                self._send()
            return
        if self._unacknowledged_since is None:
            self._unacknowledged_since = self.now
        due = self._unacknowledged_since + self.spec.limits.ack_after
        if self.now >= due or self._half_unacknowledged():
            self._send()
        else:
            self._wake(due)

    def _full(self, step: Step) -> bool:
        limits = self.spec.limits
        return len(step.outputs) >= limits.commit_events or step.nbytes >= limits.commit_bytes

    def _unacknowledged_bytes(self) -> int:
        return 0

    def _half_unacknowledged(self) -> bool:
        """Whether a sender may soon wait for what was taken and not said (R13)."""
        return self._unacknowledged_bytes() * 2 >= self.spec.limits.port_bytes

    def _send(self) -> None:
        self._commits += 1
        self.pending.number = self._commits
        self.retention.record(self.pending, self.now)
        self.flying, self.pending = self.pending, Step()
        self._unacknowledged_since = None
        self._do(do.Commit(self.flying))

    def _on_committed(self, stimulus: on.Committed) -> None:
        step = self.flying
        if step is None or stimulus.number != step.number:
            return  # the answer to a repeated commit
        self.flying = None
        self.end_durable = self.end_durable or step.ended
        heard = dict.fromkeys(self.outbox.committed(step))
        senders = {c.name: c.sender for c in self.spec.inputs}
        heard.update((senders[channel], None) for channel in step.positions)
        if heard:
            self._do(do.Ring(tuple(heard)))
        if step.left:
            self._leave("left")
        else:
            self._on_durable(step)

    def _on_durable(self, step: Step) -> None:
        """What may happen now that the step is durable."""

    # ---- receivers and collection ---------------------------------------------------------------------

    def _observe(self) -> None:
        """Looks at the receivers' journals when a bell has rung and it matters how far they are."""
        if self._observing or not self._look:
            return
        channels = tuple(c.name for port in self.spec.ports.values() for c in port)
        if self.spec.collect and self.outbox.grown():
            self._do(do.Observe(channels))
        elif self.outbox.half_full():  # for as long as a receiver is behind: at every bell
            self._do(do.ObserveTaken(channels))
        else:
            return
        self._look = False
        self._observing = True

    def _on_observed(self, stimulus: on.Observed) -> None:
        self._observing = False
        self.outbox.observe(stimulus.needs)
        if self.spec.collect:
            self._collect(stimulus.needs, self._written())

    def _on_taken_observed(self, stimulus: on.TakenObserved) -> None:
        self._observing = False
        self.outbox.observe(stimulus.taken)

    def _collect(self, needs: Mapping[ChannelName, Needs], written: Mapping[TargetName, int]) -> None:
        """History first: what its outputs were made of is needed no longer than they are."""
        floors = self.retention.floors(needs, self.outbox.durable, self.now)
        self.pending.expired = max(self.pending.expired, self.retention.expire(floors))
        self.pending.collected.update(self.outbox.collect(needs, written, floors))

    def _written(self) -> dict[Any, int]:
        """How far each target is known, durably, to have been written."""
        return {}
