"""Steps and images of tests: a few lines instead of a machine."""

from __future__ import annotations

from typing import Any

from logline.engine.events import Output
from logline.engine.image import Image
from logline.engine.results import Failure
from logline.engine.sets import Answer, Member
from logline.engine.step import Step
from logline.names import OUT, ChannelName, PortName, Serial, Ssn

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
