"""The machine of an operator with inputs: intake, input sets, generation, calls, writes (Algorithms 2-5, 7-9).

It is made of parts, each with a state of its own, and decides their order:

    inbox -> intake -> sealing <- generation     what was taken in and what came of it: a step
                          |
                       commits -> writes         whole steps on their way into the log, and then outside

Up to three things overlap: a run of events at the phases, sets in generation, and the commit of what is finished.
"""

from __future__ import annotations

from collections.abc import Mapping

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.checkpointing import Checkpointing
from logline.engine.generation import SetGeneration
from logline.engine.image import Image
from logline.engine.inbox import Inbox
from logline.engine.intake import SHORT, EventIntake
from logline.engine.machine import Machine
from logline.engine.policy import Asked, Policy
from logline.engine.rebuilding import Rebuilding
from logline.engine.sealing import Sealing
from logline.engine.spec import InstanceSpec
from logline.engine.step import Step
from logline.engine.writing import Writes
from logline.names import TargetName


class OperatorMachine(Machine):
    """One life of a middle or sink operator."""

    def __init__(self, spec: InstanceSpec, policy: Policy, needed: Asked) -> None:
        super().__init__(spec, policy, needed)
        self.rebuilding = Rebuilding(self._do)
        self.intake = EventIntake(spec, self._do)
        self.generation = SetGeneration(spec, self._do, self._halt)
        self.sealing = Sealing(spec, self.commits, self.outbox, self.retention)
        self.writes = Writes(spec)
        self.checkpointing = Checkpointing(policy.schedule, self.retention, self._do)
        self._look_at_bases = False
        """Whether sets are done whose memberships can go when their events are collected."""
        self._handlers.update(
            {
                on.MembersFetched: self.rebuilding.fetched,
                on.Rebuilt: self._on_rebuilt,
                on.Fetched: self._on_fetched,
                on.TakenIn: self._on_taken_in,
                on.Applied: self._on_applied,
                on.Checkpointed: self._on_checkpointed,
                on.Generated: self._on_generated,
                on.Interrupted: self.generation.interrupted,
                on.Diverted: self.generation.diverted,
                on.CallWanted: self.generation.wants,
                on.Answered: self._on_answered,
                on.PositionKnown: self._on_position_known,
                on.WritesFetched: self._on_writes_fetched,
                on.Written: self._on_written,
                on.BasesObserved: self._on_bases,
            }
        )

    @property
    def inbox(self) -> Inbox:
        """The channels into this instance."""
        return self.intake.inbox

    @property
    def in_flight(self) -> int:
        """How many sets are in generation at this moment."""
        return self.generation.sets.in_flight

    # ---- recovery (Algorithms 7-9; R5, R6) -------------------------------------------------------------

    def _recover(self, image: Image) -> None:
        self.intake.restore(image)
        self.generation.restore(image)
        self.writes.recover(image, self._do)
        self.checkpointing.restore(image, self.now)
        self.rebuilding.begin(image, self.policy.members(image))

    def _on_rebuilt(self, stimulus: on.Rebuilt) -> None:
        self.phase = "running"
        self._take_time(stimulus.intake)
        self.checkpointing.rebuilt(self.now)
        self.intake.wait_for(stimulus.intake)
        self.generation.rebuilt()
        for serial, failure in stimulus.intake.failed:
            if serial not in self.generation.sets:
                self.sealing.close_failed(serial, failure)
                self.generation.sets.add(serial, "fired")
            self.generation.fail_for_good(serial, failure)

    # ---- intake (Algorithm 2) -------------------------------------------------------------------------

    def _on_bell(self, _: on.Bell) -> None:
        self._look = True
        self.inbox.rung()

    def _on_command(self, stimulus: on.Command) -> None:
        super()._on_command(stimulus)
        self.intake.flush = self.intake.flush or stimulus.kind == "flush"

    def _on_rewired(self, stimulus: on.Rewired) -> None:
        super()._on_rewired(stimulus)
        self.inbox.rewire(stimulus.spec)
        self.sealing.rewire(stimulus.spec)

    def _on_fetched(self, stimulus: on.Fetched) -> None:
        self.inbox.fetched(stimulus.channel, stimulus.after, stimulus.events)

    def _on_taken_in(self, stimulus: on.TakenIn) -> None:
        intake, sets = stimulus.intake, self.generation.sets
        _, positions = self.intake.taken()
        self.sealing.take_in(intake, positions)
        self._take_time(intake)
        self.checkpointing.took_in(intake, self.intake.began, self.now)
        self.intake.wait_for(intake)
        sets.add_run(intake.alone)
        for serial, cause in intake.due:
            sets.add(serial, cause)
        for serial, failure in intake.failed:
            sets.add(serial, "fired")
            self.generation.fail_for_good(serial, failure)

    def _on_applied(self, stimulus: on.Applied) -> None:
        run, positions = self.intake.taken()
        if stimulus.intake is not None:
            self.sealing.step.clock.update(stimulus.intake.clock)
            self.intake.wait_for(stimulus.intake)
            self._take_time(stimulus.intake)
        self.sealing.apply(run, positions, stimulus.first, stimulus.made)
        self.sealing.take_alone(stimulus.rest)
        self.generation.sets.add_run(stimulus.rest)
        if stimulus.failure is not None:
            (tried,) = self.generation.sets.start(1)
            self.generation.failed(tried.serial, stimulus.failure, self.now)

    def _take_time(self, intake: on.Intake) -> None:
        """What the phases know of event time (R30)."""
        time = self.port_time
        if time is not None:
            for serial, earliest in intake.holds:
                time.hold(serial, earliest)
            for serial, other in intake.inherits:
                time.inherit(serial, other)
            for gone, _ in intake.merged:
                time.let_go(gone)
            time.passes(intake.passed, rests=intake.idle)

    def _on_checkpointed(self, stimulus: on.Checkpointed) -> None:
        self.checkpointing.made(stimulus, self.commits.pending, self.now)

    # ---- generation and calls (Algorithms 3 and 4; R9) ------------------------------------------------

    def _on_generated(self, stimulus: on.Generated) -> None:
        self.generation.generated(stimulus, self.now)
        for result in stimulus.results:
            if result.keyed is not None and result.keyed.timers:
                self.intake.wait_for(result.keyed)
        self._log_finished()

    def _log_finished(self) -> None:
        """Numbers and logs the outputs of finished sets: in order, or as they come."""
        for due in self.generation.sets.finished():
            self.sealing.log(due)
            if self.port_time is not None:
                self.port_time.let_go(due.serial)

    def _on_answered(self, stimulus: on.Answered) -> None:
        # The commit that holds the answer holds the image from before `generate` too: all that is pending.
        answer = stimulus.answer
        self._seal()
        if self.generation.answered(answer):
            self.commits.pending.sets.answers.setdefault(answer.serial, []).append(answer)
        else:
            self._do(do.Release((answer,)))

    def _permit(self) -> None:
        """Before an operator reads what it may have written itself, its writes are committed and executed."""
        if self.generation.wanted and self.writes.idle and not self._writes_pending():
            self.generation.permit()

    def _writes_pending(self) -> bool:
        steps = (self.sealing.step, self.commits.pending, self.commits.flying)
        return any(output.port[0] == "@" for step in steps if step is not None for output in step.outputs)

    # ---- writes (Algorithms 5 and 8; R8) --------------------------------------------------------------

    def _on_position_known(self, stimulus: on.PositionKnown) -> None:
        target, number, failure = stimulus.target, stimulus.number, stimulus.failure
        if failure is not None:
            if not failure.retryable or not self.writes.failed(target, self.now):
                self._halt(failure)
            return
        ahead = self.writes.ahead(target, number)
        if ahead is not None:
            self._halt(ahead)
            return
        fetch = self.writes.position_known(target, number, self.commits.pending)
        if fetch is not None:
            self._do(fetch)
        self._hurry_if_ended()

    def _on_writes_fetched(self, stimulus: on.WritesFetched) -> None:
        self.writes.fetched(stimulus.target, list(stimulus.writes))

    def _on_written(self, stimulus: on.Written) -> None:
        self.writes.written(stimulus.target, stimulus.number, self.commits.pending)
        self._hurry_if_ended()
        failure = stimulus.failure
        if failure is not None and (not failure.retryable or not self.writes.failed(stimulus.target, self.now)):
            self._halt(failure)

    def _hurry_if_ended(self) -> None:
        """An instance that has ended waits until its writes are known to be done before it leaves."""
        if self.end_given and self.commits.pending.writes.written:
            self.commits.hurry = True

    def _write(self) -> None:
        wake = self.writes.start(self.now, self._do)
        if wake is not None:
            self._wake(wake)

    def _written(self) -> Mapping[TargetName, int]:
        return self.writes.positions()

    # ---- the order of things --------------------------------------------------------------------------

    def _work(self) -> None:
        for fetch in self.inbox.fetches():
            self._do(fetch)
        self._log_finished()
        self._seal_if_whole()
        if not self._blocked():
            if not self.intake.under_way and self.generation.can_take() and not self._checkpoint():
                self.intake.begin(self.moment)
            self.generation.start(self.now)
        self._permit()
        if self._finished() and not self.end_given:
            self._give_end()
        for at in (*self.intake.wakes(self.moment), self.generation.retry_at, self.checkpointing.wake(self.now)):
            if at is not None and at > self.now:  # what is overdue waits for something else than time
                self._wake(at)
        self._write()
        if self._look and self._look_at_bases and self.spec.collect:
            self._look_at_bases = False
            self._do(do.ObserveBases((*self.inbox.channels, *(c.name for c in self.spec.closed))))

    def _checkpoint(self) -> bool:
        """Has open sets encoded between two runs of events, once every membership is in a whole step (R22)."""
        return self.sealing.step.empty and self.checkpointing.begin(self.now)

    def _blocked(self) -> bool:
        if not self.writes.located:  # a log that is older than its target must not grow
            return True
        return self.outbox.blocked() or self.writes.backlog() >= self.spec.limits.port_bytes

    def _wind_up(self) -> None:
        self._log_finished()
        if not self._busy():
            self._seal()

    def _seal_if_whole(self) -> None:
        until = self.sealing.waits_until(self.now)
        if until is None:
            return
        sets = self.generation.sets
        lags = bool(self.sealing.step.outputs) and bool(sets.in_flight)
        if not sets:
            self.intake.adapt(self.now)
            self._seal()
        elif (
            self.spec.concurrency > 1
            or self.now >= until
            or lags
            or self.generation.wanted
            or self._half_unacknowledged()
        ):
            self._seal()
        else:
            self._wake(until)

    def _seal(self) -> None:
        self.sealing.seal(self.intake.began)
        if self.port_time is not None:
            self.port_time.seal(waits=bool(self.generation.sets))

    def _send(self) -> None:
        # A mark of event time is numbered now, after all that is numbered: that must not come in a later commit (R2).
        if self.port_time is not None and self.port_time.news and self.sealing.step.outputs:
            self._seal()
        super()._send()

    def _on_bases(self, stimulus: on.BasesObserved) -> None:
        self.commits.pending.forget.update(stimulus.bases)

    def _may_grow(self) -> bool:
        if self.intake.applying:  # what comes of it comes when it is through, which may take a while
            return self.now < self.sealing.held_since + SHORT
        if self.intake.under_way:
            return True
        return self.inbox.waiting and not self.in_flight and self.generation.can_take() and not self._blocked()

    def _half_unacknowledged(self) -> bool:
        return self.intake.half_unacknowledged((self.commits.pending, self.sealing.step))

    def _on_durable(self, step: Step) -> None:
        self.intake.durable(step)
        self.writes.committed(step)
        self.checkpointing.durable(step)
        if step.sets.answers:
            self.generation.release(tuple(a for answers in step.sets.answers.values() for a in answers))
        if step.sets.finished or step.sets.done:
            self._look_at_bases = True

    def _finished(self) -> bool:
        """Whether nothing is left but the end itself (R11)."""
        waits = self.intake.under_way or self.intake.rest or self.checkpointing.under_way
        return self.inbox.ended and not self.generation.sets and not waits

    def _effects_done(self) -> bool:
        return self.writes.all_done

    def quiet(self) -> bool:
        return (
            super().quiet()
            and self.sealing.step.empty
            and not self.generation.sets
            and not self.inbox.waiting
            and self.writes.all_done
            and not self.intake.flush
        )

    def _busy(self) -> bool:
        phases = self.intake.under_way or self.checkpointing.under_way
        return phases or bool(self.in_flight) or self.writes.busy
