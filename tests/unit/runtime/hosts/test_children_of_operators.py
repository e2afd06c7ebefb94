"""Operators that fork: what is ours does not get into their children, and a run does not wait for those."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.waiting import until

import logline as ll
from logline.runtime.hosts.pipes import listen
from logline.store.descriptors import disown, own
from logline.store.lmdb.folder import LmdbStore

PATIENCE = 120.0
EVENTS = 20


class Forking(ll.Operator[Any, Any]):
    """Has a child that nobody ends; goes on when there is a file."""

    outputs = {"out": "n long"}  # noqa: RUF012

    def __init__(self, place: Path, kind: str) -> None:
        self.place, self.kind = place, kind

    def open(self, ctx: Any) -> None:
        fork = multiprocessing.get_context("fork")
        if self.kind == "pool":
            self.pool = fork.Pool(1)
            child: int | None = self.pool.apply(os.getpid)
        else:
            self.child = fork.Process(target=signal.pause)
            self.child.start()
            child = self.child.pid
        with (self.place / "children").open("a") as file:
            file.write(f"{child}\n")

    def generate(self, inset: Any, acc: Any, ctx: Any) -> Iterator[Any]:
        if acc["n"][0].as_py() == 2:
            until((self.place / "go on").exists)
        yield acc


def pipeline(place: Path, kind: str) -> ll.Pipeline:
    p = ll.Pipeline("forking")
    numbers = p.source("numbers", ll.sources.batches([pa.table({"n": [n]}) for n in range(EVENTS)]))
    numbers.apply("op", Forking(place, kind)).sink("store", ll.sinks.collect())
    return p


def children(place: Path) -> list[int]:
    return [int(line) for line in (place / "children").read_text().split()]


def ended(pid: int) -> bool:
    """Whether the process is gone, or only waits for somebody to ask how it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize("kind", ["pool", "process"])
def test_a_run_ends_and_what_its_operators_left_ends_with_it(tmp_path: Path, kind: str) -> None:
    (tmp_path / "go on").touch()
    with pipeline(tmp_path, kind).start(f"lmdb:{tmp_path}/log", engine="processes") as run:
        assert run.wait(PATIENCE).phase == "finished"
        assert run.result("store")["n"].to_pylist() == list(range(EVENTS))
    until(lambda: all(map(ended, children(tmp_path))))


def test_one_that_is_killed_is_back_although_its_child_lives_on(tmp_path: Path) -> None:
    with pipeline(tmp_path, "process").start(f"lmdb:{tmp_path}/log", engine="processes") as run:
        until(lambda: (tmp_path / "children").exists() and len(children(tmp_path)) == 1)
        until(lambda: run.status().operators["op"].taken > 2)
        pid = run.pid("op")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        (tmp_path / "go on").touch()
        assert run.wait(PATIENCE).phase == "finished"
        assert run.result("store")["n"].to_pylist() == list(range(EVENTS))
        assert len(children(tmp_path)) == 2
    until(lambda: all(map(ended, children(tmp_path))))


WITH_WORKERS = """
import sys
from pathlib import Path
from tests.unit.runtime.hosts.test_children_of_operators import pipeline

pipeline(Path(sys.argv[1]), sys.argv[2]).run(f"lmdb:{sys.argv[1]}/log", engine="processes")
"""


@pytest.mark.parametrize("kind", ["pool", "process"])
def test_what_operators_left_ends_with_a_driver_that_is_killed(tmp_path: Path, kind: str) -> None:
    root = Path(__file__).parents[4]
    driver = subprocess.Popen([sys.executable, "-c", WITH_WORKERS, str(tmp_path), kind], cwd=root)
    until(lambda: (tmp_path / "children").exists() and len(children(tmp_path)) == 1)
    driver.kill()
    driver.wait(PATIENCE)
    until(lambda: all(map(ended, children(tmp_path))))


DRIVER = """
import multiprocessing, os, signal, sys
import pyarrow as pa
import logline as ll

class Endless(ll.Source):
    schema = pa.schema({"n": pa.int64()})
    def read(self, partition, offset):
        while True:
            yield None

p = ll.Pipeline("endless")
p.source("numbers", Endless()).sink("store", ll.sinks.collect())
run = p.start(sys.argv[1], engine="inline")
child = multiprocessing.get_context("fork").Process(target=signal.pause)
child.start()
print(child.pid, flush=True)
signal.pause()
"""


def test_the_lease_of_a_driver_dies_with_it_although_its_child_lives_on(tmp_path: Path) -> None:
    log = f"lmdb:{tmp_path}/log"
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, log], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    child = int(driver.stdout.readline())
    try:
        driver.kill()
        driver.wait(PATIENCE)
        assert not ended(child)
        store = LmdbStore(tmp_path / "log")
        # A child that has not run at all since it was forked has yet to let go of what it inherited.
        until(lambda: store.running() is None)
        store.lease("the next").release()  # raises LogInUse while somebody holds it
        store.close()
    finally:
        os.kill(child, signal.SIGKILL)
        driver.stdout.close()


def test_a_pipe_that_is_held_open_ends_with_the_process_that_wrote_to_it() -> None:
    out, into = os.pipe()
    gone = os.eventfd(0)
    os.write(into, b"first\nsecond\nhalf of the th")
    heard: list[bytes] = []
    listener = threading.Thread(target=lambda: heard.extend(listen(out, gone)))
    os.eventfd_write(gone, 1)
    listener.start()
    listener.join(PATIENCE)
    assert heard == [b"first", b"second"]
    for fd in (out, into, gone):
        os.close(fd)


@pytest.mark.parametrize("ours", [True, False])
def test_what_is_ours_is_nothing_in_a_child(ours: bool) -> None:
    out, into = os.pipe()
    if ours:
        own(into)
    pid = os.fork()
    if pid == 0:
        try:
            os.write(into, b"from the child")
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    disown(into)
    os.close(into)
    assert os.read(out, 100) == (b"" if ours else b"from the child")
    os.close(out)


def test_a_number_that_is_something_else_by_now_is_left_alone() -> None:
    other, stale = os.pipe()
    own(stale)
    os.close(stale)
    os.close(other)
    out, into = os.pipe()  # the same numbers
    pid = os.fork()
    if pid == 0:
        try:
            os.write(into, b"from the child")
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    disown(stale)
    os.close(into)
    assert os.read(out, 100) == b"from the child"
    os.close(out)


def of_driver(driver: int) -> list[int]:
    """The fork server of a driver, its workers, and what these have forked: all have the server's command line."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            command = (place / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"logline.runtime.hosts.fork_server" in command and b"%d" % driver in command:
            found.append(int(place.name))
    return [pid for pid in found if not ended(pid)]


KILLED = """
import sys
from pathlib import Path
from tests.unit.runtime.hosts.test_children_of_operators import pipeline
place = Path(sys.argv[1])
pipeline(place, "process").run(f"lmdb:{place}/log", engine="processes")
"""


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGKILL, "server"),
        (signal.SIGTERM, "worker"),
        (signal.SIGKILL, "child"),
        (signal.SIGTERM, "child"),
    ],
)
def test_nothing_outlives_a_driver(number: signal.Signals, moment: str, tmp_path: Path) -> None:
    """Killed when its fork server starts, when the first workers do, and when an operator has a child of its own."""
    root = Path(__file__).parents[4]
    path = os.pathsep.join((str(root), str(root / "src")))
    driver = subprocess.Popen([sys.executable, "-c", KILLED, tmp_path], env={**os.environ, "PYTHONPATH": path})
    if moment == "child":
        until((tmp_path / "children").exists)
    else:
        until(lambda: len(of_driver(driver.pid)) > (moment == "worker"))
    driver.send_signal(number)
    assert driver.wait(PATIENCE) == -number
    until(lambda: of_driver(driver.pid) == [])
