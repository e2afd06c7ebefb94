"""A write of the very batch that came is logged by its event's name; every other one with its own rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.waiting import until

import logline as ll
from logline.engine.events import Output
from logline.engine.sets import Member
from logline.names import ChannelName, InstanceName, PortName, Ssn
from logline.runtime.control import live_resolution
from logline.runtime.lives import inline

CHANNEL = ChannelName("numbers.out>store.in")
NUMBERS, STORE, WRITES = InstanceName("numbers"), InstanceName("store"), PortName("@out")


class Numbers(ll.Source):
    """Three events, and no end before there is a file `go`."""

    schema = pa.schema([("n", pa.int64())])
    gather = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, partition: str, offset: Any) -> Iterator[Any]:
        for n in range(offset or 0, 3):
            yield pa.record_batch({"n": pa.array([n + 1] * 3, pa.int64())}), n + 1
        while not (self.folder / "go").exists():
            yield None


ROWS: dict[Path, list[list[int]]] = {}
"""What was written, by the folder of the test."""


class Held(ll.Sink):
    """Writes nothing until there is a file `may`, so that all of it is in the log first."""

    guarantee = "named"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        until((self.folder / "may").exists)
        ROWS.setdefault(self.folder, []).append(batch["n"].to_pylist())


class Fixable(ll.Operator[Any, None]):
    """Passes on what comes; the second event only when there is a file `fixed`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def generate(self, inset: Any, acc: Any, ctx: Any) -> Iterator[Any]:
        if acc["n"][0].as_py() == 2 and not (self.folder / "fixed").exists():
            yield ll.Reject(acc, "not yet")
        else:
            yield ll.Write(acc, to="out")


class Cut(ll.Operator[Any, None]):
    """Writes all but the first row of what comes, then all of it."""

    def generate(self, inset: Any, acc: Any, ctx: Any) -> Iterator[Any]:
        yield ll.Write(acc.slice(1), to="out")
        yield ll.Write(acc, to="out")


def started(folder: Path, op: ll.Operator[Any, Any] | None, sink: ll.Sink, **options: Any) -> ll.Run:
    p = ll.Pipeline("passing")
    numbers = p.source("numbers", Numbers(folder))
    if op is None:
        numbers.sink("store", sink)
    else:
        numbers.apply("store", op, targets={"out": sink}, **options)
    return p.start(f"lmdb:{folder / 'log'}", engine="inline")


def finish(folder: Path, run: ll.Run) -> None:
    (folder / "may").touch()
    (folder / "go").touch()
    run.wait()


def logged(run: ll.Run, count: int) -> list[Output]:
    """The write actions, when there are so many."""
    reader = run.log.store.read(STORE)
    until(lambda: reader.head(WRITES).last == count)
    return list(reader.pick(WRITES, [Ssn(n) for n in range(1, count + 1)]))


def test_what_a_sink_has_to_write_stays_with_its_sender_until_it_is_written(tmp_path: Path) -> None:
    with started(tmp_path, None, Held(tmp_path)) as run:
        writes = logged(run, 3)
        assert [write.same for write in writes] == [Member(CHANNEL, Ssn(n)) for n in (1, 2, 3)]
        assert [write.payload["n"].to_pylist() for write in writes] == [[n] * 3 for n in (1, 2, 3)]
        assert run.log.store.read(STORE).needs(CHANNEL).unwritten == 1
        finish(tmp_path, run)
        assert ROWS[tmp_path] == [[n] * 3 for n in (1, 2, 3)]
        until(lambda: run.log.store.read(STORE).needs(CHANNEL).unwritten is None)


def test_after_a_crash_it_is_read_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline, "PATIENCE", 0)  # the sink holds its write
    with started(tmp_path, None, Held(tmp_path)) as run:
        logged(run, 3)
        run.restart("store")  # drops the life, and what it had in memory
        finish(tmp_path, run)
    first = dict.fromkeys(rows[0] for rows in ROWS[tmp_path])  # a thread of the dropped life may still write, too
    assert list(first) == [1, 2, 3]


def test_other_rows_than_came_are_logged(tmp_path: Path) -> None:
    with started(tmp_path, Cut(), Held(tmp_path)) as run:
        writes = logged(run, 6)
        assert [write.same for write in writes[::2]] == [None] * 3
        assert [write.same for write in writes[1::2]] == [Member(CHANNEL, Ssn(n)) for n in (1, 2, 3)]
        assert [write.payload.num_rows for write in writes] == [2, 3] * 3
        finish(tmp_path, run)


def test_writes_that_stay_in_the_log_are_there_themselves(tmp_path: Path) -> None:
    with started(tmp_path, None, ll.sinks.collect()) as run:
        finish(tmp_path, run)
        assert [write.same for write in logged(run, 3)] == [None] * 3
        assert run.result("store")["n"].to_pylist() == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_retried_rows_are_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come from the operator's own port `errors`, where they are part of another record."""
    monkeypatch.setattr(live_resolution, "GRACE", 0.0)  # the sink holds its write until the end of the test
    monkeypatch.setattr(inline, "PATIENCE", 0)
    with started(tmp_path, Fixable(tmp_path), Held(tmp_path), on_error="divert") as run:
        until(lambda: run.log.errors().num_rows == 1)
        logged(run, 2)
        (tmp_path / "fixed").touch()
        assert run.retry(run.log.errors()["event"][0].as_py())
        *_, again = logged(run, 3)
        assert again.payload["n"].to_pylist() == [2, 2, 2]
        assert again.same is None
        finish(tmp_path, run)
    assert sorted(ROWS[tmp_path][-3:]) == [[n] * 3 for n in (1, 2, 3)]
