"""Retrying and dropping errors: one step each, and asking twice changes nothing (R1, R7, R12)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from logline.engine.error_resolution import drop_step, on_their_way, retry_step
from logline.engine.events import Output
from logline.engine.image import Image
from logline.engine.results import Produced
from logline.engine.sets import CARRIED, Answer, Member, OpenSet, unassigned_id
from logline.engine.spec import InstanceSpec, again_channel
from logline.engine.step import Step
from logline.errors import LogError
from logline.graph.instances import Channel
from logline.names import ERRORS, OUT, ChannelName, InstanceName, PortName, Serial, Ssn
from logline.testing.conformance.model import step_of

NAME = InstanceName("hourly")
ORDERS = ChannelName("orders.out>hourly.in")
PORTS: Mapping[PortName, tuple[Channel, ...]] = {OUT: (), ERRORS: ()}
GATHERING = InstanceSpec(NAME, ports=PORTS)
ONE_BY_ONE = InstanceSpec(NAME, ports=PORTS, stateless=True)
MEMBERS = [Member(ORDERS, Ssn(3), "note"), Member(ORDERS, Ssn(5))]


def error(ssn: int, serial: int) -> Output:
    return Output(ERRORS, Ssn(ssn), None, 1, 10, 10 * ssn, Serial(serial))


@pytest.fixture
def parked() -> Image:
    """Set 7 of hour H failed for good; its event is hourly.errors:1."""
    image = Image(serial=Serial(7))
    image.apply(step_of(opened={Serial(7): OpenSet("H", MEMBERS)}, due={Serial(7): "ready"}))
    step = Step(outputs=[error(1, 7)])
    step.park(Serial(7))
    image.apply(step)
    assert image.due == [] and image.sets[Serial(7)].cause == "parked"
    return image


def test_a_diverted_set_is_opened_anew_with_the_same_members(parked: Image) -> None:
    step = retry_step(parked, GATHERING, error(1, 7))
    parked.apply(step)
    assert parked.sets == {Serial(8): OpenSet("H", MEMBERS, "fired")}
    assert parked.due == [8] and parked.retrying == {1: 8} and parked.resolved == {}  # not before it has come out
    assert on_their_way(parked, NAME) == {1}
    assert retry_step(parked, GATHERING, error(1, 7)).empty
    assert drop_step(parked, NAME, error(1, 7)).empty


def test_a_diverted_set_takes_its_answers_along_unless_they_are_to_be_asked_again(parked: Image) -> None:
    """R9: an answer is kept until its set is done, and a parked one is not."""
    parked.answers[Serial(7)] = [Answer(Serial(7), 0, 4, "ask", "b", b"B"), Answer(Serial(7), 0, 1, "ask", "a", b"A")]
    assert not retry_step(parked, GATHERING, error(1, 7), ask=True).sets.answers
    parked.apply(retry_step(parked, GATHERING, error(1, 7)))
    assert parked.answers == {
        8: [Answer(Serial(8), 0, CARRIED, "ask", "a", b"A"), Answer(Serial(8), 0, CARRIED + 1, "ask", "b", b"B")]
    }


def test_rows_given_by_hand_are_an_event_that_the_set_has_beside_the_error() -> None:
    image = Image(serial=Serial(4))
    image.apply(Step(outputs=[error(1, 3)]))
    rows = Produced(ERRORS, "rows", 2, 30)
    step = retry_step(image, ONE_BY_ONE, error(1, 3), fixed=rows)
    assert step.outputs == [Output(ERRORS, Ssn(2), "rows", 2, 30, 40, Serial(0))]
    image.apply(step)
    again = again_channel(NAME)
    assert image.sets == {
        Serial(5): OpenSet("hourly.errors:2", [Member(again, Ssn(1)), Member(again, Ssn(2))], "fired")
    }
    assert image.resolved == {}  # neither, before they have come out
    assert on_their_way(image, NAME) == {1, 2}
    with pytest.raises(LogError, match="gathers events, and takes no rows"):
        retry_step(image, GATHERING, error(9, 3), fixed=rows)


def test_rows_given_after_the_end_come_after_the_mark(parked: Image) -> None:
    end = [Output(port, Ssn(2), None, 0, 0, 10, Serial(0), "end") for port in PORTS]
    parked.apply(Step(outputs=end, ended=True))
    step = retry_step(parked, ONE_BY_ONE, error(1, 7), fixed=Produced(ERRORS, "rows", 2, 30))
    assert [(o.port, o.ssn, o.kind) for o in step.outputs][1:] == [(ERRORS, 3, "reopened"), (ERRORS, 4, "event")]
    parked.apply(step)
    assert list(parked.sets) == [8] and parked.unsettled_errors == 2


def test_a_dropped_set_is_gone(parked: Image) -> None:
    parked.apply(drop_step(parked, NAME, error(1, 7)))
    assert parked.sets == {} and parked.due == [] and parked.resolved == {1: "dropped"}
    assert retry_step(parked, GATHERING, error(1, 7)).empty


def test_rejected_rows_go_in_again_by_their_own_event() -> None:
    image = Image(serial=Serial(4))
    step = retry_step(image, ONE_BY_ONE, error(2, 3))
    image.apply(step)
    assert image.sets == {Serial(5): OpenSet("hourly.errors:2", [Member(again_channel(NAME), Ssn(2))], "fired")}
    assert image.resolved == {}  # not before they have come out
    assert 2 in on_their_way(image, NAME)
    assert retry_step(image, ONE_BY_ONE, error(2, 3)).empty
    assert drop_step(image, NAME, error(2, 3)).empty
    image.apply(drop_step(image, NAME, error(1, 3)))
    assert image.resolved == {1: "dropped"}


def test_the_step_that_retries_after_the_end_takes_the_end_back(parked: Image) -> None:
    """What comes of it follows a mark, on every port; neither mark is an error that somebody has to look at."""
    end = [Output(port, Ssn(2), None, 0, 0, 10, Serial(0), "end") for port in PORTS]
    parked.apply(Step(outputs=end, ended=True))
    parked.apply(Step(left=True))
    assert parked.unsettled_errors == 1
    step = retry_step(parked, GATHERING, error(1, 7))
    assert [(o.port, o.ssn, o.kind) for o in step.outputs] == [(OUT, 3, "reopened"), (ERRORS, 3, "reopened")]
    parked.apply(step)
    assert (parked.ended, parked.left, parked.marks, parked.unsettled_errors) == (False, False, 2, 1)
    assert parked.due == [8]


def test_what_can_not_be_retried_says_why(parked: Image) -> None:
    with pytest.raises(LogError, match="the rest of their input set is done"):
        retry_step(Image(), GATHERING, error(1, 3))
    parked.sets[Serial(7)] = OpenSet(unassigned_id(MEMBERS[1]), [MEMBERS[1]], "parked")
    with pytest.raises(LogError, match="assign\\(\\) failed"):
        retry_step(parked, GATHERING, error(1, 7))


def test_a_set_that_is_parked_and_closed_in_one_step_leaves_no_trace() -> None:
    step = Step()
    step.open(Serial(1), "H", MEMBERS)
    step.sets.due[Serial(1)] = "ready"
    step.park(Serial(1))
    step.close(Serial(1), traced=False)
    image = Image()
    image.apply(step)
    assert (image.sets, image.due) == ({}, [])
