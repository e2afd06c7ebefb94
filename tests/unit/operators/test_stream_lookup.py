"""Lookups in a stream (`ll.table`): what comes out is a fold over the events in the order in which they came."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.waiting import PATIENCE

import logline as ll
from logline.errors import LoglineError, PipelineChanged
from logline.graph.event_time import timed_ports
from logline.operators import StreamLookup

ORDERS = pa.schema({"item": pa.string(), "size": pa.int64(), "n": pa.int64()})
PRICES = pa.schema({"size": pa.int64(), "name": pa.string(), "n": pa.int64(), "tags": pa.list_(pa.string())})
KEY = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([1, 2, None]))
PRICE = st.tuples(KEY, st.none() | st.integers(0, 9), st.sampled_from([None, [], ["x", None]]))
EVENTS = st.lists(
    st.tuples(st.just("in"), st.lists(KEY, max_size=5)) | st.tuples(st.just("table"), st.lists(PRICE, max_size=5)),
    max_size=8,
)


def order_rows(keys: list[tuple[Any, Any]], at: int) -> list[dict[str, Any]]:
    return [{"item": item, "size": size, "n": 10 * at + row} for row, (item, size) in enumerate(keys)]


def price_rows(rows: list[Any]) -> list[dict[str, Any]]:
    return [{"size": size, "name": name, "n": n, "tags": tags} for (name, size), n, tags in rows]


def folded(events: list[tuple[str, list[Any]]], how: str) -> list[dict[str, Any]]:
    """The same in plain Python."""
    known: dict[tuple[Any, Any], dict[str, Any]] = {}
    found: list[dict[str, Any]] = []
    for at, (port, rows) in enumerate(events):
        if port == "table":
            known |= {(row["name"], row["size"]): row for row in price_rows(rows)}
            continue
        for order in order_rows(rows, at):
            key = (order["item"], order["size"])
            price = None if None in key else known.get(key)
            if price is not None or how == "left":
                price = price or dict.fromkeys(PRICES.names)
                found.append({**order, "n_right": price["n"], "tags": price["tags"]})
    return found


def lookup(how: Any = "left", **more: Any) -> StreamLookup:
    return StreamLookup(ORDERS, PRICES, ["name", "size"], on={"size": "size", "item": "name"}, how=how, **more)


def test_of_the_rows_of_an_event_the_last_one_counts_and_then_that_of_the_next_event() -> None:
    orders, prices = pa.record_batch({"item": ["a"]}), {"item": ["a", "b", "a"], "price": [1, 2, 3]}
    table = pa.record_batch(prices)
    with ll.testing.drive(StreamLookup(orders.schema, table.schema, ["item"], on=["item"])) as drive:
        drive.send(orders).send(table, "table").send(orders).send(table.slice(0, 2), "table").send(orders)
        assert drive.out()["price"].to_pylist() == [None, 3, 1]


@pytest.mark.parametrize("how", ["left", "inner"])
@settings(max_examples=40, deadline=None)
@given(events=EVENTS)
def test_rows_meet_the_newest_row_that_came_before_them(how: str, events: list[tuple[str, list[Any]]]) -> None:
    with ll.testing.drive(lookup(how)) as drive:  # one twin crashes after every event
        for at, (port, rows) in enumerate(events):
            made = order_rows(rows, at) if port == "in" else price_rows(rows)
            schema = ORDERS if port == "in" else PRICES
            drive.send(pa.RecordBatch.from_pylist(made, schema=schema), port)
        assert drive.end().out().to_pylist() == folded(events, how)


def test_a_table_of_keys_alone_says_which_rows_there_are() -> None:
    item = pa.schema({"item": pa.string()})
    with ll.testing.drive(StreamLookup(item, item, ["item"], on=["item"], how="inner")) as drive:
        drive.send(pa.record_batch({"item": ["a", "a", "b"]}), "table")
        drive.send(pa.record_batch({"item": ["b", "c", "a", "b"]}))  # the same schema: the port tells them apart
        assert drive.out()["item"].to_pylist() == ["b", "a", "b"]


def test_keys_of_a_dictionary_equal_plain_ones() -> None:
    words = pa.array(["a", "b"]).dictionary_encode()
    coded, plain = pa.record_batch({"item": words}), pa.record_batch({"item": ["b"], "n": [7]})
    with ll.testing.drive(StreamLookup(coded.schema, plain.schema, ["item"], on=["item"])) as drive:
        drive.send(plain, "table").send(coded)
        assert drive.out()["n"].to_pylist() == [None, 7]


def test_an_event_that_fails_changes_no_row_and_corrected_rows_find_their_port(tmp_path: Path) -> None:
    """Nanoseconds that are no whole microseconds are no key: the event of the table is diverted."""
    at = pa.timestamp("ns")
    bad = pa.table({"at": pa.array([1000, 1001], at), "price": [3, 4]})
    good = pa.table({"at": pa.array([2000], at), "price": [5]})
    p = ll.Pipeline("corrected")
    times = [pa.table({"at": pa.array([1000, 2000], at)})]
    table = ll.table(p.source("prices", ll.sources.batches([bad])), key=["at"])
    orders = p.source("orders", ll.sources.batches(times))
    orders.lookup("priced", table, on=["at"], on_error="divert").sink("store", ll.sinks.collect())
    log = f"lmdb:{tmp_path}/log"
    run = p.run(log, engine="inline")
    assert run.result("store")["price"].to_pylist() == [None, None]
    assert not run.log.state("priced").num_rows
    run.retry("priced.errors:1", data=good)
    again = p.run(log, engine="inline")
    assert again.result("store")["price"].to_pylist() == [None, None]  # what is out stays as it was
    assert again.log.state("priced").num_rows == 1


def pipeline(prices: list[Any], orders: list[str], key: str = "item", **more: Any) -> ll.Pipeline:
    p = ll.Pipeline("priced")
    tables = [pa.table({"item": [item], "code": [item], "price": [price], "old": [0]}) for item, price in prices]
    table = ll.table(p.source("prices", ll.sources.batches(lambda: tables)), key=[key])
    wanted = [pa.table({"item": [item]}) for item in orders]
    items = p.source("orders", ll.sources.batches(lambda: wanted, schema="item string"))
    priced = items.lookup("priced", table, on={"item": key}, **{"select": ["price"], **more})
    priced.sink("store", ll.sinks.collect())
    p.lineage()
    return p


def run(p: ll.Pipeline, folder: Path) -> ll.Run:
    found = p.start(f"lmdb:{folder}/log", engine="inline", until="now")
    found.wait(PATIENCE)
    return found


FIRST, NEXT = [("tea", 3), ("jam", 7)], [("tea", 3), ("jam", 7), ("tea", 4)]


def test_the_next_run_knows_the_rows_and_lineage_leads_to_the_event_of_the_stream(tmp_path: Path) -> None:
    run(pipeline(FIRST, []), tmp_path)
    assert run(pipeline(FIRST, ["tea", "oil"]), tmp_path).result("store")["price"].to_pylist() == [3, None]
    run(pipeline(NEXT, ["tea", "oil"]), tmp_path)
    log = run(pipeline(NEXT, ["tea", "oil", "tea", "jam"]), tmp_path).log
    (name,) = log.find("priced", "price = 4")
    back = log.backward(name, records=True).to_pylist()
    assert {row["event"] for row in back if not row["event"].startswith("priced")} == {"orders:3"}
    assert "priced" not in str(log.forward("prices:3")["event"].to_pylist())  # the state remembers, lineage does not
    states = log.state("priced").sort_by("item")
    assert states.to_pylist() == [{"item": "jam", "price": 7}, {"item": "tea", "price": 4}]
    assert log.state("priced", "tea")["price"].to_pylist() == [4]


@pytest.mark.parametrize("change", [{"key": "code"}, {"select": ["price", "old"]}])
def test_another_key_or_other_columns_are_refused_while_rows_are_known(tmp_path: Path, change: Any) -> None:
    run(pipeline(FIRST, ["tea"]), tmp_path)
    with pytest.raises(PipelineChanged, match=r"'priced'.*states of 2 keys"):
        run(pipeline(FIRST, ["tea"], **change), tmp_path)
    assert run(pipeline(FIRST, ["tea", "jam"], how="inner"), tmp_path).result("store").num_rows == 2


def test_a_table_that_seldom_changes_does_not_hold_windows_back(tmp_path: Path) -> None:
    time = pa.timestamp("us", "UTC")
    p = ll.Pipeline("hourly")
    hours = [pa.table({"item": ["tea"], "date": pa.array([hour * 3_600_000_000], time)}) for hour in (0, 2)]
    orders = p.source("orders", ll.sources.batches(lambda: hours), time="date", rows=1)
    prices = p.source("prices", ll.sources.batches(lambda: hours[:1]), time="date")
    priced = orders.lookup("priced", ll.table(prices, key=["item"]), on=["item"])
    counted = priced.window("counted", ll.tumbling("1h", on="date"), agg={"many": ("item", "count")})
    counted.sink("store", ll.sinks.collect())
    assert run(p, tmp_path).result("store")["many"].to_pylist() == [1]  # the streams stay open: so does the last hour


def test_event_time_is_that_of_the_stream() -> None:
    """A table without event time, or one that seldom changes, does not hold it back."""
    time = pa.timestamp("us", "UTC")
    p = ll.Pipeline("timed")
    rows = pa.table({"item": ["tea"], "date": pa.array([0], time), "n": [1]})
    orders = p.source("orders", ll.sources.batches([rows]), time="date")
    for name, options in (("untimed", {}), ("timed", {"time": "date"})):
        prices = p.source(name, ll.sources.batches([rows]), **options)  # type: ignore[arg-type]
        priced = orders.lookup(f"{name}_price", ll.table(prices, key=["item"]), on=["item"], select=["n"])
        assert (priced.operator, "out") in timed_ports(p.graph())
        priced.sink(f"{name}_store", ll.sinks.collect())
    assert p.check().event_time["timed_price"] == "watermark of orders"


def test_what_is_wrong_is_said_when_it_is_defined() -> None:
    p = ll.Pipeline("wrong")
    rows = pa.table({"item": ["tea"], "size": [1], "tags": [["a"]], "word": pa.array(["a"]).dictionary_encode()})
    stream = p.source("orders", ll.sources.batches([rows]))
    for key, says in ((["code"], "no column 'code'"), (["tags"], "plain values"), ([], "key=[]")):
        with pytest.raises(LoglineError) as info:
            ll.table(stream, key=key)
        assert says in str(info.value) and "key=" in str(info.value)
    with pytest.raises(LoglineError, match=r"ll\.table takes a stream"):
        ll.table(rows, key=["item"])
    table = ll.table(stream, key=["item", "size"])
    other = ll.Pipeline("other").source("orders", ll.sources.batches([rows]))
    for from_, more, says in (
        (stream, {"on": ["item"]}, "the table has the key ['item', 'size']"),
        (stream, {"on": ["item", "size"], "refresh": "1m"}, "refresh= is for a path or a function"),
        (stream, {"on": ["item", "size"], "schema": "item string"}, "schema= is for a path or a function"),
        (stream, {"on": ["item", "size"], "select": ["tags"], "concurrency": 2}, "leave concurrency out"),
        (stream, {"on": ["item", "size"]}, "column 'word'"),
        (other, {"on": ["item", "size"], "select": ["tags"]}, "can't cross pipelines"),
    ):
        with pytest.raises(LoglineError) as info:
            from_.lookup("priced", table, **more)
        assert says in str(info.value) and "'priced'" in str(info.value)
