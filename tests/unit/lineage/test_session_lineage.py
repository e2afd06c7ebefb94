"""Lineage of sessions that merged, and of windows that were put out several times: exact, by events and by rows."""

from __future__ import annotations

import pytest
from tests.unit.lineage.pipelines import Each, run, sales
from tests.unit.lineage.verdict_rows import verdicts

import logline as ll

EVENTS = (
    sales(("ann", "Ohio", 0, 1), ("bob", "Ohio", 0, 2), ("ann", "Ohio", 18, 4)),  # two sessions of ann
    sales(("ann", "Ohio", 9, 8)),  # make them one, in which the first event is twice
    sales(("bob", "Ohio", 200, 16)),
    sales(("ann", "Ohio", 9, 32), ("ann", "Ohio", 201, 64)),  # one of the two is late
)


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return f"memory:{request.node.name}"


def piped(window: ll.Window, *, by: tuple[str, ...] = ("item_id",)) -> ll.Pipeline:
    p = ll.Pipeline("visits")
    orders = p.source("orders", Each(*EVENTS))
    made = orders.window("visits", window, by=by, agg={"total": ("amount", "sum")})
    made.sink("store", ll.sinks.collect())
    p.lineage(orders, made)
    return p


def inputs(log: ll.Log, event: str) -> list[str]:
    return sorted(log.backward(event, to="orders")["event"].to_pylist())


def test_a_merged_session_was_made_of_the_events_of_both(url: str) -> None:
    ran = run(piped(ll.session_window("10m", on="date", lateness="30m")), url)
    totals = [(row["item_id"], row["total"]) for row in ran.result("store").to_pylist()]
    assert totals == [("bob", 2), ("ann", 13), ("bob", 16), ("ann", 64)]
    assert inputs(ran.log, "visits:2") == ["orders:1", "orders:2"]
    assert inputs(ran.log, "visits:1") == ["orders:1"]
    came = ran.log.forward("orders:1", to="visits")["event"].to_pylist()
    assert sorted(came) == ["visits:1", "visits:2"]


def test_rows_are_told_apart(url: str) -> None:
    log = run(piped(ll.session_window("10m", on="date", lateness="30m")), url).log
    found = log.explain("visits", "true")
    assert verdicts(found, "source", "row", "what", "event") == [
        ("orders:1", 0, "arrived", "visits:2"),
        ("orders:1", 1, "arrived", "visits:1"),
        ("orders:1", 2, "arrived", "visits:2"),
        ("orders:2", 0, "arrived", "visits:2"),
        ("orders:3", 0, "arrived", "visits:3"),
        ("orders:4", 0, "late", None),
        ("orders:4", 1, "arrived", "visits:4"),
    ]
    records = log.backward("visits:2", to="orders", records=True)
    assert sorted(zip(records["event"].to_pylist(), records["row"].to_pylist(), strict=True)) == [
        ("orders:1", 0),
        ("orders:1", 2),
        ("orders:2", 0),
    ]


@pytest.mark.parametrize(
    "window", [ll.session_window("36500d"), ll.tumbling("36500d"), ll.sliding("36500d", "36500d")]
)
def test_rows_of_windows_of_processing_time_are_told_apart(window: ll.Window, url: str) -> None:
    log = run(piped(window), url).log
    users = {"ann": [("orders:1", 0), ("orders:1", 2), ("orders:2", 0), ("orders:4", 0), ("orders:4", 1)]}
    users["bob"] = [("orders:1", 1), ("orders:3", 0)]
    for user, wanted in users.items():
        records = log.backward("visits", to="orders", where=f"item_id = '{user}'", records=True)
        assert sorted(zip(records["event"].to_pylist(), records["row"].to_pylist(), strict=True)) == wanted
    found = log.explain("visits", "true")
    assert [what for _, what in verdicts(found, "row", "what")] == ["arrived"] * 7


def test_each_version_of_a_window_was_made_of_all_events_so_far(url: str) -> None:
    ran = run(piped(ll.tumbling("1h", on="date", updates="5h"), by=()), url)
    rows = ran.result("store").to_pylist()
    assert [(r["window_start"].hour, r["window_version"], r["total"]) for r in rows] == [
        (10, 1, 15),
        (10, 2, 47),
        (13, 1, 80),
    ]
    assert inputs(ran.log, "visits:1") == ["orders:1", "orders:2"]
    assert inputs(ran.log, "visits:2") == ["orders:1", "orders:2", "orders:4"]
