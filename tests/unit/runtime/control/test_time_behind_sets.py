"""Event time behind sessions and joins (R30): windows close in the run that brings the time, and no row is late."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Literal
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logline as ll

BEGIN = datetime(2024, 5, 1, tzinfo=UTC)
ROWS = pa.schema([("key", pa.int64()), ("date", pa.timestamp("us", "UTC"))])
Middle = Callable[[ll.Pipeline, ll.Stream, Sequence[pa.Table]], ll.Stream]
LATENESS = timedelta(minutes=20)


def table(*rows: tuple[int, int]) -> pa.Table:
    columns = [[key for key, _ in rows], [BEGIN + timedelta(minutes=minute) for _, minute in rows]]
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, ROWS, strict=True)], ROWS)


def source(p: ll.Pipeline, name: str, tables: Sequence[pa.Table], **more: Any) -> ll.Stream:
    return p.source(name, ll.sources.batches(lambda: tables, schema=ROWS), time="date", **more)


def tumbling(p: ll.Pipeline, rows: ll.Stream, tables: Sequence[pa.Table]) -> ll.Stream:
    made = rows.window("middle", ll.tumbling("10m", on="date"), by=["key"], agg={"n": ("date", "count")})
    return made.select("named", "key, window_start as date")


def session(p: ll.Pipeline, rows: ll.Stream, tables: Sequence[pa.Table]) -> ll.Stream:
    made = rows.window("middle", ll.session_window("10m", on="date"), by=["key"], agg={"n": ("date", "count")})
    return made.select("named", "key, window_start as date")


def joined(within: Any, column: str, how: Any = "outer", **late: Any) -> Middle:
    def middle(p: ll.Pipeline, rows: ll.Stream, tables: Sequence[pa.Table]) -> ll.Stream:
        other = source(p, "others", tables, rows=1000, **late)
        made = rows.join("middle", other, on=["key"], within=within, how=how, time=("date", "date"))
        return made.select("named", f"key, {column} as date")

    return middle


NEAR = ("-5m", "5m")
TENS = ll.tumbling("10m", on="date")


@pytest.mark.parametrize(
    "middle",
    [tumbling, session, joined(NEAR, "date"), joined(NEAR, "date", "inner"), joined(TENS, "window_start")],
    ids=["tumbling", "session", "outer", "inner", "window join"],
)
@pytest.mark.parametrize("rows", [1, 1000])
def test_windows_behind_close_in_the_run_that_brings_the_time(tmp_path: Any, middle: Middle, rows: int) -> None:
    closed = []
    for minutes in range(180, 721, 180):
        tables = [
            table(*((1, minute) for minute in range(first, first + 180, 30))) for first in range(0, minutes, 180)
        ]
        p = ll.Pipeline("behind")
        made = middle(p, source(p, "rows", tables, rows=rows), tables)
        hourly = made.window("hourly", ll.tumbling("1h", on="date"), agg={"n": ("key", "count")})
        hourly.sink("store", ll.sinks.collect())
        run = p.run(f"lmdb:{tmp_path / 'log'}", engine="inline", until="now")
        closed.append(run.status().operators["hourly"].out)
    assert closed == [2, 5, 8, 11]


def in_windows_behind(log: str, middle: Middle, rows: Any, others: Any, until: Literal["now", "end"]) -> ll.Run:
    p = ll.Pipeline("behind")
    made = middle(p, source(p, "rows", rows, rows=1000, lateness=LATENESS), others)
    behind = made.window("behind", ll.tumbling("5m", on="date"), agg={"n": ("key", "count")})
    behind.sink("store", ll.sinks.collect())
    behind["late"].sink("late", ll.sinks.collect())
    return p.run(log, engine="inline", until=until)


def test_a_session_that_begins_earlier_by_now_holds_time_back_for_that() -> None:
    tables = [table((1, minute)) for minute in (100, 92, 130, 200)]  # the first two are one session
    log = f"memory:{uuid4()}"
    in_windows_behind(log, session, tables[:3], [], "now")
    run = in_windows_behind(log, session, tables, [], "end")
    assert run.result("late").num_rows == 0
    begins = [at - BEGIN for at in run.result("store")["window_start"].to_pylist()]
    assert begins == [timedelta(minutes=minute) for minute in (90, 130, 200)]


minutes = st.lists(st.tuples(st.sampled_from([1, 2]), st.integers(0, 400)), min_size=1, max_size=25)


@st.composite
def in_time(draw: st.DrawFn) -> list[list[tuple[int, int]]]:
    """Rows in some disorder, of which none is later than the lateness allows, as events."""
    rows = sorted(draw(minutes), key=lambda row: row[1])
    moved = [(row[1] + draw(st.integers(0, LATENESS // timedelta(minutes=1))), row) for row in rows]
    rows = [row for _, row in sorted(moved)]
    cuts = sorted(draw(st.sets(st.integers(1, len(rows)), max_size=8)) | {0, len(rows)})
    return [rows[a:b] for a, b in pairwise(cuts)]


@pytest.mark.parametrize(
    "middle",
    [
        session,
        joined(NEAR, "coalesce(date, date_right)", lateness=LATENESS),
        joined(NEAR, "coalesce(date_right, date)", lateness=LATENESS),
        joined(("5m", "15m"), "coalesce(date_right, date)", lateness=LATENESS),
        joined(("-15m", "-5m"), "coalesce(date_right, date)", "right", lateness=LATENESS),
        joined(("5m", "15m"), "coalesce(date, date_right)", "right", lateness=LATENESS),
        joined(NEAR, "date", "anti", lateness=LATENESS),
    ],
    ids=["session", "outer left", "outer right", "after", "right before", "right after", "anti"],
)
@settings(max_examples=6, deadline=None)
@given(events=in_time(), others=in_time(), stops=st.integers(1, 3))
def test_no_row_is_late_behind_rows_that_are_in_time(middle: Middle, events: Any, others: Any, stops: int) -> None:
    log = f"memory:{uuid4()}"
    rows, more = ([table(*some) for some in given] for given in (events, others))
    for stop in range(1, stops):  # each run begins where the last one was stopped
        first, others = (given[: max(1, len(given) * stop // stops)] for given in (rows, more))
        in_windows_behind(log, middle, first, others, "now")
    assert in_windows_behind(log, middle, rows, more, "end").result("late").num_rows == 0
