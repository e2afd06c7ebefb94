"""Lookups as of event time: the same as DuckDB's ASOF JOIN over all rows, whatever the order in which they came."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logline as ll
from logline.errors import LoglineError
from logline.operators import AsOfLookup

TIME = pa.timestamp("us", "UTC")
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
ORDERS = pa.schema({"id": pa.int64(), "item": pa.string(), "at": TIME})
PRICES = pa.schema({"item": pa.string(), "price": pa.int64(), "since": TIME})


def at(seconds: float | None) -> datetime | None:
    return None if seconds is None else BEGIN + timedelta(seconds=seconds)


def orders(*rows: tuple[int, str | None, float | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": n, "item": item, "at": at(t)} for n, item, t in rows], schema=ORDERS)


def prices(*rows: tuple[str | None, int | None, float | None]) -> pa.RecordBatch:
    made = [{"item": item, "price": price, "since": at(t)} for item, price, t in rows]
    return pa.RecordBatch.from_pylist(made, schema=PRICES)


def driven(how: Any = "left", **more: Any) -> Any:
    how_to: dict[str, Any] = {"as_of": ("at", "since"), "on": ["item"], "how": how, "every": "10s", **more}
    return ll.testing.drive(AsOfLookup(ORDERS, PRICES, ["item"], **how_to))


def found(op: Any) -> list[tuple[int, int | None]]:
    return [(row["id"], row["price"]) for row in op.out().to_pylist()]


ITEM = st.sampled_from(["tea", "jam", "ale", None])
SECOND = st.integers(0, 60)
ORDER = st.tuples(st.just("in"), st.lists(st.tuples(ITEM, SECOND), max_size=6))
PRICE = st.tuples(st.just("table"), st.lists(st.tuples(ITEM, SECOND), max_size=6))


@settings(max_examples=50)
@given(st.lists(ORDER | PRICE, max_size=8), st.sampled_from(["left", "inner"]), st.sampled_from(["1s", "7s", "1h"]))
def test_it_is_the_asof_join_of_sql(events: list[Any], how: str, every: str) -> None:
    """Out of order, with crashes after every call. A price follows from its item and time: two of one time agree."""
    op = driven(how, every=every, lateness="2m").send(orders()).send(prices(), "table")
    left, right = [orders()], [prices()]
    for port, rows in events:
        if port == "in":
            many = sum(batch.num_rows for batch in left)
            left.append(orders(*((many + n, item, t) for n, (item, t) in enumerate(rows))))
            op.send(left[-1])
        else:
            right.append(prices(*((item, None if t == 9 else 100 * len(item or "") + t, t) for item, t in rows)))
            op.send(right[-1], "table")
    op.end()
    with duckdb.connect() as db:
        db.register("l", pa.Table.from_batches(left))
        db.register("r", pa.Table.from_batches(right))
        kind = "left" if how == "left" else ""
        wanted = db.sql(
            f"select id, price, since from l asof {kind} join r on l.item = r.item and l.at >= r.since order by id"
        ).to_arrow_table()
    made = op.out().select(["id", "price", "since"]).sort_by("id")
    assert made.to_pylist() == wanted.to_pylist()
    assert op.counters == {}


def test_a_row_waits_until_no_earlier_row_of_the_table_can_come() -> None:
    op = driven().send(orders((1, "tea", 5))).send(prices(("tea", 3, 1)), "table")
    op.send(orders((2, "tea", 30)))
    assert found(op) == []  # the table is at 1
    op.send(prices(("tea", 4, 4)), "table")
    assert found(op) == []
    op.send(prices(("jam", 7, 10)), "table")
    assert found(op) == [(1, 4)]
    assert found(op.end()) == [(1, 4), (2, 4)]


def test_a_row_of_the_table_counts_from_its_own_time_on() -> None:
    op = driven().send(prices(("tea", 3, 1), ("tea", 4, 5)), "table")
    op.send(orders((1, "tea", 0.5), (2, "tea", 1), (3, "tea", 4.999), (4, "tea", 5))).end()
    assert found(op) == [(1, None), (2, 3), (3, 3), (4, 4)]


def test_of_two_rows_of_one_time_the_last_one_counts() -> None:
    op = driven().send(prices(("tea", 3, 1)), "table").send(prices(("tea", 4, 1)), "table")
    assert found(op.send(orders((1, "tea", 2))).end()) == [(1, 4)]


def test_at_the_end_buckets_go_in_the_order_of_their_times() -> None:
    op = driven(lateness="1m").send(orders((1, "tea", 25))).send(prices(("tea", 3, 1)), "table")
    op.send(orders((2, "tea", 5))).send(prices(("tea", 4, 12)), "table").end()
    assert found(op) == [(2, 3), (1, 4)]


def test_one_row_of_each_key_is_kept() -> None:
    op = driven().send(orders((1, "tea", 5)))
    for second in range(0, 200, 2):
        op.send(prices(("tea", second, second), ("jam", second, second)), "table").send(orders((2, "ale", second)))
    for twin in op._twins:
        image = twin.store.read(twin.instance.spec.name)
        assert len(image.keyed()) == 2
        assert len(image.image().sets) <= 2


def test_a_late_row_of_the_stream_leaves_on_its_port() -> None:
    op = driven().send(prices(("tea", 3, 1), ("tea", 4, 40)), "table").send(orders((1, "tea", 40)))
    op.send(orders((2, "tea", 5), (3, "tea", 41), (4, "tea", None))).end()
    assert found(op) == [(1, 4), (3, 4)]
    assert op.out("late")["id"].to_pylist() == [2, 4]
    assert op.counters["late"] == 1 and op.counters["no_time"] == 1


def test_a_late_row_of_the_table_counts_for_what_is_not_out() -> None:
    op = driven().send(orders((1, "tea", 5), (2, "tea", 45))).send(prices(("jam", 1, 40)), "table")
    assert found(op) == [(1, None)]
    op.send(prices(("tea", 3, 2), ("tea", 9, None)), "table").end()
    assert found(op) == [(1, None), (2, 3)]
    assert op.counters == {"late_table": 1, "no_time": 1}


def test_a_late_row_of_the_table_does_not_take_the_place_of_a_newer_one() -> None:
    op = driven().send(prices(("tea", 4, 8), ("jam", 1, 40)), "table").send(orders((1, "tea", 40)))
    op.send(prices(("tea", 3, 2)), "table").send(orders((2, "tea", 50))).end()
    assert found(op) == [(1, 4), (2, 4)]


def test_columns_are_selected_and_the_time_of_the_table_need_not_come_out() -> None:
    op = driven(select=["price"]).send(prices(("tea", 3, 1)), "table").send(orders((1, "tea", 15))).end()
    assert op.out().column_names == ["id", "item", "at", "price"]
    assert found(op) == [(1, 3)]


# ---- in a pipeline ----------------------------------------------------------------------------------------------


def piped(**more: Any) -> tuple[ll.Pipeline, ll.Stream]:
    p = ll.Pipeline("sales")
    known = p.source("prices", ll.sources.batches([prices(("tea", 3, 1), ("jam", 5, 2)), prices(("tea", 4, 20))]))
    wanted = p.source("orders", ll.sources.batches([orders((1, "tea", 5), (2, "jam", 30)), orders((3, "tea", 25))]))
    settings = {"on": ["item"], "as_of": ("at", "since"), "lateness": "1m", **more}
    return p, wanted.lookup("priced", ll.table(known, key=["item"]), **settings)


def test_lineage_leads_to_the_event_of_the_stream() -> None:
    p, priced = piped(every="1m")
    priced.sink("store", ll.sinks.collect())
    p.lineage("orders", priced)
    run = p.run(engine="inline")
    made = sorted((row["id"], row["price"]) for row in run.result("store").to_pylist())
    assert made == [(1, 3), (2, 5), (3, 4)]
    records = run.log.backward("priced", to="orders", where="id = 3", records=True)
    assert [(row["event"], row["row"]) for row in records.to_pylist()] == [("orders:2", 0)]


def test_the_time_of_the_stream_is_passed_on() -> None:
    p, priced = piped()
    hours = priced.window("hours", ll.tumbling("10s", on="at", lateness="1m"), agg={"paid": ("price", "sum")})
    hours.sink("store", ll.sinks.collect())
    run = p.run(engine="inline")
    assert sorted(run.result("store")["paid"].to_pylist()) == [3, 4, 5]
    assert "late" not in run.status().operators["hours"].counters


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"as_of": "at"}, "as_of: the table has no column 'at': it has"),
        ({"as_of": ("since", "since")}, "as_of: the stream has no column 'since'"),
        ({"as_of": 7}, "as_of=7: name the event-time column of both"),
        ({"as_of": ("id", "since")}, "a time column is a timestamp or a date, not int64"),
        ({"every": "0s"}, "every='0s': a bucket of time must be longer"),
        ({"idle": "0s"}, "idle must be positive"),
        ({"refresh": "1m"}, "refresh= is for a path or a function"),
    ],
)
def test_what_is_wrong_is_said_when_it_is_defined(more: dict[str, Any], says: str) -> None:
    with pytest.raises(LoglineError) as info:
        piped(**more)
    assert says in str(info.value) and "'priced'" in str(info.value)
