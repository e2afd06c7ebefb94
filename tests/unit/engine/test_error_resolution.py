"""Retrying and dropping errors: one step each, and asking twice changes nothing (R1, R7, R12)."""

from __future__ import annotations

import pytest

from logline.engine.error_resolution import drop_step, retry_step
from logline.engine.events import Output
from logline.engine.image import Image
from logline.engine.sets import Member, OpenSet, unassigned_id
from logline.engine.spec import again_channel
from logline.engine.step import Step
from logline.errors import LogError
from logline.names import ERRORS, ChannelName, InstanceName, Serial, Ssn
from logline.testing.conformance.model import step_of

NAME = InstanceName("hourly")
ORDERS = ChannelName("orders.out>hourly.in")
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
    step = retry_step(parked, NAME, error(1, 7), stateless=False)
    parked.apply(step)
    assert parked.sets == {Serial(8): OpenSet("H", MEMBERS, "fired")}
    assert parked.due == [8] and parked.resolved == {1}
    assert retry_step(parked, NAME, error(1, 7), stateless=False).empty
    assert drop_step(parked, NAME, error(1, 7)).empty


def test_a_dropped_set_is_gone(parked: Image) -> None:
    parked.apply(drop_step(parked, NAME, error(1, 7)))
    assert parked.sets == {} and parked.due == [] and parked.resolved == {1}
    assert retry_step(parked, NAME, error(1, 7), stateless=False).empty


def test_rejected_rows_go_in_again_by_their_own_event() -> None:
    image = Image(serial=Serial(4))
    step = retry_step(image, NAME, error(2, 3), stateless=True)
    image.apply(step)
    assert image.sets == {Serial(5): OpenSet("hourly.errors:2", [Member(again_channel(NAME), Ssn(2))], "fired")}
    assert image.resolved == set()  # not before they have come out
    assert retry_step(image, NAME, error(2, 3), stateless=True).empty
    assert drop_step(image, NAME, error(2, 3)).empty
    image.apply(drop_step(image, NAME, error(1, 3)))
    assert image.resolved == {1}


def test_what_can_not_be_retried_says_why(parked: Image) -> None:
    with pytest.raises(LogError, match="the rest of their input set is done"):
        retry_step(Image(), NAME, error(1, 3), stateless=False)
    with pytest.raises(LogError, match="'hourly' has finished"):
        retry_step(Image(ended=True), NAME, error(1, 3), stateless=True)
    parked.sets[Serial(7)] = OpenSet(unassigned_id(MEMBERS[1]), [MEMBERS[1]], "parked")
    with pytest.raises(LogError, match="assign\\(\\) failed"):
        retry_step(parked, NAME, error(1, 7), stateless=False)


def test_a_set_that_is_parked_and_closed_in_one_step_leaves_no_trace() -> None:
    step = Step()
    step.open(Serial(1), "H", MEMBERS)
    step.sets.due[Serial(1)] = "ready"
    step.park(Serial(1))
    step.close(Serial(1), traced=False)
    image = Image()
    image.apply(step)
    assert (image.sets, image.due) == ({}, [])
