"""A payload that no place has any more is a stimulus; what it means depends on whether the life is fenced off."""

from __future__ import annotations

import pytest

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.image import Collection, Output, Step
from logline.engine.operating import OperatorMachine
from logline.engine.spec import ChannelSpec, InstanceSpec
from logline.errors import EngineError
from logline.names import IN, OUT, ChannelName, InstanceName, Serial, Ssn
from logline.runtime.lives.log_life import LogLife
from logline.store.memory import MemoryStore

UP, OP = InstanceName("up"), InstanceName("op")
CHANNEL = ChannelSpec(ChannelName("up.out>op.in"), UP, OUT, OP, IN)
SPEC = InstanceSpec(OP, inputs=(CHANNEL,))


@pytest.fixture
def life() -> LogLife:
    """A life of `op` that has begun; its sender has put out three events and collected the first two."""
    store = MemoryStore()
    sender = store.claim(UP)
    sender.commit(Step(number=1, outputs=[Output(OUT, Ssn(n), (), 1, 10, 10 * n, Serial(n)) for n in (1, 2, 3)]))
    sender.commit(Step(number=2, collected={OUT: Collection(Ssn(3), frozenset())}))
    made = LogLife(SPEC, store, OperatorMachine(SPEC))
    made.machine.handle(on.Started(), 0)
    for stimulus in made.execute(do.ClaimJournal()):
        made.machine.handle(stimulus, 0)
    return made


ACTIONS = [
    (do.Fetch(CHANNEL.name, Ssn(0)), (1,)),
    (do.FetchMembers(CHANNEL.name, (Ssn(1), Ssn(2), Ssn(3))), (1, 2)),
]


@pytest.mark.parametrize(("action", "gone"), ACTIONS, ids=["fetch", "members"])
def test_a_payload_that_is_gone_ends_a_life_loudly(life: LogLife, action: do.Action, gone: tuple[Ssn, ...]) -> None:
    (stimulus,) = life.execute(action)
    assert stimulus == on.PayloadGone(CHANNEL.name, gone)
    with pytest.raises(EngineError, match=r"op needs 1.* of up.out>op.in, and it is collected \(R12\)"):
        life.machine.handle(stimulus, 0)


@pytest.mark.parametrize(("action", "gone"), ACTIONS, ids=["fetch", "members"])
def test_a_life_that_is_fenced_off_ends_quietly(life: LogLife, action: do.Action, gone: tuple[Ssn, ...]) -> None:
    life.store.claim(OP)
    assert life.execute(action) == [on.FencedOff()]
    assert life.machine.handle(on.FencedOff(), 0) == [do.Leave("fenced")]


def test_what_is_there_is_fetched(life: LogLife) -> None:
    (stimulus,) = life.execute(do.Fetch(CHANNEL.name, Ssn(2)))
    assert isinstance(stimulus, on.Fetched)
    assert [event.ssn for event in stimulus.events] == [3]
