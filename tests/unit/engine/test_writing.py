"""Write actions after a crash: each is executed once and in order, wherever it was heard of first (R8)."""

from __future__ import annotations

from typing import Any

import pytest

from logline.engine import actions as do
from logline.engine.events import Head, Output
from logline.engine.image import Image
from logline.engine.moments import Monotonic
from logline.engine.spec import InstanceSpec, write_port
from logline.engine.step import Step
from logline.engine.writing import Writes
from logline.names import InstanceName, LogId, Serial, Ssn, TargetName

STORE = TargetName("store")
PORT = write_port(STORE)


def write(number: int) -> Output:
    return Output(PORT, Ssn(number), None, 1, 10, 10 * number, Serial(0))


def execute_all(writes: Writes) -> list[int]:
    """The numbers in the order in which they are executed."""
    numbers: list[int] = []
    while True:
        found: list[do.Action] = []
        writes.start(Monotonic(0), found.append)
        if not found:
            return numbers
        (action,) = found
        assert isinstance(action, do.WriteOut)
        numbers += [write.ssn for write in action.writes]
        writes.written(STORE, numbers[-1], Step())


@pytest.mark.parametrize("heard_first", ["log", "answer"])
def test_what_is_committed_while_the_log_is_read_is_written_once(heard_first: str) -> None:
    """A new life commits write 2 before it has read back write 1; the log then gives it both."""
    writes = Writes(InstanceSpec(InstanceName("sink"), LogId("log"), targets={STORE: "guarded"}))
    asked: list[do.Action] = []
    writes.recover(Image(heads={PORT: Head(Ssn(1), 10)}), asked.append)
    assert asked == [do.FetchWrites(STORE, 0)]
    if heard_first == "answer":
        writes.committed(Step(outputs=[write(2)]))
        assert execute_all(writes) == []  # not before write 1
        writes.fetched(STORE, [write(1), write(2)])
    else:
        writes.fetched(STORE, [write(1), write(2)])
        writes.committed(Step(outputs=[write(2)]))
    assert execute_all(writes) == [1, 2]
    assert writes.idle


@pytest.mark.parametrize(("done", "has"), [(0, 3), (2, 3), (3, 3), (3, 0)])
def test_a_target_may_have_what_is_logged_and_not_known_to_be_done(done: int, has: int) -> None:
    """3 are logged. After a crash the target may have more than is known, and a target that forgets has less."""
    writes = Writes(InstanceSpec(InstanceName("sink"), LogId("log"), targets={STORE: "positioned"}))
    asked: list[do.Action] = []
    writes.recover(Image(heads={PORT: Head(Ssn(3), 30)}, written={STORE: done}), asked.append)
    assert asked == [do.AskPosition(STORE)]
    assert not writes.located
    assert execute_all(writes) == []
    assert writes.ahead(STORE, has) is None
    fetch = writes.position_known(STORE, has, Step())
    assert fetch == (None if done == 3 else do.FetchWrites(STORE, max(done, has)))
    assert writes.located


@pytest.mark.parametrize("guarantee", ["positioned", "named"])
def test_a_target_that_is_ahead_of_the_log_is_refused(guarantee: Any) -> None:
    spec = InstanceSpec(InstanceName("sink"), LogId("log"), targets={STORE: guarantee}, tells=frozenset({STORE}))
    writes = Writes(spec)
    asked: list[do.Action] = []
    writes.recover(Image(heads={PORT: Head(Ssn(3), 30)}, written={STORE: 3}), asked.append)
    assert asked == [do.AskPosition(STORE)]
    failure = writes.ahead(STORE, 4)
    assert failure is not None
    assert not failure.retryable
    for part in ("'sink'", "'store'", "number 4", "up to 3 only", "older copy", "durability='process'"):
        assert part in failure.message


def test_a_target_that_does_not_answer_is_asked_again() -> None:
    writes = Writes(InstanceSpec(InstanceName("sink"), LogId("log"), targets={STORE: "positioned"}))
    asked: list[do.Action] = []
    writes.recover(Image(), asked.append)
    assert writes.start(Monotonic(0), asked.append) is None  # it is being asked
    assert writes.failed(STORE, now=Monotonic(10))
    wake = writes.start(Monotonic(10), asked.append)
    assert wake is not None
    assert len(asked) == 1
    assert writes.start(wake, asked.append) is None
    assert asked == [do.AskPosition(STORE)] * 2
    assert not writes.idle
    writes.position_known(STORE, 0, Step())
    assert writes.idle
