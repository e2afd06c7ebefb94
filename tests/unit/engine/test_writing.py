"""Write actions after a crash: each is executed once and in order, wherever it was heard of first (R8)."""

from __future__ import annotations

import pytest

from logline.engine import actions as do
from logline.engine.events import Head, Output
from logline.engine.image import Image
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
        writes.start(0, found.append)
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
