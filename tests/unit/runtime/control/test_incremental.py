"""Incremental runs: read what is there, leave the stream open, go on with what has come since (R11')."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.postgres import Database
from tests.waiting import PATIENCE, until

import logline as ll
from logline.errors import OptionError

ENGINES = ["inline", "processes"]


def days(folder: Path) -> ll.Pipeline:
    """Files of a folder: one row an hour, as they are and as totals of the hour."""
    p = ll.Pipeline("days")
    rows = p.source("rows", ll.sources.parquet(folder / "in", schema="n long, at timestamp"))
    rows.rebatch("larger", rows=1000, within="1h").sink("store", ll.sinks.collect())
    hours = rows.window("hourly", ll.tumbling("1h", on="at"), agg={"n": ("n", "sum")})
    hours.sink("totals", ll.sinks.collect())
    hours["late"].sink("late", ll.sinks.collect())
    return p


def put(folder: Path, day: int, *hours: int) -> None:
    (folder / "in").mkdir(exist_ok=True)
    at = [datetime(2026, 1, day, hour, 30, tzinfo=UTC) for hour in hours]
    table = pa.table({"n": [100 * day + hour for hour in hours], "at": pa.array(at, pa.timestamp("us", "UTC"))})
    pq.write_table(table, folder / "in" / f"{day:02}-{hours[0]:02}.parquet")


def run(folder: Path, engine: Any = "inline", **settings: Any) -> ll.Run:
    found = days(folder).start(f"lmdb:{folder / 'log'}", engine=engine, **settings)
    found.wait(PATIENCE)
    return found


def values(run: ll.Run, sink: str) -> list[int]:
    table = run.result(sink)
    return sorted(table["n"].to_pylist()) if table.num_rows else []


def test_what_is_gathered_for_a_span_goes_out_at_the_end_of_a_run(tmp_path: Path) -> None:
    """One gathering after the other; a set that waits for a time stays."""

    class Until(ll.Operator[list[int], None]):
        outputs: ClassVar[dict[str, str]] = {"out": "n long"}

        def assign(self, event: ll.Event, ctx: ll.Context[None]) -> list[str]:
            ctx.fire("all", at=datetime(2999, 1, 1, tzinfo=UTC), clock="wall")
            return ["all"]

        def update(self, inset: Any, acc: list[int] | None, event: ll.Event) -> list[int]:
            return [*(acc or []), *event.batch["n"].to_pylist()]

        def generate(self, inset: Any, acc: list[int], ctx: ll.Context[None]) -> Iterator[Any]:
            yield pa.record_batch({"n": acc})

    def pipeline() -> ll.Pipeline:
        p = ll.Pipeline("gathering")
        rows = p.source("rows", ll.sources.parquet(tmp_path / "in", schema="n long, at timestamp"))
        rows.rebatch("four", rows=4, within="1h").rebatch("three", rows=3, within="1h").sink(
            "store", ll.sinks.collect()
        )
        rows.window("blocks", ll.events(9, within="1h"), agg={"n": ("n", "sum")}).sink("sums", ll.sinks.collect())
        rows.apply("until", Until()).sink("open", ll.sinks.collect())
        return p

    put(tmp_path, 1, *range(5))
    first = pipeline().run(f"lmdb:{tmp_path}/log", engine="inline", until="now")
    assert values(first, "store") == [100, 101, 102, 103, 104]
    assert values(first, "sums") == [510]
    put(tmp_path, 2, *range(5))
    second = pipeline().run(f"lmdb:{tmp_path}/log", engine="inline", until="now")
    assert values(second, "store") == [100, 101, 102, 103, 104, 200, 201, 202, 203, 204]
    assert values(second, "sums") == [510, 1010]
    assert values(second, "open") == []
    assert second.status().operators["until"].open_sets == 1


@pytest.mark.parametrize("engine", ENGINES)
def test_each_run_takes_what_has_come_since_the_last(tmp_path: Path, engine: str) -> None:
    put(tmp_path, 1, 1, 2, 3)
    first = run(tmp_path, engine, until="now")
    assert first.status().phase == "caught up"
    assert values(first, "store") == [101, 102, 103]  # also what was gathered for a moment
    assert values(first, "totals") == [101, 102]  # the last hour may have more rows
    again = run(tmp_path, engine, until="now")
    assert (again.status().phase, values(again, "store")) == ("caught up", [101, 102, 103])
    put(tmp_path, 2, 1)
    second = run(tmp_path, engine, until="now")
    assert values(second, "store") == [101, 102, 103, 201]
    assert values(second, "totals") == [101, 102, 103]
    last = run(tmp_path, engine)
    assert last.status().phase == "finished"
    assert values(last, "totals") == [101, 102, 103, 201]
    assert values(last, "late") == []


@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_that_closes_gives_out_all_windows_and_the_next_one_goes_on(tmp_path: Path, engine: str) -> None:
    put(tmp_path, 1, 1, 2)
    closed = run(tmp_path, engine, until="now", close=True)
    assert (closed.status().phase, values(closed, "totals")) == ("finished", [101, 102])
    put(tmp_path, 1, 2, 3)  # a row for an hour that is out, and one for the next
    last = run(tmp_path, engine, until="now", close=True)
    assert values(last, "totals") == [101, 102, 103]
    assert values(last, "late") == [102]
    assert values(last, "store") == [101, 102, 102, 103]
    assert last.status().operators["rows"].out == 2
    assert last.status().operators["hourly"].taken == 2  # marks are no events


def test_a_run_to_the_end_says_what_has_come_after_it_and_how_to_read_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, 1, 1)
    run(tmp_path)
    put(tmp_path, 2, 1)
    with caplog.at_level("WARNING"):
        assert values(run(tmp_path), "store") == [101]
    (said,) = [message for message in caplog.messages if "02-01.parquet" in message]
    assert 'until="now"' in said
    assert values(run(tmp_path, until="now"), "store") == [101, 201]


def test_close_without_until_now_is_refused(tmp_path: Path) -> None:
    put(tmp_path, 1, 1)
    with pytest.raises(OptionError, match='close=True is for until="now"'):
        run(tmp_path, close=True)


def test_a_killed_run_is_caught_up_by_the_next(tmp_path: Path) -> None:
    for day in range(1, 6):
        put(tmp_path, day, *range(24))
    going = days(tmp_path).start(f"lmdb:{tmp_path / 'log'}", engine="processes", until="now")
    until(lambda: going.pid("hourly") is not None)
    pid = going.pid("hourly")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert going.wait(PATIENCE).phase == "caught up"
    assert len(values(going, "store")) == 120
    assert len(values(going, "totals")) == 119


class Table(ll.Source):
    """Rows of a table that grows: `read` returns when there are no more for now."""

    schema = pa.schema({"n": pa.int64()})

    def __init__(self, path: Path, *, pauses: bool) -> None:
        self.path = path
        self.pauses = pauses

    def read(self, partition: str, offset: Any) -> Iterator[Any]:
        numbers = [int(line) for line in self.path.read_text().split()]
        for at in range(offset or 0, len(numbers)):
            yield pa.record_batch({"n": [numbers[at]]}), at + 1
        while self.pauses:
            yield None


@pytest.mark.parametrize("pauses", [True, False])
@pytest.mark.parametrize("close", [True, False])
def test_a_source_that_grows_is_read_on(tmp_path: Path, pauses: bool, close: bool) -> None:
    path = tmp_path / "table"
    found: list[int] = []
    for rows in ("1 2", "1 2", "1 2 3 4"):
        path.write_text(rows)
        p = ll.Pipeline("table")
        p.source("rows", Table(path, pauses=pauses)).sink("store", ll.sinks.collect())
        run = p.start(f"lmdb:{tmp_path / 'log'}", engine="inline", until="now", close=close)
        assert run.wait(PATIENCE).phase == ("finished" if close else "caught up")
        found = run.result("store")["n"].to_pylist()
        assert found == [int(row) for row in rows.split()]


# ---- errors that are retried when all has finished -----------------------------------------------------------------


def fussy(folder: Path) -> ll.Pipeline:
    """Odd numbers fail until there is a file `fixed`."""

    def check(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch["n"][0].as_py() % 2 and not (folder / "fixed").exists():
            raise ValueError("odd")
        return batch

    p = ll.Pipeline("fussy")
    rows = p.source("rows", ll.sources.batches([pa.table({"n": [n]}) for n in range(6)]))
    checked = rows.map_batches("check", check, schema="n long", on_error="divert")
    checked.map_batches("after", lambda batch: batch, schema="n long").sink("store", ll.sinks.collect())
    p.lineage()
    return p


@pytest.mark.parametrize("engine", ENGINES)
def test_an_error_is_retried_after_the_end_and_all_finishes_again(tmp_path: Path, engine: Any) -> None:
    log = f"lmdb:{tmp_path / 'log'}"
    run = fussy(tmp_path).start(log, engine=engine)
    assert run.wait(PATIENCE).operators["check"].errors == 3
    (tmp_path / "fixed").touch()
    assert run.retry("check.errors:1")
    assert not run.retry("check.errors:1")
    again = fussy(tmp_path).start(log, engine=engine)
    assert again.wait(PATIENCE).phase == "finished"
    assert again.result("store")["n"].to_pylist() == [0, 2, 4, 1]
    assert again.status().operators["check"].errors == 2
    (event,) = again.log.find("after", "n = 1")
    assert "rows:2" in again.log.backward(event)["event"].to_pylist()
    for error in again.log.errors()["event"].to_pylist():
        assert again.retry(error)
    last = fussy(tmp_path).start(log, engine=engine)
    assert last.wait(PATIENCE).operators["check"].errors == 0
    assert sorted(last.result("store")["n"].to_pylist()) == list(range(6))


@pytest.mark.parametrize("engine", ENGINES)
def test_an_error_of_one_that_has_ended_is_retried_while_others_still_run(tmp_path: Path, engine: Any) -> None:
    """Its end is taken back in the running pipeline, and those downstream of it go on."""
    p = fussy(tmp_path)
    gate = tmp_path / "gate"
    gate.write_text("")
    p.source("other", Waits(gate)).sink("others", ll.sinks.collect())
    run = p.start(f"lmdb:{tmp_path / 'log'}", engine=engine)
    until(lambda: run.log.store.read("after").image().left)  # type: ignore[arg-type]
    (tmp_path / "fixed").touch()
    for error in run.log.errors()["event"].to_pylist():
        assert run.retry(error)
    until(lambda: run.result("store").num_rows == 6)
    gate.unlink()
    assert run.wait(PATIENCE).phase == "finished"
    assert sorted(run.result("store")["n"].to_pylist()) == list(range(6))
    assert run.status().operators["check"].errors == 0


class Waits(ll.Source):
    """Ends when a file is gone."""

    schema = pa.schema({"n": pa.int64()})

    def __init__(self, gate: Path) -> None:
        self.gate = gate

    def read(self, partition: str, offset: Any) -> Iterator[Any]:
        while self.gate.exists():
            yield None


def test_a_run_until_now_with_a_log_that_is_away_from_the_loop(postgres: Database, tmp_path: Path) -> None:
    """Bells and reads of such a log come later than a life rests: the run asks the log itself."""
    (tmp_path / "in").mkdir()
    for day in range(1, 4):
        for n in range(10):
            pq.write_table(pa.table({"n": [100 * day + n]}), tmp_path / "in" / f"{day}-{n}.parquet")
        p = ll.Pipeline("daily")
        p.source("files", ll.sources.parquet(tmp_path / "in", schema="n long"), rows=1).sink(
            "all", ll.sinks.collect()
        )
        run = p.run(f"{postgres.bare}&log=log_of_{postgres.schema}", engine="inline", until="now")
        assert (run.status().phase, run.result("all").num_rows) == ("caught up", 10 * day)
        run.log.store.close()
