"""Generation: sets that are due are generated, retried, set aside (Algorithms 3 and 4; R6, R9).

Up to `concurrency` sets are generated at once. The order in which sets became due is logged, and with `ordered` it is
also the order in which their outputs are numbered, whoever is done first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.due_sets import DueSet, DueSets
from logline.engine.history import Finished
from logline.engine.image import Image
from logline.engine.moments import Monotonic
from logline.engine.results import Failure
from logline.engine.sets import Answer
from logline.engine.spec import InstanceSpec, again_channel
from logline.names import Serial

Halt = Callable[[Failure, Serial], None]


class SetGeneration:
    """The sets of one instance from due to done, and the calls that their code makes."""

    def __init__(self, spec: InstanceSpec, act: Callable[[do.Action], None], halt: Halt) -> None:
        self._spec = spec
        self._act = act
        self._halt = halt
        self.sets = DueSets(ordered=spec.ordered)
        self.wanted: list[on.CallWanted] = []
        """Calls of a writer that wait until what it wrote before is written."""
        self.retry_at: Monotonic | None = None
        """When the first set that failed is tried again."""
        self._failed: dict[Serial, Failure] = {}
        """Until the phases are rebuilt: sets that failed in an earlier life."""

    # ---- recovery -------------------------------------------------------------------------------------

    def restore(self, image: Image) -> None:
        """Due is state: `ready` is not asked again (R6). Nothing is generated before `rebuilt` (R5)."""
        again = again_channel(self._spec.name)
        retried = {serial: ssn for ssn, serial in image.retrying.items()}
        for serial in image.due:
            opened = image.sets[serial]
            cause = "fired" if opened.cause is None or opened.cause == "parked" else opened.cause
            due = self.sets.add(serial, cause)
            due.answers = list(image.answers[serial]) if serial in image.answers else None
            rows = tuple(m.ssn for m in opened.members if m.channel == again)
            due.retried = (retried[serial],) if serial in retried else rows
        self._failed = dict(image.failures)

    def rebuilt(self) -> None:
        """What had failed is set aside now."""
        failed, self._failed = self._failed, {}
        for serial, failure in failed.items():
            self.fail_for_good(serial, failure)

    # ---- generating -----------------------------------------------------------------------------------

    def can_take(self) -> bool:
        """Whether further events may be taken in. A generation that lags behind holds intake back, so that due sets
        don't pile up."""
        backlog = len(self.sets)
        return backlog == 0 if self._spec.concurrency == 1 else backlog < 2 * self._spec.concurrency

    def start(self, now: Monotonic) -> None:
        """Generates what is queued: a run of sets one after the other, or several at once, each by itself."""
        self.retry_at = self.sets.requeue(now)
        sets, concurrency = self.sets, self._spec.concurrency
        if self._spec.keyed:
            # One after the other, also while one waits to be tried again: the next one sees what it has made (R31).
            if sets.queued and not sets.in_flight and self.retry_at is None:
                self._generate(sets.start(1))
        elif concurrency == 1:
            if sets.queued and not sets.in_flight:
                self._generate(sets.start(self._spec.limits.run_events))
        else:
            while sets.queued and sets.in_flight < concurrency:
                self._generate(sets.start(1))

    def _generate(self, run: Iterable[DueSet]) -> None:
        self._act(do.Generate([do.Job(due.serial, due.cause, tuple(due.answers or ())) for due in run]))

    def generated(self, stimulus: on.Generated, now: Monotonic) -> None:
        """Some sets have come to an end, one way or the other."""
        for serial, _, failure, blameless, _ in self.sets.generated(stimulus.results):
            assert failure is not None
            if blameless:
                self._halt(failure, serial)
            else:
                self.failed(serial, failure, now)

    def interrupted(self, stimulus: on.Interrupted) -> None:
        """A stop has cut these off. They stay due, and have the answers that are committed (R9)."""
        for serial in stimulus.serials:
            self.sets.interrupt(serial)

    # ---- failing --------------------------------------------------------------------------------------

    def failed(self, serial: Serial, failure: Failure, now: Monotonic) -> None:
        """An exception is not a crash: retry, then `on_error`."""
        due = self.sets[serial]
        due.tries += 1
        retry = self._spec.retry
        if failure.retryable and due.tries < retry.attempts:
            self.sets.retry(serial, Monotonic(now + retry.delay(due.tries)))
        else:
            self.fail_for_good(serial, failure)

    def fail_for_good(self, serial: Serial, failure: Failure) -> None:
        """`on_error` decides: the pipeline stops, or the set is dropped or diverted."""
        self.sets.fail(serial)
        if self._spec.on_error == "stop":
            self._halt(failure, serial)
        elif self._spec.on_error == "drop":
            self._act(do.Discard(serial))
            self.sets.drop(serial, failure.reason)
        else:
            self._act(do.Divert(serial, failure))

    def diverted(self, stimulus: on.Diverted) -> None:
        """The event for port `errors` is made."""
        diverted = Finished(stimulus.serial, stimulus.inset, stimulus.members)
        self.sets.divert(stimulus.serial, (stimulus.output,), diverted)

    # ---- calls (R9) -----------------------------------------------------------------------------------

    def wants(self, stimulus: on.CallWanted) -> None:
        """User code of a writer wants to make a call."""
        self.wanted.append(stimulus)
        self.sets.waits(stimulus.serial, (stimulus.row, stimulus.n))

    def permit(self) -> None:
        """What the operator wrote before is written: its calls may be made."""
        for want in self.wanted:
            self._act(do.Permit(want.serial, want.row, want.n))
            self.sets.goes_on(want.serial, (want.row, want.n))
        self.wanted.clear()

    def answered(self, answer: Answer) -> bool:
        """An answer has come: a further try of the set will have it. False for a set that is over: nobody asks for
        it any more, so that it need not be kept."""
        due = self.sets.get(answer.serial)
        if due is None or due.state in ("failed", "done"):
            return False
        if due.answers is None:
            due.answers = []
        due.answers.append(answer)
        self.sets.waits(answer.serial, (answer.row, answer.n))
        return True

    def release(self, answers: tuple[Answer, ...]) -> None:
        """These answers are committed: the code that waits for them goes on."""
        self._act(do.Release(answers))
        for answer in answers:
            self.sets.goes_on(answer.serial, (answer.row, answer.n))
