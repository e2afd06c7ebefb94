"""Checkpoints of open sets (R22): stimulus in, actions out; and what a checkpoint does to an image."""

from __future__ import annotations

import pytest
from tests.unit.engine.machines import INPUT, at, claimed, events, one, only, running

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.image import Image
from logline.engine.operating import OperatorMachine
from logline.engine.set_state import SetState
from logline.engine.sets import Checkpoint, Member, OpenSet, digest_members
from logline.engine.spec import Targets
from logline.engine.step import Step
from logline.errors import EngineError
from logline.graph.operator import Cause
from logline.names import Serial, Ssn

SET = Serial(1)
ALWAYS = Targets(replay=0, every=0)


def members(*ssns: int) -> list[Member]:
    return [Member(INPUT.name, Ssn(ssn)) for ssn in ssns]


def checkpoint(covers: int) -> Checkpoint:
    return Checkpoint(covers, b"state", "plain", digest_members(members(*range(1, covers + 1))))


def take_in(machine: OperatorMachine, ssn: int, now: int, due: Cause | None = None) -> list[do.Action]:
    """The event is read and joins the set."""
    asked = machine.handle(on.Fetched(INPUT.name, Ssn(ssn - 1), events(ssn)), at(now))
    one(asked, do.TakeIn)
    intake = on.Intake(members=[(SET, members(ssn)[0])], due=[(SET, due)] if due else [])
    if ssn == 1:
        intake.opened.append((SET, "H"))
    return machine.handle(on.TakenIn(intake), at(now))


def commit(asked: list[do.Action]) -> Step:
    return one(asked, do.Commit).step


def test_a_set_is_checkpointed_when_its_events_are_taken_in() -> None:
    machine = running(policy="eventual", checkpoints=ALWAYS)
    assert only(take_in(machine, 1, 1), do.Checkpoint) == [do.Checkpoint((SET,))]


def test_pessimistic_never_asks_for_a_checkpoint() -> None:
    assert only(take_in(running(), 1, 1), do.Checkpoint) == []


def test_no_run_is_begun_while_sets_are_encoded() -> None:
    machine = running(policy="eventual", checkpoints=ALWAYS)
    take_in(machine, 1, 1)
    assert only(machine.handle(on.Fetched(INPUT.name, Ssn(1), events(2)), at(2)), do.TakeIn) == []
    asked = machine.handle(on.Checkpointed({SET: checkpoint(1)}), at(3))
    assert len(only(asked, do.TakeIn)) == 1


def test_a_checkpoint_is_in_the_commit_of_its_memberships_or_in_a_later_one() -> None:
    machine = running(policy="eventual", checkpoints=ALWAYS)
    take_in(machine, 1, 1)
    machine.handle(on.Checkpointed({SET: checkpoint(1)}), at(2))
    step = commit(machine.handle(on.Tick(), at(1_000_000)))
    assert step.sets.opened[SET].members == members(1)
    assert step.sets.checkpoints == {SET: checkpoint(1)}


def test_what_is_covered_is_let_go_when_the_checkpoint_is_durable_and_not_before() -> None:
    machine = running(policy="eventual", checkpoints=ALWAYS)
    take_in(machine, 1, 1)
    asked = machine.handle(on.Checkpointed({SET: checkpoint(1)}), at(2))
    asked += machine.handle(on.Tick(), at(1_000_000))
    assert only(asked, do.LetGo) == []
    asked = machine.handle(on.Committed(commit(asked).number), at(1_000_001))
    assert one(asked, do.LetGo) == do.LetGo({SET: 1})


def test_a_set_has_no_second_checkpoint_on_its_way() -> None:
    machine = running(policy="eventual", checkpoints=ALWAYS)
    take_in(machine, 1, 1)
    machine.handle(on.Checkpointed({SET: checkpoint(1)}), at(2))
    assert only(take_in(machine, 2, 3), do.Checkpoint) == []
    step = commit(machine.handle(on.Tick(), at(1_000_000)))
    assert only(machine.handle(on.Committed(step.number), at(1_000_001)), do.Checkpoint) == [do.Checkpoint((SET,))]


def test_a_set_that_is_due_is_not_checkpointed() -> None:
    machine = running(policy="eventual", checkpoints=ALWAYS)
    assert only(take_in(machine, 1, 1, due="ready"), do.Checkpoint) == []


def test_a_stop_waits_for_what_is_being_encoded() -> None:
    machine = running(policy="eventual", checkpoints=ALWAYS)
    take_in(machine, 1, 1)
    asked = machine.handle(on.Command("stop"), at(2))
    asked += machine.handle(on.Committed(commit(asked).number), at(3))
    assert only(asked, do.Leave) == []
    asked = machine.handle(on.Checkpointed({SET: checkpoint(1)}), at(4))
    asked += machine.handle(on.Committed(commit(asked).number), at(5))
    assert one(asked, do.Leave).why == "stopped"


def test_recovery_reads_the_members_after_the_checkpoint_alone() -> None:
    """Whichever policy the operator has now."""
    image = Image(serial=SET)
    image.sets[SET] = OpenSet("H", members(3, 4), None, checkpoint(2))
    for policy in ("pessimistic", "eventual"):
        _, asked = claimed(image, policy=policy)
        assert only(asked, do.FetchMembers) == [do.FetchMembers(INPUT.name, (Ssn(3), Ssn(4)))]


def test_the_newest_checkpoint_wins() -> None:
    image = Image()
    for step in (opened(1, 2, 3), saved(1), saved(3)):
        image.apply(step)
    assert image.sets[SET] == OpenSet("H", [], None, checkpoint(3))


def test_a_checkpoint_covers_a_part_of_the_members_of_its_own_commit() -> None:
    step = opened(1)
    step.absorb(saved(1))
    step.join(SET, members(2)[0])
    image = Image()
    image.apply(step)
    assert image.sets[SET] == OpenSet("H", members(2), None, checkpoint(1))
    assert image.sets[SET].count == 2


@pytest.mark.parametrize("covers", [1, 4])
def test_a_checkpoint_of_other_members_than_are_logged_is_refused(covers: int) -> None:
    image = Image()
    for step in (opened(1, 2, 3), saved(2)):
        image.apply(step)
    with pytest.raises(
        EngineError, match=f"covers {covers} members; 3 are logged, and the checkpoint before it covers 2"
    ):
        image.apply(saved(covers))


def test_the_digest_of_a_set_stays_when_members_are_let_go() -> None:
    """It is what `ctx.id` is made of."""
    known = SetState("H", None, members(1, 2, 3))
    whole = known.digest()
    known.let_go(2)
    assert (known.members, known.digest()) == (members(3), whole)
    assert SetState.logged(OpenSet("H", members(3), None, checkpoint(2))).digest() == whole


def opened(*ssns: int) -> Step:
    step = Step()
    step.open(SET, "H", members(*ssns))
    return step


def saved(covers: int) -> Step:
    step = Step()
    step.sets.checkpoints[SET] = checkpoint(covers)
    return step
