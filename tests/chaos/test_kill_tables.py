"""The process that writes to a table is killed again and again, its server goes away, and each row is there once."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.postgres import Database, server
from tests.waiting import PATIENCE, until

import logline as ll

EVENTS, SIZE, KILLS = 300, 5, 4
Ask = Callable[[str], list[Any]]


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


def kill_and_go_on(sink: ll.Sink, ask: Ask, folder: Path, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Kills the sink's process soon after rows have come. `meanwhile` is called when half of them are there."""
    go = folder / "go"
    p = ll.Pipeline("rows")
    p.source("numbers", Numbers(go)).sink("store", sink)
    kills, last, aim = 0, None, 3
    with p.start(f"lmdb:{folder}/log", engine="processes", durability="process") as run:
        engine: Any = run._engine
        give_up = time.monotonic() + PATIENCE
        while kills < KILLS:
            assert time.monotonic() < give_up, "it does not come"
            written = ask("select count(*) from rows")[0][0] // SIZE
            pid = engine.pid("store")
            if written >= min(aim, EVENTS // 2) and pid not in (None, last):
                os.kill(pid, signal.SIGKILL)
                kills, last, aim = kills + 1, pid, written + 1 + 7 * kills
            time.sleep(0.0005)  # strikes soon after rows are there: the log may not say so yet
        until(lambda: run.status().operators["store"].restarts == KILLS)
        until(lambda: ask("select count(*) from rows") == [(EVENTS // 2 * SIZE,)])
        go.touch()
        meanwhile()
        assert run.wait(PATIENCE).phase == "finished"
        assert run.status().operators["store"].restarts == KILLS
    assert ask("select number from _logline_positions") == [(EVENTS,)]


@pytest.mark.parametrize("options", [{}, {"mode": "upsert", "key": "id"}], ids=["append", "upsert"])
def test_rows_of_a_killed_writer_to_sqlite(options: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "rows.db"

    def ask(text: str) -> list[Any]:
        with closing(sqlite3.connect(path)) as db:
            return db.execute(text).fetchall()

    ask("create table rows (id integer unique, n integer)" if options else "create table rows (id, n)")
    kill_and_go_on(ll.sinks.sqlite(path, "rows", **options), ask, tmp_path)
    assert ask("select id from rows order by rowid") == [(n,) for n in range(EVENTS * SIZE)]


def test_rows_of_a_killed_writer_to_a_server_that_restarts(postgres: Database, tmp_path: Path) -> None:
    def restart() -> None:
        server().stop()
        time.sleep(1)  # as long as a restart takes elsewhere; nothing waits for it
        server().start()

    postgres.ask("create table rows (id bigint, n bigint)")
    kill_and_go_on(ll.sinks.postgres(postgres.dsn, "rows"), postgres.ask, tmp_path, restart)
    assert postgres.ask("select id from rows order by ctid") == [(n,) for n in range(EVENTS * SIZE)]
