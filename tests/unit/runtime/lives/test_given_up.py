"""A try that was given up, and goes on: it pays for nothing more, and each call has one answer (R9)."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.waiting import PATIENCE, until

import logline as ll
from logline.engine import stimuli as on
from logline.engine.sets import Answer
from logline.errors import AnswerMismatch, TryOver
from logline.graph.operator import Context
from logline.names import Serial
from logline.runtime.lives.calls import Attempt, SetCalls
from logline.runtime.lives.calls_in_flight import CallsInFlight
from logline.runtime.lives.context import SetContext
from logline.runtime.lives.gates import BlockingGate, Waits


def ask(what: str) -> str:
    """What `ctx.call` is told to call. Tests give other functions of this name."""
    return what


class Outside:
    """Who is asked: notes what was asked, and answers each question when the test says so."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._go_on: dict[str, threading.Event] = {}

    def asks(self, who: str, *, waits: bool = False) -> Callable[[str], str]:
        """The function for one try."""
        go_on = self._go_on[who] = threading.Event()
        if not waits:
            go_on.set()

        def answer(what: str) -> str:
            self.asked.append(who)
            assert go_on.wait(PATIENCE)
            return f"for {who}"

        answer.__module__, answer.__qualname__ = ask.__module__, ask.__qualname__
        return answer

    def answers(self, who: str) -> None:
        self._go_on[who].set()


class Machine:
    """In the place of the machine: commits what is handed in, at once or when the test says so."""

    def __init__(self, *, at_once: bool = False) -> None:
        self._at_once = at_once
        self.handed_in: list[Answer] = []
        self.counted: list[str] = []
        self.calls = SetCalls()
        self.waits = Waits()
        self.gate = BlockingGate(self.waits, self._hear, CallsInFlight(lambda serial: None), announced=False)

    def _hear(self, stimulus: on.Stimulus) -> None:
        assert isinstance(stimulus, on.Answered)
        self.handed_in.append(stimulus.answer)
        if self._at_once:
            self.commit()

    def commit(self) -> None:
        for answer in self.handed_in:
            self.calls.committed(answer)
            self.waits.wake((answer.serial, answer.row, answer.n))

    def context(self) -> Context[Any]:
        services: Any = SimpleNamespace(
            random=None,
            stubs={},
            inherited=lambda fn, digest: None,
            log=logging.getLogger("test"),
            count=lambda metric, n: self.counted.append(metric),
        )
        phases: Any = SimpleNamespace(spec=SimpleNamespace(name="op"), op=SimpleNamespace(asks_by_row=False))
        calls = self.calls
        ctx = SetContext(phases, services, self.gate, Serial(1), "set", bytes, "ready", calls, Attempt(calls.attempt))
        return ctx.row(0)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as found:
        yield found


def settled(future: Future[Any]) -> str:
    """What a try got, or how it ended."""
    try:
        return str(future.result(PATIENCE))
    except (TryOver, AnswerMismatch) as error:
        return type(error).__name__


def test_what_it_would_ask_is_not_asked() -> None:
    outside, machine = Outside(), Machine(at_once=True)
    first = machine.context().again()
    first.give_up()
    with pytest.raises(TryOver, match="given up"):
        first.call(outside.asks("first"), "price")
    assert outside.asked == [] and machine.handed_in == []


def test_what_is_made_of_it_is_over_too_and_its_siblings_are_not() -> None:
    outside, machine = Outside(), Machine(at_once=True)
    row = machine.context()
    first, second = row.again(), row.again()
    inner = first.row(3).again()
    first.give_up()
    with pytest.raises(TryOver):
        inner.call(outside.asks("inner"), "price")
    assert second.call(outside.asks("second"), "price") == "for second"


def test_what_was_handed_in_is_what_the_next_try_gets_once_it_is_durable(threads: ThreadPoolExecutor) -> None:
    outside, machine = Outside(), Machine()
    row = machine.context()
    first, second = row.again(), row.again()
    early = threads.submit(first.call, outside.asks("first"), "price")
    until(lambda: len(machine.handed_in) == 1)
    first.give_up()
    late = threads.submit(second.call, outside.asks("second"), "price")
    until(lambda: len(machine.waits._waiting[Serial(1), 0, 0]) == 2)  # both wait for the one commit
    assert not late.done()
    machine.commit()
    assert (settled(early), settled(late)) == ("TryOver", "for first")
    assert outside.asked == ["first"] and len(machine.handed_in) == 1


def test_an_answer_that_comes_late_is_kept_for_the_next_try(threads: ThreadPoolExecutor) -> None:
    outside, machine = Outside(), Machine()
    row = machine.context()
    first = row.again()
    early = threads.submit(first.call, outside.asks("first", waits=True), "price")
    until(lambda: outside.asked == ["first"])
    first.give_up()
    outside.answers("first")
    until(lambda: len(machine.handed_in) == 1)
    machine.commit()
    assert settled(early) == "TryOver"
    assert row.again().call(outside.asks("second"), "price") == "for first"
    assert outside.asked == ["first"] and machine.counted == []


def test_the_first_answer_is_the_one_for_all_tries(threads: ThreadPoolExecutor) -> None:
    """Both are paid for. What the first one got is used, though the second one has asked too."""
    outside, machine = Outside(), Machine()
    row = machine.context()
    first, second = row.again(), row.again()
    early = threads.submit(first.call, outside.asks("first", waits=True), "price")
    until(lambda: outside.asked == ["first"])
    first.give_up()
    late = threads.submit(second.call, outside.asks("second", waits=True), "price")
    until(lambda: outside.asked == ["first", "second"])
    outside.answers("first")
    until(lambda: len(machine.handed_in) == 1)
    outside.answers("second")
    until(lambda: machine.counted or len(machine.handed_in) == 2)
    machine.commit()
    assert (settled(early), settled(late)) == ("TryOver", "for first")
    assert len(machine.handed_in) == 1 and machine.counted == ["late_answers"]


def test_an_answer_that_comes_after_that_of_the_next_try_is_dropped(
    threads: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    outside, machine = Outside(), Machine()
    row = machine.context()
    first, second = row.again(), row.again()
    early = threads.submit(first.call, outside.asks("first", waits=True), "price")
    until(lambda: outside.asked == ["first"])
    first.give_up()
    late = threads.submit(second.call, outside.asks("second"), "price")
    until(lambda: len(machine.handed_in) == 1)
    machine.commit()
    assert settled(late) == "for second"
    with caplog.at_level(logging.INFO, "test"):
        outside.answers("first")
        assert settled(early) == "TryOver"
    assert len(machine.handed_in) == 1 and machine.counted == ["late_answers"]
    assert "came too late" in caplog.text


def test_a_late_answer_to_another_question_is_dropped(threads: ThreadPoolExecutor) -> None:
    outside, machine = Outside(), Machine()
    row = machine.context()
    first, second = row.again(), row.again()
    early = threads.submit(first.call, outside.asks("first", waits=True), "price of a")
    until(lambda: outside.asked == ["first"])
    first.give_up()
    late = threads.submit(second.call, outside.asks("second", waits=True), "price of b")
    until(lambda: outside.asked == ["first", "second"])
    outside.answers("first")
    assert settled(early) == "TryOver" and machine.handed_in == []
    outside.answers("second")
    until(lambda: len(machine.handed_in) == 1)
    machine.commit()
    assert settled(late) == "for second"


def test_a_late_answer_of_a_row_that_is_done_is_dropped(threads: ThreadPoolExecutor) -> None:
    outside, machine = Outside(), Machine()
    row = machine.context()
    first = row.again()
    early = threads.submit(first.call, outside.asks("first", waits=True), "price")
    until(lambda: outside.asked == ["first"])
    first.give_up()
    row.give_up()
    outside.answers("first")
    assert settled(early) == "TryOver"
    assert machine.handed_in == [] and machine.counted == ["late_answers"]


# ---- whole runs ---------------------------------------------------------------------------------------------------


class Seen:
    """What the user's function did, in one test."""

    def __init__(self) -> None:
        self.tries: dict[int, int] = {}
        self.paid: list[tuple[int, int]] = []
        self.over = threading.Event()
        self.answered = threading.Event()
        self.orphan: list[str] = []


SEEN = [Seen()]
"""The newest one counts. Not in the operators themselves: they have to be shippable."""


def price(x: int) -> list[int]:
    """A paid call. The first one for 0 takes until the second has come to its end."""
    seen = SEEN[-1]
    n = seen.tries[x]
    seen.paid.append((x, n))
    if x == 0 and n == 1:
        assert seen.answered.wait(PATIENCE)
    return [x, n]


async def price_async(x: int) -> list[int]:
    seen = SEEN[-1]
    n = seen.tries[x]
    seen.paid.append((x, n))
    if x == 0 and n == 1:
        await asyncio.sleep(PATIENCE)
    return [x, n]


def _row(got: list[int]) -> dict[str, int]:
    if got[0] == 0:
        SEEN[-1].answered.set()
    return {"x": got[0], "k": got[1]}


def asks_late(row: dict[str, Any], ctx: Any) -> dict[str, int]:
    """The first try for 0 does not ask before the second has come to its end."""
    seen, x = SEEN[-1], row["x"]
    n = seen.tries[x] = seen.tries.get(x, 0) + 1
    if x == 0 and n == 1:
        assert seen.answered.wait(PATIENCE)
    return _orphan_or(lambda: _row(ctx.call(price, x)))


def asks_at_once(row: dict[str, Any], ctx: Any) -> dict[str, int]:
    seen, x = SEEN[-1], row["x"]
    seen.tries[x] = seen.tries.get(x, 0) + 1
    return _orphan_or(lambda: _row(ctx.call(price, x)))


async def asks_and_is_cancelled(row: dict[str, Any], ctx: Any) -> dict[str, int]:
    seen, x = SEEN[-1], row["x"]
    seen.tries[x] = seen.tries.get(x, 0) + 1
    answer: Awaitable[list[int]] = ctx.call(price_async, x)
    return _row(await answer)


def _orphan_or(then: Callable[[], dict[str, int]]) -> dict[str, int]:
    try:
        return then()
    except TryOver as error:
        SEEN[-1].orphan.append(str(error))
        SEEN[-1].over.set()
        raise


@pytest.mark.parametrize("fn", [asks_late, asks_at_once, asks_and_is_cancelled])
def test_each_call_has_one_answer(fn: Any) -> None:
    """Where the machine is slow, further tries may take too long too."""
    seen = Seen()
    SEEN.append(seen)
    p = ll.Pipeline("timeouts")
    numbers = p.source("numbers", ll.sources.batches([pa.table({"x": [0, 1]}), pa.table({"x": [2]})]))
    retry = ll.Retry(attempts=100, wait="1ms")
    made = numbers.map_rows("op", fn, schema="x long, k long", timeout="300ms", retry=retry, concurrency=3)
    made.sink("store", ll.sinks.collect())
    p.lineage()
    run = p.start(None, engine="inline")
    assert run.wait(timeout=PATIENCE).phase == "finished"
    if fn is not asks_and_is_cancelled:
        assert seen.over.wait(PATIENCE)
    used = [(row["x"], row["k"]) for row in run.result("store").to_pylist()]
    assert [x for x, _ in used] == [0, 1, 2]
    assert set(used) <= set(seen.paid) and (0, 1) not in used
    assert ((0, 1) in seen.paid) == (fn is not asks_late)  # given up before it asked
    calls = [(row["row"], row["call"]) for row in run.log.calls("op:1").to_pylist()]
    assert len(calls) == len(set(calls)) == 4  # of each row: the function, and what it asked


def test_a_set_that_failed_asks_nothing_more() -> None:
    """Threads of the operator itself: nobody knows of them, and they use the context of a `generate` that is over."""
    seen = Seen()
    SEEN.append(seen)
    p = ll.Pipeline("sets")
    numbers = p.source("numbers", ll.sources.batches([pa.table({"x": [0]})]))
    made = numbers.apply("op", Leaves(), retry=ll.Retry(attempts=2, wait="1ms"))
    made.sink("store", ll.sinks.collect())
    run = p.run(None, engine="inline")
    seen.answered.set()
    assert seen.over.wait(PATIENCE)
    assert run.result("store").to_pylist() == [{"x": 0}] and seen.paid == []


class Leaves(ll.Operator[pa.RecordBatch, None]):
    """Leaves a thread behind that asks later, and fails."""

    outputs = {"out": "x long"}  # noqa: RUF012

    def open(self, ctx: Any) -> None:
        self.tries = 0

    def generate(self, inset: Any, acc: pa.RecordBatch, ctx: Any) -> Iterator[pa.RecordBatch]:
        self.tries += 1
        if self.tries == 1:
            threading.Thread(target=self._later, args=(ctx,), daemon=True).start()
            raise OSError("away")
        yield acc

    def _later(self, ctx: Any) -> None:
        assert SEEN[-1].answered.wait(PATIENCE)
        with suppress(TryOver):
            _orphan_or(lambda: _row(ctx.call(price, 0)))
