"""A log whose operators come back with another State or with other parameters (R14)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from tests.unit.runtime.taps import Bucket, Tap, start
from tests.waiting import PATIENCE

import logline as ll
from logline.engine.step import Step
from logline.errors import PipelineChanged, PipelineFailed
from logline.graph.states import encode_state
from logline.names import InstanceName
from logline.store.memory import open_memory


@dataclass
class Whole:
    total: int = 0


@dataclass
class Real:
    total: float = 0.0


@dataclass
class Text:
    total: str = ""


class Counting(ll.Operator[Any, Any]):
    outputs = {"out": "id long"}  # noqa: RUF012
    State: ClassVar[type | None] = Whole

    def assign(self, event: ll.Event, ctx: Any) -> list[int]:
        ctx.state.total += 1
        return [event.ssn]

    def update(self, inset: Any, acc: Any, event: ll.Event) -> Any:
        return event.batch

    def ready(self, inset: Any, acc: Any, ctx: Any) -> bool:
        return True

    def generate(self, inset: Any, acc: Any, ctx: Any) -> Any:
        yield acc


class CountingReal(Counting):
    State = Real


class CountingText(Counting):
    State = Text


def counted(key: str, op: Counting) -> ll.Pipeline:
    p = ll.Pipeline("counted")
    p.source("tap", Tap(key)).apply("count", op).sink("store", Bucket(key))
    return p


def test_a_state_that_the_declared_type_can_not_read_has_a_way_out(key: str) -> None:
    log = f"memory:{key}"
    with start(counted(key, Counting()), log):
        pass
    journal = open_memory(key).claim(InstanceName("count"))  # as versions without a check at the commit left it
    journal.commit(Step(number=journal.image.commits + 1, state=encode_state(Real(1.5))))
    journal.close()
    with pytest.raises(
        PipelineFailed, match=r"can't be read as Whole .*: resume with a State that has the same fields"
    ):
        start(counted(key, Counting()), log).wait(PATIENCE)
    with pytest.raises(PipelineChanged, match="its state had total: int and now has total: str"):
        start(counted(key, CountingText()), log)
    tap, bucket = Tap(key), Bucket(key)
    tap.put(7)
    tap.close_it()
    assert start(counted(key, CountingReal()), log).wait(PATIENCE).phase == "finished"
    assert bucket.written == [7]
