"""What waits, waits on the monotonic clock: whoever sets the wall clock, nothing stalls and nothing comes early."""

from __future__ import annotations

import pytest
from tests.unit.engine.machines import (
    INPUT,
    MORNING,
    STORE,
    at,
    events,
    failed,
    failure,
    generated,
    jobs,
    one,
    only,
    running,
    with_sets,
)

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.events import Position
from logline.engine.image import Claim, Image
from logline.engine.moments import Moment, Wall
from logline.engine.spec import InstanceSpec, Limits, RetrySpec, write_port
from logline.names import OUT, Incarnation, InstanceName, PartitionName, Ssn
from logline.recovery.machines import machine_for

HOUR = 3_600_000_000
PART = PartitionName("0")


@pytest.fixture(params=[-HOUR, 0, 24 * HOUR], ids=["set back", "as it is", "set forward"])
def later(request: pytest.FixtureRequest) -> type:
    """A moment after the first one. Somebody has set the wall clock in between."""

    class Later:
        def __new__(cls, now: int) -> Moment:  # type: ignore[misc]
            return at(now, wall=now + request.param)

    return Later


def test_a_set_is_tried_again_when_its_wait_is_over(later: type) -> None:
    machine, _ = with_sets(retry=RetrySpec(2, 100))
    wake = one(machine.handle(failed(1, retryable=True), at(2)), do.Wake)
    assert wake.at == 102
    assert jobs(machine.handle(on.Bell(), later(101))) == []
    assert jobs(machine.handle(on.Tick(), later(102))) == [1]


def test_a_write_is_tried_again_when_its_wait_is_over(later: type) -> None:
    limits = Limits(write_retry=RetrySpec(3, 100))
    machine, _ = with_sets(targets={STORE: "named"}, limits=limits)
    machine.handle(generated(1, port=write_port(STORE)), at(2))
    assert only(machine.handle(on.Committed(1), at(3)), do.WriteOut)
    wake = one(machine.handle(on.Written(STORE, 0, failure(retryable=True)), at(4)), do.Wake)
    assert wake.at == 104
    assert only(machine.handle(on.Bell(), later(103)), do.WriteOut) == []
    assert only(machine.handle(on.Tick(), later(104)), do.WriteOut)


def test_positions_are_acknowledged_when_they_have_waited_long_enough(later: type) -> None:
    machine = running(limits=Limits(ack_after=500))
    machine.handle(on.Fetched(INPUT.name, Ssn(0), events(1)), at(1))
    assert one(machine.handle(on.TakenIn(on.Intake()), at(2)), do.Wake).at == 502
    assert only(machine.handle(on.Bell(), later(501)), do.Commit) == []
    step = one(machine.handle(on.Tick(), later(502)), do.Commit).step
    assert step.positions == {INPUT.name: Position(Ssn(1), 10)}


def test_a_source_reads_again_when_its_wait_is_over(later: type) -> None:
    spec = InstanceSpec(InstanceName("source"), ports={OUT: ()}, partitions=(PART,), retry=RetrySpec(2, 100))
    machine = machine_for(spec)
    machine.handle(on.Started(), at(0))
    assert only(machine.handle(on.Claimed(Claim(Incarnation(1), Image())), at(0)), do.Read)
    assert one(machine.handle(on.ReadGot(PART, (), "more", failure(retryable=True)), at(1)), do.Wake).at == 101
    assert only(machine.handle(on.Bell(), later(100)), do.Read) == []
    assert only(machine.handle(on.Tick(), later(101)), do.Read)


def test_a_channel_falls_silent_when_so_much_time_has_passed(later: type) -> None:
    machine = running()
    machine.intake.wait_until = at(50).monotonic
    assert one(machine.handle(on.Bell(), at(1)), do.Wake).at == 50
    assert do.CheckClock() not in machine.handle(on.Bell(), later(49))
    assert do.CheckClock() in machine.handle(on.Tick(), later(50))


# ---- timers of the wall clock, which are promised at a time -------------------------------------------------------


def test_a_timer_waits_for_its_time_when_the_wall_clock_is_set_back() -> None:
    machine = running()
    machine.intake.timer_at = Wall(MORNING + 5000)
    assert one(machine.handle(on.Bell(), at(0)), do.Wake).at == 5000
    # By a minute: the Tick comes, and the time has not. It is reckoned anew.
    back = machine.handle(on.Tick(), at(5000, wall=5000 - 60_000_000))
    assert do.CheckClock() not in back
    assert one(back, do.Wake).at == 60_005_000 - 5000 + 5000
    assert do.CheckClock() in machine.handle(on.Tick(), at(60_005_000, wall=5000))


def test_a_timer_comes_with_the_next_look_when_the_wall_clock_is_set_forward() -> None:
    machine = running()
    machine.intake.timer_at = Wall(MORNING + HOUR)
    machine.handle(on.Bell(), at(0))
    assert do.CheckClock() in machine.handle(on.Bell(), at(1, wall=2 * HOUR))


def test_a_timer_that_comes_earlier_than_was_thought_is_waited_for() -> None:
    machine = running()
    machine.intake.timer_at = Wall(MORNING + HOUR)
    machine.handle(on.Bell(), at(0))
    assert one(machine.handle(on.Bell(), at(1, wall=HOUR - 9000)), do.Wake).at == 9001


def test_two_clocks_that_are_not_read_at_one_instant_ask_for_no_further_tick() -> None:
    machine = running()
    machine.intake.timer_at = Wall(MORNING + HOUR)
    machine.handle(on.Bell(), at(0))
    assert all(only(machine.handle(on.Bell(), at(n, wall=n + n)), do.Wake) == [] for n in range(1, 200))
    (tick,) = only(machine.handle(on.Tick(), at(HOUR, wall=HOUR - 3)), do.Wake)
    assert tick.at == HOUR + 3
