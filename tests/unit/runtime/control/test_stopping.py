"""A stop begins no call, row, read or write; what is under way ends, and its answers are kept (R9)."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.waiting import PATIENCE, until

import logline as ll
from logline.runtime.control.remote_control import tell_run
from logline.runtime.messages.commands import Stop

ROWS = 50


class Service:
    """Is asked for numbers; answers only once somebody lets it."""

    def __init__(self) -> None:
        self.asked: Counter[Any] = Counter()
        self.answers = threading.Event()

    def ask(self, n: Any) -> Any:
        self.asked[n] += 1
        assert self.answers.wait(PATIENCE)
        return n

    async def ask_async(self, n: Any) -> Any:
        return await asyncio.to_thread(self.ask, n)


service = Service()
"""Not shipped with an operator, which would copy it."""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    service.__init__()  # type: ignore[misc]
    yield
    service.answers.set()


def rows(n: int = ROWS, each: int = ROWS) -> Any:
    """Events of `each` rows."""
    return ll.sources.batches([pa.table({"n": range(at, at + each)}) for at in range(0, n, each)])


def stop_while_asked(p: ll.Pipeline, log: str, calls: int) -> ll.Run:
    """Runs it until so many calls wait for their answers, stops it, and lets them come."""
    run = p.start(log, engine="inline")
    until(lambda: len(service.asked) >= calls)
    stopping = threading.Thread(target=run.stop)
    stopping.start()
    until(lambda: run.status().phase == "stopping")
    assert run.status().summary == f"stopping ({calls} call{'s'[: calls != 1]} in flight)"
    service.answers.set()
    stopping.join(PATIENCE)
    assert run.status().phase == "stopped"
    assert len(service.asked) == calls
    return run


def finish(p: ll.Pipeline, log: str) -> list[int]:
    """Goes on to the end; what is in the sink."""
    run = p.run(log, engine="inline")
    assert run.status().phase == "finished"
    return sorted(run.result("store")["n"].to_pylist())


def asked(row: dict[str, Any], ctx: Any) -> dict[str, Any]:
    return {"n": service.ask(row["n"])}


def asked_batch(batch: Any) -> Any:
    service.ask(batch["n"][0].as_py())
    return batch


async def asked_async(row: dict[str, Any], ctx: Any) -> dict[str, Any]:
    return {"n": await service.ask_async(row["n"])}


async def asked_inside(row: dict[str, Any], ctx: Any) -> dict[str, Any]:
    """Two calls one after the other, within the one that a row is."""
    first = await ctx.call(service_asked_async, row["n"])
    return {"n": (await ctx.call(service_asked_async, [first]))[0]}


def asked_inside_plain(row: dict[str, Any], ctx: Any) -> dict[str, Any]:
    first = ctx.call(service_asked, row["n"])
    return {"n": ctx.call(service_asked, [first])[0]}


def service_asked(n: Any) -> Any:
    return service.ask(str(n)) and n


async def service_asked_async(n: Any) -> Any:
    return await service.ask_async(str(n)) and n


@pytest.mark.parametrize("fn", [asked, asked_async])
def test_rows_in_flight_are_answered_and_no_other_is_begun(fn: Any, tmp_path: Path) -> None:
    log = f"lmdb:{tmp_path / 'log'}"
    p = ll.Pipeline("p")
    p.source("s", rows()).map_rows("m", fn, schema="n long", concurrency=5).sink("store", ll.sinks.collect())
    stop_while_asked(p, log, 5)
    assert finish(p, log) == list(range(ROWS))
    assert service.asked == dict.fromkeys(range(ROWS), 1)


@pytest.mark.parametrize("fn", [asked_inside, asked_inside_plain])
def test_a_row_is_left_between_two_of_its_calls(fn: Any, tmp_path: Path) -> None:
    log = f"lmdb:{tmp_path / 'log'}"
    p = ll.Pipeline("p")
    p.source("s", rows(9, 3)).map_rows("m", fn, schema="n long", concurrency=2).sink("store", ll.sinks.collect())
    stop_while_asked(p, log, 2)
    assert finish(p, log) == list(range(9))
    assert set(service.asked.values()) == {1} and len(service.asked) == 18


def test_a_stop_does_not_wait_for_a_rate(tmp_path: Path) -> None:
    """The first row is asked at once, the next ones an hour later."""
    log = f"lmdb:{tmp_path / 'log'}"
    service.answers.set()
    p = ll.Pipeline("p")
    mapped = p.source("s", rows()).map_rows("m", asked_async, schema="n long", concurrency=5, rate="1/h")
    mapped.sink("store", ll.sinks.collect())
    run = p.start(log, engine="inline")
    until(lambda: answers_kept(run) == 1)
    assert run.stop(timeout=PATIENCE).phase == "stopped"
    assert service.asked == {0: 1} and answers_kept(run) == 1


def answers_kept(run: ll.Run) -> int:
    return sum(map(len, run.log.store.read("m").image().answers.values()))  # type: ignore[arg-type]


async def away(row: dict[str, Any], ctx: Any) -> dict[str, Any]:
    service.asked[row["n"]] += 1
    raise OSError("the service is away")


def test_a_stop_does_not_wait_for_the_next_try_of_a_row(tmp_path: Path) -> None:
    p = ll.Pipeline("p")
    retry = ll.Retry(attempts=3, wait="1h")
    mapped = p.source("s", rows()).map_rows("m", away, schema="n long", concurrency=5, retry=retry)
    mapped.sink("store", ll.sinks.collect())
    run = p.start(f"lmdb:{tmp_path / 'log'}", engine="inline")
    until(lambda: len(service.asked) == 5 and not run.status().operators["m"].calls)
    assert run.stop(timeout=PATIENCE).phase == "stopped"
    assert service.asked == dict.fromkeys(range(5), 1)


class Twice(ll.Operator[Any, Any]):
    """Plain code with two calls one after the other. It tries to go on whatever happens."""

    outputs = {"out": "n long"}  # noqa: RUF012

    def generate(self, inset: Any, batch: Any, ctx: Any) -> Iterator[Any]:
        found = []
        for n in batch["n"].to_pylist():
            try:
                found.append(ctx.call(service_asked, n))
            except BaseException:
                found.append(-1)
        yield pa.record_batch({"n": found})


class AtOnce(ll.Operator[Any, Any]):
    """All calls at once: if one is refused with an exception, a TaskGroup cancels the others."""

    outputs = {"out": "n long"}  # noqa: RUF012

    async def generate(self, inset: Any, batch: Any, ctx: Any) -> Any:
        numbers = batch["n"].to_pylist()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.both(n, ctx.row(k))) for k, n in enumerate(numbers)]
        yield pa.record_batch({"n": [task.result() for task in tasks]})

    async def both(self, n: int, ctx: Any) -> int:
        await ctx.call(service_asked_async, -n)
        return int(await ctx.call(service_asked_async, n))


@pytest.mark.parametrize(
    ("make", "options", "calls", "total"),
    [
        (Twice, {}, 1, 9),
        (Twice, {"concurrency": 2}, 2, 9),
        (AtOnce, {}, 3, 17),
        (AtOnce, {"concurrency": 2}, 6, 17),
    ],
)
def test_calls_of_generate(make: Callable[[], Any], options: Any, calls: int, total: int, tmp_path: Path) -> None:
    """On the engine's own thread, on threads, on an event loop."""
    log = f"lmdb:{tmp_path / 'log'}"
    p = ll.Pipeline("p")
    p.source("s", rows(9, 3), rows=3).apply("m", make(), **options).sink("store", ll.sinks.collect())
    stop_while_asked(p, log, calls)
    assert finish(p, log) == list(range(9))
    assert set(service.asked.values()) <= {1, 2} and len(service.asked) == total  # 0 is -0 too
    assert [n for n, count in service.asked.items() if count > 1 and n != "0"] == []


def test_a_function_on_batches_begins_no_other_batch(tmp_path: Path) -> None:
    log = f"lmdb:{tmp_path / 'log'}"
    p = ll.Pipeline("p")

    source = ll.sources.batches([pa.table({"n": [n]}) for n in range(200)])
    p.source("s", source, rows=1).map_batches("m", asked_batch, schema="n long").sink("store", ll.sinks.collect())
    run = p.start(log, engine="inline")
    until(lambda: len(service.asked) == 1)
    stopping = threading.Thread(target=run.stop)
    stopping.start()
    until(lambda: run._engine.drivers["m"].life._stopping)  # type: ignore[union-attr]
    service.answers.set()
    stopping.join(PATIENCE)
    assert run.status().phase == "stopped" and len(service.asked) == 1
    assert finish(p, log) == list(range(200))
    assert set(service.asked.values()) == {1}


def test_a_stop_from_another_process_does_not_wait_for_ever(tmp_path: Path) -> None:
    """What has not ended in time is dropped: the next run makes those calls again."""
    p = ll.Pipeline("p")
    mapped = p.source("s", rows()).map_rows("m", asked_async, schema="n long", concurrency=5)
    mapped.sink("store", ll.sinks.collect())
    run = p.start(f"lmdb:{tmp_path / 'log'}", engine="inline")
    until(lambda: len(service.asked) == 5)
    tell_run(run.log.store, Stop(grace=0.0))
    assert run.wait(PATIENCE).phase == "stopped"
    assert len(service.asked) == 5 and answers_kept(run) == 0
