import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logline.engine.image import (
    Answer,
    Collection,
    Finished,
    Head,
    Image,
    Lone,
    Member,
    OpenSet,
    Output,
    Position,
    Progress,
    Segment,
    Step,
    Timer,
    own_id,
)
from logline.engine.results import Failure
from logline.names import OUT, ChannelName, PartitionName, PortName, Serial, Ssn, TargetName
from logline.testing.conformance.model import Model, exact, exact_rows
from logline.testing.conformance.steps import steps

ORDERS = ChannelName("orders.out>hourly.in")
ONE, TWO, THREE = Serial(1), Serial(2), Serial(3)
BROKEN = Failure("KeyError", "'x'", "Traceback")


def taken(ssn: int, note: Any = None) -> Member:
    return Member(ORDERS, Ssn(ssn), note)


def output(ssn: int, total: int, port: PortName = OUT) -> Output:
    return Output(port, Ssn(ssn), None, 1, 10, total, Serial(0))


def answer(serial: Serial, n: int = 0) -> Answer:
    return Answer(serial, -1, n, "rate", "d", b"v")


def applied(*changes: Step) -> Image:
    image = Image()
    for step in changes:
        image.apply(step)
    return image


def opened(serial: Serial, *members: int, inset: str = "H") -> Step:
    step = Step()
    step.open(serial, inset, [taken(ssn) for ssn in members])
    return step


# ---- names ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("channel", "name"),
    [
        ("orders.out>hourly.in", "orders:17"),
        ("orders.late>hourly.in", "orders.late:17"),
        ("orders/2.out>hourly/1.in", "orders/2:17"),
    ],
)
def test_an_event_alone_is_a_set_with_its_name(channel: str, name: str) -> None:
    assert own_id(Member(ChannelName(channel), Ssn(17))) == name


# ---- steps ------------------------------------------------------------------------------------------------------


def test_a_set_that_begins_and_ends_in_one_step_leaves_only_its_memberships() -> None:
    step = opened(ONE, 1)
    step.join(ONE, taken(2, "note"))
    step.due[ONE] = "ready"
    step.answers[ONE] = [answer(ONE)]
    step.failures[ONE] = BROKEN
    step.close(ONE, traced=False)
    assert step == Step(serial=ONE, finished=[Finished(ONE, "H", (taken(1), taken(2, "note")))])
    image = applied(step)
    assert image == Image(serial=ONE)  # the serial is used up all the same (R7)


@pytest.mark.parametrize("traced", [False, True])
def test_an_event_alone_that_is_generated_at_once_leaves_nothing_but_lineage(traced: bool) -> None:
    step = Step(alone={ONE: taken(1)}, serial=ONE, answers={ONE: [answer(ONE)]})
    step.close(ONE, traced=traced)
    assert step == Step(serial=ONE, lone=[Lone(ONE, ORDERS, Ssn(1))] if traced else [])


def test_events_alone_that_are_generated_in_order_are_one_run() -> None:
    step = Step(alone={Serial(n): taken(n + 4) for n in range(1, 9)}, serial=Serial(8))
    for serial in (1, 2, 5, 6):  # 3 and 4 made nothing
        step.close(Serial(serial), traced=True)
    other = Member(ChannelName("refunds.out>hourly.in"), Ssn(7))
    step.alone[Serial(9)] = other
    step.close(Serial(9), traced=True)
    assert step.lone == [Lone(ONE, ORDERS, Ssn(5), 6), Lone(Serial(9), other.channel, Ssn(7))]
    assert step.lone[0].member(Serial(6)) == taken(10)


def test_a_run_ends_where_serials_and_ssns_do_not_rise_together() -> None:
    """Between 5 and 6 another channel's event took a serial, in an earlier step."""
    step = Step(alone={ONE: taken(5), THREE: taken(6)}, serial=THREE)
    step.close(ONE, traced=True)
    step.close(THREE, traced=True)
    assert step.lone == [Lone(ONE, ORDERS, Ssn(5)), Lone(THREE, ORDERS, Ssn(6))]


def test_without_order_an_event_alone_is_a_set_like_any_other() -> None:
    step = Step(alone={ONE: taken(1)}, serial=ONE)
    step.close(ONE, traced=True, ordered=False)
    assert step == Step(serial=ONE, finished=[Finished(ONE, "orders:1", (taken(1),))], kept=[ONE])


def test_a_set_of_an_earlier_commit_is_done() -> None:
    step = Step(due={ONE: "fired"}, answers={ONE: [answer(ONE)]}, failures={ONE: BROKEN})
    step.close(ONE, traced=True)
    assert step == Step(done=[ONE], kept=[ONE])


def test_members_that_joined_in_the_step_that_ends_the_set_are_remembered() -> None:
    step = Step()
    step.join(ONE, taken(3))
    step.close(ONE, traced=False)
    assert step == Step(members={ONE: [taken(3)]}, done=[ONE])
    model = Model()
    model.apply(opened(ONE, 1))
    model.apply(step)
    assert sorted(ssn for _, ssn, _ in model.done) == [1, 3]
    assert model.image.sets == {}


def test_a_set_of_an_earlier_commit_is_joined_apart() -> None:
    step = opened(TWO, 1)
    step.join(TWO, taken(2))
    step.join(ONE, taken(2))
    assert step.opened[TWO].members == [taken(1), taken(2)]
    assert step.members == {ONE: [taken(2)]}


_CHANGES: dict[str, Any] = {
    "outputs": [output(1, 10)],
    "staged": [output(1, 10)],
    "reveal": {OUT: (Ssn(1), 10)},
    "positions": {ORDERS: Position(Ssn(1), 10)},
    "alone": {ONE: taken(1)},
    "opened": {ONE: OpenSet("H")},
    "members": {ONE: [taken(1)]},
    "due": {ONE: "ready"},
    "parked": [ONE],
    "resolved": [Ssn(1)],
    "done": [ONE],
    "finished": [Finished(ONE, "H", (taken(1),))],
    "state": b"",
    "clock": {ORDERS: 0},
    "timers": {"H": None},
    "answers": {ONE: [answer(ONE)]},
    "failures": {ONE: BROKEN},
    "written": {TargetName("store"): 0},
    "reads": {PartitionName("0"): Progress()},
    "collected": {OUT: Collection(Ssn(1), frozenset())},
    "forget": {ORDERS: Ssn(1)},
    "expired": 1,
    "ended": True,
    "left": True,
}


def test_a_step_is_empty_when_it_changes_nothing() -> None:
    assert Step().empty
    assert Step(number=7, serial=ONE).empty  # a number alone is no change
    of_others = {"number", "serial", "kept", "lone", "lows", "segment"}  # they say more about outputs and done sets
    assert {f.name for f in dataclasses.fields(Step)} == {*_CHANGES, *of_others}
    for name, value in _CHANGES.items():
        assert not Step(**{name: value}).empty, name


def test_the_bytes_of_a_step_are_those_of_all_its_rows() -> None:
    assert Step(outputs=[output(1, 10)], staged=[output(2, 20), output(3, 30)]).nbytes == 30


# ---- images -----------------------------------------------------------------------------------------------------


def test_what_is_revealed_comes_before_the_outputs() -> None:
    image = applied(Step(outputs=[output(6, 60)], reveal={OUT: (Ssn(5), 50)}))
    assert image.heads == {OUT: Head(Ssn(6), 60)}


def test_staged_rows_move_nothing() -> None:
    assert applied(Step(staged=[output(1, 10)])) == Image()


def test_events_alone_are_due_at_once_in_their_order() -> None:
    image = applied(Step(alone={ONE: taken(1), TWO: taken(2)}, serial=TWO))
    assert image.sets == {
        ONE: OpenSet("orders:1", [taken(1)], "ready"),
        TWO: OpenSet("orders:2", [taken(2)], "ready"),
    }
    assert image.due == [ONE, TWO]
    assert image.serial == TWO


def test_due_sets_are_in_the_order_in_which_they_became_due() -> None:
    image = applied(
        opened(ONE, 1),
        opened(TWO, 1),
        opened(THREE, 1),
        Step(due={THREE: "ready", ONE: "fired"}),
        Step(due={TWO: "end"}),
    )
    assert image.due == [THREE, ONE, TWO]
    assert [image.sets[s].cause for s in (ONE, TWO, THREE)] == ["fired", "end", "ready"]
    image.apply(Step(done=[ONE]))
    assert image.due == [THREE, TWO]


def test_a_set_opens_joins_and_is_due_in_one_step() -> None:
    step = opened(ONE, 1)
    step.due[ONE] = "ready"
    image = applied(step, Step(members={ONE: [taken(2)]}))
    assert image.sets == {ONE: OpenSet("H", [taken(1), taken(2)], "ready")}


def test_a_done_set_takes_its_answers_and_failure_along() -> None:
    image = applied(
        opened(ONE, 1),
        opened(TWO, 1),
        Step(
            due={ONE: "fired", TWO: "fired"},
            answers={ONE: [answer(ONE)], TWO: [answer(TWO)]},
            failures={ONE: BROKEN, TWO: BROKEN},
        ),
        Step(done=[ONE], answers={TWO: [answer(TWO, 1)]}),
    )
    assert list(image.sets) == [TWO]
    assert image.answers == {TWO: [answer(TWO), answer(TWO, 1)]}
    assert image.failures == {TWO: BROKEN}


def test_timers_are_set_replaced_and_cleared() -> None:
    image = applied(
        Step(timers={"a": Timer(1, "event"), "b": Timer(2, "wall")}), Step(timers={"a": Timer(3, "wall"), "b": None})
    )
    assert image.timers == {"a": Timer(3, "wall")}
    image.apply(Step(timers={"never": None}))
    assert image.timers == {"a": Timer(3, "wall")}


def test_state_ends_and_departures_stay() -> None:
    image = applied(Step(state=b"s", ended=True), Step(left=True), Step())
    assert (image.state, image.ended, image.left) == (b"s", True, True)
    image.apply(Step(state=b""))
    assert image.state == b""


def test_the_serial_never_goes_back() -> None:
    assert applied(opened(THREE, 1), Step(serial=ONE), Step()).serial == THREE


def test_collection_moves_the_base_and_the_pins() -> None:
    image = applied(
        Step(outputs=[output(n, 10 * n) for n in range(1, 5)]),
        Step(collected={OUT: Collection(Ssn(4), frozenset({Ssn(2)}))}),
        Step(collected={OUT: Collection(Ssn(5), frozenset())}),
    )
    assert image.heads == {OUT: Head(Ssn(4), 40, Ssn(5), set())}


def test_an_image_does_not_share_what_a_step_can_still_change() -> None:
    step = opened(ONE, 1)
    step.answers[ONE] = [answer(ONE)]
    image = applied(step)
    step.join(ONE, taken(2))
    step.answers[ONE].append(answer(ONE, 1))
    assert image.sets[ONE].members == [taken(1)]
    assert image.answers == {ONE: [answer(ONE)]}


# ---- several steps in one commit --------------------------------------------------------------------------------


def test_a_set_that_a_later_step_of_the_commit_ends_never_reaches_the_image() -> None:
    step, later = opened(ONE, 1), Step()
    step.answers[ONE] = [answer(ONE)]
    later.join(ONE, taken(2))
    later.due[ONE] = "ready"
    later.close(ONE, traced=False)
    step.absorb(later)
    assert step == Step(serial=ONE, finished=[Finished(ONE, "H", (taken(1), taken(2)))])


def test_a_set_that_a_later_step_of_the_commit_joins_and_makes_due() -> None:
    step, later = opened(ONE, 1), Step()
    later.join(ONE, taken(2))
    later.due[ONE] = "ready"
    later.answers[ONE] = [answer(ONE)]
    step.absorb(later)
    assert applied(step) == Image(
        sets={ONE: OpenSet("H", [taken(1), taken(2)], "ready")}, due=[ONE], serial=ONE, answers={ONE: [answer(ONE)]}
    )


@pytest.mark.parametrize("traced", [False, True])
def test_an_event_alone_that_a_later_step_of_the_commit_ends(traced: bool) -> None:
    step = Step(alone={ONE: taken(1), TWO: taken(2)}, serial=TWO)
    step.absorb(Step(done=[ONE], kept=[ONE] if traced else [], outputs=[output(1, 10)]))
    lone = [Lone(ONE, ORDERS, Ssn(1))] if traced else []
    assert step == Step(alone={TWO: taken(2)}, serial=TWO, lone=lone, outputs=[output(1, 10)])


def same_segment(step: Step) -> Step:
    """History goes into a segment when it is committed, not before."""
    step.segment, step.expired = Segment(1, 0, 0, {}, {}), 0
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
