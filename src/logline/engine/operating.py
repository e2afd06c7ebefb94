"""The machine of an operator with inputs: intake, input sets, generation, calls, writes (Algorithms 2-5, 7-9).

Up to three things overlap: a run of events at the phases, sets in generation, and the commit of what is finished.
The order in which sets became due is logged (R6), and with `ordered` it is also the order in which their
outputs are numbered, whoever finishes first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.image import Answer, Finished, Image, Member, Output, Position, Step
from logline.engine.inbox import Inbox
from logline.engine.machine import Machine
from logline.engine.results import Failure, Result
from logline.engine.spec import InstanceSpec, again_channel
from logline.engine.writing import Writes
from logline.graph.operator import Cause
from logline.names import ChannelName, Serial, Ssn, TargetName

SHORT, LONG = 10_000, 40_000
"""Microseconds that a run of events should take from intake to outputs."""


class OperatorMachine(Machine):
    """One life of a middle or sink operator."""

    def __init__(self, spec: InstanceSpec) -> None:
        super().__init__(spec)
        self.inbox = Inbox(spec)
        self.writes = Writes(spec)
        self._image: Image | None = None
        self._failures: dict[Serial, Failure] = {}
        self._missing: set[ChannelName] = set()
        self._members: dict[ChannelName, dict[Ssn, Output]] = {}
        self._taking: dict[ChannelName, Position] | None = None
        self._applying: Sequence[tuple[ChannelName, Output]] = ()
        self._held_since = 0
        """When the first run was begun whose outputs are pending."""
        self._clock_check_at: int | None = None
        self._acknowledged: dict[ChannelName, int] = {}
        self._run = 1
        self._began = 0
        self.step = Step()
        """The step in the making: what was taken in and what came of it, until it is whole."""
        self._open_since: int | None = None
        self._order: deque[Serial] = deque()
        """Sets that are due and not finished, in the order in which they became due (R6)."""
        self._causes: dict[Serial, Cause] = {}
        """Why they are; a set that is one event is "ready", and not in here."""
        self._queue: deque[Serial] = deque()
        """Those of them that wait for generation."""
        self._running: set[Serial] = set()
        self._results: dict[Serial, Result] = {}
        self._answers: dict[Serial, list[Answer]] = {}
        self._tries: dict[Serial, int] = {}
        self._retry_at: dict[Serial, int] = {}
        self._diverted: dict[Serial, Finished] = {}
        """Sets that failed for good, and are not logged as such yet."""
        self._parked: set[Serial] = set()
        self._again = again_channel(spec.name)
        self._retried: dict[Serial, Ssn] = {}
        """Rejected rows that are retried, with their event on port `errors`."""
        self._wanted: list[on.CallWanted] = []
        self._bases_look = False
        self._traces = spec.lineage
        self._handlers.update(
            {
                on.MembersFetched: self._on_members,
                on.Rebuilt: self._on_rebuilt,
                on.Fetched: self._on_fetched,
                on.TakenIn: self._on_taken_in,
                on.Applied: self._on_applied,
                on.Generated: self._on_generated,
                on.Diverted: self._on_diverted,
                on.CallWanted: self._on_call_wanted,
                on.Answered: self._on_answered,
                on.PositionKnown: self._on_position_known,
                on.WritesFetched: self._on_writes_fetched,
                on.Written: self._on_written,
                on.BasesObserved: self._on_bases,
            }
        )

    # ---- recovery (Algorithms 7-9; R5, R6) -------------------------------------------------------------

    def _recover(self, image: Image) -> None:
        self._image = image
        self.inbox.restore(image)
        self._acknowledged = {c: p.total for c, p in image.positions.items()}
        self.writes.recover(image, self._do)
        for serial in image.due:  # due is state: `ready` is not asked again
            self._order.append(serial)
            cause = image.sets[serial].cause
            self._causes[serial] = "fired" if cause is None or cause == "parked" else cause
            if serial not in image.failures:
                self._queue.append(serial)
        self._failures = dict(image.failures)
        self._answers = {serial: list(answers) for serial, answers in image.answers.items()}
        needed: dict[ChannelName, set[Ssn]] = {}
        for serial, opened in image.sets.items():
            if opened.cause == "parked":
                self._parked.add(serial)
                continue
            for member in opened.members:
                if member.channel == self._again:
                    self._retried[serial] = member.ssn
                needed.setdefault(member.channel, set()).add(member.ssn)
        self._missing = set(needed)
        for channel, ssns in needed.items():  # exactly the members, nothing between them
            self._do(do.FetchMembers(channel, tuple(sorted(ssns))))
        self._maybe_rebuild()

    def _on_members(self, stimulus: on.MembersFetched) -> None:
        self._members[stimulus.channel] = {e.ssn: e for e in stimulus.events}
        self._missing.discard(stimulus.channel)
        self._maybe_rebuild()

    def _maybe_rebuild(self) -> None:
        if not self._missing and self._image is not None:
            image, self._image = self._image, None
            members, self._members = self._members, {}
            self._do(do.Rebuild(image, members))

    def _on_rebuilt(self, stimulus: on.Rebuilt) -> None:
        self.phase = "running"
        self._clock_check_at = stimulus.intake.wake_at
        failures, self._failures = self._failures, {}
        for serial, failure in failures.items():
            self._fail_for_good(serial, failure)
        for serial, failure in stimulus.intake.failed:
            if serial in self._causes:
                self._queue.remove(serial)
                self._fail_for_good(serial, failure)
            else:
                self._close_failed(serial, failure)

    # ---- intake (Algorithm 2) -------------------------------------------------------------------------

    def _on_bell(self, _: on.Bell) -> None:
        self._look = True
        self.inbox.rung()

    def _on_fetched(self, stimulus: on.Fetched) -> None:
        self.inbox.fetched(stimulus.channel, stimulus.after, stimulus.events)

    def _can_take(self) -> bool:
        """A generation that lags behind holds intake back, so that due sets don't pile up."""
        backlog = len(self._order)
        return backlog == 0 if self.spec.concurrency == 1 else backlog < 2 * self.spec.concurrency

    def _blocked(self) -> bool:
        return self.outbox.blocked() or self.writes.backlog() >= self.spec.limits.port_bytes

    def _take_in(self) -> None:
        if self._taking is not None or not self._can_take():
            return
        if self._clock_check_at is not None and self.now >= self._clock_check_at:
            self._clock_check_at = None
            self._taking = {}
            self._do(do.CheckClock())
        elif self.inbox.waiting:
            self._began = self.now
            run, self._taking = self.inbox.take(self._run)
            if self.spec.plain and not any(position.ended for position in self._taking.values()):
                self._applying = run
                self._do(do.Apply(run))
            else:
                self._do(do.TakeIn(run))

    def _on_taken_in(self, stimulus: on.TakenIn) -> None:
        intake, step = stimulus.intake, self.step
        if self._taking:
            step.positions.update(self._taking)
        self._taking = None
        self._take_alone(intake.alone)
        for serial, inset in intake.opened:
            step.open(serial, inset)
        for serial, member in intake.members:
            step.join(serial, member)
        if self._traces:
            self.retention.joined(intake.members)
        for serial, cause in intake.due:
            step.due[serial] = cause
            self._now_due(serial, cause)
        for serial, failure in intake.failed:
            self._close_failed(serial, failure)
        if intake.state is not None:
            step.state = intake.state
        step.clock.update(intake.clock)
        step.timers.update(intake.timers)
        self._clock_check_at = intake.wake_at

    def _take_alone(self, alone: Mapping[Serial, Member]) -> None:
        """Sets of one event; runs of them are long, so nothing is done here for each."""
        if alone:
            self.step.alone.update(alone)
            self.step.serial = max(self.step.serial, *alone)
            self._order.extend(alone)
            self._queue.extend(alone)

    def _on_applied(self, stimulus: on.Applied) -> None:
        """Nothing else is due while a run is applied, so its outputs are next in order (R6)."""
        first, made, step, spec = stimulus.first, stimulus.made, self.step, self.spec
        run, self._applying = self._applying, ()
        step.positions.update(self._taking or {})
        self._taking = None
        step.serial = max(step.serial, Serial(first + len(made) - 1))
        step.outputs += self.outbox.put_run(made, first)
        if self._traces:
            for serial, ((channel, event), outputs) in enumerate(zip(run, made, strict=False), first):
                if channel in spec.traced_in and any(output.port in spec.traced_out for output in outputs):
                    step.trace(Serial(serial), Member(channel, event.ssn))
        if stimulus.failure is not None:
            self._take_alone(stimulus.rest)
            self._on_failure(self._queue.popleft(), stimulus.failure)

    def _close_failed(self, serial: Serial, failure: Failure) -> None:
        self.step.due[serial] = "fired"
        self.step.failures[serial] = failure
        self._now_due(serial, "fired", failure)

    def _now_due(self, serial: Serial, cause: Cause, failure: Failure | None = None) -> None:
        self._order.append(serial)
        self._causes[serial] = cause
        if failure is None:
            self._queue.append(serial)
        else:
            self._fail_for_good(serial, failure)

    # ---- generation (Algorithms 3 and 4) --------------------------------------------------------------

    def _generate(self) -> None:
        for serial in [s for s, at in self._retry_at.items() if self.now >= at]:
            del self._retry_at[serial]
            self._queue.appendleft(serial)
        if self.spec.concurrency == 1:
            if self._queue and not self._running:
                run = [self._queue.popleft() for _ in range(min(len(self._queue), self.spec.limits.run_events))]
                self._start(run)
        else:
            while self._queue and len(self._running) < self.spec.concurrency:
                self._start([self._queue.popleft()])

    def _start(self, serials: list[Serial]) -> None:
        self._running.update(serials)
        cause, answers = self._causes.get, self._answers
        if answers:
            jobs = [do.Job(s, cause(s, "ready"), tuple(answers.get(s, ()))) for s in serials]
        else:
            jobs = [do.Job(s, cause(s, "ready")) for s in serials]
        self._do(do.Generate(jobs))

    def _on_generated(self, stimulus: on.Generated) -> None:
        running, results = self._running, self._results
        for result in stimulus.results:
            serial, _, failure = result
            running.discard(serial)
            if failure is None:
                results[serial] = result
            else:
                self._on_failure(serial, failure)
        self._finish()

    def _finish(self) -> None:
        """Numbers and logs the outputs of finished sets: in order, or as they come."""
        if self.spec.ordered:
            while self._order and self._order[0] in self._results:
                self._log_result(self._results.pop(self._order.popleft()))
        else:
            for serial in list(self._results):
                self._order.remove(serial)
                self._log_result(self._results.pop(serial))

    def _log_result(self, result: Result) -> None:
        """Algorithm 3, step 4: outputs and the end of the input set are one change (R1)."""
        serial, outputs, _ = result
        step, put = self.step, self.outbox.put
        for produced in outputs:
            step.outputs.append(put(produced, serial))
        made = self._traces and any(produced.port in self.spec.traced_out for produced in outputs)
        if serial in self._retried:  # whatever came of them: if they failed again, they are in a new error
            step.resolved.append(self._retried.pop(serial))
            self._diverted.pop(serial, None)
        if self._diverted and (diverted := self._diverted.pop(serial, None)) is not None:
            self._park(diverted, step, made=made)
        else:
            traced = self._traces and self.retention.close(serial, step, made=made)
            step.close(serial, traced=traced, ordered=self.spec.ordered)
        self._causes.pop(serial, None)
        if self._answers:
            self._answers.pop(serial, None)
        if self._tries:
            self._tries.pop(serial, None)

    def _park(self, diverted: Finished, step: Step, *, made: bool) -> None:
        """The set stays, with its members; where lineage is captured, its event has its history at once."""
        serial = diverted.serial
        if self._traces and self.retention.close(serial, step, made=made):
            if serial in step.alone:
                step.reach_down({m.channel: m.ssn for m in diverted.members})
            step.finished.append(diverted)
            step.kept.append(serial)
        self._parked.add(serial)
        step.park(serial)

    def _on_failure(self, serial: Serial, failure: Failure) -> None:
        """An exception is not a crash: retry, then `on_error`."""
        tries = self._tries[serial] = self._tries.get(serial, 0) + 1
        if failure.retryable and tries < self.spec.retry.attempts:
            self._retry_at[serial] = self.now + self.spec.retry.delay(tries)
        else:
            self._fail_for_good(serial, failure)

    def _fail_for_good(self, serial: Serial, failure: Failure) -> None:
        if self.spec.on_error == "stop":
            self._halt(failure, serial)
        elif self.spec.on_error == "drop":
            self._do(do.Discard(serial))
            self._results[serial] = Result(serial)
        else:
            self._do(do.Divert(serial, failure))

    def _on_diverted(self, stimulus: on.Diverted) -> None:
        self._results[stimulus.serial] = Result(stimulus.serial, (stimulus.output,))
        self._diverted[stimulus.serial] = Finished(stimulus.serial, stimulus.inset, stimulus.members)
        self._finish()

    # ---- calls (R9) -----------------------------------------------------------------------------------

    def _on_call_wanted(self, stimulus: on.CallWanted) -> None:
        self._wanted.append(stimulus)

    def _permit(self) -> None:
        """Before an operator reads what it may have written itself, its writes are committed and executed."""
        if self._wanted and self.writes.idle and not self._writes_pending():
            for want in self._wanted:
                self._do(do.Permit(want.serial, want.row, want.n))
            self._wanted.clear()

    def _writes_pending(self) -> bool:
        steps = (self.step, self.pending, self.flying or self.step)
        return any(output.port[0] == "@" for step in steps for output in step.outputs)

    def _on_answered(self, stimulus: on.Answered) -> None:
        # The commit that holds the answer holds the image from before `generate` too: all that is pending.
        answer = stimulus.answer
        self._seal()
        self.pending.answers.setdefault(answer.serial, []).append(answer)
        self._answers.setdefault(answer.serial, []).append(answer)

    # ---- writes (Algorithms 5 and 8; R8) --------------------------------------------------------------

    def _on_position_known(self, stimulus: on.PositionKnown) -> None:
        self._do(self.writes.position_known(stimulus.target, stimulus.number, self.pending))

    def _on_writes_fetched(self, stimulus: on.WritesFetched) -> None:
        self.writes.fetched(stimulus.target, list(stimulus.writes))

    def _on_written(self, stimulus: on.Written) -> None:
        self.writes.written(stimulus.target, stimulus.number, self.pending)
        failure = stimulus.failure
        if failure is not None and (not failure.retryable or not self.writes.failed(stimulus.target, self.now)):
            self._halt(failure)

    def _written(self) -> dict[TargetName, int]:
        return self.writes.positions()

    # ---- the order of things --------------------------------------------------------------------------

    def _work(self) -> None:
        for fetch in self.inbox.fetches():
            self._do(fetch)
        self._finish()
        self._seal_if_whole()
        if not self._blocked():
            self._take_in()
            self._generate()
        self._permit()
        if self._finished() and not self.end_given:
            self.end_given = self.pending.ended = True
            for port in self.spec.ports:
                self.pending.outputs.append(self.outbox.end(port))
            for serial in sorted(self._parked):  # after the end nothing can be put out any more
                self.pending.close(serial, traced=False)
            self._parked.clear()
        for at in (self._clock_check_at, min(self._retry_at.values(), default=None)):
            if at is not None:
                self._wake(at)
        self._write()
        if self._look and self._bases_look and self.spec.collect:
            self._bases_look = False
            self._do(do.ObserveBases(tuple(self.inbox.channels)))

    def _wind_up(self) -> None:
        self._finish()
        if self._wanted:  # a set in generation ends only when what it waits for is written
            self._seal()
            self._permit()
            self._write()
        elif not self._busy():
            self._seal()

    def _write(self) -> None:
        wake = self.writes.start(self.now, self._do)
        if wake is not None:
            self._wake(wake)

    def _seal_if_whole(self) -> None:
        """A step is whole when the sets that its events made due are generated: then they never reach the image.

        Where several sets run at once, or one of a run lags behind, nothing is held back for it.
        """
        if self.step.empty:
            self._open_since = None
            return
        if self._open_since is None:
            self._open_since = self.now
        waited = self.now >= self._open_since + self.spec.limits.ack_after
        lags = bool(self.step.outputs) and bool(self._running)
        if not self._order:
            self._adapt()
            self._seal()
        elif self.spec.concurrency > 1 or waited or lags or self._wanted or self._half_unacknowledged():
            self._seal()
        else:
            self._wake(self._open_since + self.spec.limits.ack_after)

    def _adapt(self) -> None:
        """Runs are as long as keeps the machine responsive: many cheap events at once, slow ones one by one."""
        spent = self.now - self._began
        if spent < SHORT:
            self._run = min(2 * self._run, self.spec.limits.run_events)
        elif spent > LONG:
            self._run = max(1, self._run * SHORT // spent)

    def _seal(self) -> None:
        if self._traces:
            self.retention.joined(self.step.alone.items())  # those that are not done yet
        if not self.pending.outputs:
            self._held_since = self._began
        if self.pending.empty:
            self.pending, self.step = self.step, Step()
        else:
            self.pending.absorb(self.step, ordered=self.spec.ordered)
            self.step = Step()
        self._open_since = None

    def _on_bases(self, stimulus: on.BasesObserved) -> None:
        self.pending.forget.update(stimulus.bases)

    def _may_grow(self) -> bool:
        if self._applying:  # what comes of it comes when it is through, which may take a while
            return self.now < self._held_since + SHORT
        if self._taking is not None:
            return True
        return self.inbox.waiting and not self._running and self._can_take() and not self._blocked()

    def _urgent(self) -> bool:
        # The position of a target is what an ended instance waits for before it leaves.
        return super()._urgent() or (self.end_given and bool(self.pending.written))

    def _unacknowledged_bytes(self) -> int:
        known = self._acknowledged
        positions = (*self.pending.positions.items(), *self.step.positions.items())
        return max((p.total - known.get(c, 0) for c, p in positions), default=0)

    def _on_durable(self, step: Step) -> None:
        for channel, position in step.positions.items():
            self._acknowledged[channel] = position.total
        self.writes.committed(step)
        if step.answers:
            self._do(do.Release(tuple(a for answers in step.answers.values() for a in answers)))
        if step.finished or step.done:
            self._bases_look = True

    def _finished(self) -> bool:
        return self.inbox.ended and not self._order and self._taking is None

    def _effects_done(self) -> bool:
        return self.writes.all_done

    def quiet(self) -> bool:
        return (
            super().quiet()
            and self.step.empty
            and not self._order
            and not self.inbox.waiting
            and self.writes.all_done
        )

    @property
    def in_flight(self) -> int:
        """Sets in generation."""
        return len(self._running)

    def _busy(self) -> bool:
        return self._taking is not None or bool(self._running) or self.writes.busy
