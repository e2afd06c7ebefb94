"""Backward and forward lineage, on every kind of log (LOG.io 3.1, 7.3)."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.lineage.pipelines import A1, A2, A3, Each, Pair, figure_2, hourly_sales, numbers, run

import logline as ll
from logline.connectors import sinks
from logline.errors import BadName, LogError
from logline.pipeline import Pipeline


def events(table: pa.Table) -> list[str]:
    return list(table["event"].to_pylist())


def rows(table: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.select(columns).to_pylist()]


def test_backward_to_a_source(url: str) -> None:
    """Section 7.3: a_3 completes the hour of b_2 and gives it no record, so it is not in its lineage."""
    log = run(hourly_sales(A1, A2, A3), url).log
    assert rows(log.backward("hourly:1"), "event", "depth", "of", "by", "ends") == [
        ("hourly:1", 0, None, None, None),
        ("sold:1", 1, "hourly:1", "hourly", None),
        ("sold:2", 1, "hourly:1", "hourly", None),
        ("orders:1", 2, "sold:1", "sold", "source"),
        ("orders:2", 2, "sold:2", "sold", "source"),
    ]
    assert events(log.backward("hourly:2", to="orders")) == ["orders:2"]
    assert events(log.backward("hourly:3", to="orders")) == ["orders:3"]


def test_forward_from_a_source(url: str) -> None:
    log = run(hourly_sales(A1, A2, A3), url).log
    assert rows(log.forward("orders:2"), "event", "depth", "of", "ends") == [
        ("orders:2", 0, None, None),
        ("sold:2", 1, "orders:2", None),
        ("hourly:1", 2, "sold:2", "sink"),
        ("hourly:2", 2, "sold:2", "sink"),
    ]
    assert events(log.forward("orders:1..3", to="hourly")) == ["hourly:1", "hourly:1", "hourly:2", "hourly:3"]


def test_the_table_tells_what_an_event_holds_and_which_set_it_was_in(url: str) -> None:
    log = run(hourly_sales(A1, A2, A3), url).log
    found = log.backward("hourly:1").to_pylist()
    assert found[1]["rows"] == 3
    assert found[1]["kept"] and found[1]["nbytes"] > 0
    assert found[1]["inset"] == "2025-02-23T10:00:00+00:00#1"
    assert found[3]["inset"] == "orders:1"
    insets = {row["inset_id"] for row in log.table("event_log").to_pylist()}
    assert {row["inset"] for row in found[1:]} <= insets


def test_several_events_at_once(url: str) -> None:
    log = run(hourly_sales(A1, A2, A3), url).log
    one_by_one = {name for ssn in (1, 2, 3) for name in events(log.backward(f"hourly:{ssn}"))}
    for asked in ("hourly:1..3", ["hourly:1", "hourly:2..3"], "hourly"):
        found = events(log.backward(asked))
        assert set(found) == one_by_one
        assert found[:3] == ["hourly:1", "hourly:2", "hourly:3"]


def test_an_event_with_nothing_after_it(url: str) -> None:
    quiet = pa.RecordBatch.from_pylist([{**A1.to_pylist()[0], "amount": 0}], schema=A1.schema)
    log = run(hourly_sales(A1, quiet, A3), url).log
    assert rows(log.forward("orders:2"), "event", "ends") == [("orders:2", "nothing")]


# ---- scopes ---------------------------------------------------------------------------------------------------


def test_example_5_lineage_between_two_ports_takes_the_two_paths(url: str) -> None:
    log = run(figure_2("R2", "OP3"), url).log
    by_path = {row[2] for row in rows(log.forward("R2:1"), "event", "depth", "operator") if row[1]}
    assert by_path == {"OP1", "OP2", "OP3"}
    of_r2 = {name for ssn in (1, 2) for name in events(log.forward(f"R2:{ssn}", to="OP3"))}
    assert len(of_r2) == 4  # each event of R2 by phi_1 and by phi_2
    for name in of_r2:
        assert len(events(log.backward(name, to="R2"))) == 1


def test_example_5_what_is_made_of_another_port_alone_has_no_lineage(url: str) -> None:
    """c_1 is made of events received on OP2.in1, c_2 of events received on in2."""
    log = run(figure_2("R2", "OP3"), url).log
    found = {row["n"]: row["_event"] for row in log.sql("select n, _event from OP2").to_pylist()}
    assert rows(log.backward(found[1]), "event", "ends") == [(found[1], "scope")]
    assert "R2:1" in events(log.backward(found[10]))
    assert log.backward("OP3", to="R1").num_rows == 0
    captured = {row[0] for row in rows(log.table("event_lineage"), "event_id")}
    assert found[1] not in captured
    assert found[10] in captured


def test_without_a_scope_nothing_is_captured(url: str) -> None:
    log = run(hourly_sales(A1, A2, A3, scope=False), url).log
    assert log.table("lineage_edges").num_rows == 0
    with pytest.raises(LogError, match="has put out 1"):
        log.backward("hourly:9")


def test_a_set_of_several_ports(url: str) -> None:
    """What an operator says it was given is what its lineage says."""
    p = Pipeline("pairs")
    left = p.source("left", Each(*(numbers(n) for n in range(5))))
    right = p.source("right", Each(*(numbers(n) for n in range(5))))
    p.operator("pair", Pair(), {"in1": left, "in2": right}).sink("store", sinks.collect())
    p.lineage()
    log = run(p, url).log
    for ssn in range(1, 6):
        said = log.read(f"pair:{ssn}")["names"][0].as_py().split(",")
        assert sorted(events(log.backward(f"pair:{ssn}"))[1:]) == sorted(said)
        for name in said:
            assert f"pair:{ssn}" in events(log.forward(name))


# ---- depth and size -------------------------------------------------------------------------------------------


def test_a_chain_of_fifty_operators(url: str) -> None:
    p = Pipeline("deep")
    stream = p.source("n0", Each(numbers(1), numbers(2)))
    for depth in range(1, 51):
        stream = stream.map_batches(f"n{depth}", lambda batch: batch)
    stream.sink("store", sinks.collect())
    p.lineage("n0", "n50")
    log = run(p, url).log
    found = log.backward("n50:2")
    assert found.num_rows == 51
    assert rows(found, "event", "depth")[-1] == ("n0:2", 50)
    assert events(log.forward("n0:1", to="n50")) == ["n50:1"]


# ---- side effects ---------------------------------------------------------------------------------------------


def rate(n: int) -> int:
    return n * 100


async def priced(row: dict[str, Any], ctx: ll.Context[None]) -> dict[str, Any]:
    return {"n": row["n"], "price": rate(row["n"])}


def test_calls_are_part_of_the_lineage_and_their_answers_are_kept(url: str) -> None:
    p = Pipeline("paid")
    source = p.source("source", Each(numbers(1, 2), numbers(3)))
    source.map_rows("priced", priced, schema="n long, price long").sink("store", sinks.collect())
    p.lineage()
    log = run(p, url).log
    calls = [row for row in log.backward("priced:1").to_pylist() if row["kind"] == "call"]
    assert [row["of"] for row in calls] == ["priced:1", "priced:1"]
    answers = log.calls("priced:1..2")
    assert rows(answers, "event", "row") == [("priced:1", 0), ("priced:1", 1), ("priced:2", 0)]
    assert all("priced" in function for function in answers["function"].to_pylist())
    assert answers["answer"].to_pylist() == [
        "{'n': 1, 'price': 100}",
        "{'n': 2, 'price': 200}",
        "{'n': 3, 'price': 300}",
    ]


# ---- names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "kind", "says"),
    [
        ("nobody:1", BadName, "there is no operator 'nobody'; there are orders, sold, hourly, store"),
        ("hourly.early:1", BadName, "operator 'hourly' has no output port 'early'; it has out, late, errors"),
        ("hourly:4", LogError, "'hourly:4' is not in the log: hourly.out has put out 1..3"),
        ("hourly:0", BadName, "SSNs begin at 1"),
        ("hourly 1", BadName, "does not name an event"),
    ],
)
def test_what_is_not_there_is_said(asked: str, kind: type[Exception], says: str) -> None:
    log = run(hourly_sales(A1, A2, A3), f"memory:{asked}").log
    with pytest.raises(kind, match=re.escape(says)):
        log.backward(asked)
    with pytest.raises(BadName, match="there is no operator 'nowhere'"):
        log.backward("hourly:1", to="nowhere")


def test_forward_where_the_end_was_taken_back(url: str) -> None:
    """Marks lie between the events that are searched (R11')."""

    def numbered(count: int) -> Pipeline:
        p = Pipeline("reopened")
        same = p.source("rows", Each(*(numbers(n) for n in range(count)))).map_batches("same", lambda batch: batch)
        same.sink("store", sinks.collect())
        p.lineage()
        return p

    for count in range(1, 6):
        numbered(count).run(url, engine="inline", until="now", close=True)
    log = numbered(6).run(url, engine="inline", until="now", close=True).log
    for n in range(6):
        (event,) = log.find("rows", f"n = {n}")
        assert log.forward(event, to="same")["event"].to_pylist() == log.find("same", f"n = {n}")
