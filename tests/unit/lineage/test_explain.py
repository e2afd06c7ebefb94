"""Why a row is not there: every verdict, on small pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.unit.lineage.pipelines import A1, A2, A3, HOUR_10, Each, hourly_sales, numbers, run, sales
from tests.unit.lineage.verdict_rows import detail, verdicts

import logline as ll
from logline.lineage.verdicts import EXPLAINED


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """The journals of all stores answer alike (`testing.conformance`): one will do."""
    return f"memory:{request.node.name}"


# ---- arrived, filtered, late ------------------------------------------------------------------------------------


def test_every_row_of_a_window(url: str) -> None:
    """The first event has nothing but rows that arrive, the last one is late in part and filtered in part."""
    late = sales(("BZ234", "Ohio", 5, 3), ("ZZ999", "Ohio", 131, 0), ("ZZ999", "Ohio", 132, 8))
    log = run(hourly_sales(A1, A2, A3, late), url).log
    found = log.explain("hourly", "true")
    assert found.schema == EXPLAINED
    assert verdicts(found, "source", "row", "what", "operator", "event") == [
        ("orders:1", 0, "arrived", "hourly", "hourly:1"),
        ("orders:1", 1, "arrived", "hourly", "hourly:1"),
        ("orders:1", 2, "arrived", "hourly", "hourly:1"),
        ("orders:2", 0, "arrived", "hourly", "hourly:1"),
        ("orders:2", 1, "arrived", "hourly", "hourly:2"),
        ("orders:3", 0, "arrived", "hourly", "hourly:3"),
        ("orders:4", 0, "late", "hourly", None),
        ("orders:4", 1, "filtered", "sold", None),
        ("orders:4", 2, "arrived", "hourly", "hourly:3"),
    ]
    assert set(found["level"].to_pylist()) == {"row"}
    lost = log.explain("hourly", "item_id = 'BZ234' and amount = 3")
    assert "hourly.late" in detail(lost) and "lateness=" in detail(lost)
    assert '"amount": 3' in lost["record"].to_pylist()[0]
    assert "condition of this filter" in detail(log.explain("hourly", "amount = 0"))


def test_from_a_port_on_the_way(url: str) -> None:
    log = run(hourly_sales(A1, A2, A3), url).log
    assert verdicts(log.explain("hourly", "amount = 100", source="sold")) == [("sold:2", 1, "arrived", "hourly")]
    assert verdicts(log.explain("sold", "amount = 100")) == [("orders:2", 1, "arrived", "sold")]


def test_a_late_port_that_is_captured_has_a_name(url: str) -> None:
    p = hourly_sales(A1, A3, sales(("BZ234", "Ohio", 5, 3)), scope=False)
    p.lineage()
    log = run(p, url).log
    assert verdicts(log.explain("hourly", "amount = 3"), "what", "event") == [("late", "hourly.late:1")]
    assert verdicts(log.explain("hourly.late", "amount = 3"), "what", "event") == [("arrived", "hourly.late:1")]
    assert verdicts(log.explain("hourly.late", "amount = 7"), "what", "event") == [("elsewhere", "hourly:1")]


def test_a_row_without_a_time_is_late(url: str) -> None:
    batch = A1.set_column(2, A1.schema.field("date"), pa.array([None, *A1["date"].to_pylist()[1:]], A1["date"].type))
    log = run(hourly_sales(batch), url).log
    found = log.explain("hourly", "amount = 5")
    assert verdicts(found, "what", "operator") == [("late", "hourly")]
    assert "it has no time" in detail(found)


def test_sinks_stand_for_what_they_write(url: str) -> None:
    log = run(hourly_sales(A1, A2, A3, sales(("ZZ999", "Ohio", 131, 0))), url).log
    assert verdicts(log.explain("store", "amount in (0, 100)")) == [
        ("orders:2", 1, "arrived", "store"),
        ("orders:4", 0, "filtered", "sold"),
    ]


@pytest.mark.parametrize("column", [pa.timestamp("s"), pa.timestamp("ns", "Europe/Berlin"), pa.date32()])
def test_windows_of_any_time(column: pa.DataType, url: str) -> None:
    times = pa.array([HOUR_10 + timedelta(days=day) for day in (0, 2, 0)], pa.timestamp("us", "UTC")).cast(column)
    p = ll.Pipeline("times")
    rows = p.source("rows", Each(*(pa.record_batch({"n": [n], "at": times.slice(n, 1)}) for n in range(3))))
    daily = rows.window("daily", ll.tumbling("1d", on="at"), agg={"n": ("n", "sum")})
    daily.sink("store", ll.sinks.collect())
    p.lineage(rows, daily)
    found = run(p, url).log.explain("daily", "true")
    assert verdicts(found, "row", "what", "event") == [(0, "arrived", "daily:1"), (0, "arrived", "daily:2"),
                                                       (0, "late", None)]  # fmt: skip


# ---- the other ready-made operators -------------------------------------------------------------------------------


def test_rebatch_by_its_notes(url: str) -> None:
    """Equal rows: only the notes of the memberships tell which of them is where."""
    p = ll.Pipeline("rebatched")
    rows = p.source("rows", Each(numbers(7, 7, 7), numbers(7, 7)))
    by_two = rows.rebatch("by_two", rows=2, within="1h")
    by_two.sink("store", ll.sinks.collect())
    p.lineage(rows, by_two)
    found = run(p, url).log.explain("by_two", "n = 7")
    assert found["event"].to_pylist() == [f"by_two:{n}" for n in (1, 1, 2, 2, 3)]


def test_blocks_and_unions(url: str) -> None:
    p = ll.Pipeline("united")
    first = p.source("first", Each(numbers(1, 2), numbers(3)))
    second = p.source("second", Each(numbers(10, 20)))
    kept = first.filter("kept", pc.field("n") != 2)
    both = second.union("both", kept)
    blocks = both.window("blocks", ll.events(3), agg={"n": ("n", "sum")})
    blocks.sink("store", ll.sinks.collect())
    p.lineage()
    log = run(p, url).log
    assert sorted(verdicts(log.explain("blocks", "true"))) == [
        ("first:1", 0, "arrived", "blocks"),
        ("first:1", 1, "filtered", "kept"),
        ("first:2", 0, "arrived", "blocks"),
        ("second:1", 0, "arrived", "blocks"),
        ("second:1", 1, "arrived", "blocks"),
    ]
    assert verdicts(log.explain("blocks", "n < 3", source="kept")) == [("kept:1", 0, "arrived", "blocks")]


def test_a_row_that_goes_two_ways(url: str) -> None:
    p = ll.Pipeline("ways")
    rows = p.source("rows", Each(numbers(1, 2, 3)))
    small, large = rows.filter("small", pc.field("n") < 3), rows.filter("large", pc.field("n") > 1)
    small.union("both", large).sink("store", ll.sinks.collect())
    p.lineage()
    found = run(p, url).log.explain("both", "true")
    assert verdicts(found, "row", "what", "operator", "event") == [
        (0, "arrived", "both", "both:1"),
        (0, "filtered", "large", None),
        (1, "arrived", "both", "both:1"),
        (1, "arrived", "both", "both:2"),
        (2, "arrived", "both", "both:2"),
        (2, "filtered", "small", None),
    ]


def score(row: dict[str, Any], ctx: Any) -> dict[str, Any] | None:
    if row["n"] % 4 == 3:
        raise ValueError(f"no score for {row['n']}")
    return {"score": 0} if row["n"] % 2 == 0 else None


@pytest.mark.parametrize("values", [(0, 1, 2, 3), (1, 3), (3,), (1,)])
def test_map_rows_by_its_answers(values: Sequence[int], url: str) -> None:
    """All scores are equal: only the answers tell which row each came of. An event may lead to nothing at all."""
    p = ll.Pipeline("scored")
    rows = p.source("rows", Each(numbers(*values), numbers(0)))
    scored = rows.map_rows("scored", score, schema="score long", on_error="drop")
    scored.sink("store", ll.sinks.collect())
    p.lineage(rows, scored)
    log = run(p, url).log
    words = {0: "arrived", 1: "filtered", 2: "arrived", 3: "dropped"}
    assert verdicts(log.explain("scored", "true"), "what") == [(words[n % 4],) for n in (*values, 0)]
    assert set(log.explain("scored", "true")["level"].to_pylist()) == {"row"}


def fails_on_three(batch: pa.RecordBatch) -> pa.RecordBatch:
    if 3 in batch["n"].to_pylist():
        raise ValueError("three is refused")
    return batch.filter(pc.field("n") != 2)


def test_dropped_with_its_event_and_why(url: str) -> None:
    p = ll.Pipeline("dropping")
    rows = p.source("rows", Each(numbers(1, 2), numbers(3, 4), numbers(5)))
    kept = rows.map_batches("kept", fails_on_three, on_error="drop", depends={"n": "n"})
    kept.sink("store", ll.sinks.collect())
    p.lineage(rows, kept)
    log = run(p, url).log
    assert verdicts(log.explain("kept", "true"), "row", "what") == [
        (0, "arrived"),
        (1, "filtered"),
        (0, "dropped"),
        (1, "dropped"),
        (0, "arrived"),
    ]
    assert "ValueError: three is refused" in detail(log.explain("kept", "n = 3"))


# ---- events -----------------------------------------------------------------------------------------------------


def labelled(batch: pa.RecordBatch) -> pa.Table:
    kept = batch.filter(pc.field("n") > 1)
    return pa.table({"n": kept["n"], "label": ["x"] * kept.num_rows})


def test_without_dependencies_the_event_is_followed(url: str) -> None:
    p = ll.Pipeline("labels")
    rows = p.source("rows", Each(numbers(1, 2, 3), numbers(1)))
    labels = rows.map_batches("labels", labelled, schema="n long, label string")
    renamed = labels.map_batches("renamed", lambda batch: pa.table({"of": batch["n"]}), schema="of long")
    renamed.sink("store", ll.sinks.collect())
    p.lineage()
    log = run(p, url).log
    there = log.explain("labels", "n = 2")
    assert verdicts(there, "what", "event", "level") == [("arrived", "labels:1", "event")]
    lost = log.explain("labels", "n = 1")
    assert verdicts(lost, "source", "what", "operator", "level") == [
        ("rows:1", "filtered", "labels", "event"),
        ("rows:2", "filtered", "labels", "event"),
    ]
    assert "depends= on 'labels'" in lost["detail"].to_pylist()[0]
    far = log.explain("renamed", "n = 3")  # a condition that can't be asked there
    assert verdicts(far, "what", "event", "level") == [("arrived", "renamed:1", "event")]
