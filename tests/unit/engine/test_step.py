import dataclasses
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.unit.engine.making import BROKEN, ONE, ORDERS, THREE, TWO, answer, applied, opened, output, taken

from logline.engine.events import Collection, Position
from logline.engine.history import Finished, Lone, Segment
from logline.engine.image import Image
from logline.engine.moments import Wall
from logline.engine.progress import Progress
from logline.engine.sets import Checkpoint, Member, OpenSet
from logline.engine.step import Step
from logline.names import OUT, ChannelName, PartitionName, Serial, Ssn, TargetName
from logline.testing.conformance.model import Model, exact, exact_rows, step_of
from logline.testing.conformance.steps import steps


def test_a_set_that_begins_and_ends_in_one_step_leaves_only_its_memberships() -> None:
    step = opened(ONE, 1)
    step.join(ONE, taken(2, "note"))
    step.sets.due[ONE] = "ready"
    step.sets.answers[ONE] = [answer(ONE)]
    step.sets.failures[ONE] = BROKEN
    step.close(ONE, traced=False)
    assert step == step_of(serial=ONE, finished=[Finished(ONE, "H", (taken(1), taken(2, "note")))])
    image = applied(step)
    assert image == Image(serial=ONE)  # the serial is used up all the same (R7)


@pytest.mark.parametrize("traced", [False, True])
def test_an_event_alone_that_is_generated_at_once_leaves_nothing_but_lineage(traced: bool) -> None:
    step = step_of(alone={ONE: taken(1)}, serial=ONE, answers={ONE: [answer(ONE)]})
    step.close(ONE, traced=traced)
    assert step == step_of(serial=ONE, lone=[Lone(ONE, ORDERS, Ssn(1))] if traced else [])


def test_events_alone_that_are_generated_in_order_are_one_run() -> None:
    step = step_of(alone={Serial(n): taken(n + 4) for n in range(1, 9)}, serial=Serial(8))
    for serial in (1, 2, 5, 6):  # 3 and 4 made nothing
        step.close(Serial(serial), traced=True)
    other = Member(ChannelName("refunds.out>hourly.in"), Ssn(7))
    step.sets.alone[Serial(9)] = other
    step.close(Serial(9), traced=True)
    assert step.lineage.lone == [Lone(ONE, ORDERS, Ssn(5), 6), Lone(Serial(9), other.channel, Ssn(7))]
    assert step.lineage.lone[0].member(Serial(6)) == taken(10)


def test_a_run_ends_where_serials_and_ssns_do_not_rise_together() -> None:
    """Between 5 and 6 another channel's event took a serial, in an earlier step."""
    step = step_of(alone={ONE: taken(5), THREE: taken(6)}, serial=THREE)
    step.close(ONE, traced=True)
    step.close(THREE, traced=True)
    assert step.lineage.lone == [Lone(ONE, ORDERS, Ssn(5)), Lone(THREE, ORDERS, Ssn(6))]


def test_without_order_an_event_alone_is_a_set_like_any_other() -> None:
    step = step_of(alone={ONE: taken(1)}, serial=ONE)
    step.close(ONE, traced=True, ordered=False)
    assert step == step_of(serial=ONE, finished=[Finished(ONE, "orders:1", (taken(1),))], kept=[ONE])


def test_a_set_of_an_earlier_commit_is_done() -> None:
    step = step_of(due={ONE: "fired"}, answers={ONE: [answer(ONE)]}, failures={ONE: BROKEN})
    step.close(ONE, traced=True)
    assert step == step_of(done=[ONE], kept=[ONE])


def test_members_that_joined_in_the_step_that_ends_the_set_are_remembered() -> None:
    step = Step()
    step.join(ONE, taken(3))
    step.close(ONE, traced=False)
    assert step == step_of(members={ONE: [taken(3)]}, done=[ONE])
    model = Model()
    model.apply(opened(ONE, 1))
    model.apply(step)
    assert sorted(ssn for _, ssn, _ in model.done) == [1, 3]
    assert model.image.sets == {}


def test_a_set_of_an_earlier_commit_is_joined_apart() -> None:
    step = opened(TWO, 1)
    step.join(TWO, taken(2))
    step.join(ONE, taken(2))
    assert step.sets.opened[TWO].members == [taken(1), taken(2)]
    assert step.sets.members == {ONE: [taken(2)]}


def test_a_set_that_begins_in_the_step_in_which_it_is_merged_never_reaches_the_image() -> None:
    step = opened(ONE, 1)
    step.absorb(opened(TWO, 2))
    step.join(ONE, taken(2))
    step.merge(TWO, ONE)
    assert step.sets.merged == {}
    assert applied(step).sets == {ONE: OpenSet("H", [taken(1), taken(2)])}


def test_a_set_of_an_earlier_commit_is_merged_with_all_that_joined_it_since() -> None:
    before = opened(ONE, 1)
    before.absorb(opened(TWO, 2))
    step = Step()
    step.join(TWO, taken(3))  # in a step of its own, before the merge and in the same commit
    later = Step()
    for ssn in (2, 3):
        later.join(ONE, taken(ssn))
    later.merge(TWO, ONE)
    step.absorb(later)
    assert step == step_of(members={ONE: [taken(2), taken(3)]}, merged={TWO: ONE})
    assert applied(before, step).sets == {ONE: OpenSet("H", [taken(1), taken(2), taken(3)])}


def test_a_set_that_is_done_has_no_checkpoint_left() -> None:
    step = step_of(checkpoints={ONE: Checkpoint(1, b"state", "plain", b"")})
    step.close(ONE, traced=False)
    assert step == step_of(done=[ONE])


_CHANGES: dict[str, Any] = {
    "outputs": [output(1, 10)],
    "staged": [output(1, 10)],
    "reveal": {OUT: (Ssn(1), 10)},
    "positions": {ORDERS: Position(Ssn(1), 10)},
    "alone": {ONE: taken(1)},
    "opened": {ONE: OpenSet("H")},
    "members": {ONE: [taken(1)]},
    "merged": {ONE: TWO},
    "checkpoints": {ONE: Checkpoint(1, b"", "", b"")},
    "inherits": {TWO: ONE},
    "due": {ONE: "ready"},
    "parked": [ONE],
    "retrying": {Ssn(1): ONE},
    "resolved": {Ssn(1): "dropped"},
    "done": [ONE],
    "finished": [Finished(ONE, "H", (taken(1),))],
    "state": b"",
    "clock": {ORDERS: 0},
    "timers": {"H": None},
    "keyed": {b"key": None},
    "answers": {ONE: [answer(ONE)]},
    "failures": {ONE: BROKEN},
    "written": {TargetName("store"): 0},
    "progress": {PartitionName("0"): Progress()},
    "collected": {OUT: Collection(Ssn(1), frozenset())},
    "forget": {ORDERS: Ssn(1)},
    "expired": 1,
    "reopened": True,
    "ended": True,
    "left": True,
}


def test_a_step_is_empty_when_it_changes_nothing() -> None:
    assert Step().empty
    assert step_of(number=7, serial=ONE).empty  # a number alone is no change
    # They say more about outputs and done sets.
    of_others = {"number", "serial", "kept", "lone", "lows", "segment", "dropped"}
    parts = [getattr(Step(), name) for name in ("sets", "lineage", "errors", "reads", "writes")]
    assert {f.name for part in (Step(), *parts) for f in dataclasses.fields(part)} == {*_CHANGES, *of_others}
    for name, value in _CHANGES.items():
        assert not step_of(**{name: value}).empty, name


def test_the_bytes_of_a_step_are_those_of_all_its_rows() -> None:
    assert step_of(outputs=[output(1, 10)], staged=[output(2, 20), output(3, 30)]).nbytes == 30


def test_why_a_set_of_one_event_was_dropped_is_remembered_with_its_membership() -> None:
    step, later = step_of(serial=ONE, alone={ONE: taken(1)}), Step()
    later.sets.dropped[ONE] = "ValueError: no"
    later.close(ONE, traced=False)
    step.absorb(later)
    wanted = [Finished(ONE, "orders:1", (taken(1),))]
    assert step == step_of(serial=ONE, finished=wanted, dropped={ONE: "ValueError: no"})


# ---- several steps in one commit --------------------------------------------------------------------------------


def test_a_set_that_a_later_step_of_the_commit_ends_never_reaches_the_image() -> None:
    step, later = opened(ONE, 1), Step()
    step.sets.answers[ONE] = [answer(ONE)]
    later.join(ONE, taken(2))
    later.sets.due[ONE] = "ready"
    later.close(ONE, traced=False)
    step.absorb(later)
    assert step == step_of(serial=ONE, finished=[Finished(ONE, "H", (taken(1), taken(2)))])


def test_a_set_that_a_later_step_of_the_commit_joins_and_makes_due() -> None:
    step, later = opened(ONE, 1), Step()
    later.join(ONE, taken(2))
    later.sets.due[ONE] = "ready"
    later.sets.answers[ONE] = [answer(ONE)]
    step.absorb(later)
    assert applied(step) == Image(
        sets={ONE: OpenSet("H", [taken(1), taken(2)], "ready")}, due=[ONE], serial=ONE, answers={ONE: [answer(ONE)]}
    )


@pytest.mark.parametrize("traced", [False, True])
def test_an_event_alone_that_a_later_step_of_the_commit_ends(traced: bool) -> None:
    step = step_of(alone={ONE: taken(1), TWO: taken(2)}, serial=TWO)
    step.absorb(step_of(done=[ONE], kept=[ONE] if traced else [], outputs=[output(1, 10)]))
    lone = [Lone(ONE, ORDERS, Ssn(1))] if traced else []
    assert step == step_of(alone={TWO: taken(2)}, serial=TWO, lone=lone, outputs=[output(1, 10)])


def same_segment(step: Step) -> Step:
    """History goes into a segment when it is committed, not before."""
    step.lineage.segment, step.lineage.expired = Segment(1, Wall(0), Wall(0), {}, {}), 0
    return step


def remembered(model: Model) -> dict[Any, Any]:
    """Memberships of done sets. One that is done when its event is forgotten already may be forgotten sooner."""
    return {key: inset for key, inset in model.done.items() if key[1] >= model.forgotten.get(key[0], 1)}


@settings(deadline=None, max_examples=100)
@given(st.data(), st.booleans())
def test_steps_that_share_a_commit_are_the_same_as_one_after_the_other(data: st.DataObject, stateless: bool) -> None:
    apart, together = Model(), Model()
    for _ in range(data.draw(st.integers(0, 3))):
        step = same_segment(data.draw(steps(apart, stateless=stateless)))
        apart.apply(step)
        together.apply(step)
    shared = same_segment(Step())
    for _ in range(data.draw(st.integers(2, 6))):
        step = same_segment(data.draw(steps(apart, stateless=stateless)))
        assume(not step.reopened)  # a commit of its own, under a claim (R11')
        apart.apply(step)
        shared.absorb(step)
    together.apply(shared)
    assert exact(together.image) == exact(apart.image)
    if not stateless:  # of a set that is one event only lineage remembers more than its position
        assert remembered(together) == remembered(apart)
    assert apart.kept.items() <= together.kept.items()
    assert apart.made.items() <= together.made.items()
    assert {p: exact_rows(r.values()) for p, r in together.rows.items()} == {
        p: exact_rows(r.values()) for p, r in apart.rows.items()
    }
