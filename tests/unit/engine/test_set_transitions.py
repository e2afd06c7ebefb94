"""Every change of state that a due set can make: the stimulus that leads to it, and what the machine asks for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.engine.machines import (
    INPUT,
    STORE,
    answer,
    at,
    claimed,
    events,
    failed,
    failure,
    generated,
    jobs,
    made,
    one,
    only,
    running,
    with_sets,
)

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.due_sets import NEXT, DueSets, State
from logline.engine.image import Image
from logline.engine.moments import Monotonic
from logline.engine.results import Failure, Result
from logline.engine.sets import Member, OpenSet
from logline.engine.spec import RetrySpec, write_port
from logline.errors import EngineError
from logline.names import ERRORS, OUT, Serial, Ssn, TargetName

FIRST = Serial(1)
TWICE = RetrySpec(attempts=2, wait=100)


def queued_running() -> None:
    """The set of an event that was taken in is generated at once."""
    machine, asked = with_sets()
    assert jobs(asked) == [1]
    assert machine.generation.sets[FIRST].state == "running"
    assert machine.in_flight == 1


def queued_failed() -> None:
    """A set that failed before `generate`, in an earlier life, is set aside when this one has rebuilt its sets."""
    image = Image(serial=FIRST, due=[FIRST], failures={FIRST: failure()})
    image.sets[FIRST] = OpenSet("hour", [Member(INPUT.name, Ssn(1))], "fired")
    machine, asked = claimed(image, on_error="divert")
    assert one(asked, do.FetchMembers).ssns == (1,)
    assert machine.generation.sets[FIRST].state == "queued"
    machine.handle(on.MembersFetched(INPUT.name, events(1)), at(0))
    asked = machine.handle(on.Rebuilt(on.Intake()), at(0))
    assert one(asked, do.Divert) == do.Divert(FIRST, failure())
    assert jobs(asked) == []
    assert machine.generation.sets[FIRST].state == "failed"


def running_calling() -> None:
    """An answer is committed with all that is pending, before the code that waits for it goes on (R9)."""
    machine, _ = with_sets()
    step = one(machine.handle(on.Answered(answer(1)), at(2)), do.Commit).step
    assert step.sets.answers == {FIRST: [answer(1)]}
    assert list(step.sets.alone) == [FIRST]  # the image from before `generate`: the set is due in it
    assert machine.generation.sets[FIRST].state == "calling"


def calling_running() -> None:
    """The commit is durable: the code goes on."""
    machine, _ = with_sets()
    number = one(machine.handle(on.Answered(answer(1)), at(2)), do.Commit).step.number
    assert one(machine.handle(on.Committed(number), at(3)), do.Release).answers == (answer(1),)
    assert machine.generation.sets[FIRST].state == "running"


def calling_done() -> None:
    """A set may come to its end while a call that it does not wait for any more is under way."""
    machine, _ = with_sets()
    machine.handle(on.Answered(answer(1)), at(2))
    machine.handle(generated(1), at(3))
    assert FIRST not in machine.generation.sets
    assert [output.serial for output in machine.sealing.step.outputs + machine.commits.pending.outputs] == [1]


def calling_retrying() -> None:
    """One row fails while another waits for its answer: the next try has the answer (R9)."""
    machine, _ = with_sets(retry=TWICE)
    number = one(machine.handle(on.Answered(answer(1, row=3)), at(2)), do.Commit).step.number
    assert one(machine.handle(failed(1, retryable=True), at(3)), do.Wake).at == 103
    assert machine.generation.sets[FIRST].state == "retrying"
    machine.handle(on.Committed(number), at(4))  # nobody waits any more
    assert machine.generation.sets[FIRST].state == "retrying"
    (job,) = one(machine.handle(on.Tick(), at(103)), do.Generate).jobs
    assert job.answers == (answer(1, row=3),)


def calling_failed() -> None:
    """The same for good."""
    machine, _ = with_sets(on_error="divert")
    machine.handle(on.Answered(answer(1)), at(2))
    assert one(machine.handle(failed(1), at(3)), do.Divert).serial == 1
    assert machine.generation.sets[FIRST].state == "failed"
    assert machine.in_flight == 0


def running_retrying() -> None:
    """Its code raised something that `retry` names."""
    machine, _ = with_sets(retry=TWICE)
    asked = machine.handle(failed(1, retryable=True), at(2))
    assert one(asked, do.Wake).at == 102
    assert only(asked, do.Halt) == []
    assert machine.generation.sets[FIRST].state == "retrying"


def retrying_queued() -> None:
    """Its time has come. Another set is being generated, so that it has to wait for its turn."""
    machine, _ = with_sets(3, retry=TWICE, concurrency=2)
    machine.handle(failed(1, retryable=True), at(2))  # the third one takes its place
    assert machine.in_flight == 2
    assert jobs(machine.handle(on.Tick(), at(102))) == []
    assert machine.generation.sets[FIRST].state == "queued"
    assert jobs(machine.handle(generated(2), at(103))) == [1]


def running_failed() -> None:
    """`on_error="stop"`: the pipeline stops, and the log stays as it is."""
    machine, _ = with_sets()
    asked = machine.handle(failed(1), at(2))
    assert asked == [do.Halt(failure(), FIRST)]
    assert machine.phase == "failed"
    assert machine.generation.sets[FIRST].state == "failed"


def failed_done() -> None:
    """The event for port `errors` is made: it and the parked set are one step (R1)."""
    machine, _ = with_sets(on_error="divert")
    machine.handle(failed(1), at(2))
    members = (Member(INPUT.name, Ssn(1)),)
    asked = machine.handle(on.Diverted(FIRST, made(ERRORS)[0], "up:1", members), at(3))
    step = one(asked, do.Commit).step
    assert [(o.port, o.ssn, o.serial) for o in step.outputs] == [(ERRORS, 1, 1)]
    assert step.sets.parked == [FIRST]
    assert FIRST not in machine.generation.sets


def running_done() -> None:
    """Outputs, the end of the set and the position are one step (R1)."""
    machine, _ = with_sets()
    step = one(machine.handle(generated(1), at(2)), do.Commit).step
    assert [(o.port, o.ssn, o.serial) for o in step.outputs] == [(OUT, 1, 1)]
    assert step.positions[INPUT.name].ssn == 1
    assert step.sets.alone == {}  # it began and ended within the step
    assert FIRST not in machine.generation.sets


def running_queued() -> None:
    """A stop has not let its code begin, or has cut it off: it stays due in the log."""
    machine, _ = with_sets()
    machine.handle(on.Command("stop"), at(2))
    step = one(machine.handle(on.Interrupted((FIRST,)), at(3)), do.Commit).step
    assert list(step.sets.alone) == [FIRST]
    assert machine.generation.sets[FIRST].state == "queued"
    assert machine.in_flight == 0


def calling_queued() -> None:
    """The same while it waits for a call that is not made any more. Told twice, it is cut off once."""
    machine, _ = with_sets(targets={TargetName("t"): "named"})
    machine.handle(on.CallWanted(FIRST, -1, 0), at(2))
    machine.handle(on.Command("stop"), at(3))
    machine.handle(on.Interrupted((FIRST,)), at(4))
    machine.handle(on.Interrupted((FIRST,)), at(5))
    assert machine.generation.sets[FIRST].state == "queued"
    assert machine.in_flight == 0


CASES: dict[tuple[State, State], Callable[[], None]] = {
    ("queued", "running"): queued_running,
    ("queued", "failed"): queued_failed,
    ("running", "calling"): running_calling,
    ("running", "retrying"): running_retrying,
    ("running", "failed"): running_failed,
    ("running", "done"): running_done,
    ("calling", "running"): calling_running,
    ("calling", "retrying"): calling_retrying,
    ("calling", "failed"): calling_failed,
    ("calling", "done"): calling_done,
    ("retrying", "queued"): retrying_queued,
    ("running", "queued"): running_queued,
    ("calling", "queued"): calling_queued,
    ("failed", "done"): failed_done,
}


@pytest.mark.parametrize("change", CASES, ids=lambda change: f"{change[0]}-{change[1]}")
def test_transition(change: tuple[State, State]) -> None:
    CASES[change]()


def test_every_transition_of_the_table_has_a_case() -> None:
    assert set(CASES) == {(state, to) for state, after in NEXT.items() for to in after}


def _in_state(state: State) -> DueSets:
    sets = DueSets(ordered=True)
    sets.add(FIRST, "ready")
    if state != "queued":
        sets.start(1)
    match state:
        case "calling":
            sets.waits(FIRST, (0, 0))
        case "retrying":
            sets.retry(FIRST, Monotonic(5))
        case "failed":
            sets.fail(FIRST)
        case "done":
            sets.generated([Result(FIRST)])
    assert sets[FIRST].state == state
    return sets


@pytest.mark.parametrize("state", NEXT)
def test_what_the_table_does_not_allow_is_an_error(state: State) -> None:
    for to in NEXT.keys() - NEXT[state]:
        due = _in_state(state)[FIRST]
        with pytest.raises(EngineError, match=f"input set 1 is {state} and can't become {to}"):
            due.move(to)


def test_a_result_that_comes_twice_is_found() -> None:
    machine, _ = with_sets(2)
    machine.handle(generated(2), at(2))
    with pytest.raises(EngineError, match="is done"):
        machine.handle(generated(2), at(3))


def test_with_order_nobody_is_logged_before_its_turn() -> None:
    machine, _ = with_sets(3, concurrency=3)
    for serial in (3, 2):
        assert only(machine.handle(generated(serial), at(2)), do.Commit) == []
    step = one(machine.handle(generated(1), at(5)), do.Commit).step
    assert [(o.ssn, o.serial) for o in step.outputs] == [(1, 1), (2, 2), (3, 3)]


def test_without_order_each_is_logged_as_it_comes() -> None:
    machine, _ = with_sets(3, concurrency=3, ordered=False)
    step = only(machine.handle(generated(3), at(2)), do.Commit)[0].step
    assert [(o.ssn, o.serial) for o in step.outputs] == [(1, 3)]
    machine.handle(on.Committed(1), at(3))
    step = one(machine.handle(generated(1), at(4)), do.Commit).step
    assert [(o.ssn, o.serial) for o in step.outputs] == [(2, 1)]


def test_a_dropped_set_makes_nothing() -> None:
    machine, _ = with_sets(on_error="drop")
    asked = machine.handle(failed(1), at(2))
    assert one(asked, do.Discard) == do.Discard(FIRST)
    assert machine.commits.pending.positions[INPUT.name].ssn == 1
    assert machine.commits.pending.outputs == []
    assert machine.commits.pending.sets.dropped == {FIRST: failure().reason}
    assert FIRST not in machine.generation.sets


def test_the_first_of_a_run_that_failed_while_it_was_applied_is_retried_and_the_rest_follows() -> None:
    machine = running(stateless=True, plain=True, retry=TWICE)
    machine.intake._length = 3
    (applied,) = only(machine.handle(on.Fetched(INPUT.name, Ssn(0), events(1, 3)), at(1)), do.Apply)
    rest = {Serial(n): Member(INPUT.name, Ssn(n)) for n in (2, 3)}
    asked = machine.handle(on.Applied(FIRST, [made()], rest, failure(retryable=True)), at(2))
    assert len(applied.events) == 3
    assert 102 in [wake.at for wake in only(asked, do.Wake)]
    assert jobs(asked) == [3]
    assert machine.generation.sets[Serial(2)].state == "retrying"


def test_an_answer_for_a_set_that_is_over_is_not_kept() -> None:
    """Its code has come to an end, and a call that it had left behind is answered: nobody would ever use it."""
    machine, _ = with_sets()
    machine.handle(generated(1), at(2))
    asked = machine.handle(on.Answered(answer(1)), at(3))
    assert one(asked, do.Release).answers == (answer(1),)
    assert machine.commits.pending.sets.answers == {}


def test_a_writer_calls_when_what_it_wrote_is_written() -> None:
    machine, _ = with_sets(2, targets={STORE: "guarded"}, concurrency=2)
    write = machine.handle(generated(1, port=write_port(STORE)), at(2))
    number = only(write, do.Commit)[0].step.number
    assert only(machine.handle(on.CallWanted(Serial(2), 0, 0), at(3)), do.Permit) == []
    assert machine.generation.sets[Serial(2)].state == "calling"
    asked = machine.handle(on.Committed(number), at(4))
    while commits := only(asked, do.Commit):  # the write may ride with the next one
        asked = machine.handle(on.Committed(commits[0].step.number), at(5))
    assert one(asked, do.WriteOut).target == STORE
    assert one(machine.handle(on.Written(STORE, 1), at(6)), do.Permit) == do.Permit(Serial(2), 0, 0)
    assert machine.generation.sets[Serial(2)].state == "running"


def test_what_is_overdue_and_blocked_is_not_waited_for_by_the_clock() -> None:
    """A wake-up in the past would come at once, again and again, for as long as the set is generated."""
    machine, _ = with_sets()
    machine.intake.wait_until = Monotonic(50)
    assert one(machine.handle(on.Bell(), at(10)), do.Wake).at == 50
    assert all(wake.at > 60 for wake in only(machine.handle(on.Tick(), at(60)), do.Wake))
    assert do.CheckClock() in machine.handle(generated(1), at(70))


def test_a_failure_of_a_set_that_is_not_due_yet_closes_it() -> None:
    """`update` failed while the set was rebuilt."""
    image = Image(serial=FIRST, sets={FIRST: OpenSet("hour", [Member(INPUT.name, Ssn(1))])})
    machine, _ = claimed(image, on_error="divert")
    machine.handle(on.MembersFetched(INPUT.name, events(1)), at(0))
    broken = Failure("ValueError", "update", "")
    asked = machine.handle(on.Rebuilt(on.Intake(failed=[(FIRST, broken)])), at(0))
    assert one(asked, do.Divert) == do.Divert(FIRST, broken)
    assert machine.sealing.step.sets.failures == {FIRST: broken}
    assert machine.sealing.step.sets.due == {FIRST: "fired"}
