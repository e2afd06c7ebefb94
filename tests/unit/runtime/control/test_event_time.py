"""Event time across operators, in real runs (R30)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.waiting import PATIENCE, until

import logline as ll
from logline.errors import DefinitionError, OptionError, SchemaError
from logline.names import OUT, InstanceName

BEGIN = datetime(2024, 5, 1, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")


def table(*minutes: int | None) -> pa.Table:
    when = [None if m is None else BEGIN + timedelta(minutes=m) for m in minutes]
    return pa.table({"date": pa.array(when, TIME), "n": [1] * len(minutes)})


class Paced(ll.Source):
    """Rows of each partition, minute by minute; it waits at some of them until a file is there."""

    schema = "date timestamp, n long"
    gather = False

    def __init__(self, rows: dict[str, list[int]], gates: dict[int, Path] | None = None) -> None:
        self.rows, self.gates = rows, gates or {}

    def partitions(self) -> list[str]:
        return list(self.rows)

    def read(self, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, Any] | None]:
        for at in range(offset or 0, len(self.rows[partition])):
            minute = self.rows[partition][at]
            while minute in self.gates and not self.gates[minute].exists():
                yield None
            yield table(minute).to_batches()[0], at + 1


def windows_of_windows(source: ll.Source, **timing: Any) -> ll.Pipeline:
    p = ll.Pipeline("sales")
    orders = p.source("orders", source, rows=1, **timing)
    kept = orders.filter("kept", pc.field("n") > 0)
    hourly = kept.window("hourly", ll.tumbling("1h", on="date"), agg={"n": ("n", "sum")})
    daily = hourly.window("daily", ll.tumbling("1d", on="window_start"), agg={"n": ("n", "sum")})
    daily.sink("store", ll.sinks.collect())
    hourly["late"].sink("late_rows", ll.sinks.collect())
    daily["late"].sink("late_hours", ll.sinks.collect())
    return p


def test_windows_of_windows_close_by_the_watermark_that_is_passed_on(tmp_path: Path) -> None:
    minutes = [7 * i - i * i * 5 % 23 for i in range(500)]  # out of order by up to 22 minutes
    source = ll.sources.batches([table(*minutes[at : at + 5]) for at in range(0, 500, 5)])
    run = windows_of_windows(source, time="date", lateness="25m").run(f"lmdb:{tmp_path / 'log'}", engine="inline")
    days = [(BEGIN + timedelta(minutes=m)).date() for m in minutes]
    assert sorted(run.result("store")["n"].to_pylist()) == sorted(days.count(day) for day in set(days))
    assert run.result("late_rows").num_rows == run.result("late_hours").num_rows == 0
    last = BEGIN + timedelta(minutes=max(minutes) - 25)
    operators = run.status().operators
    assert operators["orders"].watermark == operators["kept"].watermark == str(last)
    assert operators["store"].watermark == ""
    assert (operators["orders"].out, operators["kept"].taken, operators["kept"].lag) == (500, 500, 0)


def test_a_pipeline_without_time_says_nothing_of_it() -> None:
    run = windows_of_windows(ll.sources.batches([table(0), table(70), table(200)])).run(engine="inline")
    for name in ("orders", "kept", "hourly", "daily"):
        reader = run.log.store.read(InstanceName(name))
        headers = reader.headers(OUT, reader.stored(OUT))
        assert not any(output.headers or output.kind == "watermark" for output in headers if output)
    assert run.status().operators["hourly"].watermark == ""


def test_a_filter_that_drops_everything_moves_time(tmp_path: Path) -> None:
    """A window closes while its sender puts out nothing."""
    gate = tmp_path / "gate"
    p = ll.Pipeline("few")
    orders = p.source("orders", Paced({"0": [0, *range(1, 200), 999]}, {999: gate}), time="date")
    first = orders.filter("first", lambda batch: pc.equal(batch["date"], pa.scalar(BEGIN, TIME)))
    first.window("hourly", ll.tumbling("1h", on="date"), agg={"n": ("n", "sum")}).sink("store", ll.sinks.collect())
    run = p.start(engine="inline")
    until(lambda: run.status().operators["store"].written == 1)
    assert run.status().operators["first"].out == 1
    gate.touch()
    run.wait(PATIENCE)
    assert run.result("store").num_rows == 1


def test_an_idle_source_is_not_waited_for(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    p = ll.Pipeline("two")
    web = p.source("web", Paced({"0": [5, 130, 999]}, {999: gate}), time="date")
    shops = p.source("shops", Paced({"0": [6, 1000]}, {1000: gate}), time="date", idle="200ms")
    both = web.union("both", shops)
    both.window("hourly", ll.tumbling("1h", on="date"), agg={"n": ("n", "sum")}).sink("store", ll.sinks.collect())
    run = p.start(engine="inline")
    until(lambda: run.status().operators["store"].written == 1)
    gate.touch()
    run.wait(PATIENCE)
    assert run.result("store")["n"].to_pylist() == [2, 1, 2]


def test_the_slowest_partition_decides_and_rows_without_a_time_do_not(tmp_path: Path) -> None:
    p = ll.Pipeline("parts")
    seen: list[Any] = []

    class Look(ll.Operator[Any, None]):
        outputs = {"out": "n long"}  # noqa: RUF012

        def generate(self, inset: Any, acc: Any, ctx: ll.Context[None]) -> Iterator[Any]:
            seen.append(ctx.watermark)
            yield from ()

    batches = ll.sources.batches([table(None), table(30), table(None, 10), table(50)])
    p.source("orders", batches, time="date", lateness="10m", rows=1).apply("look", Look())
    p.run(engine="inline")
    assert len(seen) == 5
    assert all(at is None or at <= BEGIN + timedelta(minutes=40) for at in seen)


@pytest.mark.parametrize("engine", ["inline", "processes"])
def test_an_incremental_run_goes_on_with_the_time_of_the_one_before(tmp_path: Path, engine: Any) -> None:
    def run(minutes: list[int]) -> ll.Run:
        p = windows_of_windows(Paced({"0": minutes}), time="date")
        found = p.start(f"lmdb:{tmp_path / 'log'}", engine=engine, until="now")
        found.wait(PATIENCE)
        return found

    first = run([0, 10, 200])
    assert first.status().operators["hourly"].watermark == str(BEGIN + timedelta(hours=3))
    again = run([0, 10, 200, 30, 210])  # minute 30 is behind what was said
    assert again.result("late_rows").num_rows == 1


def _has_written(run: ll.Run, days: int) -> bool:
    return run.status().operators["store"].written == days


def test_windows_of_windows_survive_kills(tmp_path: Path) -> None:
    minutes = [m for m in range(0, 4 * 1440, 30)]  # noqa: C416
    gates = {minutes[len(minutes) // 3]: tmp_path / "first", minutes[2 * len(minutes) // 3]: tmp_path / "second"}
    p = windows_of_windows(Paced({"0": minutes}, gates), time="date", lateness="10m")
    run = p.start(f"lmdb:{tmp_path / 'log'}", engine="processes")
    for gate, days, victims in (("first", 1, ("hourly", "daily")), ("second", 2, ("orders", "daily"))):
        until(partial(_has_written, run, days))
        for name in victims:
            pid = run.status().operators[name].pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        (tmp_path / gate).touch()
    run.wait(PATIENCE)
    assert run.result("store")["n"].to_pylist() == [48] * 4
    assert run.result("late_rows").num_rows == run.result("late_hours").num_rows == 0
    assert sum(one.restarts for one in run.status().operators.values()) >= 4


@pytest.mark.parametrize(
    ("timing", "wrong", "says"),
    [
        ({"time": "when"}, SchemaError, "source 'orders': there is no time column 'when': it has date, n"),
        ({"time": "n"}, SchemaError, "source 'orders': column 'n' is int64"),
        ({"lateness": "5m"}, OptionError, "source 'orders': option lateness is about event time"),
        ({"time": "date", "idle": "50ms"}, OptionError, "source 'orders': idle=.* is not longer than within"),
        ({"time": "date", "idle": "0s"}, OptionError, "option idle"),
        ({"time": 7}, OptionError, "option time: 7 is no column"),
    ],
)
def test_what_can_not_be_is_refused(timing: dict[str, Any], wrong: type[Exception], says: str) -> None:
    with pytest.raises(wrong, match=says):
        ll.Pipeline("wrong").source("orders", ll.sources.batches([table(0)]), **timing)


def test_a_source_may_declare_its_time_and_options_take_its_place() -> None:
    class Timed(Paced):
        time, lateness, idle = "date", "5m", "30s"

    p = ll.Pipeline("declared")
    p.source("as_it_says", Timed({"0": [0]}))
    p.source("otherwise", Timed({"0": [0]}), lateness="1h")
    said = p.check().event_time
    assert said["as_it_says"] == "column date, 0:05:00 late at most, idle after 0:00:30"
    assert said["otherwise"] == "column date, 1:00:00 late at most, idle after 0:00:30"


def test_passes_that_raises_is_found_when_the_pipeline_is_checked() -> None:
    class Broken(ll.Operator[Any, None]):
        outputs = {"out": "n long"}  # noqa: RUF012

        def passes(self, watermark: datetime) -> datetime:
            raise ValueError("no idea")

        def generate(self, inset: Any, acc: Any, ctx: ll.Context[None]) -> Iterator[Any]:
            yield acc

    p = ll.Pipeline("broken")
    p.source("orders", ll.sources.batches([table(0)]), time="date").apply("odd", Broken())
    with pytest.raises(DefinitionError, match="operator 'odd': passes"):
        p.check()


def test_watermarks_are_no_events_for_those_who_look(tmp_path: Path) -> None:
    p = ll.Pipeline("few")
    orders = p.source("orders", Paced({"0": [0, 1, 90, 2000]}), time="date")
    first = orders.filter("first", lambda batch: pc.equal(batch["date"], pa.scalar(BEGIN, TIME)))
    first.sink("store", ll.sinks.collect())
    p.lineage(orders, first, keep="1d")
    run = p.run(f"lmdb:{tmp_path / 'log'}", engine="inline")
    assert run.log.find("first", "n = 1") == ["first:1"]
    assert run.log.backward("first:1", to="orders").num_rows == 1
    assert run.log.read("first:1").num_rows == 1
