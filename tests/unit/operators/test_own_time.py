"""A timeout counts the function's own time: not what its calls wait for the log, nor what the loop is held up."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.operators.harness import FakeContext, VirtualLoop
from tests.waiting import PATIENCE

import logline as ll
from logline.operators.own_time import OwnTime
from logline.operators.row_calls import Caller


def on_virtual_time(code: Callable[[OwnTime], Awaitable[None]], seconds: float = 10) -> float:
    """When the code came to its end, or had its time."""

    async def limited() -> float:
        clock = OwnTime(seconds)
        try:
            async with clock:
                await code(clock)
        except TimeoutError:
            assert clock.expired
            return -asyncio.get_running_loop().time()
        assert not clock.expired
        return asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(limited())


async def waits(clock: OwnTime, seconds: float) -> None:
    clock.stand_still(True)
    await asyncio.sleep(seconds)
    clock.stand_still(False)


def test_its_own_time_counts() -> None:
    assert on_virtual_time(lambda clock: asyncio.sleep(9)) == 9
    assert on_virtual_time(lambda clock: asyncio.sleep(11)) == -10


def test_waits_do_not_count_however_many_there_are() -> None:
    async def several(clock: OwnTime) -> None:
        for _ in range(3):
            await asyncio.sleep(3)
            await waits(clock, 100)

    async def too_long(clock: OwnTime) -> None:
        await several(clock)
        await asyncio.sleep(3)

    assert on_virtual_time(several) == 309
    assert on_virtual_time(too_long) == pytest.approx(-310)


def test_the_clock_goes_on_after_the_last_of_several_waits() -> None:
    async def together(clock: OwnTime) -> None:
        await asyncio.gather(waits(clock, 50), waits(clock, 80))
        await asyncio.sleep(11)

    assert on_virtual_time(together) == pytest.approx(-90)


def test_a_cancellation_from_elsewhere_is_no_timeout() -> None:
    async def cancelled(clock: OwnTime) -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_later(5, task.cancel)
        await asyncio.sleep(8)

    with pytest.raises(asyncio.CancelledError):
        on_virtual_time(cancelled)


# ---- whole runs: a neighbour holds up the thread that commits ------------------------------------------------------


def ask(x: int) -> int:
    return x


def asks_twice(row: dict[str, Any], ctx: Any) -> dict[str, int]:
    return {"x": ctx.call(ask, ctx.call(ask, row["x"]))}


async def asks_on_the_loop(row: dict[str, Any], ctx: Any) -> dict[str, int]:
    return {"x": await ctx.call(ask, row["x"])}


def asks_on_threads_of_its_own(row: dict[str, Any], ctx: Any) -> dict[str, int]:
    got: list[int] = []
    thread = threading.Thread(target=lambda: got.append(ctx.call(ask, row["x"])))
    thread.start()
    thread.join(PATIENCE)
    return {"x": got[0]}


def holds_up(batch: pa.RecordBatch) -> pa.RecordBatch:
    if 0 in batch["x"].to_pylist():
        time.sleep(1.5)
    return batch


@pytest.mark.parametrize("fn", [asks_twice, asks_on_the_loop, asks_on_threads_of_its_own])
def test_a_neighbour_does_not_count(fn: Any, tmp_path: Path) -> None:
    p = ll.Pipeline("held_up")
    numbers = p.source("numbers", ll.sources.batches([pa.table({"x": [n]}) for n in range(4)]), rows=1)
    asked = numbers.map_rows("asks", fn, schema="x long", timeout="1s")
    asked.map_batches("slow", holds_up, schema="x long").sink("store", ll.sinks.collect())
    run = p.run(f"lmdb:{tmp_path / 'log'}", engine="inline")
    assert run.result("store")["x"].to_pylist() == [0, 1, 2, 3]


def test_a_function_that_has_returned_is_in_time_though_the_loop_hears_late() -> None:
    """Async code that blocks holds up the loop of all operators."""
    began, go_on = threading.Event(), threading.Event()

    def fn(row: int, ctx: Any) -> int:
        began.set()
        assert go_on.wait(PATIENCE)
        return row

    async def held_up() -> Any:
        calls = Caller(fn, concurrency=1, rate=None, timeout="500ms")
        task = asyncio.create_task(calls.ask(7, FakeContext(), lambda answer, _: answer))
        while not began.is_set():
            await asyncio.sleep(0)
        go_on.set()
        time.sleep(0.7)
        return await task

    assert asyncio.run(held_up()) == 7
