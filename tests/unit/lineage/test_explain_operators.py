"""Why a row is not there, at ready-made operators that place rows in ways of their own."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from tests.unit.lineage.verdict_rows import detail, verdicts

import logline as ll


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return f"memory:{request.node.name}"


def times(*minutes: int) -> pa.Table:
    at = pa.array([minute * 60 for minute in minutes], pa.timestamp("s", "UTC"))
    return pa.table({"at": at, "minute": pa.array(minutes, pa.int64())})


def test_windows_that_overlap(url: str) -> None:
    p = ll.Pipeline("overlap")
    source = p.source("rows", ll.sources.batches([times(12), times(22), times(13, 17)]))
    source.window("w", ll.sliding("10m", "5m", on="at"), agg={"n": ("minute", "count")}).sink("s", ll.sinks.collect())
    p.lineage()
    log = p.run(url, engine="inline", until="now").log
    assert verdicts(log.explain("w", "minute = 12"), "what", "event") == [("arrived", "w:1"), ("arrived", "w:2")]
    assert verdicts(log.explain("w", "minute = 13"), "what", "event") == [("late", "w.late:1")]
    assert verdicts(log.explain("w", "minute = 17"), "what", "level") == [("open", "row")]
    log = p.run(url, engine="inline").log
    assert verdicts(log.explain("w", "minute = 17"), "what", "event") == [("arrived", "w:3")]
    records = log.backward("w:3", records=True, to="rows")
    assert sorted(records["row"].to_pylist()) == [0, 1]


def test_days_of_a_zone(url: str) -> None:
    at = [datetime(2026, 3, 28, 22, 30, tzinfo=UTC), datetime(2026, 3, 28, 23, 30, tzinfo=UTC)]
    rows = pa.table({"at": pa.array(at, pa.timestamp("us", "UTC")), "n": [1, 2]})
    p = ll.Pipeline("days")
    source = p.source("rows", ll.sources.batches([rows]))
    source.window("w", ll.tumbling("1d", on="at", zone="Europe/Paris"), agg={"n": ("n", "sum")}).sink(
        "s", ll.sinks.collect()
    )
    p.lineage()
    log = p.run(url, engine="inline", until="now").log
    assert verdicts(log.explain("w", "n = 1"), "what", "event") == [("arrived", "w:1")]
    assert "2026-03-29T22:00:00+00:00" in detail(log.explain("w", "n = 2"))


def test_rows_that_are_split_checked_and_shaped(url: str) -> None:
    p = ll.Pipeline("shapes")
    rows = p.source(
        "rows", ll.sources.batches([pa.table({"id": [1, 2, 3, 4], "tags": [["a", "b"], ["c"], [], ["d"]]})])
    )
    ports = rows.split("by", odd="id % 2 = 1")
    checked = ports["rest"].check_rows("checked", small="id < 4")
    single = checked.explode("single", "tags")
    made = single.with_columns("twice", twice="id * 2").select("s", "id, twice as double where id > 0")
    made.sink("store", ll.sinks.collect())
    p.lineage()
    log = p.run(url, engine="inline").log
    found = log.explain("s", "true")
    assert set(found["level"].to_pylist()) == {"row"}
    assert verdicts(found, "what", "operator") == [
        ("elsewhere", "by"),
        ("arrived", "s"),
        ("elsewhere", "by"),
        ("diverted", "checked"),
    ]
    assert log.backward("s:1", records=True, to="rows")["row"].to_pylist() == [1]


def test_rows_that_break_a_rule_and_are_dropped(url: str) -> None:
    p = ll.Pipeline("drops")
    rows = p.source("rows", ll.sources.batches([pa.table({"id": [1, 2]})]))
    rows.check_rows("checked", on_fail="drop", odd="id % 2 = 1").sink("store", ll.sinks.collect())
    p.lineage()
    found = p.run(url, engine="inline").log.explain("checked", "id = 2")
    assert verdicts(found, "what", "operator") == [("filtered", "checked")]
    assert "breaks a rule" in detail(found)
