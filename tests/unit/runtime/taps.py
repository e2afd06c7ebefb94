"""A source and a sink that a test holds both ends of, and waits for without sleeping.

What they share with the test is found by a key, so that the objects themselves can be shipped.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from tests.waiting import PATIENCE

from logline.graph.connector import Guarantee, Sink, Source
from logline.graph.operator import Context, Emit, Event, Operator
from logline.names import InsetId
from logline.pipeline import Pipeline
from logline.runtime.control.launch import start as start_inline
from logline.runtime.control.run import Run
from logline.runtime.control.settings import StartSettings

IDS = pa.schema([("id", pa.int64())])


class Shared:
    """Both ends."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.batches: list[pa.RecordBatch] = []
        self.closed = False
        self.looks = 0
        self.written: list[int] = []
        self.last: dict[str, int] = {}
        self.held = False
        self.waiting = 0
        self.calls: list[Any] = []

    def wait_for(self, condition: Any) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, PATIENCE), "what was waited for has not come"


_shared: dict[str, Shared] = {}


def shared(key: str) -> Shared:
    return _shared.setdefault(key, Shared())


class Tap(Source):
    """Replayable; gives what was put in, an event per id."""

    schema = IDS
    gather = False

    def __init__(self, key: str) -> None:
        self.key = key

    def read(self, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, int] | None]:
        both, n = shared(self.key), offset or 0
        while True:
            with both.changed:
                batch = both.batches[n] if n < len(both.batches) else None
                closed = both.closed
                both.looks += 1
                both.changed.notify_all()
            if batch is not None:
                n += 1
                yield batch, n
            elif closed:
                return
            else:
                yield None

    def put(self, *ids: int, run: Run | None = None) -> None:
        """More events, and a bell for a run that sleeps."""
        both = shared(self.key)
        with both.changed:
            both.batches += [pa.record_batch([pa.array([i], pa.int64())], schema=IDS) for i in ids]
        self._ring(run)

    def close_it(self, run: Run | None = None) -> None:
        with shared(self.key).changed:
            shared(self.key).closed = True
        self._ring(run)

    def _ring(self, run: Run | None) -> None:
        if run is not None:
            for instance in run.log.store.instances():
                run.log.store.ring(instance)


class Bucket(Sink):
    """Positioned; counts what is written, and can be held shut."""

    guarantee: Guarantee = "positioned"

    def __init__(self, key: str) -> None:
        self.key = key
        self.scope = ""

    def open(self, scope: str) -> None:
        self.scope = scope

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        both = shared(self.key)
        with both.changed:
            both.waiting += 1
            both.changed.notify_all()
            both.changed.wait_for(lambda: not both.held, PATIENCE)
            both.waiting -= 1
            if number == both.last.get(self.scope, 0) + 1:
                both.written += batch["id"].to_pylist()
                both.last[self.scope] = number
            both.changed.notify_all()

    def position(self) -> int:
        return shared(self.key).last.get(self.scope, 0)

    @property
    def written(self) -> list[int]:
        return list(shared(self.key).written)

    def wait_for(self, *ids: int) -> None:
        """Until exactly these are written."""
        both = shared(self.key)
        both.wait_for(lambda: len(both.written) >= len(ids))
        assert both.written == list(ids)

    def hold(self) -> None:
        shared(self.key).held = True

    def release(self) -> None:
        both = shared(self.key)
        with both.changed:
            both.held = False
            both.changed.notify_all()

    def wait_until_writing(self) -> None:
        both = shared(self.key)
        both.wait_for(lambda: both.waiting > 0)


def piped(key: str) -> tuple[Pipeline, Tap, Bucket]:
    """tap -> store"""
    tap, bucket = Tap(key), Bucket(key)
    p = Pipeline("piped")
    p.source("tap", tap).sink("store", bucket)
    return p, tap, bucket


def start(pipeline: Pipeline, log: str | None = None, **more: Any) -> Run:
    """As `Pipeline.start` does it for the inline engine."""
    return start_inline(pipeline.graph(), StartSettings(log, engine="inline", **more))


class Threes(Operator[list[int], None]):
    """Stateful: the sum of each three events; tells of its updates."""

    outputs = {"out": IDS}  # noqa: RUF012

    def __init__(self, key: str) -> None:
        self.key = key

    def assign(self, event: Event, ctx: Context[None]) -> list[InsetId]:
        return ["open"]

    def update(self, inset: InsetId, acc: list[int] | None, event: Event) -> list[int]:
        both = shared(self.key)
        with both.changed:
            both.calls.append(event.name)
            both.changed.notify_all()
        return [*(acc or ()), *event.batch["id"].to_pylist()]

    def ready(self, inset: InsetId, acc: list[int], ctx: Context[None]) -> bool:
        return len(acc) == 3

    def generate(self, inset: InsetId, acc: list[int], ctx: Context[None]) -> Iterator[Emit]:
        yield Emit(pa.record_batch([pa.array([sum(acc)], pa.int64())], schema=IDS))


class Lookup(Operator[Any, None]):
    """Stateless: asks the outside about each row, ten times the id; the answer comes once `closed` is set."""

    outputs = {"out": IDS}  # noqa: RUF012

    def __init__(self, key: str) -> None:
        self.key = key

    def generate(self, inset: InsetId, acc: pa.RecordBatch, ctx: Context[None]) -> Iterator[Emit]:
        answers = [ctx.call(self.ask, n) for n in acc["id"].to_pylist()]
        yield Emit(pa.record_batch([pa.array(answers, pa.int64())], schema=IDS))

    def ask(self, n: int) -> int:
        both = shared(self.key)
        with both.changed:
            both.calls.append(n)
            both.changed.notify_all()
            both.changed.wait_for(lambda: both.closed, PATIENCE)
        return n * 10
