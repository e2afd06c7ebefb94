"""Five small pipelines to kill, and how to tell that the result of one is that of a run without failure.

    stateless   map and filter into Parquet files
    stateful    windows, then an operator with a global state whose output is different each time it is computed
    two_inputs  an operator with two input ports, and a union
    writers     an operator that calls outside and writes into a database itself, and concurrent calls per row
    children    operators that have children: a pool, a program on the other end of two pipes, one that keeps stdout
                open for good, a daemon in a session of its own

Where code is not deterministic its output goes into two targets, which must agree: a value that was computed again
after a crash, and shown differently, is found there. The database is SQLite, a positioned target (R8).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import logline as ll
from logline.store.faults import point

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
PACE = 0.0012
"""Seconds between two events: longer than `within`, so that each is read and committed for itself."""
SCHEMA = pa.schema([("n", pa.int64()), ("key", pa.string()), ("at", pa.timestamp("us", "UTC"))])


class _NoPandas:
    """pyarrow imports pandas for any array that it makes, half of what a life costs; nothing here needs it."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


if "LOGLINE_KILLS" in os.environ:  # a process that is killed, or kills
    sys.meta_path.insert(0, _NoPandas())


class Paced(ll.Source):
    """Events 0, 1, 2, ... as far as a file allows: who strikes decides how far the pipeline is meanwhile."""

    schema = SCHEMA
    gather = False

    def __init__(self, folder: Path, events: int) -> None:
        self.allowed, self.events = folder / "allowed", events

    def read(self, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, int]]:
        allowed = 0
        for n in range(offset or 0, self.events):
            while n >= allowed:
                time.sleep(PACE)
                allowed = max(int(line) for line in self.allowed.read_text().split("\n")[:-1])
            time.sleep(PACE)
            rows = range(3 * n, 3 * n + 3)
            ats = pa.array([BEGIN + timedelta(seconds=5 * row) for row in rows], SCHEMA.field("at").type)
            yield pa.record_batch([pa.array(rows), pa.array([f"k{row % 4}" for row in rows]), ats], SCHEMA), n + 1


class Database(ll.Sink):
    """Rows and the last number in one transaction; n only after n - 1 (R8). Dies wherever it is told to."""

    guarantee = "positioned"

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60, isolation_level=None)

    def open(self, scope: str) -> None:
        self.scope = scope
        db = self.connect()
        db.execute("create table if not exists rows (row text)")
        db.execute("create table if not exists positions (scope text primary key, number integer)")
        point(self.name, "user.open")
        db.close()

    def position(self) -> int:
        db = self.connect()
        found = db.execute("select number from positions where scope = ?", (self.scope,)).fetchone()
        db.close()
        point(self.name, "user.position")
        return found[0] if found else 0

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        db = self.connect()
        db.execute("begin immediate")
        found = db.execute("select number from positions where scope = ?", (self.scope,)).fetchone()
        if number == (found[0] if found else 0) + 1:
            rows = [(json.dumps(row, default=str),) for row in batch.to_pylist()]
            db.executemany("insert into rows values (?)", rows)
            point(self.name, "user.write")
            db.execute("insert or replace into positions values (?, ?)", (self.scope, number))
        db.execute("commit")
        db.close()


def stateless(folder: Path, events: int) -> ll.Pipeline:
    def double(batch: pa.RecordBatch) -> pa.RecordBatch:
        point("doubled", "user.code")
        return batch.set_column(0, "n", pc.multiply(batch["n"], 2))

    p = ll.Pipeline("stateless")
    numbers = p.source("numbers", Paced(folder, events), within="1ms")
    some = numbers.map_batches("doubled", double).filter("some", pc.field("key") != "k3")
    some.sink("files", ll.sinks.parquet(folder / "files"))
    return p


@dataclass
class Count:
    events: int = 0


class Blocks(ll.Operator[Any, Any]):
    """Three events make a set, by a counter in the global state; its output is different each time it is computed."""

    outputs = {"out": "first timestamp, total long, token string"}  # noqa: RUF012
    State = Count

    def assign(self, event: ll.Event, ctx: ll.Context[Any]) -> Any:
        point("blocks", "user.code")
        ctx.state.events += 1
        return {(ctx.state.events - 1) // 3: ctx.state.events}

    def update(self, inset: Any, acc: Any, event: ll.Event) -> Any:
        point("blocks", "user.update")  # also while it recovers
        sums = [*(acc or ()), (event.note, event.batch["window_start"][0], pc.sum(event.batch["total"]).as_py())]
        assert [note for note, _, _ in sums] == list(range(3 * inset + 1, 3 * inset + 1 + len(sums)))
        return sums

    def ready(self, inset: Any, acc: Any, ctx: ll.Context[Any]) -> bool:
        return len(acc) == 3

    def generate(self, inset: Any, acc: Any, ctx: ll.Context[Any]) -> Any:
        first, total = acc[0][1], sum(n for _, _, n in acc)
        yield pa.record_batch({"first": pa.array([first]), "total": [total], "token": [f"{random.random()}"]})


def stateful(folder: Path, events: int) -> ll.Pipeline:
    p = ll.Pipeline("stateful")
    numbers = p.source("numbers", Paced(folder, events), within="1ms")
    window = ll.tumbling("1m", on="at")
    windows = numbers.window("windows", window, by=["key"], agg={"total": ("n", "sum")})
    blocks = windows.apply("blocks", Blocks())
    blocks.sink("database", Database(folder / "database", "database"))
    blocks.sink("files", ll.sinks.parquet(folder / "files"))
    return p


class Pairs(ll.Operator[Any, None]):
    """Five events of each side make a set."""

    inputs = ("left", "right")
    outputs = {"out": "block long, left long, right long"}  # noqa: RUF012

    def assign(self, event: ll.Event, ctx: ll.Context[None]) -> Any:
        return [event.batch["n"][0].as_py() // 15]

    def update(self, inset: Any, acc: Any, event: ll.Event) -> Any:
        point("pairs", "user.update")
        return {**(acc or {}), (event.port, event.ssn): pc.sum(event.batch["n"]).as_py()}

    def ready(self, inset: Any, acc: Any, ctx: ll.Context[None]) -> bool:
        return len(acc) == 10

    def generate(self, inset: Any, acc: Any, ctx: ll.Context[None]) -> Any:
        point("pairs", "user.code")
        sums = [sum(n for (port, _), n in acc.items() if port == side) for side in self.inputs]
        yield pa.record_batch({"block": [inset], "left": [sums[0]], "right": [sums[1]]})


def two_inputs(folder: Path, events: int) -> ll.Pipeline:
    p = ll.Pipeline("two_inputs")
    left = p.source("left", Paced(folder, events), within="1ms")
    right = p.source("right", Paced(folder, events), within="1ms")
    pairs = p.operator("pairs", Pairs(), {"left": left, "right": right})
    pairs.sink("database", Database(folder / "database", "database"))
    left.union("both", right).sink("files", ll.sinks.parquet(folder / "files"))
    return p


class Asks(ll.Operator[Any, None]):
    """Calls outside for each event, and both writes and emits what it got."""

    outputs = {"out": "n long, token string"}  # noqa: RUF012

    def __init__(self, calls: Path) -> None:
        self.calls = calls

    def generate(self, inset: Any, batch: Any, ctx: ll.Context[None]) -> Any:
        token = ctx.call(ask, str(self.calls), batch["n"][0].as_py())
        point("asks", "user.code")
        made = pa.record_batch({"n": [batch["n"][0].as_py()], "token": [token]})
        yield ll.Write(made, to="database")
        yield made


def ask(path: str, n: int) -> str:
    """An answer that is different each time; the other side remembers what it said."""
    token = f"{random.random()}"
    db = sqlite3.connect(path, timeout=60, isolation_level=None)
    db.execute("create table if not exists calls (n integer, token text)")
    db.execute("insert into calls values (?, ?)", (n, token))
    db.close()
    return token


def writers(folder: Path, events: int) -> ll.Pipeline:
    calls = folder / "calls"

    def rate(row: dict[str, Any], ctx: ll.Context[Any]) -> dict[str, Any]:
        point("rated", "user.code")
        return {**row, "rating": ctx.call(ask, str(calls), -1 - row["n"])}

    p = ll.Pipeline("writers")
    numbers = p.source("numbers", Paced(folder, events), within="1ms")
    asks = numbers.apply("asks", Asks(calls), targets={"database": Database(folder / "database", "asks")})
    rated = asks.map_rows("rated", rate, schema="n long, token string, rating string", concurrency=4)
    rated.sink("files", ll.sinks.parquet(folder / "files"))
    return p


def square(n: int) -> int:
    return n * n


class Pooled(ll.Operator[Any, None]):
    """Computes in a process pool."""

    outputs = {"out": SCHEMA}  # noqa: RUF012

    def open(self, ctx: Any) -> None:
        self.pool = multiprocessing.get_context("fork").Pool(1)
        point("pooled", "user.open")

    def generate(self, inset: Any, batch: Any, ctx: ll.Context[None]) -> Any:
        point("pooled", "user.code")
        yield batch.set_column(0, "n", pa.array(self.pool.map(square, batch["n"].to_pylist())))

    def close(self) -> None:
        self.pool.terminate()


class Piped(ll.Operator[Any, None]):
    """Has a program on the other end of two pipes, and others that nobody ends."""

    outputs = {"out": SCHEMA}  # noqa: RUF012

    def __init__(self, folder: Path) -> None:
        self.daemons = folder / "daemons"

    def open(self, ctx: Any) -> None:
        self.echo = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if "LOGLINE_KILLS" in os.environ:
            subprocess.Popen(["sleep", "infinity"], stdin=subprocess.DEVNULL)  # keeps stdout and stderr open
            self.daemonise()
        point("piped", "user.open")

    def daemonise(self) -> None:
        """A grandchild in a session of its own: nobody looks for it there, and it lives on after the run. If it held
        something of ours the next life or the next driver would wait for it."""
        if child := os.fork():
            os.waitpid(child, 0)
            return
        try:
            os.setsid()
            if os.fork() == 0:
                with self.daemons.open("a") as file:
                    file.write(f"{os.getpid()}\n")
                signal.pause()
        finally:
            os._exit(0)

    def generate(self, inset: Any, batch: Any, ctx: ll.Context[None]) -> Any:
        assert self.echo.stdin is not None and self.echo.stdout is not None
        self.echo.stdin.write(" ".join(batch["key"].to_pylist()) + "\n")
        self.echo.stdin.flush()
        point("piped", "user.code")
        yield batch.set_column(1, "key", pa.array(self.echo.stdout.readline().upper().split()))

    def close(self) -> None:
        self.echo.kill()
        self.echo.communicate()


def children(folder: Path, events: int) -> ll.Pipeline:
    p = ll.Pipeline("children")
    numbers = p.source("numbers", Paced(folder, events), within="1ms")
    piped = numbers.apply("pooled", Pooled()).apply("piped", Piped(folder))
    piped.sink("files", ll.sinks.parquet(folder / "files"))
    return p


SHAPES = {shape.__name__: shape for shape in (stateless, stateful, two_inputs, writers, children)}


def _rows(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What is in the database and what is in the files, each in an order that does not depend on the run."""
    written: list[dict[str, Any]] = []
    if (folder / "database").exists():
        with closing(sqlite3.connect(folder / "database")) as db:
            written = [json.loads(row) for (row,) in db.execute("select row from rows")]
    names = sorted(path.name for path in (folder / "files").iterdir())
    assert not [name for name in names if name.startswith(".")], f"left behind: {names}"
    files = [row for name in names for row in pq.read_table(folder / "files" / name).to_pylist()]
    files = [json.loads(json.dumps(row, default=str)) for row in files]
    key = lambda row: json.dumps({k: v for k, v in row.items() if k not in CHANCE}, sort_keys=True)  # noqa: E731
    return sorted(written, key=key), sorted(files, key=key)


CHANCE = ("token", "rating")
"""Columns that are different in each run."""


def result(shape: str, folder: Path) -> dict[str, Any]:
    """What a run has left in the files and in the database, without the columns of chance; and those agree."""
    written, files = _rows(folder)
    if shape in ("stateful", "writers"):
        assert [row["token"] for row in written] == [row["token"] for row in files], (
            "computed twice, shown differently"
        )
    if shape == "writers":
        with closing(sqlite3.connect(folder / "calls")) as db:
            said = set(db.execute("select n, token from calls"))
        assert {(row["n"], row["token"]) for row in files} <= said, "an answer that nobody gave"
        assert {(-1 - row["n"], row["rating"]) for row in files} <= said, "an answer that nobody gave"
    plain = [[{k: v for k, v in row.items() if k not in CHANCE} for row in rows] for rows in (written, files)]
    return {"database": plain[0], "files": plain[1]}
