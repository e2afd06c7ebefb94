"""Rules of DESIGN section 4 that no schedule of the simulator shows, each on a pipeline made for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.protocol.stepper import Stepper

from logline.connectors import sinks, sources
from logline.errors import PipelineFailed
from logline.graph.operator import Context, Emit, Operator
from logline.names import InsetId, InstanceName, PortName
from logline.pipeline import Pipeline
from logline.testing.sim.checks import Checks
from logline.testing.sim.scenarios import chain
from logline.testing.sim.world import World

IDS = pa.schema([("id", pa.int64())])


def one_order(p: Pipeline) -> Any:
    return p.source("orders", sources.batches([pa.table({"id": [7]})]))


# ---- R8 ---------------------------------------------------------------------------------------------------


def test_a_fresh_log_is_not_mistaken_for_an_old_one() -> None:
    """A positioned target keeps the last number per log: the first write of another log is not a repetition."""
    kept = sinks.collect()
    for runs in (1, 2):
        p = Pipeline("sales")
        one_order(p).sink("store", kept)
        s = Stepper(p)
        s.start("orders", "store")
        s.run("orders", "store")
        assert kept.table().to_pylist() == [{"id": 7}] * runs


# ---- R9 ---------------------------------------------------------------------------------------------------


class Forgetful(Operator[Any, Any]):
    """Asks for something else in each life, although its input is the same."""

    def __init__(self) -> None:
        self.lives = 0

    def schemas(self, inputs: Any) -> dict[str, Any]:
        return {"out": IDS}

    def open(self, ctx: Context[Any]) -> None:
        self.lives += 1

    def generate(self, inset: InsetId, acc: Any, ctx: Context[Any]) -> Iterator[Any]:
        asked = ctx.call(price, self.lives)
        yield Emit(pa.table({"id": [ctx.call(price, asked)]}))


def price(item: int) -> int:
    return item * 10


def test_an_answer_is_not_given_to_another_question() -> None:
    p = Pipeline("calls")
    one_order(p).apply("ask", Forgetful())
    s = Stepper(p)
    ask = InstanceName("ask")
    s.start("orders", "ask")
    s.run("orders", "ask", until=lambda: bool(s.store.read(ask).image().answers))
    s.crash("ask")
    s.start("ask")
    with pytest.raises(
        PipelineFailed, match=r"AnswerMismatch: call 1 of input set 'orders:1' was .*price with other"
    ):
        s.run("orders", "ask")
    assert s.sent("ask") == 0


# ---- R12 --------------------------------------------------------------------------------------------------


def test_a_journal_is_collected_while_its_instance_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without back-pressure, which would make a sender look at its receivers for another reason, and without
    what is done for those that have left."""
    monkeypatch.setattr(World, "_sweep_one", lambda self, name: None)
    monkeypatch.setattr(Checks, "at_end", lambda self: None)
    scenario = chain("replayable", "positioned", events=20)
    wide = {
        name: replace(instance, spec=replace(instance.spec, limits=replace(instance.spec.limits, port_bytes=1 << 20)))
        for name, instance in scenario.instances.items()
    }
    reader = World(wide, 1, service=scenario.service).run().store.read(InstanceName("source"))
    last = reader.head(PortName("out")).last
    assert last > 20
    assert len(reader.stored(PortName("out"))) < last / 2
