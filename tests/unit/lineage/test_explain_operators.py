"""Why a row is not there, at ready-made operators that place rows in ways of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
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


ROWS = pa.table(
    {
        "id": [1, 2, 2, 3],
        "n": [10, 20, 30, 40],
        "at": pa.array([0, 60, 90, 7200], pa.timestamp("s", "UTC")),
    }
)
TABLE = pa.table({"id": [1, 3], "name": ["one", "three"]})


def explained(url: str, build: Callable[[ll.Stream, ll.Stream], ll.Stream], source: str = "rows") -> pa.Table:
    """Why rows are not on the port of what is built of the stream of rows and that of the table."""
    p = ll.Pipeline("explained")
    table = p.source("table", ll.sources.batches([TABLE]))
    build(p.source("rows", ll.sources.batches([ROWS])), table).sink("store", ll.sinks.collect())
    p.lineage()
    return p.run(url, engine="inline").log.explain("made", "true", source=source)


def first_of_each(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if row["n"] != 30:
        yield {"id": row["id"], "n": row["n"]}


class Sum(msgspec.Struct):
    n: int = 0


def odd_keys(batch: pa.RecordBatch, ctx: Any) -> pa.Table | None:
    return batch.select(["id"]) if batch["id"][0].as_py() % 2 else None


IN_VAIN = 'looked up in vain: the table had no row with its keys; how="left" keeps such rows'
FOLLOWED: dict[str, tuple[Callable[[ll.Stream, ll.Stream], ll.Stream], set[int], str]] = {
    "lookup": (lambda rows, _: rows.lookup("made", TABLE, on=["id"], how="inner"), {1, 2}, IN_VAIN),
    "lookup left": (lambda rows, _: rows.lookup("made", TABLE, on=["id"]), set(), ""),
    "join": (
        lambda rows, table: rows.join("made", table, on=["id"], within=ll.whole()),
        {1, 2},
        "joined with nothing: no row of the other side has its keys",
    ),
    "dedup": (lambda rows, _: rows.dedup("made", by=["id"]), {2}, "an earlier row had its key"),
    "top": (
        lambda rows, _: rows.top("made", 1, by=["id"], order="n desc"),
        {1},
        "enough rows of its key that are better",
    ),
    "stateful": (
        lambda rows, _: rows.stateful("made", odd_keys, by=["id"], state=Sum, schema="id long"),
        {1, 2},
        "no row there came of this one",
    ),
    "sessions": (
        lambda rows, _: rows.window("made", ll.session_window("5m", on="at"), by=["id"], agg={"n": ("n", "sum")}),
        set(),
        "",
    ),
    "flat_map_rows": (
        lambda rows, _: rows.flat_map_rows("made", first_of_each, schema="id long, n long", depends={"n": "n"}),
        {2},
        "no row there came of this one",
    ),
}


@pytest.mark.parametrize("kind", FOLLOWED)
def test_each_row_is_followed_and_the_reason_is_said(kind: str, url: str) -> None:
    build, missing, why = FOLLOWED[kind]
    found = explained(url, build)
    assert set(found["level"].to_pylist()) == {"row"}
    assert verdicts(found, "row", "what") == [(n, "filtered" if n in missing else "arrived") for n in range(4)]
    assert all(why in row["detail"] for row in found.to_pylist() if row["row"] in missing)


def test_flat_map_rows_without_dependencies_is_followed_by_event(url: str) -> None:
    found = explained(url, lambda rows, _: rows.flat_map_rows("made", first_of_each, schema="id long, n long"))
    assert set(found["level"].to_pylist()) == {"event"}


def test_a_lookup_in_a_stream_that_had_no_such_row(url: str) -> None:
    """One that never has it: which of the two streams comes first is not certain."""

    def build(rows: ll.Stream, table: ll.Stream) -> ll.Stream:
        return rows.lookup("made", ll.table(table, key=["id"]), on=["id"], how="inner")

    found = [row for row in explained(url, build).to_pylist() if row["row"] in (1, 2)]
    assert [row["what"] for row in found] == ["filtered", "filtered"]
    assert all("no row with its keys was in the table yet" in row["detail"] for row in found)
    of_the_table = explained(f"{url}-table", build, source="table")
    assert all("it is a row of the table" in said for said in of_the_table["detail"].to_pylist())


def test_the_page_has_a_row_for_each_of_them() -> None:
    page = (Path(__file__).parents[3] / "docs/explain.md").read_text(encoding="utf-8")
    table = page.partition("## How exact it is")[2].partition("## ")[0]
    for name in ("join", "lookup", "dedup", "top", "stateful", "flat_map_rows"):
        assert f"`{name}`" in table
    assert "sessions" in table
