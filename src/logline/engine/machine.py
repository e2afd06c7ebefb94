"""The protocol as a pure state machine: `handle(stimulus, moment) -> actions`.

This is the part that every instance has: claiming its journal (R10), committing (R1-R3), the end and leaving (R11),
failing, and collecting (R12). `operating.OperatorMachine` adds inputs, input sets and writes; `reading.SourceMachine`
adds reads; `janitor.Janitor` collects for those that have left. What differs between policies is asked of the
`policy`; `recovery.machines.machine_for` makes a machine with its policy.

    new -> claiming -> recovering -> running -> gone
                                 any of them -> failed (halts, and does nothing more), or gone (fenced off)

Nothing here knows a clock, a socket, a database or a thread; a crash simply drops the object.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, assert_never

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.commits import Commits
from logline.engine.image import Image, Needs
from logline.engine.moments import Moment, Monotonic, Wall
from logline.engine.outbox import Outbox
from logline.engine.policy import Asked, Policy
from logline.engine.port_time import PortTime
from logline.engine.results import Failure
from logline.engine.retention import Retention
from logline.engine.spec import InstanceSpec, again_channel
from logline.engine.step import Step
from logline.engine.story import Story
from logline.names import ERRORS, ChannelName, Incarnation, PortName, Serial, TargetName

Phase = Literal["new", "claiming", "recovering", "running", "failed", "gone"]


class Machine(ABC):
    """One life of one instance."""

    def __init__(self, spec: InstanceSpec, policy: Policy, needed: Asked) -> None:
        self.spec = spec
        self.policy = policy
        self.phase: Phase = "new"
        self.moment = Moment(Monotonic(0), Wall(0))
        self.now = self.moment.monotonic
        """Whatever waits, waits by this. The wall clock is for what is logged or shown with its time."""
        self.incarnation = Incarnation(0)
        self.outbox = Outbox(spec, needed)
        self.retention = Retention(spec)
        self.port_time = PortTime(spec.timed_out) if spec.timed_out else None
        """What the ports say of event time, if they do (R30)."""
        self.commits = Commits(spec.limits)
        self.stopping = False
        self.draining = False
        self.handing = False
        """Whether it stops because the rest is for another life."""
        self.end_given = False
        self.end_durable = False
        self.story = Story(spec.limits.story) if spec.limits.story else None
        """What this life has heard and done lately, if somebody wants to know."""
        self._actions: list[do.Action] = []
        self._wake_at: Monotonic | None = None
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
            on.PayloadGone: self._on_payload_gone,
            on.Rewired: self._on_rewired,
            on.Command: self._on_command,
        }

    def handle(self, stimulus: on.Stimulus, moment: Moment) -> list[do.Action]:
        """One stimulus in, the actions it leads to out."""
        if self.phase == "gone":
            return []
        self.moment, self.now = moment, moment.monotonic
        self._handlers[type(stimulus)](stimulus)
        self._advance()
        found, self._actions = self._actions, []
        if self.story is not None:
            self.story.add(moment.wall, self.phase, stimulus, found)
        return found

    def _do(self, action: do.Action) -> None:
        self._actions.append(action)

    # ---- what each kind of machine does ---------------------------------------------------------------

    @abstractmethod
    def _recover(self, image: Image) -> None:
        """Goes on from the image."""

    @abstractmethod
    def _work(self) -> None:
        """Starts whatever may be started while it runs."""

    def _wind_up(self) -> None:
        """Ends in order after a stop: begins nothing new, and commits what is finished."""

    def _busy(self) -> bool:
        """Whether something is under way that must end before this life can end in order."""
        return False

    def _effects_done(self) -> bool:
        """Whether external effects are done, so that the instance may leave."""
        return True

    def _may_grow(self) -> bool:
        """Whether more steps are about to come that can share the commit."""
        return False

    def _half_unacknowledged(self) -> bool:
        """Whether a sender may soon wait for what was taken and not acknowledged (R13)."""
        return False

    def _on_durable(self, step: Step) -> None:
        """What may happen now that the step is durable."""

    def _written(self) -> Mapping[TargetName, int]:
        """How far each target is known, durably, to have been written."""
        return {}

    # ---- the life -------------------------------------------------------------------------------------

    def _on_started(self, _: on.Started) -> None:
        self.phase = "claiming"
        self._do(do.ClaimJournal())

    def _on_claimed(self, stimulus: on.Claimed) -> None:
        image = self._restore(stimulus)
        self.end_given = self.end_durable = image.ended
        if image.left:
            self._leave("left")  # a life for an instance that needs nothing any more
        elif self.stopping:
            self._leave("stopped")  # before any code of the user's is called
        else:
            self.phase = "recovering"
            self._look = True
            self._recover(image)

    def _restore(self, stimulus: on.Claimed) -> Image:
        self.incarnation, image = stimulus.claim
        self.commits.restore(image)
        self.outbox.restore(image)
        if self.port_time is not None:
            self.port_time.restore(image.clock)
        self.retention.restore(image)
        return image

    def _on_fenced(self, _: on.FencedOff) -> None:
        self._leave("fenced")

    def _on_broke(self, stimulus: on.Broke) -> None:
        self._halt(stimulus.failure, event=stimulus.event)

    def _on_payload_gone(self, stimulus: on.PayloadGone) -> None:
        self._halt(self.policy.gone(stimulus.channel, stimulus.ssns))

    def _on_rewired(self, stimulus: on.Rewired) -> None:
        """Replicas of a neighbour have come or gone: other channels, the same ports (R28)."""
        self.spec = stimulus.spec
        self.outbox.rewire(stimulus.spec)
        self.retention.rewire(stimulus.spec)
        self._look = True

    def _on_command(self, stimulus: on.Command) -> None:
        match stimulus.kind:
            case "stop":
                if not self.stopping:
                    self.stopping = True
                    self._do(do.StopCalls())
            case "drain":
                self.draining = True
            case "flush":
                pass  # for operators that gather
            case other:
                assert_never(other)

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

    def _wake(self, at: Monotonic) -> None:
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

    def quiet(self) -> bool:
        """Whether nothing is under way and nothing is pending: what a drain waits for."""
        return self.phase == "running" and self.commits.idle and not self._busy()

    def _give_end(self) -> None:
        """The end is an event on every port (R11)."""
        pending = self.commits.pending
        self.end_given = pending.ended = True
        pending.outputs += self.outbox.end()

    def _depart(self) -> None:
        if self.phase != "running" or self.commits.flying is not None:
            return
        if self.stopping:
            if self.commits.pending.empty and not self._busy():
                self._leave("handed" if self.handing else "stopped")
        elif self.end_durable and self._effects_done() and not self._observing:
            self.commits.pending.left = True
            self._send()

    # ---- commits --------------------------------------------------------------------------------------

    def _commit(self) -> None:
        when = self.commits.when(
            self.now,
            stopping=self.stopping,
            may_grow=self._may_grow,
            unacknowledged=self._half_unacknowledged,
        )
        if when == "now":
            self._send()
        elif when is not None:
            self._wake(when)

    def _shows_time(self, step: Step) -> bool:
        """Whether ports may say how far time is: nothing comes after an end but that it is taken back."""
        return step.ended or not self.end_given

    def _send(self) -> None:
        step = self.commits.send()
        if self.port_time is not None and self._shows_time(step):
            self.port_time.show(step, self.outbox)
        self.retention.record(step, self.moment.wall)
        self._actions += self.policy.log(step)

    def _on_committed(self, stimulus: on.Committed) -> None:
        step = self.commits.arrived(stimulus.number)
        if step is None:
            return
        self.end_durable = self.end_durable or step.ended
        grown = self.outbox.committed(step)
        self._ring(grown if self.policy.shows == "durable" else (), step)
        if step.left:
            self._leave("left")
        else:
            self._on_durable(step)

    def _ring(self, shown: Iterable[PortName], step: Step) -> None:
        """Receivers hear of what is shown, senders of positions that have moved."""
        heard = dict.fromkeys(c.receiver for port in shown for c in self.spec.ports.get(port, ()))
        if step.positions:
            heard.update((c.sender, None) for c in self.spec.inputs if c.name in step.positions)
        if heard:
            self._do(do.Ring(tuple(heard)))

    # ---- receivers and collection ---------------------------------------------------------------------

    def _observe(self) -> None:
        """Looks at the receivers' journals when a bell has rung and it matters how far they are."""
        if self._observing or not self._look:
            return
        if self.spec.collect and self.outbox.grown():
            self._do(do.Observe(self._receiving()))
        elif self.outbox.half_full():  # for as long as a receiver is behind: at every bell
            self._do(do.ObserveTaken(self._receiving()))
        else:
            return
        self._look = False
        self._observing = True

    def _receiving(self) -> tuple[ChannelName, ...]:
        return tuple(c.name for port in self.spec.ports.values() for c in port)

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
        floors = self.retention.floors(needs, self.outbox.durable, self.moment)
        pending = self.commits.pending
        pending.lineage.expired = max(pending.lineage.expired, self.retention.expire(floors, self.moment))
        collected = self.outbox.collect(needs, written, floors)
        pending.collected.update(collected)
        if ERRORS in collected:  # its own receiver, for rows that were retried
            pending.forget[again_channel(self.spec.name)] = collected[ERRORS].base
