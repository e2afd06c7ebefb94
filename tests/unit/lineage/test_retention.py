"""What a scope keeps of a real run, and what a query says beyond it (R12)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.lineage.pipelines import A1, A2, A3, hourly_sales, numbers, run
from tests.waiting import until

from logline.connectors import sinks
from logline.errors import LogError
from logline.graph.connector import Source
from logline.names import OUT, InstanceName, Serial
from logline.operators import events as blocks_of
from logline.pipeline import Pipeline
from logline.runtime.log.cleaning import clean
from logline.runtime.log.log import Log, open_log

ROWS = 200
"""Records of an event."""


class Steady(Source):
    """So many events, one after the other."""

    schema = numbers(1).schema
    gather = False

    def __init__(self, count: int, pause_at: int = 0, go: str = "", pace: Callable[[], int] | None = None) -> None:
        self.count, self.pause_at, self.go, self.pace = count, pause_at, go, pace

    def partitions(self) -> Sequence[str]:
        return ["all"]

    def read(self, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, int] | None]:
        for n in range(offset or 0, self.count):
            while self.go and n == self.pause_at and not Path(self.go).exists():
                yield None
            while self.pace is not None and n % 100 == 0 and n > self.pace() + 400:
                time.sleep(0.01)  # who is far ahead has much in one segment
            yield numbers(*([n] * ROWS)), n + 1


def events_in_blocks(url: str) -> int:
    """How many of them the last operator has dealt with."""
    return 4 * open_log(url).store.read(InstanceName("blocks")).head(OUT).last


def steady(source: Source, keep: Any) -> Pipeline:
    p = Pipeline("steady")
    orders = p.source("orders", source)
    blocks = orders.map_batches("same", lambda batch: batch).window("blocks", blocks_of(4), agg={"n": ("n", "sum")})
    blocks.sink("store", sinks.collect())
    p.lineage(orders, blocks, keep=keep)
    return p


def stored(log: Log, name: str) -> list[int]:
    return [int(ssn) for ssn in log.store.read(InstanceName(name)).stored(OUT)]


@pytest.mark.parametrize("kind", ["memory", "lmdb"])
def test_a_long_run_stays_within_the_scopes_size(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """6,000 events. A port holds 1.6 MB, some 900 of them, and what was committed with the first of those."""
    url = f"memory:{request.node.name}" if kind == "memory" else f"lmdb:{tmp_path}/log"
    log = run(steady(Steady(6000, pace=lambda: events_in_blocks(url)), "1.6MB"), url).log
    clean(log.store)
    for name in ("orders", "same"):
        there = stored(log, name)
        assert 800 <= len(there) < 4000
        assert there[-1] == 6001  # the end of the stream
    last = log.backward("blocks:1500", to="orders")
    assert last["kept"].to_pylist() == [True] * 4
    beyond = log.backward("blocks:1")  # small events: the target holds all of them
    assert beyond["kept"].to_pylist()[0]
    assert set(beyond["ends"].to_pylist()) & {"expired", "scope"}
    with pytest.raises(LogError, match=r"beyond the retention|is collected"):
        steady(Steady(6000), "1.6MB").rerun(url, "blocks:1")


BIG = 100_000
"""Bytes of an event."""


class Fast(Source):
    """Large events, as fast as they can be read."""

    schema = pa.schema({"text": pa.string()})
    gather = False

    def __init__(self, count: int) -> None:
        self.count = count

    def partitions(self) -> Sequence[str]:
        return ["all"]

    def read(self, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, int] | None]:
        for n in range(offset or 0, self.count):
            yield pa.record_batch([pa.array(["x" * BIG])], schema=self.schema), n + 1


def held(url: str, name: str) -> int:
    """Bytes of a port's events that the log has."""
    reader = open_log(url).store.read(InstanceName(name))
    head = reader.head(OUT)
    first = reader.headers(OUT, [head.base])[0]
    return 0 if first is None else head.total - first.total + first.nbytes


@pytest.mark.parametrize("engine", ["inline", "processes"])
def test_a_fast_pipeline_holds_little_more_than_the_scopes_size(engine: Any, tmp_path: Path) -> None:
    """At every write its sink looks what the log holds: 1 MB for the scope, as
    much again, and some 40 MB on their way (docs/lineage.md). 70 MB pass."""
    url, seen = f"lmdb:{tmp_path}/log", tmp_path / "seen"

    def look(batch: pa.RecordBatch, number: int, write_id: str) -> None:
        if number % 10 == 0:
            with seen.open("a") as file:
                file.write(f"{held(url, 'orders')} {held(url, 'same')}\n")

    p = Pipeline("fast")
    orders = p.source("orders", Fast(700))
    same = orders.map_batches("same", lambda batch: batch)
    same.sink("store", sinks.call(look, guarantee="at_least_once"), accept="at_least_once")
    p.lineage(orders, same, keep="1MB")
    p.run(url, engine=engine, durability="process")
    most = [max(int(line.split()[port]) for line in seen.read_text().splitlines()) for port in (0, 1)]
    assert max(most) < 42_000_000
    assert held(url, "same") >= 1 << 20


def test_when_its_time_is_over_everything_goes(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path}/log"
    log = run(hourly_sales(A1, A2, A3, keep="1h"), url).log
    clean(log.store)
    assert stored(log, "orders") == [1, 2, 3, 4]  # with the end of the stream
    log = run(hourly_sales(A1, A2, A3, keep="1us"), f"{url}2").log

    def all_gone() -> bool:
        clean(log.store)
        return [stored(log, name) for name in ("orders", "sold", "hourly")] == [[], [], []]

    until(all_gone)
    assert all(log.store.read(InstanceName("hourly")).inset(Serial(n)) is None for n in (1, 2, 3))
    found = log.backward("hourly:1").to_pylist()
    assert [(row["event"], row["kept"], row["ends"]) for row in found] == [("hourly:1", False, "expired")]


def test_queries_while_the_pipeline_runs(url: str, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with steady(Steady(20, pause_at=10, go=str(go)), "7d").start(url, engine="inline") as running:
        until(lambda: running.log.store.read(InstanceName("blocks")).head(OUT).last == 2)
        assert running.log.backward("blocks:2", to="orders")["event"].to_pylist() == [
            f"orders:{n}" for n in range(5, 9)
        ]
        waiting = running.log.forward("orders:9").to_pylist()
        assert waiting[-1]["ends"] == "open"
        assert running.log.find("orders", "n = 3") == ["orders:4"]
        go.touch()
        running.wait()
    assert running.log.forward("orders:9", to="blocks")["event"].to_pylist() == ["blocks:3"]


def test_a_scope_may_be_added_between_runs(url: str, tmp_path: Path) -> None:
    def again(scope: bool, upto: int) -> Log:
        p = Pipeline("steady")
        orders = p.source("orders", Steady(12, pause_at=upto, go=str(tmp_path / "never")))
        same = orders.map_batches("same", lambda batch: batch)
        same.sink("store", sinks.collect())
        if scope:
            p.lineage()
        with p.start(url, engine="inline") as running:
            store = running.log.store.read(InstanceName("store"))
            until(lambda: store.image().written.get("out", 0) == upto)  # type: ignore[call-overload]
            if upto == 12:
                running.wait()
            return running.log

    again(False, 4)
    again(True, 8)
    log = again(True, 12)
    assert log.backward("same:6", to="orders")["event"].to_pylist() == ["orders:6"]
    assert log.forward("orders:12", to="same")["event"].to_pylist() == ["same:12"]
