"""Lineage after crashes: what the log says equals what the operators themselves say they were given.

Every operator here writes the names of the events it was given into its records: an oracle that travels with the
data. An operator is killed at a drawn action, again and again, and started anew; whatever reaches the log in the end,
its lineage must be what its records say.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocol.stepper import Stepper
from tests.unit.lineage.pipelines import Each, numbers

from logline.engine import actions as do
from logline.engine.spec import Limits
from logline.graph.operator import Batch, Context, Emit, Event, Operator
from logline.names import InsetId, InstanceName
from logline.pipeline import Pipeline
from logline.runtime.log.log import Log

GIVEN = {"out": "given string", "more": "given string"}


def told(names: list[str]) -> pa.RecordBatch:
    return pa.record_batch({"given": pa.array([",".join(names)], pa.string())})


class Alone(Operator[Batch, None]):
    """Stateless: an event each, some of them to another port, some to none."""

    outputs = GIVEN

    def generate(self, inset: InsetId, acc: Batch, ctx: Context[None]) -> Iterator[Emit]:
        number = int(str(inset).rpartition(":")[2])
        if number % 3:
            yield Emit(told([str(inset)]), "more" if number % 3 == 1 else "out")
        if number % 4 == 0:
            yield Emit(told([str(inset)]))


class Groups(Operator[list[str], None]):
    """Two input sets per event, several generative functions, and by chance: what it does is not deterministic."""

    inputs = ("left", "right")
    outputs = GIVEN

    def assign(self, event: Event, ctx: Context[None]) -> list[InsetId]:
        return ["a" if ctx.random.random() < 0.5 else "b", ("pair", event.ssn // 2)]

    def update(self, inset: InsetId, acc: list[str] | None, event: Event) -> list[str]:
        return [*(acc or ()), event.name]

    def ready(self, inset: InsetId, acc: list[str], ctx: Context[None]) -> bool:
        return len(acc) >= (2 if isinstance(inset, tuple) else 3)

    def generate(self, inset: InsetId, acc: list[str], ctx: Context[None]) -> Iterator[Emit]:
        for _ in range(1 + int(ctx.random.random() * 2)):
            yield Emit(told(acc), "out" if isinstance(inset, tuple) else "more")


def pipeline(events: int) -> Pipeline:
    p = Pipeline("oracle")
    one = p.source("one", Each(*(numbers(n) for n in range(events)))).apply("alone", Alone())
    two = p.source("two", Each(*(numbers(n) for n in range(events))))
    names = two.map_batches("names", lambda batch: told(["-"]), schema="given string")
    p.operator("groups", Groups(), {"left": one, "right": names})
    p.lineage()
    return p


def check(log: Log) -> int:
    """Backward and forward, for every event of the two operators."""
    checked = 0
    for port in ("alone", "alone.more", "groups", "groups.more"):
        for row in log.sql(f'select _event, given from "{port}"').to_pylist():
            event, given = row["_event"], set(row["given"].split(","))
            found = log.backward(event).to_pylist()
            assert {r["event"] for r in found if r["depth"] == 1} == given, event
            for name in given:
                assert event in log.forward(name)["event"].to_pylist(), (name, event)
            checked += 1
    return checked


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), crashes=st.integers(0, 12), run=st.integers(1, 4))
def test_lineage_equals_what_the_operators_were_given(seed: int, crashes: int, run: int) -> None:
    chance = Random(seed)
    names = ("one", "two", "alone", "names", "groups")
    s = Stepper(pipeline(8), limits=Limits(run_events=run, fetch_events=run, commit_events=run))
    s.start(*names)
    for _ in range(crashes):
        victim, left = chance.choice(names[2:]), [chance.randint(1, 30)]

        def strike(action: do.Action, left: list[int] = left) -> bool:
            left[0] -= 1
            return left[0] <= 0

        try:
            s.run(*names, before=strike)
        except AssertionError:  # all of them wait: the pipeline came to its end first
            break
        if s.lives[InstanceName(victim)].over is None:
            s.crash(victim)
            s.start(victim)
    s.run(*names)
    assert {life.over for life in s.lives.values()} == {"left"}
    assert check(s.log) >= 16


def test_without_a_crash_the_oracle_is_content() -> None:
    s = Stepper(pipeline(8))
    names: Any = ("one", "two", "alone", "names", "groups")
    s.start(*names)
    s.run(*names)
    assert check(s.log) >= 16


@pytest.mark.parametrize("wrong", ["alone:1", "groups:1"])
def test_the_oracle_notices(wrong: str) -> None:
    """An event that says something else than its lineage does not pass."""
    s = Stepper(pipeline(8))
    names: Any = ("one", "two", "alone", "names", "groups")
    s.start(*names)
    s.run(*names)
    instance, _, ssn = wrong.partition(":")
    rows = s.store.data(instance).events.ports["out"]  # type: ignore[arg-type, index]
    rows[int(ssn)] = rows[int(ssn)]._replace(payload=told(["two:1"]))  # type: ignore[index]
    with pytest.raises(AssertionError):
        check(s.log)
