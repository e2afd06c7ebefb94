"""Sources: when a life hands over, and when it has caught up (R9, R11')."""

from __future__ import annotations

import pytest
from tests.unit.engine.machines import at

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.image import Claim, Image
from logline.engine.progress import Progress
from logline.engine.reading import SourceMachine
from logline.engine.spec import InstanceSpec
from logline.names import OUT, Incarnation, InstanceName, PartitionName
from logline.recovery.machines import machine_for

A, B = PartitionName("a"), PartitionName("b")
READ = Progress(status="complete", ended=True)


def life(image: Image, here: set[PartitionName] | None, *, until_now: bool) -> tuple[SourceMachine, list[do.Action]]:
    spec = InstanceSpec(
        InstanceName("rows"),
        ports={OUT: ()},
        partitions=(A, B),
        here=None if here is None else frozenset(here),
        until_now=until_now,
        grows=False,
    )
    machine = machine_for(spec)
    assert isinstance(machine, SourceMachine)
    machine.handle(on.Started(), at(0))
    return machine, machine.handle(on.Claimed(Claim(Incarnation(1), image)), at(0))


@pytest.mark.parametrize("until_now", [True, False])
def test_a_life_that_can_read_none_of_what_is_left_hands_over(until_now: bool) -> None:
    _, asked = life(Image(reads={A: READ}), {A}, until_now=until_now)
    assert asked == [do.Leave("handed")]


@pytest.mark.parametrize("here", [None, {B}, set()])
def test_one_that_has_caught_up_stays_and_gives_no_end(here: set[PartitionName] | None) -> None:
    """Else life would follow life, each with nothing to read, and the run would never be over."""
    machine, asked = life(Image(reads={A: READ, B: READ}), here, until_now=True)
    assert asked == []
    assert machine.caught_up and machine.quiet() and not machine.end_given


def test_one_that_reads_to_the_end_gives_it() -> None:
    machine, asked = life(Image(reads={A: READ, B: READ}), set(), until_now=False)
    assert machine.end_given
    assert [type(action) for action in asked] == [do.Commit]


def test_a_pause_is_no_end_of_a_run_that_goes_on() -> None:
    machine, asked = life(Image(reads={A: READ}), None, until_now=True)
    assert asked == [do.Read(B, None, fresh=True)]
    assert not machine.caught_up
    machine.handle(on.ReadGot(B, (), "pause"), at(1))
    assert not machine.partitions[B].progress.ended
    for action in machine.handle(on.Tick(), at(10_000_000)):
        assert isinstance(action, do.Commit)
        machine.handle(on.Committed(action.step.number), at(10_000_001))
    assert machine.caught_up
