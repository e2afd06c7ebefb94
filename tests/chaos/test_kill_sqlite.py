"""The process that writes to a table of SQLite is killed again and again, and each row is there once."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.waiting import PATIENCE, until

import logline as ll

EVENTS, SIZE, KILLS = 300, 5, 4


class Numbers(ll.Source):
    """The second half only once there is a file `go`: whoever is killed before is killed midway."""

    schema = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    gather = False

    def __init__(self, go: Path) -> None:
        self.go = go

    def read(self, partition: str, offset: Any) -> Iterator[Any]:
        for n in range(offset or 0, EVENTS):
            while n >= EVENTS // 2 and not self.go.exists():
                yield None
            ids = list(range(n * SIZE, n * SIZE + SIZE))
            yield pa.record_batch({"id": ids, "n": [n] * SIZE}, schema=self.schema), n + 1


def asked(path: Path, text: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(text).fetchall()


@pytest.mark.parametrize("options", [{}, {"mode": "upsert", "key": "id"}])
def test_rows_of_a_killed_writer(options: dict[str, Any], tmp_path: Path) -> None:
    path, go = tmp_path / "rows.db", tmp_path / "go"
    asked(path, "create table rows (id integer unique, n integer)" if options else "create table rows (id, n)")
    p = ll.Pipeline("rows")
    p.source("numbers", Numbers(go)).sink("store", ll.sinks.sqlite(path, "rows", **options))
    kills, last, aim = 0, None, 3
    with p.start(f"lmdb:{tmp_path}/log", engine="processes", durability="process") as run:
        engine: Any = run._engine
        give_up = time.monotonic() + PATIENCE
        while kills < KILLS:
            assert time.monotonic() < give_up, "it does not come"
            written = asked(path, "select count(*) from rows")[0][0] // SIZE
            pid = engine.pid("store")
            if written >= min(aim, EVENTS // 2) and pid not in (None, last):
                os.kill(pid, signal.SIGKILL)
                kills, last, aim = kills + 1, pid, written + 1 + 7 * kills
            time.sleep(0.0005)  # strikes soon after rows are there: the log may not say so yet
        until(lambda: run.status().operators["store"].restarts == KILLS)
        go.touch()
        assert run.wait(PATIENCE).phase == "finished"
        assert run.status().operators["store"].restarts == KILLS
    assert asked(path, "select id from rows order by rowid") == [(n,) for n in range(EVENTS * SIZE)]
    assert asked(path, "select number from _logline_positions") == [(EVENTS,)]
