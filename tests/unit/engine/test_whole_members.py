"""A checkpoint speaks for members that were let go, so that no other set can have them (R22, R32)."""

from __future__ import annotations

import logging
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.engine.machines import INPUT, SIZE, at, spec

import logline as ll
from logline.engine.event_state import event_states_of
from logline.engine.events import Output
from logline.engine.fires import kept_key
from logline.engine.image import Image
from logline.engine.phase_context import Services
from logline.engine.phases import Phases
from logline.engine.sets import Checkpoint, Member, OpenSet, Timer, digest_members
from logline.engine.stimuli import Intake
from logline.engine.user_errors import UserError
from logline.names import OUT, Serial, Ssn

REFUSED = "needs all members of a set, and policy='eventual' lets some go"


class Moving(ll.Operator[list[int], None]):
    """An event says what is to be done: "open a", "merge a b", "keep a"."""

    outputs = {"out": "n long"}  # noqa: RUF012

    def assign(self, event: ll.Event, ctx: ll.Context[None]) -> list[Any]:
        ids: list[Any]
        word, *ids = event.batch["word"][0].as_py().split()
        if word == "merge":
            ctx.merge(*ids)
        if word == "keep":
            ctx.fire(ids[0], keep=True)
        return ids[:1]

    def update(self, inset: Any, acc: list[int] | None, event: ll.Event) -> list[int]:
        return [*(acc or ()), event.ssn]

    def merge(self, acc: list[int], other: list[int]) -> list[int]:
        return acc + other

    def generate(self, inset: Any, acc: list[int], ctx: ll.Context[None]) -> Any:
        yield pa.record_batch({"n": [len(acc)]})


def words(word: str) -> pa.RecordBatch:
    return pa.record_batch({"word": [word]})


@pytest.mark.parametrize(
    ("word", "what"), [("merge a b", "ctx.merge()"), ("keep a", "fire(keep=True)")], ids=["merge", "keep"]
)
def test_no_members_are_moved_under_policy_eventual(word: str, what: str) -> None:
    """Also before there is a checkpoint: whether an operator works must not depend on when one is made."""
    driven = ll.testing.drive(Moving(), policy="eventual", on_error="divert")
    for one in ("open a", "open b", word):
        driven.send(words(one))
    (error,) = driven.out("errors").to_pylist()
    assert f"{what} {REFUSED}" in error["reason"]
    assert driven.end().out()["n"].to_pylist() == [1, 1]


def restored(timers: dict[Any, Timer] | None = None) -> Phases:
    """Set "a" has a checkpoint of an earlier run, which covers two of its members, and "b" has none. By now the
    policy is the default one."""
    members = [Member(INPUT.name, Ssn(n)) for n in (1, 2, 3, 4)]
    op = Moving()
    states = event_states_of("op", op)
    saved = Checkpoint(2, *states.encode([1, 2]), digest_members(members[:2]))
    sets = {
        Serial(1): OpenSet("a", [members[2]], checkpoint=saved),
        Serial(2): OpenSet("b", [members[3]]),
    }
    services = Services(
        random=Random(0),
        log=logging.getLogger("test"),
        count=lambda metric, n: None,
        greatest_time=lambda port, payload: None,
        encode_state=lambda state: b"",
        decode_state=lambda data: None,
        check_state=lambda state, data: None,
        event_states=states,
    )
    phases = Phases(spec(), op, services)
    events = {Ssn(n): event(n, "open") for n in (3, 4)}
    phases.restore(Image(sets=sets, serial=Serial(2), timers=timers or {}), {INPUT.name: events}, at(0))
    return phases


def event(ssn: int, word: str) -> Output:
    return Output(OUT, Ssn(ssn), words(word), 1, SIZE, ssn * SIZE, Serial(0))


def take_in(phases: Phases, word: str) -> Intake:
    return phases.take_in([(INPUT.name, event(5, word))], at(1))


@pytest.mark.parametrize("word", ["merge a b", "merge b a", "keep a"], ids=["into", "other", "keep"])
def test_a_set_with_a_checkpoint_of_an_earlier_run_keeps_its_members(word: str) -> None:
    with pytest.raises(UserError, match="a checkpoint"):
        take_in(restored(), word)


def test_a_set_without_one_is_free() -> None:
    assert take_in(restored(), "keep b").due == [(Serial(2), "kept")]


def test_what_was_to_be_kept_before_the_policy_was_changed_goes_on_as_it_is() -> None:
    """Else the set that goes on would have only the members that no checkpoint covers."""
    timer = Timer(at(0).wall, "wall", 0)
    phases = restored({kept_key("a", "wall"): timer, kept_key("b", "wall"): timer})
    found = phases.look_at_clocks(at(1))
    assert found.due == [(Serial(2), "kept")]
    assert phases.open_sets(None) == {"a": [1, 2, 3], "b": [4]}
