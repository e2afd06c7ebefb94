"""How map_rows and map_batches call their function: so many at once, so many per minute, each with a time limit and
retries.

Everything here lives on the event loop of one life: it is made when first needed and forgotten in `open`, so
that the operator can be shipped.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterable
from contextvars import copy_context
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from logline.errors import Abandoned, AnswerMismatch, EngineError, LogError, OptionError
from logline.graph.durations import duration, shown
from logline.graph.durations import rate as parse_rate
from logline.graph.functions import is_async_function
from logline.graph.model import Retry
from logline.graph.operator import Context, Duration
from logline.operators.checks import at_least_one
from logline.operators.own_time import OwnTime
from logline.runtime.lives.daemon_threads import DaemonThreads

ENGINE_ERRORS = (LogError, AnswerMismatch, EngineError, Abandoned)
"""What a `ctx.call` inside the function may raise that is no failure of the row: a life that was fenced off
must not drop or divert it, nor try again."""


T = TypeVar("T")
R = TypeVar("R")


def cancelled(error: BaseException) -> bool:
    """Whether this is the cancellation of the task that runs, and not one that user code raised by itself."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


class Slot:
    """The right to be in flight; may be freed more than once."""

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self._slots: asyncio.Semaphore | None = slots

    def free(self, _: object = None) -> None:
        if self._slots is not None:
            self._slots.release()
            self._slots = None


@dataclass(frozen=True, slots=True)
class Failed:
    """A row or key whose function raised, after all tries."""

    error: BaseException


def _gap(rate: str) -> float:
    """Seconds between two calls."""
    calls, span = parse_rate(rate)
    return (span / calls).total_seconds()


class Caller:
    """Calls one function, for all input sets of one operator."""

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        concurrency: int,
        rate: str | None,
        timeout: Duration | None,
        retry: Retry | None = None,
    ) -> None:
        """The options are as their author gives them. Without `retry` there is one try."""
        retry = retry or Retry(attempts=1)
        limit = None if timeout is None else duration(timeout)
        if limit is not None and limit <= timedelta(0):
            raise OptionError(f"timeout={limit}: the time must be positive")
        if retry.attempts < 1:
            raise OptionError(f"Retry(attempts={retry.attempts}): there must be at least one try")
        self._fn = fn
        self._concurrency = at_least_one(concurrency, "concurrency")
        self._gap = None if rate is None else _gap(rate)
        self._timeout = limit
        self._retry = retry
        self._wait = duration(retry.wait).total_seconds()
        self._async = is_async_function(fn)
        self.open()

    def open(self) -> None:
        """Forgets the slots, threads and pace of the last life: a new life makes its own when it needs them."""
        self._slots: asyncio.Semaphore | None = None
        self._threads: DaemonThreads | None = None
        self._next = 0.0

    def close(self) -> None:
        """Threads end with the call they are in; a life does not wait for one that hangs."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    def __getstate__(self) -> dict[str, Any]:
        """Without what belongs to a life: the next run ships an operator that one has used, and rows that a stop has
        cut off may still hold its slots."""
        return {**self.__dict__, "_slots": None, "_threads": None, "_next": 0.0}

    async def slot(self, ctx: Context[Any]) -> Slot:
        """Waits until another row may be in flight."""
        if self._slots is None:
            self._slots = asyncio.Semaphore(self._concurrency)
        await ctx.pause(self._slots.acquire())
        return Slot(self._slots)

    async def ask(self, row: Any, ctx: Context[Any], check: Callable[[Any, Any], Any]) -> Any:
        """The function's answer, checked; tried again as `retry` says. `check` gets it and the context of its try."""
        wait = self._wait
        for attempt in range(1, self._retry.attempts + 1):
            await self._pace(ctx)
            time = None if self._timeout is None else OwnTime(self._timeout.total_seconds())
            mine = ctx.again() if time is None else ctx.again(time.stand_still)
            try:
                return check(await self._in_time(row, mine, time), mine)
            except ENGINE_ERRORS:
                raise
            except self._retry.on as error:
                # What is no Exception (a cancellation, say) is not tried again, whatever `on` says.
                if attempt == self._retry.attempts or not isinstance(error, Exception):
                    raise
            finally:
                mine.give_up()  # its thread may go on: what it asks now would be paid twice
            await ctx.pause(timedelta(seconds=wait))
            wait *= self._retry.factor
        raise AssertionError("the last try returns or raises")

    async def _in_time(self, row: Any, ctx: Context[Any], time: OwnTime | None) -> Any:
        if self._timeout is None or time is None:
            return await self._call(row, ctx)
        try:
            async with time:
                return await self._call(row, ctx, time)
        except TimeoutError as error:
            if not time.expired:
                raise  # the function's own
            raise TimeoutError(f"a call took longer than {shown(self._timeout)}") from error

    async def _pace(self, ctx: Context[Any]) -> None:
        """Evenly spaced starts: a burst at the start of each minute is what rate limits punish."""
        if self._gap is None:
            return
        now = asyncio.get_running_loop().time()
        start = max(now, self._next)
        self._next = start + self._gap
        await ctx.pause(timedelta(seconds=start - now))

    async def _call(self, row: Any, ctx: Context[Any], time: OwnTime | None = None) -> Any:
        if self._async:
            return await self._fn(row, ctx)
        # Always on a thread, also one at a time: the function may block, and its ctx.call must be able to.
        if self._threads is None:
            self._threads = DaemonThreads(self._concurrency, "calls")
        threads = self._threads
        try:
            # In the context of this call, so that calls which the function makes are known to be inside of it.
            fn = self._fn if time is None else partial(_until_it_returns, time, self._fn)
            call = partial(copy_context().run, fn, row, ctx)
            answer = await asyncio.get_running_loop().run_in_executor(threads, call)
        except asyncio.CancelledError as error:
            if not cancelled(error):
                raise  # the function's own
            # Its thread goes on. The next try must not queue behind it: fresh threads for all that follow.
            threads.shutdown(wait=False)
            if self._threads is threads:
                self._threads = None
            raise
        if not inspect.isawaitable(answer):
            return answer
        if time is not None:
            time.stand_still(False)
        return await answer


def _until_it_returns(time: OwnTime, fn: Callable[..., Any], row: Any, ctx: Context[Any]) -> Any:
    """On the function's thread: the event loop may be held up, and hear of the end much later."""
    try:
        return fn(row, ctx)
    finally:
        time.stand_still(True)


async def call_all(
    calls: Caller,
    items: Iterable[T],
    ctx: Context[Any],
    one: Callable[[int, T, Slot, asyncio.Event], Coroutine[Any, Any, R | Failed]],
) -> list[R | Failed]:
    """Has `one` called for each item, as many at once as there are slots, and returns what came of each, in order.

    One that fails and sets the event is raised: no other is begun then.
    """
    tasks: list[asyncio.Task[R | Failed]] = []
    stop = asyncio.Event()
    try:
        for index, item in enumerate(items):
            slot = await calls.slot(ctx)
            if stop.is_set():
                slot.free()
                break
            task = asyncio.create_task(one(index, item, slot, stop))
            task.add_done_callback(slot.free)  # however it ends, and if it never began
            tasks.append(task)
        # After a failure no row is begun, but those in flight end: their answers are paid for.
        outcomes = await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    if stop.is_set():
        raise next(outcome.error for outcome in outcomes if isinstance(outcome, Failed))
    return outcomes
