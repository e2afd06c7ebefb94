"""A function per key and event: states, failing keys, timers, times to live, and what a crash leaves of them."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import logline as ll
from logline.errors import LoglineError, OptionError, PipelineFailed, SchemaError, StateError
from logline.operators import PacedStateful, Stateful

OUT = pa.schema({"card": pa.string(), "total": pa.int64()})
START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Card:
    total: int = 0
    seen: list[str] = field(default_factory=list)


def paid(*rows: tuple[str | None, int]) -> pa.RecordBatch:
    return pa.record_batch(
        {"card": pa.array([c for c, _ in rows], pa.string()), "amount": pa.array([a for _, a in rows], pa.int64())}
    )


def add(batch: pa.RecordBatch, ctx: ll.KeyContext[Card]) -> pa.Table:
    ctx.state.total += sum(batch["amount"].to_pylist())
    return pa.table({"card": pa.array([ctx.key[0]], pa.string()), "total": [ctx.state.total]})


async def add_later(batch: pa.RecordBatch, ctx: ll.KeyContext[Card]) -> pa.Table:
    await asyncio.sleep(0)
    return add(batch, ctx)


def drive(fn: Any = add, *, paced: bool = False, **more: Any) -> Any:
    kind = PacedStateful if paced else Stateful
    engine = {"on_error": more["on_error"]} if "on_error" in more else {}
    return ll.testing.drive(kind(fn, OUT, by=["card"], state=Card, **more), **engine)


def rows(op: Any, port: str = "out") -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in op.out(port).to_pylist()]


@pytest.mark.parametrize("how", ["plain", "async", "threads"])
def test_each_key_has_its_state_and_nulls_are_one_key(how: str) -> None:
    fn, paced = {"plain": (add, False), "async": (add_later, True), "threads": (add, True)}[how]
    with drive(fn, paced=paced, **({"concurrency": 3} if paced else {})) as op:
        op.send(paid(("a", 1), (None, 2), ("a", 3), (None, 4))).send(paid(("b", 5), ("a", 6)))
        assert rows(op) == [("a", 4), (None, 6), ("b", 5), ("a", 10)]


def test_what_keys_make_of_an_event_is_one_event() -> None:
    p = ll.Pipeline("cards")
    orders = p.source("orders", ll.sources.batches([paid(("b", 1), ("a", 2), ("b", 3))]))
    orders.stateful("cards", add, by=["card"], state=Card, schema=OUT).sink("store", ll.sinks.collect())
    p.lineage()
    log = p.run(engine="inline").log
    assert log.read("cards:1").to_pylist() == [{"card": "b", "total": 4}, {"card": "a", "total": 2}]
    assert log.backward("cards:1", to="orders")["event"].to_pylist() == ["orders:1"]
    found = log.backward("cards:1", to="orders", where="card = 'a'", records=True)
    assert [row["record"] for row in found.to_pylist()] == ['{"card": "a", "amount": 2}']


def test_a_state_can_be_assigned_and_forgotten() -> None:
    def fn(batch: pa.RecordBatch, ctx: ll.KeyContext[Card]) -> pa.Table:
        made = add(batch, ctx)
        if ctx.state.total >= 10:
            ctx.forget()
        elif ctx.state.total == 5:
            ctx.state = Card(total=-5)
        return made

    with drive(fn) as op:
        for amount in (4, 1, 3, 20, 7):
            op.send(paid(("a", amount)))
        assert [total for _, total in rows(op)] == [4, 5, -2, 18, 7]


def test_a_failing_key_is_rejected_by_itself_and_its_state_is_as_it_was() -> None:
    def fn(batch: pa.RecordBatch, ctx: ll.KeyContext[Card]) -> pa.Table:
        made = add(batch, ctx)
        ctx.timer(after="1s")
        if 13 in batch["amount"].to_pylist():
            raise ValueError("thirteen")
        ctx.cancel_timer()
        return made

    with drive(fn, on_error="divert") as op:
        op.send(paid(("a", 1), ("b", 2))).send(paid(("a", 13), ("b", 3), ("a", 0))).send(paid(("a", 4)))
        op.advance("2s")
        assert rows(op) == [("a", 1), ("b", 2), ("b", 5), ("a", 5)]
        assert op.out("errors")["reason"].to_pylist() == ["ValueError: thirteen"]
    with drive(fn, on_error="drop") as op:
        op.send(paid(("a", 13), ("b", 3)))
        assert rows(op) == [("b", 3)]
        assert op.counters == {"dropped": 1}


def test_a_key_whose_table_is_wrong_has_not_changed() -> None:
    def fn(batch: pa.RecordBatch, ctx: ll.KeyContext[Card]) -> pa.Table:
        made = add(batch, ctx)
        return made if batch["amount"][0].as_py() != 13 else made.drop_columns(["total"])

    with drive(fn, on_error="divert") as op:
        op.send(paid(("a", 1))).send(paid(("a", 13))).send(paid(("a", 1)))
        assert rows(op) == [("a", 1), ("a", 2)]
        assert op.out("errors").num_rows == 1


def test_a_key_is_tried_again_with_the_state_as_it_was() -> None:
    tries: list[int] = []

    def fn(batch: pa.RecordBatch, ctx: ll.KeyContext[Card]) -> pa.Table:
        made = add(batch, ctx)
        tries.append(1)
        if len(tries) % 3:
            raise OSError("away")
        return made

    op = ll.testing.drive(
        PacedStateful(fn, OUT, by=["card"], state=Card, retry=ll.Retry(attempts=3, wait="0s")), crashes=False
    )
    with op:
        op.send(paid(("a", 5))).send(paid(("a", 1)))
        assert rows(op) == [("a", 5), ("a", 6)]


def test_stop_says_which_key_failed() -> None:
    def fn(batch: pa.RecordBatch, ctx: ll.KeyContext[Card]) -> None:
        raise ValueError("no")

    p = ll.Pipeline("cards")
    orders = p.source("orders", ll.sources.batches([paid(("b", 1))]))
    orders.stateful("cards", fn, by=["card"], state=Card, schema=OUT).sink("store", ll.sinks.collect())
    with pytest.raises(PipelineFailed, match=r"for the key \('b',\)"):
        p.run(engine="inline")


def test_a_state_of_the_wrong_type_fails_its_key() -> None:
    def fn(batch: pa.RecordBatch, ctx: ll.KeyContext[Card]) -> None:
        ctx.state.total = "much"  # type: ignore[assignment]

    with drive(fn, on_error="divert") as op:
        assert "can't be logged as Card" in op.send(paid(("b", 1))).out("errors")["reason"][0].as_py()


def answer(question: str) -> str:
    raise AssertionError("the drive answers")


def test_answers_are_kept_by_key() -> None:
    def fn(batch: pa.RecordBatch, ctx: ll.KeyContext[Card]) -> pa.Table:
        ctx.state.seen.append(ctx.call(answer, str(ctx.key[0])))
        return pa.table({"card": [", ".join(ctx.state.seen)], "total": [0]})

    for kind in (Stateful, PacedStateful):
        stateful = kind(fn, OUT, by=["card"], state=Card)
        with ll.testing.drive(stateful, {answer: lambda question: question.upper()}) as op:
            op.send(paid(("a", 1), ("b", 1))).send(paid(("b", 1)))
            assert [card for card, _ in rows(op)] == ["A", "B", "B, B"]


def test_rejected_rows_that_are_retried_meet_the_state_of_now(tmp_path: Any) -> None:
    bad = tmp_path / "bad"
    bad.touch()

    def fn(batch: pa.RecordBatch, ctx: ll.KeyContext[Card]) -> pa.Table:
        if bad.exists() and ctx.key == ("a",) and ctx.state.total == 1:
            raise ValueError("not yet")
        assert ctx.cause == "ready"
        return add(batch, ctx)

    def pipeline() -> ll.Pipeline:
        p = ll.Pipeline("cards")
        given = [paid(("a", 1)), paid(("a", 10), ("b", 1)), paid(("b", 5))]
        orders = p.source("orders", ll.sources.batches(given), rows=2)
        cards = orders.stateful("cards", fn, by=["card"], state=Card, schema=OUT, on_error="divert")
        cards.sink("store", ll.sinks.collect())
        return p

    log = f"lmdb:{tmp_path}/log"
    first = pipeline().run(log, engine="inline")
    assert first.log.state("cards").sort_by("card")["total"].to_pylist() == [1, 6]
    bad.unlink()
    assert first.retry()
    again = pipeline().run(log, engine="inline")
    assert again.log.state("cards", "a")["total"].to_pylist() == [11]


# ---- timers -------------------------------------------------------------------------------------------------------


def sessions(batch: pa.RecordBatch, ctx: ll.KeyContext[Card]) -> pa.Table | None:
    """Puts a card's total out when nothing came for ten seconds."""
    if batch.num_rows:
        ctx.state.total += sum(batch["amount"].to_pylist())
        ctx.timer(after="10s")
        return None
    total = ctx.state.total
    ctx.forget()
    return pa.table({"card": [f"{ctx.key[0]!s} {ctx.cause}"], "total": [total]})


@pytest.mark.parametrize("paced", [False, True])
def test_the_timer_of_a_key_comes_with_an_empty_batch(paced: bool) -> None:
    with drive(sessions, paced=paced) as op:
        op.send(paid(("a", 1), ("b", 2))).advance("6s").send(paid(("b", 3))).advance("6s")
        assert rows(op) == [("a fired", 1)]
        op.advance("6s")
        assert rows(op) == [("a fired", 1), ("b fired", 5)]
        op.send(paid(("b", 7))).end()
        assert rows(op)[2:] == [("b end", 7)]


def timed(*given: tuple[str, int, int]) -> pa.RecordBatch:
    batch = paid(*[(card, amount) for card, amount, _ in given])
    return batch.append_column(
        "at", pa.array([START + timedelta(seconds=s) for _, _, s in given], pa.timestamp("us", "UTC"))
    )


def by_event_time(batch: pa.RecordBatch, ctx: ll.KeyContext[Card]) -> pa.Table | None:
    if batch.num_rows:
        ctx.state.total += sum(batch["amount"].to_pylist())
        ctx.timer(at=max(batch["at"].to_pylist()) + timedelta(seconds=10))
        return None
    total = ctx.state.total
    ctx.forget()
    return pa.table({"card": [f"{ctx.key[0]!s} {ctx.cause}"], "total": [total]})


def test_timers_that_an_event_reaches_come_before_the_next_event() -> None:
    given = [timed(("a", 1, 0)), timed(("b", 1, 30)), timed(("a", 5, 31)), timed(("c", 1, 90))]
    p = ll.Pipeline("cards")
    orders = p.source("orders", ll.sources.batches(given), rows=1)
    found = orders.stateful("cards", by_event_time, by=["card"], state=Card, schema=OUT, time="at")
    found.sink("store", ll.sinks.collect())
    made = p.run(engine="inline").result("store").to_pylist()
    assert [tuple(row.values()) for row in made] == [("a fired", 1), ("b fired", 1), ("a fired", 5), ("c end", 1)]


def test_a_timer_that_is_set_for_the_past_comes_at_once() -> None:
    def fn(batch: pa.RecordBatch, ctx: ll.KeyContext[Card]) -> pa.Table | None:
        if not batch.num_rows:
            return pa.table({"card": [ctx.cause], "total": [0]})
        ctx.timer(at=START - timedelta(days=1))
        return None

    with drive(fn, time="at") as op:
        assert rows(op.send(timed(("a", 1, 0)))) == [("fired", 0)]


def test_the_latest_timer_of_a_key_wins_and_can_be_cancelled() -> None:
    def fn(batch: pa.RecordBatch, ctx: ll.KeyContext[Card]) -> pa.Table | None:
        if not batch.num_rows:
            return pa.table({"card": [ctx.key[0]], "total": [0]})
        if batch["amount"][0].as_py():
            ctx.timer(after=timedelta(seconds=batch["amount"][0].as_py()))
        else:
            ctx.cancel_timer()
        return None

    with drive(fn) as op:
        op.send(paid(("a", 5), ("b", 5), ("c", 5))).send(paid(("b", 20), ("c", 0))).advance("10s")
        assert rows(op) == [("a", 0)]
        assert rows(op.advance("30s").end()) == [("a", 0), ("b", 0)]


def test_a_timer_that_fails_is_diverted_and_can_be_retried(tmp_path: Any) -> None:
    bad = tmp_path / "bad"
    bad.touch()

    def fn(batch: pa.RecordBatch, ctx: ll.KeyContext[Card]) -> pa.Table | None:
        if not batch.num_rows and bad.exists():
            raise ValueError("not yet")
        return sessions(batch, ctx)

    def pipeline() -> ll.Pipeline:
        p = ll.Pipeline("cards")
        orders = p.source("orders", ll.sources.batches([paid(("a", 1), ("b", 2))]))
        cards = orders.stateful("cards", fn, by=["card"], state=Card, schema=OUT, on_error="divert")
        cards.sink("store", ll.sinks.collect())
        return p

    log = f"lmdb:{tmp_path}/log"
    first = pipeline().run(log, engine="inline")
    assert first.log.errors("cards").num_rows == 2
    assert first.log.state("cards").num_rows == 2
    bad.unlink()
    assert first.retry()
    again = pipeline().run(log, engine="inline")
    assert sorted(row["card"] for row in again.result("store").to_pylist()) == ["a fired", "b fired"]
    assert again.log.state("cards").num_rows == 0


# ---- time to live -------------------------------------------------------------------------------------------------


def test_a_key_that_was_silent_for_its_ttl_is_forgotten() -> None:
    with drive(ttl="10s") as op:
        op.send(paid(("a", 1), ("b", 1))).advance("6s").send(paid(("a", 1))).advance("6s")
        assert rows(op.send(paid(("a", 1), ("b", 1))))[3:] == [("a", 3), ("b", 1)]


def test_a_ttl_counts_by_event_time_if_there_is_one() -> None:
    with drive(ttl="10s", time="at") as op:
        op.send(timed(("a", 1, 0))).advance("1h").send(timed(("a", 1, 9))).send(timed(("a", 1, 30)))
        assert rows(op) == [("a", 1), ("a", 2), ("a", 1)]


# ---- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "error", "text"),
    [
        ({"by": ["cart"]}, SchemaError, "no column 'cart'"),
        ({"by": []}, OptionError, "name the columns of the key"),
        ({"by": ["card", "card"]}, OptionError, "named twice"),
        ({"state": Card()}, OptionError, "give the type"),
        ({"state": int.__add__}, OptionError, "give the type"),
        ({"ttl": "0s"}, OptionError, "positive"),
        ({"ordered": False}, OptionError, "ordered"),
        ({"time": "at"}, SchemaError, "'at'"),
        ({"migrate": lambda: None}, LoglineError, "migrate"),
    ],
)
def test_what_can_not_run_is_refused_at_definition(more: dict[str, Any], error: type[Exception], text: str) -> None:
    orders = ll.Pipeline("cards").source("orders", ll.sources.batches([paid(("a", 1))]))
    with pytest.raises(error, match=text) as raised:
        orders.stateful("cards", add, **{"by": ["card"], "state": Card, "schema": OUT, **more})
    assert "'cards'" in str(raised.value)


@dataclass
class NeedsMuch:
    much: int


def test_a_state_must_be_made_without_arguments() -> None:
    orders = ll.Pipeline("cards").source("orders", ll.sources.batches([paid(("a", 1))]))
    with pytest.raises(StateError, match="give every field a default"):
        orders.stateful("cards", add, by=["card"], state=NeedsMuch, schema=OUT)


def test_an_operator_with_keyed_state_takes_one_event_at_a_time() -> None:
    class Own(ll.Operator):  # type: ignore[type-arg]
        outputs = {"out": "n long"}  # noqa: RUF012
        Keyed = int

        def generate(self, inset: Any, acc: Any, ctx: Any) -> Any:
            return ()

    for option in ({"concurrency": 2}, {"ordered": False}):
        orders = ll.Pipeline("cards").source("orders", ll.sources.batches([paid(("a", 1))]))
        with pytest.raises(OptionError, match="state per key"):
            orders.apply("own", Own(), **option)


def test_ctx_keys_is_refused_where_nothing_would_be_logged() -> None:
    class Own(ll.Operator):  # type: ignore[type-arg]
        outputs = {"out": "n long"}  # noqa: RUF012

        def generate(self, inset: Any, acc: Any, ctx: Any) -> Any:
            yield pa.table({"n": [ctx.keys.get(("a",))]})

    with ll.testing.drive(Own(), on_error="divert") as op:
        assert "declare Keyed" in op.send(paid(("a", 1))).out("errors")["reason"][0].as_py()


def test_a_timer_that_is_reached_comes_before_the_next_event_after_a_failure_too(tmp_path: Path) -> None:
    """Its call failed, and the next run goes on: as the run that did not fail, it makes that call first."""
    schema = pa.schema([("k", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    tables = [pa.table({"k": ["a"], "at": [START + timedelta(seconds=n)]}, schema=schema) for n in range(3)]

    def causes(log: str, gate: Path) -> list[str]:
        def told(batch: pa.RecordBatch, ctx: Any) -> pa.Table:
            if ctx.cause == "fired" and not gate.exists():
                gate.touch()
                raise ValueError("once")
            ctx.state.total += 1
            if batch.num_rows:
                ctx.timer(at=batch["at"][0].as_py())  # which this very event has reached
            return pa.table({"cause": [ctx.cause]})

        p = ll.Pipeline("reached")
        source = p.source("events", ll.sources.batches(tables), rows=1)
        made = source.stateful("told", told, by=["k"], state=Card, schema="cause string", time="at")
        made.sink("store", ll.sinks.collect())
        with contextlib.suppress(PipelineFailed):
            p.run(log, engine="inline")
        found: list[str] = p.run(log, engine="inline").result("store")["cause"].to_pylist()
        return found

    (tmp_path / "open").touch()
    calm = causes("memory:reached-calm", tmp_path / "open")
    assert calm == ["ready", "fired"] * 3
    assert causes("memory:reached", tmp_path / "gate") == calm
