"""Session windows, against plain Python: any order of arrival, merges, late records, nulls; with a crash after every
call (`ll.testing.drive` compares the two)."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logline as ll
from logline.errors import OptionError, SchemaError
from logline.operators import WindowAggregate

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
AGG: dict[str, Any] = {
    "n": ("v", "count"),
    "total": ("v", "sum"),
    "least": ("v", "min"),
    "mean": ("v", "mean"),
    "different": ("v", "count_distinct"),
}
Row = tuple[str | None, int | None, int | None]
"""User, second, value."""


def rows(*found: Row) -> pa.RecordBatch:
    users, seconds, values = zip(*found, strict=True) if found else ((), (), ())
    return pa.record_batch(
        {
            "user": pa.array(users, pa.string()),
            "at": pa.array(seconds, pa.int64()).cast(pa.timestamp("s", "UTC")),
            "v": pa.array(values, pa.int64()),
        }
    )


def sessions(
    gap: str = "10s",
    by: Iterable[str] = ("user",),
    agg: dict[str, Any] | None = None,
    *,
    crashes: bool = True,
    **more: Any,
) -> ll.testing.Drive:
    op = WindowAggregate(ll.session_window(gap, on="at", **more), list(by), agg or AGG)
    return ll.testing.drive(op, crashes=crashes)


def bounds(op: ll.testing.Drive) -> list[tuple[str | None, int, int, int]]:
    """What has come out: user, start, end, how many values."""
    found = op.out().to_pylist()
    return [(r.get("user"), _second(r["window_start"]), _second(r["window_end"]), r["n"]) for r in found]


def _second(at: datetime) -> int:
    return int((at - EPOCH).total_seconds())


def wanted(found: Iterable[Row], gap: int) -> list[tuple[str | None, int, int, int]]:
    """The sessions of all rows, as Spark SQL defines them."""
    result = []
    for user in {user for user, _, _ in found}:
        mine = sorted(((at, v) for u, at, v in found if u == user and at is not None), key=lambda row: row[0])
        while mine:
            upto = next((i for i in range(1, len(mine)) if mine[i][0] - mine[i - 1][0] > gap), len(mine))
            session, mine = mine[:upto], mine[upto:]
            count = sum(v is not None for _, v in session)
            result.append((user, session[0][0], session[-1][0] + gap, count))
    return result


def test_a_session_ends_a_gap_after_its_last_record() -> None:
    op = sessions().send(rows(("ann", 0, 1), ("ann", 7, 2), ("bob", 3, 4)))
    assert bounds(op.send(rows(("ann", 30, 8)))) == [("bob", 3, 13, 1), ("ann", 0, 17, 2)]
    assert bounds(op.end())[2:] == [("ann", 30, 40, 1)]


def test_a_record_exactly_a_gap_later_is_of_the_same_session() -> None:
    op = sessions().send(rows(("ann", 0, 1))).send(rows(("bob", 10, 1)))  # the watermark is at the end: it waits
    assert bounds(op.send(rows(("ann", 10, 2))).end()) == [("ann", 0, 20, 2), ("bob", 10, 20, 1)]


def test_a_record_between_two_sessions_makes_them_one() -> None:
    op = sessions(lateness="1m").send(rows(("ann", 0, 1))).send(rows(("ann", 18, 2), ("bob", 18, 2)))
    op.send(rows(("ann", 9, 4))).end()
    assert sorted(bounds(op), key=str) == [("ann", 0, 28, 3), ("bob", 18, 28, 1)]
    assert op.out().filter(pa.compute.field("user") == "ann")["total"].to_pylist() == [7]


def test_one_event_makes_several_sessions_one_and_opens_others() -> None:
    op = sessions(lateness="5m").send(rows(("ann", 0, 1), ("ann", 20, 2), ("ann", 40, 4), ("ann", 80, 8)))
    op.send(rows(("ann", 30, 16), ("ann", 10, 32), ("ann", 60, 64))).end()
    assert sorted(bounds(op)) == [("ann", 0, 50, 5), ("ann", 60, 70, 1), ("ann", 80, 90, 1)]


def test_a_merged_session_closes_at_its_own_end() -> None:
    """The timer of the session that is gone must not close the one that has its records."""
    op = sessions(lateness="20s").send(rows(("ann", 0, 1))).send(rows(("ann", 15, 1)))
    op.send(rows(("ann", 8, 1))).send(rows(("bob", 44, 1)))  # the watermark is at 24
    assert bounds(op) == []
    assert bounds(op.send(rows(("bob", 46, 1)))) == [("ann", 0, 25, 3)]


def test_a_late_record_leaves_unless_an_open_session_takes_it() -> None:
    op = sessions().send(rows(("ann", 0, 1), ("bob", 28, 1))).send(rows(("ann", 30, 2)))  # ann's first has closed
    op.send(rows(("ann", 5, 4), ("ann", 22, 8), ("bob", 19, 16), ("bob", 3, 32))).end()
    assert op.out("late").to_pylist() == [
        {"user": "ann", "at": EPOCH + timedelta(seconds=5), "v": 4},
        {"user": "bob", "at": EPOCH + timedelta(seconds=3), "v": 32},
    ]
    assert sorted(bounds(op)) == [("ann", 0, 10, 1), ("ann", 22, 40, 2), ("bob", 19, 38, 2)]
    assert op.counters["late"] == 2


def test_records_without_a_time_leave_and_null_is_a_group() -> None:
    op = sessions().send(rows((None, 1, 1), ("ann", None, 2), (None, 4, None))).end()
    assert bounds(op) == [(None, 1, 14, 1)]
    assert op.out("late")["v"].to_pylist() == [2]
    assert op.counters["no_time"] == 1


def test_without_groups() -> None:
    op = sessions(by=()).send(rows(("ann", 0, 1), ("bob", 8, 2))).send(rows(("ann", 40, 4))).end()
    assert bounds(op) == [(None, 0, 18, 2), (None, 40, 50, 1)]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [0, None, 2**40]),
        (pa.float64(), [0.0, -0.0, float("nan"), None]),
        (pa.date32(), [0, None, 3]),
        (pa.bool_(), [True, False, None]),
        (pa.binary(), [b"", b"null", None]),
    ],
)
def test_groups_of_any_type(kind: pa.DataType, values: list[Any]) -> None:
    key = pa.array(values * 2, kind)
    at = pa.array(range(len(key)), pa.int64()).cast(pa.timestamp("ms"))
    made = WindowAggregate(ll.session_window("1s", on="at"), ["k"], {"n": ("at", "count")})
    op = ll.testing.drive(made, crashes=kind != pa.float64())  # what it compares holds no NaN
    half = len(values)
    batch = pa.record_batch({"k": key, "at": at})
    found = op.send(batch.slice(0, half)).send(batch.slice(half)).end().out()
    different = len({"nan" if str(value) == "nan" else value for value in values})  # a zero below zero is zero
    assert found.num_rows == different
    assert sum(found["n"].to_pylist()) == len(key)


_ROWS = st.lists(
    st.tuples(st.sampled_from(["ann", "bob", None]), st.integers(0, 120) | st.none(), st.integers(0, 9) | st.none()),
    max_size=25,
)


@settings(max_examples=25, deadline=None)
@given(found=_ROWS, gap=st.integers(1, 15), seed=st.integers(0, 1000))
def test_any_order_of_arrival_gives_the_same_sessions(found: list[Row], gap: int, seed: int) -> None:
    """Without late records: the lateness covers all of them. Duplicates and nulls included."""
    rnd = random.Random(seed)
    rnd.shuffle(found)
    op = sessions(f"{gap}s", lateness="3m").send(rows())
    at = 0
    while at < len(found):
        size = rnd.randint(1, 6)
        op.send(rows(*found[at : at + size]))
        at += size
    op.end()
    assert sorted(bounds(op), key=str) == sorted(wanted(found, gap), key=str)
    assert op.out("late").num_rows == sum(second is None for _, second, _ in found)


@settings(max_examples=30, deadline=None)
@given(found=_ROWS, seed=st.integers(0, 1000))
def test_aggregates_are_those_of_duckdb(found: list[Row], seed: int) -> None:
    rnd = random.Random(seed)
    op = sessions("5s", lateness="3m", crashes=False).send(rows())
    for at in range(0, len(found), 3):
        op.send(rows(*found[at : at + 3]))
    op.end()
    timed = [row for row in found if row[1] is not None]
    rnd.shuffle(timed)
    table = pa.Table.from_batches([rows(*timed)])
    sql = """
        with cut as (
            select *, "at" - lag("at") over (partition by "user" order by "at") > interval 5 seconds as apart from t
        ), numbered as (
            select *, sum(coalesce(apart, true)::int) over (partition by "user" order by "at") as session from cut
        )
        select min("at") as window_start, "user", count(v) as n, sum(v)::bigint as total, min(v) as least,
            avg(v) as mean, count(distinct v) as different
        from numbered group by "user", session
    """
    with duckdb.connect() as db:
        db.register("t", table)
        db.execute("set timezone = 'UTC'")
        theirs = db.sql(sql).to_arrow_table().to_pylist()
    mine = op.out().drop_columns("window_end").to_pylist()
    assert sorted(map(_plain, mine)) == sorted(map(_plain, theirs))


def _plain(row: dict[str, Any]) -> str:
    return str({**row, "window_start": _second(row["window_start"])})


def test_an_aggregate_of_ones_own_and_lists_keep_the_order_of_the_members() -> None:
    op = sessions(agg={"n": ("v", "count"), "all": ("v", "collect_list")}, lateness="1m")
    op.send(rows(("ann", 20, 1))).send(rows(("ann", 0, 2))).send(rows(("ann", 10, 3), ("ann", 11, 4))).end()
    assert op.out()["all"].to_pylist() == [[1, 2, 3, 4]]


def test_many_records_of_one_session() -> None:
    """Beyond what waits for a partial, on both sides of a merge."""
    op = sessions(agg={"n": ("v", "count"), "total": ("v", "sum")}, lateness="1h", crashes=False)
    for second in range(100):
        op.send(rows(("ann", second, 1), ("ann", 1000 - second, 1)))
    op.send(rows(*(("ann", second, 1) for second in range(100, 901, 10))))
    op.crash()  # a recovery merges nothing: it adds all records one after the other
    op.end()
    assert bounds(op) == [("ann", 0, 1010, 281)]


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(OptionError, match="the gap must be positive"):
        ll.session_window("0s", on="at")
    with pytest.raises(OptionError, match="is negative"):
        ll.session_window("1s", on="at", lateness=timedelta(seconds=-1))
    op = WindowAggregate(ll.session_window("1s", on="when"), ["user"], AGG)
    with pytest.raises(SchemaError, match="no time column 'when'"):
        op.schemas({"in": rows().schema})
    op = WindowAggregate(ll.session_window("1500ms", on="at"), ["user"], AGG)
    with pytest.raises(SchemaError, match="use a finer unit"):
        op.schemas({"in": rows().schema})
