from tests.unit.engine.making import BROKEN, ONE, THREE, TWO, answer, applied, opened, output, taken

from logline.engine.events import Collection, Head
from logline.engine.image import Image
from logline.engine.sets import OpenSet, Timer
from logline.engine.step import Step
from logline.names import OUT, Ssn
from logline.testing.conformance.model import step_of


def test_what_is_revealed_comes_before_the_outputs() -> None:
    image = applied(step_of(outputs=[output(6, 60)], reveal={OUT: (Ssn(5), 50)}))
    assert image.heads == {OUT: Head(Ssn(6), 60)}


def test_staged_rows_move_nothing() -> None:
    assert applied(step_of(staged=[output(1, 10)])) == Image()


def test_events_alone_are_due_at_once_in_their_order() -> None:
    image = applied(step_of(alone={ONE: taken(1), TWO: taken(2)}, serial=TWO))
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
        step_of(due={THREE: "ready", ONE: "fired"}),
        step_of(due={TWO: "end"}),
    )
    assert image.due == [THREE, ONE, TWO]
    assert [image.sets[s].cause for s in (ONE, TWO, THREE)] == ["fired", "end", "ready"]
    image.apply(step_of(done=[ONE]))
    assert image.due == [THREE, TWO]


def test_a_set_opens_joins_and_is_due_in_one_step() -> None:
    step = opened(ONE, 1)
    step.sets.due[ONE] = "ready"
    image = applied(step, step_of(members={ONE: [taken(2)]}))
    assert image.sets == {ONE: OpenSet("H", [taken(1), taken(2)], "ready")}


def test_a_done_set_takes_its_answers_and_failure_along() -> None:
    image = applied(
        opened(ONE, 1),
        opened(TWO, 1),
        step_of(
            due={ONE: "fired", TWO: "fired"},
            answers={ONE: [answer(ONE)], TWO: [answer(TWO)]},
            failures={ONE: BROKEN, TWO: BROKEN},
        ),
        step_of(done=[ONE], answers={TWO: [answer(TWO, 1)]}),
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
    assert applied(opened(THREE, 1), step_of(serial=ONE), Step()).serial == THREE


def test_collection_moves_the_base_and_the_pins() -> None:
    image = applied(
        Step(outputs=[output(n, 10 * n) for n in range(1, 5)]),
        Step(collected={OUT: Collection(Ssn(4), frozenset({Ssn(2)}))}),
        Step(collected={OUT: Collection(Ssn(5), frozenset())}),
    )
    assert image.heads == {OUT: Head(Ssn(4), 40, Ssn(5), set())}


def test_an_image_does_not_share_what_a_step_can_still_change() -> None:
    step = opened(ONE, 1)
    step.sets.answers[ONE] = [answer(ONE)]
    image = applied(step)
    step.join(ONE, taken(2))
    step.sets.answers[ONE].append(answer(ONE, 1))
    assert image.sets[ONE].members == [taken(1)]
    assert image.answers == {ONE: [answer(ONE)]}
