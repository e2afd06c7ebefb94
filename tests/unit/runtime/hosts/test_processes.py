"""Worker processes are born in the server, which the driver can lose."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy.random
import pandas  # type: ignore[import-untyped]  # noqa: F401  (the server imports what it finds here)
import pyarrow as pa
import pytest
from tests.waiting import until

import logline as ll


def pid_of(run: ll.Run, name: str, *, after: int | None = None) -> int:
    """The process of an operator, once it has one, or one after that."""
    pid = until(lambda: run.pid(name) not in (None, after) and run.pid(name))
    assert pid
    return pid


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def drawn(batch: pa.RecordBatch) -> pa.RecordBatch:
    values = pa.array(numpy.random.random(batch.num_rows))
    return pa.record_batch({"n": batch["n"], "x": values})


class Numbers(ll.Source):
    """One event; more may always come."""

    schema = pa.schema([("n", pa.int64())])

    def __init__(self, *, ends: bool) -> None:
        self.ends = ends

    def read(self, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, int] | None]:
        if not offset:
            yield pa.record_batch({"n": pa.array([1], pa.int64())}), 1
        while not self.ends:
            yield None


def waiting(log: Path) -> ll.Run:
    """A run that ends only when it is stopped."""
    p = ll.Pipeline("waiting")
    p.source("numbers", Numbers(ends=False)).sink("out", ll.sinks.collect())
    return p.start(f"lmdb:{log}", engine="processes")


@pytest.fixture
def run(tmp_path: Path) -> Any:
    with waiting(tmp_path / "log") as run:
        yield run


def test_lives_have_one_parent_and_it_is_not_the_user_s_process(run: ll.Run) -> None:
    """A process with threads and locks is not forked, and the imports are made once."""
    first, other = pid_of(run, "numbers"), pid_of(run, "out")
    server = parent(first)
    assert parent(other) == server
    assert parent(server) == os.getpid()
    assert "xxhash" in Path(f"/proc/{server}/maps").read_text()  # what a log is opened with is imported there, too
    os.kill(first, signal.SIGKILL)
    second = pid_of(run, "numbers", after=first)
    assert parent(second) == server


def test_workers_die_with_the_fork_server_and_come_back_in_another(run: ll.Run) -> None:
    pids = {name: pid_of(run, name) for name in ("numbers", "out")}
    os.kill(parent(pids["out"]), signal.SIGKILL)
    for name, pid in pids.items():
        assert pid_of(run, name, after=pid)
        assert run.status().operators[name].restarts == 1


def test_a_process_shows_its_group_s_name(run: ll.Run) -> None:
    pid = until(lambda: run.pid("numbers"))
    assert until(lambda: Path(f"/proc/{pid}/comm").read_text() == "numbers\n")


def test_forks_draw_numbers_of_their_own(tmp_path: Path) -> None:
    p = ll.Pipeline("drawn")
    source = p.source("numbers", Numbers(ends=True))
    schema = "n long, x double"
    for name in ("left", "right"):
        source.map_batches(name, drawn, schema=schema).sink(f"{name}_out", ll.sinks.collect())
    with p.start(f"lmdb:{tmp_path / 'log'}", engine="processes") as run:
        run.wait()
        left, right = (run.result(f"{name}_out").to_pylist() for name in ("left", "right"))
    assert left[0]["x"] != right[0]["x"]


def test_the_longest_names_work(tmp_path: Path) -> None:
    """They are names of files, sockets and processes; `tests/unit/graph/test_validate.py` has longer ones refused."""
    source, same, store, group = (letter * 64 for letter in "abcd")
    p = ll.Pipeline("p" * 64)
    numbers = p.source(source, ll.sources.batches([pa.table({"n": [1]})]))
    numbers.map_batches(same, lambda batch: batch, schema="n long", group=group).sink(store, ll.sinks.collect())
    p.lineage()
    run = p.run(f"lmdb:{tmp_path}/log", engine="processes")
    assert run.result(store)["n"].to_pylist() == [1]
    assert run.log.backward(f"{same}:1", to=source)["event"].to_pylist() == [f"{source}:1"]
