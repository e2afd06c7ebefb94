"""A pipeline that changes between two runs on one log (R14): renamed, inserted, removed and remade operators."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.waiting import PATIENCE

import logline as ll
from logline.errors import OptionError, PipelineChanged, PipelineFailed
from logline.names import InstanceName
from logline.runtime.log.log_status import log_status
from logline.store.memory import open_memory

Rows = list[tuple[int, int]]
"""Values with the hour they belong to."""


class Growing(ll.Source):
    """A list of rows that a test adds to; each is an event of its own."""

    schema = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    reuses_memory = False

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def partitions(self) -> list[str]:
        return ["0"]

    def read(self, partition: str, offset: Any) -> Iterator[Any]:
        for at in range(offset or 0, len(self.rows)):
            n, hour = self.rows[at]
            when = pa.array([datetime(2026, 1, 1, hour, 30, tzinfo=UTC)], pa.timestamp("us", "UTC"))
            yield pa.record_batch([pa.array([n]), when], schema=self.schema), at + 1


def sales(
    rows: Rows,
    change: Callable[[ll.Pipeline, ll.Stream], ll.Stream] | None = None,
    size: str = "1h",
    agg: str = "sum",
    **options: Any,
) -> ll.Pipeline:
    """rows -> hourly -> totals; `change` puts something before the window."""
    p = ll.Pipeline("sales")
    stream = p.source("rows", Growing(rows), rows=1)
    if change is not None:
        stream = change(p, stream)
    hours = stream.window("hourly", ll.tumbling(size, on="at"), agg={"n": ("n", agg)}, **options)
    hours.sink("totals", ll.sinks.collect())
    p.lineage()
    return p


def small(p: ll.Pipeline, stream: ll.Stream) -> ll.Stream:
    return stream.filter("small", pc.field("n") < 1000)


def run(p: ll.Pipeline, log: str, **settings: Any) -> ll.Run:
    found = p.start(log, engine="inline", until="now", **settings)
    found.wait(PATIENCE)
    return found


def totals(run: ll.Run, sink: str = "totals") -> list[int]:
    table = run.result(sink)
    return table["n"].to_pylist() if table.num_rows else []


@pytest.fixture
def log(request: pytest.FixtureRequest) -> str:
    return f"memory:evolution-{request.node.name}"


def test_a_renamed_operator_goes_on_with_its_open_sets_and_its_target(log: str) -> None:
    rows = [(1, 9), (2, 9), (4, 10)]
    assert totals(run(sales(rows), log)) == [3]
    rows += [(8, 10), (16, 11)]
    p = ll.Pipeline("sales")
    hours = p.source("sold", Growing(rows), rows=1, was="rows").window(
        "per_hour", ll.tumbling("1h", on="at"), agg={"n": ("n", "sum")}, was="hourly"
    )
    hours.sink("sums", ll.sinks.collect(), was="totals")
    p.lineage()
    again = run(p, log)
    assert totals(again, "sums") == [3, 12]
    assert set(again.status().operators) == {"sold", "per_hour", "sums"}
    assert again.log.backward("per_hour:2", to="sold")["event"].to_pylist() == ["sold:3", "sold:4"]
    assert again.log.read("sold:3")["n"].to_pylist() == [4]
    assert again.log.table("event_lineage")["send_op"].unique().to_pylist() == ["per_hour"]
    assert totals(run(p, log, close=True), "sums") == [3, 12, 16]  # was= may stay


def test_what_is_put_before_a_window_takes_what_the_window_had_not(log: str) -> None:
    rows = [(1, 9), (2, 9), (4, 10)]
    run(sales(rows), log)
    rows += [(5000, 10), (8, 10), (16, 11)]
    again = run(sales(rows, small), log)
    assert totals(again) == [3, 12]  # the hour that was open has rows of both ways, and each of them once
    assert again.log.backward("hourly:2", to="rows")["event"].to_pylist() == ["rows:3", "rows:5"]
    assert again.log.forward("rows:1", to="hourly")["event"].to_pylist() == ["hourly:1"]
    last = run(sales(rows, small), log, close=True)
    assert totals(last) == [3, 12, 16]
    told = {one["what"] for one in last.log.explain("totals", "n in (1, 4, 8)").to_pylist()}
    assert told == {"arrived"}  # the first two never came to the filter
    (filtered,) = last.log.explain("totals", "n = 5000").to_pylist()
    assert (filtered["what"], filtered["operator"]) == ("filtered", "small")
    assert log_status(last.log.store).operators["hourly"].taken == 2


@pytest.mark.parametrize("ended", [False, True])
def test_an_inserted_operator_counts_what_it_has_taken_itself(log: str, ended: bool) -> None:
    """Not what had passed before it was there; an end that was taken back is no event."""
    rows = [(1, 9), (2, 9), (4, 10)]
    run(sales(rows), log, close=ended)
    rows += [(5000, 10), (8, 10)]
    again = run(sales(rows, small), log)
    for status in (again.status(), log_status(again.log.store)):
        assert (status.operators["small"].taken, status.operators["small"].lag) == (2, 0)
    rows += [(16, 11)]
    last = run(sales(rows), log)  # it is taken out: what is behind it goes on counting where it was
    for status in (last.status(), log_status(last.log.store)):
        assert (status.operators["hourly"].taken, status.operators["hourly"].lag) == (3 + 1, 0)


def test_what_is_taken_out_again_gives_its_place_back(log: str) -> None:
    rows = [(1, 9), (5000, 9), (4, 10)]
    run(sales(rows, small), log)
    rows += [(6000, 10), (8, 11)]
    plain = run(sales(rows), log)
    assert totals(plain) == [1, 6004]
    assert plain.log.backward("hourly:1", to="rows")["event"].to_pylist() == ["rows:1"]
    rows += [(7000, 11), (16, 11), (32, 12)]
    assert totals(run(sales(rows, small), log)) == [1, 6004, 24]
    assert totals(run(sales(rows), log, close=True)) == [1, 6004, 24, 32]


def test_an_operator_that_replaces_another_one(log: str) -> None:
    rows = [(1, 9), (5000, 9), (4, 10)]
    run(sales(rows, small), log)
    rows += [(600, 10), (8, 10), (16, 11)]
    tiny = run(sales(rows, lambda p, stream: stream.filter("tiny", pc.field("n") < 100)), log)
    assert totals(tiny) == [1, 12]


def test_a_source_joins_and_another_one_leaves(log: str) -> None:
    rows, more = [(1, 9), (4, 10)], [(100, 9), (200, 10), (300, 11)]

    def both(p: ll.Pipeline, stream: ll.Stream) -> ll.Stream:
        return stream.union("all", p.source("more", Growing(more), rows=1))

    def other(p: ll.Pipeline, stream: ll.Stream) -> ll.Stream:
        return stream.union("all", p.source("others", Growing([(2000, 11)]), rows=1))

    assert totals(run(sales(rows), log)) == [1]
    assert totals(run(sales(rows, both), log)) == [1, 204]  # hour 9 is out: late
    rows.append((8, 11))
    assert totals(run(sales(rows, other), log, close=True)) == [1, 204, 2308]


def test_a_source_that_is_brought_back_is_read_again_and_check_says_so(log: str) -> None:
    def store(**sources: Rows) -> ll.Pipeline:
        p = ll.Pipeline("stores")
        for name, rows in sources.items():
            p.source(name, Growing(rows), rows=1).sink(f"of_{name}", ll.sinks.collect())
        return p

    a, b = [(1, 9)], [(2, 9)]
    run(store(a=a, b=b), log)
    run(store(a=a), log)
    b.append((3, 9))
    found = store(a=a, b=b).check(log).changes
    assert found is not None and not found.refused
    (told,) = [line for line in found.accepted if line.startswith("source 'b'")]
    assert "One of that name was removed before: it is read again from its beginning" in told
    assert "let it read only what is new" in told
    assert totals(run(store(a=a, b=b), log), "of_b") == [2, 3]  # the sink is another one, too


def test_an_operator_is_made_anew_from_what_the_log_has(log: str) -> None:
    rows = [(1, 9), (2, 9), (4, 10), (8, 11)]
    first = run(sales(rows), log)
    assert totals(first) == [3, 4]
    p = sales(rows, size="2h", agg="max")
    with pytest.raises(PipelineChanged) as refused:
        run(p, log)
    assert "operator 'hourly': it had" in str(refused.value)
    assert "these are not done: " in str(refused.value)
    assert 'fresh=["hourly"] (--fresh hourly)' in str(refused.value)
    again = run(p, log, fresh=["hourly"])
    assert totals(again) == [2]
    assert {InstanceName("hourly@2"), InstanceName("totals@2")} <= set(open_memory(log[7:]).instances())
    assert again.log.backward("hourly:1", to="rows")["event"].to_pylist() == ["rows:1", "rows:2"]
    assert again.log.backward("hourly@1:1", to="rows")["event"].to_pylist() == ["rows:1", "rows:2"]
    rows += [(16, 11), (32, 12)]
    assert totals(run(p, log)) == [2, 16]  # not made anew once more


def test_what_is_made_anew_behind_an_end_that_is_collected_takes_all(tmp_path: Path) -> None:
    """The end of the first run is collected, and what took it back is the first that the log still has."""
    rows, log = [(1, 9)], f"lmdb:{tmp_path}/log"

    def pipeline(bad: int) -> ll.Pipeline:
        def strict(batch: pa.RecordBatch) -> pa.RecordBatch:
            assert bad not in batch["n"].to_pylist()
            return batch

        p = ll.Pipeline("strict")
        p.source("rows", Growing(rows), rows=1).map_batches("op", strict).sink("store", ll.sinks.collect())
        return p

    pipeline(bad=2).run(log, engine="inline", until="now", close=True)
    rows += [(2, 9)]
    with pytest.raises(PipelineFailed):
        pipeline(bad=2).run(log, engine="inline", until="now", close=True)
    rows += [(4, 9)]
    run = pipeline(bad=0).start(log, engine="inline", until="now", close=True, fresh=["op"])
    assert run.wait(PATIENCE).phase == "finished"
    assert run.result("store")["n"].to_pylist() == [2, 4]


def test_another_aggregate_counts_for_windows_that_are_open(log: str) -> None:
    rows = [(1, 9), (4, 10), (8, 10)]
    run(sales(rows), log)
    rows += [(2, 10), (16, 11)]
    assert totals(run(sales(rows, agg="max"), log)) == [1, 8]  # event state is rebuilt from events (R5)


def test_write_ids_and_ids_of_calls_are_those_of_the_generation(log: str) -> None:
    rows, written, asked = [(1, 9)], [], []

    def paid(**options: Any) -> ll.Pipeline:
        p = ll.Pipeline("paid")

        def ask(row: dict[str, Any], ctx: Any) -> dict[str, Any]:
            asked.append(ctx.id)
            return {"n": row["n"]}

        name = options.pop("name", "ask")
        options.setdefault("version", "1")
        asks = p.source("rows", Growing(rows), rows=1).map_rows(name, ask, schema="n long", **options)
        asks.sink("store", ll.sinks.call(lambda batch, n, write_id: written.append(write_id), guarantee="named"))
        p.lineage()
        return p

    run(paid(), log)
    rows.append((2, 9))
    run(paid(name="question", was="ask"), log)
    first, second = asked
    assert first.split("/")[1] == second.split("/")[1] == "ask"
    assert [one.rpartition("/")[2] for one in written] == ["1", "2"]
    run(paid(name="question"), log, fresh=["question"])
    assert len(asked) == 2  # its code is the same: the log has the answers
    run(paid(name="question", version="another"), log, fresh=["question"])
    assert asked[2].split("/")[1] == "ask@3"
    assert len({*asked}) == 4
    assert written[2] == written[0].replace("/store/", "/store@2/")


def test_what_is_made_anew_asks_only_what_nobody_has_answered(log: str) -> None:
    rows, asked = [(1, 9), (2, 9)], []

    def ask(n: int) -> int:
        asked.append(n)
        return 10 * n

    def paid(plus: int) -> ll.Pipeline:
        p = ll.Pipeline("paid")

        def score(row: dict[str, Any], ctx: Any) -> dict[str, Any]:
            return {"n": ctx.call(ask, row["n"]) + plus}

        def roll(row: dict[str, Any], ctx: Any) -> dict[str, Any]:
            return {"n": row["n"] + ctx.call(dice)}

        scored = p.source("rows", Growing(rows), rows=1).map_rows("score", score, schema="n long")
        scored.map_rows("rolled", roll, schema="n long").sink("store", ll.sinks.collect())
        p.lineage()
        return p

    throws = iter(range(100, 200, 10))

    def dice() -> int:
        return next(throws)

    assert totals(run(paid(0), log), "store") == [110, 130]
    rows.append((3, 9))
    assert totals(run(paid(1), log, fresh=["score"]), "store") == [111, 131, 151]
    assert asked == [1, 2, 3]  # and the dice fell as before, each throw once


def test_a_changed_schema_waits_until_everybody_is_done_with_the_old_one(log: str) -> None:
    rows: Rows = [(1, 9)]

    def shaped(name: str) -> ll.Pipeline:
        p = ll.Pipeline("shaped")
        made = p.source("rows", Growing(rows), rows=1).map_batches(
            "made", lambda batch: pa.table({name: batch["n"]}), schema=f"{name} long"
        )
        made.sink("store", ll.sinks.collect())
        p.lineage()
        return p

    run(shaped("a"), log)
    rows.append((2, 9))
    again = run(shaped("b"), log)
    assert again.log.read("made:1").column_names == ["a"]
    assert again.log.read("made:2").to_pylist() == [{"b": 2}]
    assert again.log.read("made:1..2").to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": 2}]
    assert again.log.sql("select count(a) as a, count(b) as b from made").to_pylist() == [{"a": 1, "b": 1}]
    assert again.log.find("made", "b = 2") == ["made:2"]


def test_ports_that_come_after_an_end_have_its_marks(log: str) -> None:
    rows: Rows = [(1, 9)]

    class Two(ll.Operator[Any, None]):
        outputs = {"out": Growing.schema, "copy": Growing.schema}  # noqa: RUF012

        def generate(self, inset: Any, acc: Any, ctx: Any) -> Any:
            yield ll.Emit(acc)
            yield ll.Emit(acc, "copy")

    class One(ll.Operator[Any, None]):
        outputs = {"out": Growing.schema}  # noqa: RUF012

        def generate(self, inset: Any, acc: Any, ctx: Any) -> Any:
            yield acc

    def ported(op: Any) -> ll.Pipeline:
        p = ll.Pipeline("ported")
        made = p.source("rows", Growing(rows), rows=1).apply("made", op)
        made.sink("store", ll.sinks.collect())
        if isinstance(op, Two):
            made["copy"].sink("copies", ll.sinks.collect())
        return p

    assert run(ported(One()), log, close=True).status().phase == "finished"
    rows.append((2, 9))
    again = run(ported(Two()), log, close=True)
    assert (totals(again, "store"), totals(again, "copies")) == ([1, 2], [2])
    assert again.status().operators["made"].out == 3


def test_a_finished_log_goes_on_when_something_is_inserted(log: str) -> None:
    rows = [(1, 9), (4, 10)]
    assert run(sales(rows), log, close=True).status().phase == "finished"
    inserted = sales(rows, small).start(log, engine="inline")
    assert inserted.wait(20).phase == "finished"
    assert totals(inserted) == [1, 4]
    rows.append((8, 11))
    assert totals(run(sales(rows, small), log, close=True)) == [1, 4, 8]


def test_the_log_says_which_code_made_what(log: str) -> None:
    rows = [(1, 9), (4, 10)]
    run(sales(rows, version="1"), log)
    rows += [(8, 11), (8, 12)]
    found = run(sales(rows, version="2"), log).log.versions("hourly")
    assert found.select(["version", "port", "first", "last"]).to_pylist() == [
        {"version": "1", "port": "out", "first": 1, "last": 1},
        {"version": "2", "port": "out", "first": 2, "last": 3},
    ]


def test_operators_that_change_places_must_have_nothing_between_them(log: str) -> None:
    rows: Rows = [(1, 9), (2, 9)]

    def ordered(*names: str, fails: bool = False) -> ll.Pipeline:
        def times(batch: pa.RecordBatch) -> pa.Table:
            if fails and batch.num_rows:
                raise ValueError("not today")
            return pa.table({"n": pc.multiply(batch["n"], 100)})

        makes: dict[str, Any] = {"plus": lambda batch: pa.table({"n": pc.add(batch["n"], 1)}), "times": times}
        p = ll.Pipeline("ordered")
        stream = p.source("rows", Growing(rows), rows=1)
        for name in names:
            stream = stream.map_batches(name, makes[name], schema="n long", version="1")
        stream.sink("store", ll.sinks.collect())
        return p

    with pytest.raises(ll.PipelineFailed):
        run(ordered("plus", "times", fails=True), log)
    with pytest.raises(PipelineChanged, match=r"plus.out>times.in was removed, and . events? of plus.out"):
        run(ordered("times", "plus"), log)
    assert totals(run(ordered("plus", "times"), log), "store") == [200, 300]
    rows.append((3, 9))
    assert totals(run(ordered("times", "plus"), log), "store") == [200, 300, 301]


def test_an_operator_whose_errors_wait_is_not_removed(log: str) -> None:
    def failing(*, there: bool) -> ll.Pipeline:
        def odd(row: dict[str, Any], ctx: Any) -> dict[str, Any]:
            if row["n"] == 2:
                raise ValueError("two")
            return {"n": row["n"]}

        p = ll.Pipeline("failing")
        stream = p.source("rows", Growing([(1, 9), (2, 9)]), rows=1)
        if there:
            stream = stream.map_rows("odd", odd, schema="n long", on_error="divert")
        else:
            stream = stream.map_batches("plain", lambda batch: batch.select(["n"]), schema="n long")
        stream.sink("store", ll.sinks.collect())
        return p

    first = run(failing(there=True), log)
    with pytest.raises(PipelineChanged, match="operator 'odd' was removed, and 1 of its errors waits"):
        run(failing(there=False), log)
    assert first.drop("odd.errors:1") == ["odd.errors:1"]
    assert totals(run(failing(there=False), log), "store") == [1]


def test_renames_in_a_circle_take_two_runs(log: str) -> None:
    def two(one: str, other: str, **was: str) -> ll.Pipeline:
        p = ll.Pipeline("two")
        for name, n in ((one, 1), (other, 2)):
            options: Any = {"was": was[name]} if name in was else {}
            p.source(name, Growing([(n, 9)]), rows=1, **options).sink(f"{name}_store", ll.sinks.collect())
        return p

    run(two("a", "b"), log)
    with pytest.raises(OptionError, match="each say was= the other: rename them in two runs"):
        run(two("b", "a", a="b", b="a"), log)


# ---- drivers that die half way -----------------------------------------------------------------------------


class Died(BaseException):
    """The driver is gone."""


def dying(log: str, monkeypatch: pytest.MonkeyPatch, p: ll.Pipeline, at: int, **settings: Any) -> bool:
    """A start whose driver dies before its n-th change of the log. Whether it did."""
    store = open_memory(log[7:])
    count = 0

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count > at:
                raise Died
            return change(*args, **kwargs)

        return instead

    with monkeypatch.context() as patched:
        patched.setattr(store, "claim", counted(store.claim))
        patched.setattr(store, "set_meta", counted(store.set_meta))
        patched.setattr("logline.runtime.control.launch.InlineEngine", counted(lambda *_: None))
        with contextlib.suppress(Died):
            p.start(log, engine="inline", until="now", **settings)
    return count > at


CHANGES: dict[str, tuple[Any, dict[str, Any]]] = {
    "inserted": (small, {}),
    "anew": (None, {"fresh": ["hourly"]}),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("then", ["the new one", "the old one"])
def test_a_driver_that_dies_at_any_point_of_a_change(
    change: str, then: str, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, settings = CHANGES[change]
    for at in range(20):
        here = f"{log}-{at}"
        rows = [(1, 9), (2, 9), (4, 10)]
        run(sales(rows), here)
        rows += [(8, 10), (16, 11)]
        if not dying(here, monkeypatch, sales(rows, put), at, **settings):
            break
        if then == "the old one":
            went_on = run(sales(rows), here)
        else:
            went_on = run(sales(rows, put), here, **settings)
        assert totals(went_on) == [3, 12], f"died before change {at + 1}"
    else:
        pytest.fail("it never gets through")
    assert at >= 2
