"""Whatever user code raises comes back as a result: diverted with its row or set, or told with the operator's name.

None of these is an Exception: asyncio, threads and executors treat each of them in a way of its own.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import logline as ll
from logline.engine.user_errors import failure_of
from logline.errors import SessionGone

EVENTS = 6
PATIENCE = 60.0
"""Seconds after which a run counts as hanging."""


class PanicException(BaseException):
    """As libraries in Rust raise it."""


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise SystemExit(4)


def leave() -> None:
    sys.exit(3)


def panic() -> None:
    raise PanicException("called unwrap() on nothing")


def cancel() -> None:
    raise asyncio.CancelledError


def interrupt() -> None:
    raise KeyboardInterrupt


def mumble() -> None:
    raise Unspeakable


WAYS = [leave, panic, cancel, interrupt, mumble]


class Plain(ll.Operator[Any, Any]):
    outputs = {"out": "n long"}  # noqa: RUF012

    def __init__(self, fail: Callable[[], None], where: str) -> None:
        self.fail, self.where = fail, where

    def at(self, where: str, batch: pa.RecordBatch | None = None) -> None:
        if where == self.where and (batch is None or batch["n"][0].as_py() == 2):
            self.fail()

    def open(self, ctx: Any) -> None:
        self.at("open")

    def assign(self, event: ll.Event, ctx: Any) -> Any:
        self.at("assign", event.batch)
        return [event.name]

    def update(self, inset: Any, acc: Any, event: ll.Event) -> Any:
        self.at("update", event.batch)
        return event.batch

    def ready(self, inset: Any, acc: Any, ctx: Any) -> bool:
        self.at("ready", acc)
        return True

    def generate(self, inset: Any, acc: Any, ctx: Any) -> Iterator[Any]:
        self.at("generate", acc)
        yield acc

    def close(self) -> None:
        self.at("close")


class Async(Plain):
    async def generate(self, inset: Any, acc: Any, ctx: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        self.at("generate", acc)
        yield acc


class OfATask(Plain):
    """What a task of its own raises, asyncio lets through to the event loop's thread as well."""

    async def generate(self, inset: Any, acc: Any, ctx: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        async def work() -> pa.RecordBatch:
            self.at("generate", acc)
            return acc

        yield await asyncio.create_task(work())


def row_by_row(fail: Callable[[], None]) -> Callable[..., Any]:
    def row(row: Any, ctx: Any) -> Any:
        if row["n"] == 2:
            fail()
        return row

    return row


def row_by_row_async(fail: Callable[[], None]) -> Callable[..., Any]:
    async def row(row: Any, ctx: Any) -> Any:
        if row["n"] == 2:
            fail()
        return row

    return row


def batch_by_batch(fail: Callable[[], None]) -> Callable[..., Any]:
    def batch(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch["n"][0].as_py() == 2:
            fail()
        return batch

    return batch


def pipeline(how: str, fail: Callable[[], None], **options: Any) -> ll.Pipeline:
    p = ll.Pipeline("raising")
    numbers = p.source("numbers", ll.sources.batches([pa.table({"n": [n]}) for n in range(EVENTS)]))
    several = {"concurrency": 4, **options}
    match how:
        case "map_rows":
            made = numbers.map_rows("op", row_by_row(fail), schema="n long", **several)
        case "map_rows async":
            made = numbers.map_rows("op", row_by_row_async(fail), schema="n long", **several)
        case "map_batches":
            made = numbers.map_batches("op", batch_by_batch(fail), schema="n long", **options)
        case "threads":
            made = numbers.apply("op", Plain(fail, "generate"), **several)
        case "async":
            made = numbers.apply("op", Async(fail, "generate"), **several)
        case "a task":
            made = numbers.apply("op", OfATask(fail, "generate"), **several)
        case where:
            made = numbers.apply("op", Plain(fail, where), **options)
    made.sink("store", ll.sinks.collect())
    return p


HOW = ["map_rows", "map_rows async", "map_batches", "threads", "async", "a task", "generate"]


@pytest.mark.parametrize("fail", WAYS)
@pytest.mark.parametrize("how", [*HOW, "assign", "update", "ready"])
def test_it_is_diverted(how: str, fail: Callable[[], None]) -> None:
    with pipeline(how, fail, on_error="divert").start(engine="inline") as run:
        assert run.wait(PATIENCE).phase == "finished"
        assert run.log.errors().num_rows == 1
        assert sorted(run.result("store")["n"].to_pylist()) == [n for n in range(EVENTS) if n != 2]


@pytest.mark.parametrize("fail", WAYS)
@pytest.mark.parametrize("how", [*HOW, "assign", "update", "ready", "open"])
def test_it_stops_the_run_by_default(how: str, fail: Callable[[], None]) -> None:
    run = pipeline(how, fail).start(engine="inline")
    with pytest.raises(ll.PipelineFailed) as failed:
        run.wait(PATIENCE)
    assert failed.value.operator == "op"


@pytest.mark.parametrize("fail", WAYS)
def test_close_does_not_matter(fail: Callable[[], None]) -> None:
    with pipeline("close", fail).start(engine="inline") as run:
        assert run.wait(PATIENCE).phase == "finished"


class Numbers(ll.Source):
    schema = pa.schema({"n": pa.int64()})

    def __init__(self, fail: Callable[[], None]) -> None:
        self.fail = fail

    def read(self, partition: str, offset: Any) -> Iterator[Any]:
        yield pa.record_batch({"n": [1]}), 1
        self.fail()


class Target(ll.Sink):
    guarantee = "named"

    def __init__(self, fail: Callable[[], None], where: str) -> None:
        self.fail, self.where = fail, where

    def at(self, where: str) -> None:
        if where == self.where:
            self.fail()

    def open(self, scope: str) -> None:
        self.at("open")

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        self.at("write")


@pytest.mark.parametrize("fail", WAYS)
def test_a_source_is_told(fail: Callable[[], None]) -> None:
    p = ll.Pipeline("raising")
    p.source("op", Numbers(fail)).sink("store", ll.sinks.collect())
    with pytest.raises(ll.PipelineFailed) as failed:
        p.start(engine="inline").wait(PATIENCE)
    assert failed.value.operator == "op"


@pytest.mark.parametrize("fail", WAYS)
@pytest.mark.parametrize("where", ["open", "write"])
def test_a_sink_is_told(where: str, fail: Callable[[], None]) -> None:
    p = ll.Pipeline("raising")
    numbers = p.source("numbers", ll.sources.batches([pa.table({"n": [1]})]))
    numbers.sink("op", Target(fail, where), retry=ll.Retry(attempts=1))
    with pytest.raises(ll.PipelineFailed) as failed:
        p.start(engine="inline").wait(PATIENCE)
    assert failed.value.operator == "op"


def lose_the_session() -> None:
    raise SessionGone("the Spark session is gone")


@pytest.mark.parametrize("on_error", ["divert", "drop"])
@pytest.mark.parametrize("how", ["threads", "async", "generate"])
def test_what_no_set_is_to_blame_for_fails_the_run(how: str, on_error: str, tmp_path: Any) -> None:
    """Its set is due in the next run, which has what it needs."""
    log = f"lmdb:{tmp_path}/log"
    again = ll.Retry(attempts=3, wait="1ms")
    with pytest.raises(ll.PipelineFailed, match="the Spark session is gone"):
        pipeline(how, lose_the_session, on_error=on_error, retry=again).start(log, engine="inline").wait(PATIENCE)
    with pipeline(how, lambda: None, on_error=on_error, retry=again).start(log, engine="inline") as run:
        assert run.wait(PATIENCE).phase == "finished"
        assert run.log.errors().num_rows == 0
        assert sorted(run.result("store")["n"].to_pylist()) == list(range(EVENTS))


def test_a_worker_process_tells_it_too(tmp_path: Any) -> None:
    run = pipeline("generate", interrupt).start(f"lmdb:{tmp_path}/log", engine="processes")
    with pytest.raises(ll.PipelineFailed) as failed:
        run.wait(PATIENCE)
    assert failed.value.operator == "op"
    assert "KeyboardInterrupt" in str(failed.value)


def test_an_error_that_can_not_be_shown_is_told_by_its_kind() -> None:
    failure = failure_of(Unspeakable())
    assert failure.kind == "Unspeakable"
    assert "can't be shown" in failure.message


def test_on_the_thread_of_a_test_an_interrupt_is_somebodys() -> None:
    op = Plain(interrupt, "generate")
    with pytest.raises(KeyboardInterrupt):
        ll.testing.drive(op, crashes=False).send(pa.record_batch({"n": [2]}))
