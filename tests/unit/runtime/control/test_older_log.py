"""A log that is restored from an older copy: its targets have more than it knows of (R8)."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.waiting import PATIENCE, until

import logline as ll
from logline.errors import PipelineFailed
from logline.names import InstanceName, TargetName

STORE, OUT = InstanceName("store"), TargetName("out")


class Table(ll.Sink):
    """Positioned: the number is in the transaction of the rows."""

    guarantee = "positioned"

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, scope: str) -> None:
        self.scope = scope
        self.db = sqlite3.connect(self.path, check_same_thread=False)
        self.db.execute("create table if not exists rows(n)")
        self.db.execute("create table if not exists positions(scope primary key, number)")

    def position(self) -> int:
        if (self.path.parent / "away").exists():
            (self.path.parent / "away").unlink()
            raise ConnectionError("the table is away for a moment")
        row = self.db.execute("select number from positions where scope = ?", (self.scope,)).fetchone()
        return 0 if row is None else int(row[0])

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        if number == self.position() + 1:
            self.db.executemany("insert into rows values (?)", [(n,) for n in batch["n"].to_pylist()])
            self.db.execute("insert or replace into positions values (?, ?)", (self.scope, number))
            self.db.commit()


class Numbers(ll.Source):
    """The numbers below `upto`, so many in an event; ends at 60."""

    schema = pa.schema([("n", pa.int64())])
    gather = False

    def __init__(self, upto: int, size: int) -> None:
        self.upto, self.size = upto, size

    def read(self, partition: str, offset: Any) -> Iterator[Any]:
        for n in range(offset or 0, self.upto, self.size):
            end = min(n + self.size, self.upto)
            yield pa.record_batch({"n": list(range(n, end))}), end
        while self.upto < 60:
            yield None


def table(folder: Path) -> ll.Sink:
    return Table(folder / "table.db")


def files(folder: Path) -> ll.Sink:
    return ll.sinks.parquet(folder / "files")


def ready_made(folder: Path) -> ll.Sink:
    return ll.sinks.sqlite(folder / "table.db", "rows")


def rows(folder: Path) -> list[int]:
    if (folder / "files").exists():
        return sorted(pq.read_table(folder / "files")["n"].to_pylist())
    return sorted(n for (n,) in sqlite3.connect(folder / "table.db").execute("select n from rows"))


def start(folder: Path, sink: Callable[[Path], ll.Sink], upto: int, size: int) -> ll.Run:
    p = ll.Pipeline("numbers")
    p.source("numbers", Numbers(upto, size)).sink("store", sink(folder))
    return p.start(f"lmdb:{folder / 'log'}", engine="inline")


def write(folder: Path, sink: Callable[[Path], ll.Sink], upto: int, size: int) -> None:
    """Runs until so many numbers are written and known to be, and stops."""
    with start(folder, sink, upto, size) as run:
        until(lambda: run.log.store.read(STORE).image().written.get(OUT, 0) == upto // 5)


@pytest.mark.parametrize("sink", [table, files, ready_made])
def test_a_log_that_is_older_than_its_target_is_refused(sink: Callable[[Path], ll.Sink], tmp_path: Path) -> None:
    """Events are cut otherwise the second time: number 5 is not what it was."""
    write(tmp_path, sink, 20, 5)
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    write(tmp_path, sink, 50, 5)
    shutil.move(tmp_path / "log", tmp_path / "newest")
    shutil.move(tmp_path / "copy", tmp_path / "log")
    for _ in range(2):  # the log does not grow meanwhile, so that the second start is refused too
        with pytest.raises(PipelineFailed, match=r"target 'out' has the writes up to number 10.* up to 4 only"):
            start(tmp_path, sink, 60, 7).wait(PATIENCE)
    assert rows(tmp_path) == list(range(50))
    shutil.rmtree(tmp_path / "log")
    shutil.move(tmp_path / "newest", tmp_path / "log")
    start(tmp_path, sink, 60, 7).wait(PATIENCE)
    assert rows(tmp_path) == list(range(60))


def test_an_older_log_goes_on_when_its_target_is_taken_back(tmp_path: Path) -> None:
    write(tmp_path, table, 20, 5)
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    write(tmp_path, table, 50, 5)
    shutil.rmtree(tmp_path / "log")
    shutil.move(tmp_path / "copy", tmp_path / "log")
    with sqlite3.connect(tmp_path / "table.db") as db:
        db.execute("delete from rows where n >= 20")
        db.execute("update positions set number = 4")
    start(tmp_path, table, 60, 7).wait(PATIENCE)
    assert rows(tmp_path) == list(range(60))


def test_a_target_that_is_away_when_a_life_begins_is_asked_again(tmp_path: Path) -> None:
    write(tmp_path, table, 20, 5)
    (tmp_path / "away").touch()
    start(tmp_path, table, 60, 7).wait(PATIENCE)
    assert rows(tmp_path) == list(range(60))


def test_a_position_that_is_no_number_is_said(tmp_path: Path) -> None:
    class Lost(Table):
        def position(self) -> Any:
            return None

    p = ll.Pipeline("numbers")
    once = ll.Retry(attempts=1)
    p.source("numbers", Numbers(60, 5)).sink("store", Lost(tmp_path / "table.db"), retry=once)
    with pytest.raises(PipelineFailed, match=r"position\(\) of Lost must return the last number.* returned None"):
        p.run(f"lmdb:{tmp_path / 'log'}", engine="inline")
