"""A log whose operators come back with another State or with other parameters (R14)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from tests.unit.runtime.taps import Bucket, Tap, start
from tests.waiting import PATIENCE, until

import logline as ll
from logline.engine.step import Step
from logline.errors import PipelineChanged, PipelineFailed
from logline.graph.states import encode_state
from logline.names import InstanceName, PortName
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
        start(counted(key, CountingText()), log).stop()
    tap, bucket = Tap(key), Bucket(key)
    tap.put(7)
    tap.close_it()
    assert start(counted(key, CountingReal()), log).wait(PATIENCE).phase == "finished"
    assert bucket.written == [7]


class Timed(Tap):
    """An event each ten minutes."""

    schema = pa.schema({"id": pa.int64(), "at": pa.timestamp("us", "UTC")})

    def read(self, partition: str, offset: Any) -> Iterator[Any]:
        for got in super().read(partition, offset):
            if got is None:
                yield None
            else:
                batch, n = got
                minute = batch["id"][0].as_py() * 10 * 60_000_000
                yield pa.record_batch([batch["id"], pa.array([minute])], names=["id", "at"]).cast(self.schema), n


def tumbled(stream: ll.Stream, size: int) -> ll.Stream:
    return stream.window("w", ll.tumbling(f"{size}m", on="at"), agg={"id": ("id", "max"), "n": ("id", "count")})


def blocked(stream: ll.Stream, size: int) -> ll.Stream:
    return stream.window("w", ll.events(size), agg={"id": ("id", "max"), "n": ("id", "count")})


def rebatched(stream: ll.Stream, size: int) -> ll.Stream:
    return stream.rebatch("w", rows=size, within="1h")


Make = Callable[[ll.Stream, int], ll.Stream]


def sized(key: str, make: Make, size: int) -> ll.Pipeline:
    p = ll.Pipeline("sized")
    make(p.source("tap", Timed(key)), size).sink("store", ll.sinks.collect())
    return p


@pytest.mark.parametrize(
    ("make", "old", "new", "says"),
    [
        (tumbled, 60, 10, "had size: 1:00:00, on: at and now has size: 0:10:00, on: at: .*: 1970-01-01 00:00:00"),
        (blocked, 100, 3, "had n: 100 and now has n: 3: .*: 1;"),
        (rebatched, 100, 3, "had rows: 100 and now has rows: 3: .*: 1;"),
    ],
)
def test_another_size_is_refused_while_sets_are_open(key: str, make: Make, old: int, new: int, says: str) -> None:
    log, tap = f"memory:{key}", Tap(key)
    tap.put(1, 2, 3, 4, 5)
    with start(sized(key, make, old), log) as run:
        until(lambda: run.status().operators["w"].taken == 5)
    with pytest.raises(PipelineChanged, match=f"operator 'w': it {says}"):
        start(sized(key, make, new), log).stop()
    assert "run the pipeline as it was until they are done" in str(sized(key, make, new).check(log))
    tap.close_it()
    assert start(sized(key, make, old), log).wait(PATIENCE).phase == "finished"


@pytest.mark.parametrize(("make", "old"), [(blocked, 5), (rebatched, 5)])
@pytest.mark.parametrize("new", [2, 7])
def test_another_size_is_accepted_when_none_is_open(key: str, make: Make, old: int, new: int) -> None:
    log, tap = f"memory:{key}", Tap(key)
    tap.put(1, 2, 3, 4, 5)
    with start(sized(key, make, old), log) as run:
        until(lambda: run.status().operators["store"].taken == 1)
    tap.put(6, 7, 8)
    tap.close_it()
    run = start(sized(key, make, new), log)
    assert run.wait(PATIENCE).phase == "finished"
    assert max(run.result("store")["id"].to_pylist()) == 8
    events = run.log.store.read(InstanceName("w")).head(PortName("out")).last - 1  # without the end
    assert events == {2: 3, 7: 2}[new]
