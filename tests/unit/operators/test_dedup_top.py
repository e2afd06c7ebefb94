"""dedup and top: against DuckDB on random rows, with nulls and duplicates, in events of any size."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logline as ll
from logline.errors import OptionError, SchemaError
from logline.operators import Dedup, Top

SCHEMA = pa.schema({"n": pa.int64(), "card": pa.string(), "kind": pa.float64(), "amount": pa.int64()})
START = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = st.tuples(
    st.sampled_from(["a", "b", "", None]),
    st.sampled_from([0.0, -0.0, 1.5, None]),
    st.none() | st.integers(-3, 3),
)
EVENTS = st.lists(st.lists(ROWS, min_size=1, max_size=8), min_size=1, max_size=5)


def batches(events: Sequence[Sequence[tuple[Any, ...]]]) -> list[pa.RecordBatch]:
    found, n = [], 0
    for event in events:
        rows = [(n + at, *row) for at, row in enumerate(event)]
        n += len(event)
        found.append(
            pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)
        )
    return found


def driven(op: Any, given: Sequence[pa.RecordBatch]) -> pa.Table:
    with ll.testing.drive(op) as drive:
        for batch in given:
            drive.send(batch)
        return drive.out()


@settings(max_examples=25, deadline=None)
@given(EVENTS)
def test_dedup_is_the_first_row_of_each_group(events: list[list[tuple[Any, ...]]]) -> None:
    given = batches(events)
    rows = pa.Table.from_batches(given)  # noqa: F841 - DuckDB sees it
    wanted = duckdb.connect().execute("select min(n) as n from rows group by card, kind order by n").fetchall()
    assert driven(Dedup(["card", "kind"]), given)["n"].to_pylist() == [n for (n,) in wanted]


@settings(max_examples=25, deadline=None)
@given(EVENTS, st.integers(1, 3))
def test_top_lists_are_those_of_sql(events: list[list[tuple[Any, ...]]], n: int) -> None:
    """Whoever writes the lists by key and rank has the best rows of all that came."""
    given = batches(events)
    rows = pa.Table.from_batches(given)  # noqa: F841 - DuckDB sees it
    wanted = (
        duckdb.connect()
        .execute(
            "select card, rank, n from (select *, row_number() over "
            "(partition by card order by amount desc nulls last, kind asc nulls last, n) as rank from rows) "
            f"where rank <= {n}"
        )
        .fetchall()
    )
    found = driven(Top(n, ["card"], "amount desc, kind"), given).to_pylist()
    table = {(row["card"], row["rank"]): row["n"] for row in found}
    assert sorted(((c is None, c or "", r, i) for (c, r), i in table.items())) == sorted(
        (c is None, c or "", r, i) for c, r, i in wanted
    )


def test_top_puts_out_the_lists_that_have_changed_and_no_others() -> None:
    given = batches([[("a", 0.0, 5), ("b", 0.0, 5)], [("a", 0.0, 4), ("b", 0.0, 6)], [("a", 0.0, 1)]])
    with ll.testing.drive(Top(2, ["card"], "amount desc")) as drive:
        drive.send(given[0])
        before = drive.out().num_rows
        drive.send(given[1])
        lists = [(r["card"], r["rank"], r["amount"]) for r in drive.out().slice(before).to_pylist()]
        assert lists == [("a", 1, 5), ("a", 2, 4), ("b", 1, 6), ("b", 2, 5)]
        before = drive.out().num_rows
        assert drive.send(given[2]).out().num_rows == before


def test_of_equal_rows_the_first_one_stays() -> None:
    given = batches([[("a", 0.0, 5), ("a", 0.0, 5)], [("a", 0.0, 5)]])
    assert driven(Top(1, ["card"], "amount"), given)["n"].to_pylist() == [0]


def timed(rows: Sequence[tuple[str | None, int | None]]) -> pa.RecordBatch:
    times = [None if s is None else START + timedelta(seconds=s) for _, s in rows]
    return pa.record_batch(
        {"card": pa.array([c for c, _ in rows], pa.string()), "at": pa.array(times, pa.timestamp("ms", "UTC"))}
    )


TIMED = st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 8))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(TIMED, min_size=1, max_size=8), min_size=1, max_size=5))
def test_within_counts_from_the_last_row_that_was_passed_on(events: list[list[tuple[str | None, int]]]) -> None:
    """Time goes on from event to event; within an event rows are in any order."""
    given = [[(card, 9 * at + s) for card, s in event] for at, event in enumerate(events)]
    wanted: list[tuple[str | None, int]] = []
    last: dict[str | None, int] = {}
    for card, at in (row for event in given for row in event):
        if card not in last or at >= last[card] + 10:
            wanted.append((card, at))
            last[card] = at
    made = driven(Dedup(["card"], "10s", "at"), [timed(event) for event in given])
    assert [(row["card"], (row["at"] - START) // timedelta(seconds=1)) for row in made.to_pylist()] == wanted


def test_without_a_time_column_within_counts_by_the_wall_clock() -> None:
    given = batches([[("a", 0.0, 1)]])[0]
    with ll.testing.drive(Dedup(["card"], "10s")) as drive:
        assert drive.send(given).send(given).advance("9s").send(given).out().num_rows == 1
        assert drive.advance("1s").send(given).out().num_rows == 2


def test_rows_without_a_time_are_passed_on_if_their_key_is_new() -> None:
    made = driven(Dedup(["card"], "10s", "at"), [timed([("a", None), ("a", None), ("a", 5), ("a", None), ("b", 1)])])
    assert [row["card"] for row in made.to_pylist()] == ["a", "a", "b"]


def test_the_log_shows_the_lists_of_now() -> None:
    p = ll.Pipeline("best")
    rows = pa.table({"item": ["tea", "jam", "tea", "tea"], "n": [1, 2, 5, 3]})
    p.source("rows", ll.sources.batches([rows])).top("best", 2, by=["item"], order="n desc")
    found = p.run(engine="inline").log.state("best").sort_by([("item", "ascending"), ("n", "descending")])
    assert found.to_pylist() == [{"item": "jam", "n": 2}, {"item": "tea", "n": 5}, {"item": "tea", "n": 3}]


def test_keys_that_are_forgotten_leave_the_log() -> None:
    p = ll.Pipeline("cards")
    given = [timed([(f"k{at}", at * 100)]) for at in range(20)]
    orders = p.source("orders", ll.sources.batches(given), rows=1)
    orders.dedup("once", by=["card"], within="10s", time="at").sink("store", ll.sinks.collect())
    run = p.run(engine="inline")
    assert run.result("store").num_rows == 20
    assert run.log.state("once").num_rows == 1


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda s: s.dedup("op", by=["nothing"]), "no column 'nothing'"),
        (lambda s: s.dedup("op", by=["card"], within="0s"), "positive"),
        (lambda s: s.dedup("op", by=["card"], time="n"), "no within="),
        (lambda s: s.top("op", 0, by=["card"], order="n"), "n"),
        (lambda s: s.top("op", 1, by=["card"], order=""), "order"),
        (lambda s: s.top("op", 1, by=["card"], order="n down"), "asc or desc"),
        (lambda s: s.top("op", 1, by=["card"], order="nothing desc"), "no column 'nothing'"),
        (lambda s: s.top("op", 1, by=["card"], order="n", concurrency=2), "concurrency"),
    ],
)
def test_what_can_not_run_is_refused_at_definition(make: Any, text: str) -> None:
    stream = ll.Pipeline("p").source("orders", ll.sources.batches(batches([[("a", 0.0, 1)]])))
    with pytest.raises((OptionError, SchemaError), match=text) as raised:
        make(stream)
    assert "'op'" in str(raised.value)
