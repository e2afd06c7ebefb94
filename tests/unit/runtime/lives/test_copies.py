"""Two lives of one instance in a process share nothing of the user's: not the sink, not the source."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import threading
import types
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.waiting import PATIENCE, until

import logline as ll
from logline.runtime.lives.copies import copied


class Scene:
    """What the objects of a test say of themselves; theirs by name, since copies are made."""

    def __init__(self) -> None:
        self.opened: list[int] = []
        self.written: list[int] = []
        self.read: list[int] = []
        self.writing, self.go_on = threading.Event(), threading.Event()


_scenes: dict[str, Scene] = {}


class Slow(ll.Sink):
    """Its first write waits, and may not be disturbed by another life."""

    guarantee = "named"

    def __init__(self, key: str) -> None:
        self.key = key
        self.lives = 0

    def open(self, scope: str) -> None:
        self.lives += 1
        _scenes[self.key].opened.append(self.lives)

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        scene = _scenes[self.key]
        if not scene.writing.is_set():
            scene.writing.set()
            assert scene.go_on.wait(PATIENCE)
        scene.written.append(number)


class Counted(ll.Source):
    schema = pa.schema({"n": pa.int64()})
    gather = False

    def __init__(self, key: str) -> None:
        self.key = key
        self.reads = 0

    def read(self, partition: str, offset: Any) -> Iterator[Any]:
        self.reads += 1
        _scenes[self.key].read.append(self.reads)
        for n in range(offset or 0, 6):
            if n == 3:
                assert _scenes[self.key].go_on.wait(PATIENCE)
            yield pa.record_batch({"n": [n]}), n + 1


class Locked(Slow):
    """Can't be copied."""

    def __deepcopy__(self, memo: object) -> Slow:
        raise TypeError("there is only one of it")


@pytest.fixture
def scene(key: str) -> Iterator[Scene]:
    _scenes[key] = Scene()
    yield _scenes[key]
    del _scenes[key]


def run(source: ll.Source, sink: ll.Sink) -> ll.Run:
    p = ll.Pipeline("restarted")
    p.source("numbers", source).sink("store", sink)
    return p.start(engine="inline")


def test_each_life_has_its_own_sink(key: str, scene: Scene) -> None:
    tables = [pa.table({"n": [n]}) for n in range(6)]
    with run(ll.sources.batches(tables), Slow(key)) as running:
        assert scene.writing.wait(PATIENCE)
        restarting = threading.Thread(target=running.restart, args=("store",))
        restarting.start()
        engine: Any = running._engine
        old = engine.drivers["store"]
        until(lambda: old.over is not None)
        scene.go_on.set()
        restarting.join(PATIENCE)
        running.wait(PATIENCE)
    assert scene.opened == [1, 1]
    assert set(scene.written) == set(range(1, 7))


def test_a_life_begins_when_the_write_of_the_one_before_is_over(key: str, scene: Scene) -> None:
    tables = [pa.table({"n": [n]}) for n in range(6)]
    with run(ll.sources.batches(tables), Slow(key)) as running:
        assert scene.writing.wait(PATIENCE)
        engine: Any = running._engine
        old = engine.drivers["store"]
        again = threading.Event()
        engine.restart("store", again.set)
        until(lambda: old.over is not None)
        assert not again.is_set() and scene.opened == [1]
        scene.go_on.set()
        assert again.wait(PATIENCE)
        running.wait(PATIENCE)
    assert scene.written[0] == 1


def test_each_life_has_its_own_source(key: str, scene: Scene) -> None:
    with run(Counted(key), ll.sinks.collect()) as running:
        until(lambda: scene.read)
        running.restart("numbers")
        scene.go_on.set()
        running.wait(PATIENCE)
        assert running.result("store")["n"].to_pylist() == list(range(6))
    assert scene.read == [1, 1]


def test_what_can_not_be_copied_is_shared_and_that_is_told(
    key: str, scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    tables = [pa.table({"n": [n]}) for n in range(6)]
    with run(ll.sources.batches(tables), Locked(key)) as running:
        assert scene.writing.wait(PATIENCE)
        restarting = threading.Thread(target=running.restart, args=("store",))
        restarting.start()
        engine: Any = running._engine
        old = engine.drivers["store"]
        until(lambda: old.over is not None)
        scene.go_on.set()
        restarting.join(PATIENCE)
        running.wait(PATIENCE)
    assert scene.opened == [1, 2]
    assert "can't be copied" in caplog.text


class Holding(ll.Operator[Any, Any]):
    """Holds a module, one that is in no file, and a view, which can be shipped and not copied."""

    outputs = {"out": "n double"}  # noqa: RUF012

    def __init__(self) -> None:
        self.math = math
        self.made = types.ModuleType("made")
        self.made.factor = 2.0  # type: ignore[attr-defined]
        self.known = {"n": 1}.keys()

    def generate(self, inset: Any, acc: Any, ctx: Any) -> Iterator[Any]:
        assert list(self.known) == ["n"]
        yield pa.table({"n": [self.math.sqrt(n) * self.made.factor for n in acc["n"].to_pylist()]})


@pytest.mark.parametrize("engine", ["inline", "processes"])
def test_what_can_be_shipped_can_be_copied(engine: Any, tmp_path: Path) -> None:
    p = ll.Pipeline("modules")
    source = p.source("numbers", ll.sources.batches([pa.table({"n": [4, 9]})]))
    source.apply("roots", Holding()).sink("store", ll.sinks.collect())
    found = p.run(f"lmdb:{tmp_path}/log", engine=engine)
    assert found.result("store")["n"].to_pylist() == [4.0, 6.0]


def test_a_copy_has_the_same_modules() -> None:
    held = Holding()
    assert copied(held).math is math
    assert copied([held.math, held])[1] is not held


_both = threading.Barrier(2)


async def _meet(row: dict[str, Any], ctx: Any) -> dict[str, Any]:
    await asyncio.to_thread(_both.wait, PATIENCE)
    return row


def test_two_runs_of_one_pipeline_at_once_share_nothing(tmp_path: Path) -> None:
    """A sink has one scope: with that of the other run, the rows of one of them would be taken for repeated ones."""
    p = ll.Pipeline("twice")
    rows = p.source("rows", ll.sources.batches([pa.table({"n": [1, 2, 3]})]))
    met = rows.map_rows("met", _meet, schema="n long", concurrency=1)
    met.sink("store", ll.sinks.sqlite(tmp_path / "shop.db", "rows"))
    runs = [p.start(f"lmdb:{tmp_path}/{name}.log", engine="inline") for name in ("one", "other")]
    for run in runs:
        run.wait(PATIENCE)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db:
        assert db.execute("select n, count(*) from rows group by n").fetchall() == [(1, 2), (2, 2), (3, 2)]


def test_a_run_after_the_other_has_the_objects_themselves() -> None:
    sink = Kept()
    p = ll.Pipeline("again")
    p.source("rows", ll.sources.batches([pa.table({"n": [1]})])).sink("store", sink)
    runs = [p.run(engine="inline") for _ in range(2)]
    assert len(runs) == sink.writes == 2


class Kept(ll.Sink):
    guarantee = "named"
    writes = 0

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        self.writes += 1
