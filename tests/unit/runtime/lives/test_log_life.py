"""A payload that no place has any more is a stimulus; what it means depends on whether the life is fenced off."""

from __future__ import annotations

import pytest

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.events import Collection, Output
from logline.engine.moments import Moment, Monotonic, Wall
from logline.engine.spec import InstanceSpec
from logline.engine.step import Step
from logline.graph.instances import Channel
from logline.names import IN, OUT, InstanceName, Serial, Ssn
from logline.recovery.machines import machine_for
from logline.runtime.lives.log_life import LogLife
from logline.store.memory import MemoryStore

UP, OP = InstanceName("up"), InstanceName("op")
CHANNEL = Channel.between(UP, OUT, OP, IN)
MOMENT = Moment(Monotonic(0), Wall(0))
SPEC = InstanceSpec(OP, inputs=(CHANNEL,))


@pytest.fixture
def life() -> LogLife:
    """A life of `op` that has begun; its sender has put out three events and collected the first two."""
    store = MemoryStore()
    sender = store.claim(UP)
    sender.commit(Step(number=1, outputs=[Output(OUT, Ssn(n), (), 1, 10, 10 * n, Serial(n)) for n in (1, 2, 3)]))
    sender.commit(Step(number=2, collected={OUT: Collection(Ssn(3), frozenset())}))
    made = LogLife(SPEC, store, machine_for(SPEC))
    made.machine.handle(on.Started(), MOMENT)
    for stimulus in made.execute(do.ClaimJournal()):
        made.machine.handle(stimulus, MOMENT)
    return made


ACTIONS = [
    (do.Fetch(CHANNEL.name, Ssn(0)), (1,)),
    (do.FetchMembers(CHANNEL.name, (Ssn(1), Ssn(2), Ssn(3))), (1, 2)),
]


@pytest.mark.parametrize(("action", "gone"), ACTIONS, ids=["fetch", "members"])
def test_a_payload_that_is_gone_ends_a_life_loudly(life: LogLife, action: do.Action, gone: tuple[Ssn, ...]) -> None:
    (stimulus,) = life.execute(action)
    assert stimulus == on.PayloadGone(CHANNEL.name, gone)
    (halt,) = life.machine.handle(stimulus, MOMENT)
    assert isinstance(halt, do.Halt)
    assert "of up.out>op.in from 1 on are needed and are not in the log any more" in halt.failure.message


@pytest.mark.parametrize(("action", "gone"), ACTIONS, ids=["fetch", "members"])
def test_a_life_that_is_fenced_off_ends_quietly(life: LogLife, action: do.Action, gone: tuple[Ssn, ...]) -> None:
    life.store.claim(OP)
    assert life.execute(action) == [on.FencedOff()]
    assert life.machine.handle(on.FencedOff(), MOMENT) == [do.Leave("fenced")]


def test_what_is_there_is_fetched(life: LogLife) -> None:
    (stimulus,) = life.execute(do.Fetch(CHANNEL.name, Ssn(2)))
    assert isinstance(stimulus, on.Fetched)
    assert [event.ssn for event in stimulus.events] == [3]


def test_a_channel_that_comes_during_a_life_is_read(life: LogLife) -> None:
    """R28: channels are discovered."""
    other = Channel.between(InstanceName("up/2"), OUT, OP, IN)
    sender = life.store.claim(other.sender)
    sender.commit(Step(number=1, outputs=[Output(OUT, Ssn(1), (), 1, 10, 10, Serial(1))]))
    life.rewire(InstanceSpec(OP, inputs=(CHANNEL, other)))
    (stimulus,) = life.execute(do.Fetch(other.name, Ssn(0)))
    assert isinstance(stimulus, on.Fetched)
    assert [event.ssn for event in stimulus.events] == [1]
