"""map_rows: order, what is kept, how many at once, rate, timeout, retry, failures."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest
from tests.unit.operators.harness import FakeContext, VirtualLoop, run_rows
from tests.waiting import PATIENCE

from logline.errors import Fenced, OptionError, SchemaError
from logline.graph.model import Retry
from logline.graph.operator import Emit, Reject
from logline.operators import MapRows

IDS = pa.schema({"id": pa.int64()})
TEN = pa.record_batch({"id": list(range(10))})


def one_event(made):
    (items,) = made
    (emit,) = items
    assert isinstance(emit, Emit)
    data: Any = emit.data
    return [row["id"] for row in data.to_pylist()]


async def same(row, ctx):
    return row


def same_later(row, ctx):
    return same(row, ctx)  # a def that gives an awaitable


def same_sync(row, ctx):
    return row


@pytest.mark.parametrize("fn", [same, same_sync, same_later], ids=["async", "def", "mixed"])
@pytest.mark.parametrize("concurrency", [1, 4])
def test_def_and_async_def(fn, concurrency):
    assert one_event(run_rows(MapRows(fn, IDS, concurrency=concurrency), TEN)) == list(range(10))


def test_an_object_with_an_async_call_is_not_sent_to_a_thread():
    class Model:
        async def __call__(self, row, ctx):
            asyncio.get_running_loop()
            return row

    assert one_event(run_rows(MapRows(Model(), IDS), TEN)) == list(range(10))


def test_rows_leave_in_their_order_whoever_ends_first():
    ended: list[int] = []

    async def backwards(row, ctx):
        while len(ended) != 9 - row["id"]:
            await asyncio.sleep(0)
        ended.append(row["id"])
        return row

    assert one_event(run_rows(MapRows(backwards, IDS, concurrency=10), TEN)) == list(range(10))
    assert ended == list(range(9, -1, -1))


def test_a_row_may_give_nothing():
    odd = MapRows(lambda row, ctx: row if row["id"] % 2 else None, IDS)
    assert one_event(run_rows(odd, TEN)) == [1, 3, 5, 7, 9]


@pytest.mark.parametrize("batch", [TEN, TEN.slice(0, 0)])
def test_without_rows_there_is_no_event(batch):
    assert run_rows(MapRows(lambda row, ctx: None, IDS), batch) == [[]]


# ---- how many at once ---------------------------------------------------------------------------------


def test_the_bound_is_reached_and_holds_over_all_sets():
    flying, most = 0, 0
    full = asyncio.Event()

    async def fly(row, ctx):
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        if flying == 4:
            full.set()
        await full.wait()  # nobody lands before four are in the air
        await asyncio.sleep(0)
        flying -= 1
        return row

    made = run_rows(MapRows(fly, IDS, concurrency=4), TEN, TEN, TEN)
    assert [len(items[0].data) for items in made] == [10, 10, 10]
    assert most == 4


def test_threads_run_a_def_at_the_same_time():
    together = threading.Barrier(5)

    def meet(row, ctx):
        together.wait(timeout=PATIENCE)  # breaks, and fails the test, unless five are here at once
        return row

    assert one_event(run_rows(MapRows(meet, IDS, concurrency=5), TEN)) == list(range(10))


def test_a_life_begins_anew_on_another_loop():
    op = MapRows(same, IDS, concurrency=2)
    assert one_event(run_rows(op, TEN)) == one_event(run_rows(op, TEN)) == list(range(10))


def test_it_can_be_shipped():
    op = cloudpickle.loads(cloudpickle.dumps(MapRows(same, IDS, concurrency=2, rate="10/s")))
    assert one_event(run_rows(op, TEN, loop=VirtualLoop)) == list(range(10))


# ---- what is kept -------------------------------------------------------------------------------------


def test_answered_rows_are_not_asked_again():
    asked = []

    def broken_at(row_id):
        async def ask(row, ctx):
            asked.append(row["id"])
            if row["id"] == row_id:
                raise RuntimeError("down")
            return row

        return ask

    answers: dict[Any, Any] = {}
    with pytest.raises(RuntimeError):
        run_rows(MapRows(broken_at(6), IDS), TEN, ctx=FakeContext(answers=answers))
    assert asked == [0, 1, 2, 3, 4, 5, 6]
    asked.clear()
    made = run_rows(MapRows(broken_at(None), IDS), TEN, ctx=FakeContext(answers=answers))
    assert asked == [6, 7, 8, 9]
    assert one_event(made) == list(range(10))


def test_rows_in_flight_end_when_another_fails_and_no_row_is_begun():
    begun = []
    failed = asyncio.Event()

    async def ask(row, ctx):
        begun.append(row["id"])
        if row["id"] == 1:
            failed.set()
            raise RuntimeError("down")
        await failed.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        return row

    ctx = FakeContext()
    with pytest.raises(RuntimeError):
        run_rows(MapRows(ask, IDS, concurrency=3), TEN, ctx=ctx)
    assert begun == [0, 1, 2]
    assert sorted(row for row, *_ in ctx.answers) == [0, 2]


class SlowCommit(FakeContext):
    """The answer of a call comes back only once `committed` is set."""

    def __init__(self, committed, row=-1):
        super().__init__(row=row)
        self.committed = committed

    def row(self, index):
        return SlowCommit(self.committed, index)

    async def _keep(self, at, fn, args):
        try:
            return await super()._keep(at, fn, args)
        finally:
            async with asyncio.timeout(60):  # jumps there at once, should everybody wait
                await self.committed.wait()


def test_the_next_row_does_not_wait_for_the_commit_of_the_last():
    committed = asyncio.Event()

    async def ask(row, ctx):
        if row["id"] == 9:
            committed.set()
        return row

    made = run_rows(MapRows(ask, IDS), TEN, ctx=SlowCommit(committed), loop=VirtualLoop)
    assert one_event(made) == list(range(10))


def test_no_row_is_begun_while_a_failure_is_on_its_way():
    begun = []

    async def ask(row, ctx):
        begun.append(row["id"])
        raise RuntimeError("down")

    with pytest.raises((RuntimeError, TimeoutError)):
        run_rows(MapRows(ask, IDS), TEN, ctx=SlowCommit(asyncio.Event()), loop=VirtualLoop)
    assert begun == [0]


@pytest.mark.parametrize("kind", ["async", "def"])
def test_a_function_may_use_ctx_call_itself(kind):
    def lookup(key):
        return key * 10

    async def ask(row, ctx):
        return {"id": await ctx.call(lookup, row["id"])}

    def ask_sync(row, ctx):
        return {"id": ctx.call(lookup, row["id"])}

    ctx = FakeContext()
    made = run_rows(MapRows(ask if kind == "async" else ask_sync, IDS), TEN, ctx=ctx)
    assert one_event(made) == [i * 10 for i in range(10)]
    assert len(ctx.answers) == 20  # the row's own, and the one inside


def test_the_row_has_an_id_of_its_own():
    seen = []

    async def ask(row, ctx):
        seen.append(ctx.id)
        return row

    run_rows(MapRows(ask, IDS), TEN)
    assert len(set(seen)) == 10


# ---- rate, timeout, retry -----------------------------------------------------------------------------


def test_calls_start_evenly_spaced():
    starts = []

    async def ask(row, ctx):
        starts.append(asyncio.get_running_loop().time())
        return row

    run_rows(MapRows(ask, IDS, concurrency=10, rate="600/min"), TEN, loop=VirtualLoop)
    assert starts == pytest.approx([i * 0.1 for i in range(10)])


def test_kept_answers_do_not_wait_for_the_rate():
    ends = []

    async def ask(row, ctx):
        ends.append(asyncio.get_running_loop().time())
        return row

    ctx = FakeContext()
    run_rows(MapRows(ask, IDS, rate="1/h"), TEN.slice(0, 9), ctx=ctx, loop=VirtualLoop)
    ends.clear()
    run_rows(MapRows(ask, IDS, rate="1/h"), TEN, ctx=ctx, loop=VirtualLoop)
    assert ends == [0.0]


def test_each_try_has_its_timeout_and_waits_grow():
    tries = []

    async def ask(row, ctx):
        tries.append(asyncio.get_running_loop().time())
        if len(tries) < 3:
            await asyncio.Event().wait()
        return row

    op = MapRows(ask, IDS, timeout="5s", retry=Retry(attempts=3, wait="1s", factor=10.0))
    assert one_event(run_rows(op, TEN.slice(7, 1), loop=VirtualLoop)) == [7]
    assert tries == pytest.approx([0, 5 + 1, 5 + 1 + 5 + 10])


@pytest.mark.parametrize(("timeout", "says"), [("50ms", "50ms"), ("2m", "120s")])
def test_a_timeout_says_how_long(timeout, says):
    async def ask(row, ctx):
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError, match=f"a call took longer than {says}"):
        run_rows(MapRows(ask, IDS, timeout=timeout), TEN.slice(0, 1), loop=VirtualLoop)


def test_a_timeout_of_the_function_itself_is_its_own():
    async def ask(row, ctx):
        raise TimeoutError("the model is slow")

    with pytest.raises(TimeoutError, match="the model is slow"):
        run_rows(MapRows(ask, IDS, timeout="5s"), TEN.slice(0, 1), loop=VirtualLoop)


def test_after_the_last_try_the_error_is_raised():
    tries = []

    async def ask(row, ctx):
        tries.append(row)
        raise ConnectionError("down")

    with pytest.raises(ConnectionError):
        run_rows(MapRows(ask, IDS, retry=Retry(attempts=4)), TEN.slice(0, 1), loop=VirtualLoop)
    assert len(tries) == 4


def test_only_what_retry_names_is_tried_again():
    tries = []

    async def ask(row, ctx):
        tries.append(row)
        raise ValueError("no")

    op = MapRows(ask, IDS, retry=Retry(attempts=4, on=(ConnectionError,)))
    with pytest.raises(ValueError, match="no"):
        run_rows(op, TEN.slice(0, 1), loop=VirtualLoop)
    assert len(tries) == 1


def test_a_def_that_hangs_does_not_block_the_next_try():
    let_go = threading.Event()
    tries = []

    def ask(row, ctx):
        tries.append(row)
        if len(tries) == 1:
            let_go.wait(timeout=PATIENCE)
        return row

    # Many attempts: on a busy machine a try that does not hang may be slower than the timeout.
    op = MapRows(ask, IDS, timeout="50ms", retry=Retry(attempts=500, wait="0s"))
    try:
        assert one_event(run_rows(op, TEN.slice(3, 1))) == [3]
    finally:
        let_go.set()
    assert len(tries) > 1


def test_the_end_of_a_life_is_never_tried_again():
    tries = []

    async def ask(row, ctx):
        tries.append(row)
        raise asyncio.CancelledError

    op = MapRows(ask, IDS, retry=Retry(attempts=4, on=(BaseException,)))
    with pytest.raises(asyncio.CancelledError):
        run_rows(op, TEN.slice(0, 1), loop=VirtualLoop)
    assert len(tries) == 1


# ---- failures -----------------------------------------------------------------------------------------


async def fails_on_three(row, ctx):
    if row["id"] == 3:
        raise ValueError("three is too many")
    return row


def test_stop_raises_with_the_row_in_a_note():
    with pytest.raises(ValueError, match="three is too many") as caught:
        run_rows(MapRows(fails_on_three, IDS), TEN)
    assert caught.value.__notes__ == ["in row 3 of its event: {'id': 3}"]


def test_divert_rejects_the_row_with_its_traceback():
    ((emit, reject),) = run_rows(MapRows(fails_on_three, IDS, on_error="divert", concurrency=3), TEN)
    assert [row["id"] for row in emit.data.to_pylist()] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert isinstance(reject, Reject)
    rejected: Any = reject.data
    assert rejected.to_pylist() == [{"id": 3}]
    assert reject.reason == "ValueError: three is too many"
    assert "in fails_on_three" in reject.traceback
    assert reject.traceback.endswith("ValueError: three is too many\n")
    assert "src/logline" not in reject.traceback


def test_drop_counts():
    ctx = FakeContext()
    made = run_rows(MapRows(fails_on_three, IDS, on_error="drop"), TEN, ctx=ctx)
    assert one_event(made) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert ctx.counts == {"dropped": 1}


@pytest.mark.parametrize("on_error", ["divert", "drop"])
def test_a_fenced_life_is_no_failure_of_the_row(on_error):
    tries = []

    async def ask(row, ctx):
        tries.append(row)
        raise Fenced("a newer life has the journal")

    with pytest.raises(Fenced):
        run_rows(MapRows(ask, IDS, on_error=on_error, retry=Retry()), TEN.slice(0, 1), loop=VirtualLoop)
    assert len(tries) == 1


# ---- answers ------------------------------------------------------------------------------------------


def test_answers_of_all_plain_types_come_back_exactly():
    schema = pa.schema(
        {
            "i": pa.int32(),
            "f": pa.float64(),
            "s": pa.string(),
            "b": pa.binary(),
            "d": pa.date32(),
            "at": pa.timestamp("us", "UTC"),
            "price": pa.decimal128(10, 2),
            "tags": pa.list_(pa.string()),
            "more": pa.struct({"x": pa.int64()}),
            "none": pa.string(),
        }
    )
    row = {
        "i": 1,
        "f": 0.1,
        "s": "x",
        "b": b"y",
        "d": date(2026, 3, 1),
        "at": datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=UTC),
        "price": Decimal("1.20"),
        "tags": ["a", None],
        "more": {"x": 2},
        "none": None,
    }
    ((emit,),) = run_rows(MapRows(lambda _, ctx: row, schema), TEN.slice(0, 1))
    assert emit.data.schema == schema
    assert emit.data.to_pylist() == [row]


def test_an_answer_is_kept_in_the_type_of_its_column():
    class Id(int):
        """As a client library might give: the log holds plain values only."""

    ctx = FakeContext()
    assert one_event(run_rows(MapRows(lambda row, _: {"id": Id(row["id"])}, IDS), TEN, ctx=ctx)) == list(range(10))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({}, "'id' is missing: the row needs the columns id"),
        ({"id": 1, "x": 2}, "'x' is not in the schema"),
        ({"id": 1, "x": 2, "y": 3}, "'x', 'y' are not in the schema"),
        ({"id": "one"}, "column 'id' is int64, and 'one' is not"),
        ({"id": 1.5}, "column 'id' is int64, and 1.5 is not: it would become 1"),
        ({"id": None}, "column 'id' is declared NOT NULL"),
        ([1], "gave a list"),
    ],
)
def test_wrong_answers_name_the_column_and_are_not_kept(answer, message):
    ctx = FakeContext()
    strict = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    with pytest.raises(SchemaError, match=message):
        run_rows(MapRows(lambda row, _: answer, strict), TEN.slice(0, 1), ctx=ctx)
    assert ctx.answers == {}


def test_a_function_of_other_arguments_is_refused_at_definition():
    with pytest.raises(OptionError, match=r"map_rows calls its function with \(row, ctx\), and <lambda>\(row\)"):
        MapRows(lambda row: row, IDS)  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"concurrency": True},
        {"on_error": "ignore"},
        {"rate": "fast"},
        {"timeout": "0s"},
        {"timeout": timedelta(-1)},
        {"retry": Retry(attempts=0)},
    ],
)
def test_options_that_make_no_sense(options):
    with pytest.raises(OptionError):
        MapRows(same, IDS, **options)
