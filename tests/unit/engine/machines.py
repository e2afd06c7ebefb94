"""Machines by hand: stimuli in, actions out, without a store, phases or user code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.events import Output
from logline.engine.image import Claim, Image
from logline.engine.moments import Moment, Monotonic, Wall
from logline.engine.operating import OperatorMachine
from logline.engine.results import Failure, Produced, Result
from logline.engine.sets import Answer, Member
from logline.engine.spec import InstanceSpec
from logline.graph.instances import Channel
from logline.names import (
    ERRORS,
    IN,
    OUT,
    Incarnation,
    InstanceName,
    PortName,
    Serial,
    Ssn,
    TargetName,
)
from logline.recovery.machines import machine_for

OP, UP, DOWN = InstanceName("op"), InstanceName("up"), InstanceName("down")
STORE = TargetName("store")
SIZE = 10
MORNING = 1_700_000_000_000_000
A = TypeVar("A", bound=do.Action)


def at(now: int, wall: int | None = None) -> Moment:
    """A moment so long after the beginning; unless somebody has set the wall clock, both clocks say so."""
    return Moment(Monotonic(now), Wall(MORNING + (now if wall is None else wall)))


def channel(sender: InstanceName, receiver: InstanceName, out: PortName = OUT) -> Channel:
    """From a port `out` to the port `in`."""
    return Channel.between(sender, out, receiver, IN)


INPUT, OUTPUT = channel(UP, OP), channel(OP, DOWN)


def spec(**given: Any) -> InstanceSpec:
    """An operator between two others."""
    known: dict[str, Any] = {"inputs": (INPUT,), "ports": {OUT: (OUTPUT,), ERRORS: ()}, **given}
    return InstanceSpec(OP, **known)


def events(first: int, count: int = 1) -> list[Output]:
    """Events of the sender."""
    return [Output(OUT, Ssn(n), f"payload {n}", 1, SIZE, n * SIZE, Serial(0)) for n in range(first, first + count)]


def claimed(image: Image | None = None, **given: Any) -> tuple[OperatorMachine, list[do.Action]]:
    """A machine that has its journal, and what it asks for then."""
    machine = machine_for(spec(**given))
    assert isinstance(machine, OperatorMachine)
    assert machine.handle(on.Started(), at(0)) == [do.ClaimJournal()]
    return machine, machine.handle(on.Claimed(Claim(Incarnation(1), image or Image())), at(0))


def running(image: Image | None = None, **given: Any) -> OperatorMachine:
    """A machine that has rebuilt its sets; its first fetch is under way."""
    machine, asked = claimed(image, **given)
    for fetch in only(asked, do.FetchMembers):
        machine.handle(on.MembersFetched(fetch.channel, [events(n)[0] for n in fetch.ssns]), at(0))
    machine.handle(on.Rebuilt(on.Intake()), at(0))
    return machine


def with_sets(count: int = 1, *, now: int = 1, **given: Any) -> tuple[OperatorMachine, list[do.Action]]:
    """A stateless machine that has taken in so many events, each a set with the serial of its SSN; and what it asks
    for then. They come in one run."""
    machine = running(stateless=True, **given)
    machine.intake._length = count  # as after a while of short runs
    asked = machine.handle(on.Fetched(INPUT.name, Ssn(0), events(1, count)), at(now))
    assert one(asked, do.TakeIn).events == [(INPUT.name, event) for event in events(1, count)]
    alone = {Serial(n): Member(INPUT.name, Ssn(n)) for n in range(1, count + 1)}
    return machine, machine.handle(on.TakenIn(on.Intake(alone=alone)), at(now))


def made(port: PortName = OUT) -> tuple[Produced, ...]:
    """One output."""
    return (Produced(port, "made", 1, SIZE),)


def generated(*serials: int, port: PortName = OUT) -> on.Generated:
    """These sets have made one output each."""
    return on.Generated([Result(Serial(serial), made(port)) for serial in serials])


def failed(serial: int, *, retryable: bool = False) -> on.Generated:
    """The code of this set has raised."""
    return on.Generated([Result(Serial(serial), failure=failure(retryable=retryable))])


def failure(*, retryable: bool = False) -> Failure:
    """What user code raised."""
    return Failure("ValueError", "no", "Traceback ...", retryable)


def answer(serial: int, row: int = 0, n: int = 0) -> Answer:
    """The answer of a call."""
    return Answer(Serial(serial), row, n, "module.ask", "digest", b"value")


def jobs(actions: Iterable[do.Action]) -> list[int]:
    """The sets that are to be generated."""
    return [job.serial for action in only(actions, do.Generate) for job in action.jobs]


def only(actions: Iterable[do.Action], kind: type[A]) -> list[A]:
    """The actions of one kind."""
    return [action for action in actions if isinstance(action, kind)]


def one(actions: Sequence[do.Action], kind: type[A]) -> A:
    """The only action of a kind."""
    (found,) = only(actions, kind)
    return found
