"""However a run ends, and whatever fails as it closes: `wait` returns or raises, and the lease is free."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pyarrow as pa
import pytest
from tests.waiting import until

import logline as ll
from logline.errors import LogError
from logline.runtime.control import run as run_module
from logline.runtime.control.remote_control import RemoteControl
from logline.runtime.hosts import worker
from logline.runtime.hosts.worker import Heartbeat
from logline.runtime.lives.inline import InlineEngine
from logline.store.lmdb.folder import LmdbStore

PATIENCE = 60.0


class Endless(ll.Source):
    schema = pa.schema({"n": pa.int64()})
    gather = False

    def read(self, partition: str, offset: Any) -> Iterator[Any]:
        n = offset or 0
        while True:
            n += 1
            yield pa.record_batch({"n": [n]}), n


def endless() -> ll.Pipeline:
    p = ll.Pipeline("endless")
    p.source("numbers", Endless()).map_batches("op", lambda b: b, schema="n long").sink("store", ll.sinks.collect())
    return p


def short() -> ll.Pipeline:
    p = ll.Pipeline("short")
    p.source("numbers", ll.sources.batches([pa.table({"n": [1, 2, 3]})])).sink("store", ll.sinks.collect())
    return p


@pytest.mark.parametrize("engine", ["inline", "processes"])
def test_a_log_that_vanishes_ends_its_run(tmp_path: Path, engine: Any) -> None:
    run = endless().start(f"lmdb:{tmp_path}/log", engine=engine)
    until(lambda: run.status().operators["op"].taken > 0)

    def over() -> bool:
        shutil.rmtree(tmp_path / "log", ignore_errors=True)  # a life may make a file anew meanwhile
        return run._over.is_set()

    until(over)
    with pytest.raises(ll.PipelineFailed):
        run.wait(PATIENCE)
    assert run._engine is not None and run._engine.lease is not None
    assert not run._engine.lease.held()


def test_a_run_that_was_taken_over_by_one_that_is_over_just_stops(tmp_path: Path) -> None:
    first, second = LmdbStore(tmp_path / "log"), LmdbStore(tmp_path / "log")
    old = first.lease("one")
    new = second.lease("two", takeover=True)
    new.release()
    assert not old.held()
    first.close()
    second.close()


def test_a_lease_of_a_log_that_is_gone_says_so_and_lets_go(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "log")
    lease = store.lease("one")
    shutil.rmtree(tmp_path / "log")
    with pytest.raises(LogError, match="the log is gone"):
        lease.held()
    lease.release()
    assert not lease.held()
    store.close()


def broken(*_: object) -> None:
    raise RuntimeError("it breaks as it closes")


@pytest.mark.parametrize(("owner", "method"), [(RemoteControl, "close"), (InlineEngine, "_close")])
def test_what_fails_to_close_does_not_keep_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, method: str
) -> None:
    whole = getattr(owner, method)

    def close(self: Any) -> None:
        whole(self)
        broken()

    with monkeypatch.context() as patched:
        patched.setattr(owner, method, close)
        run = short().start(f"lmdb:{tmp_path}/log", engine="inline")
        if owner is InlineEngine:
            with pytest.raises(ll.PipelineFailed, match="it breaks as it closes"):
                run.wait(PATIENCE)
        else:
            assert run.wait(PATIENCE).phase == "finished"
    assert short().run(f"lmdb:{tmp_path}/log", engine="inline").status().phase == "finished"


def test_a_run_that_can_not_even_begin_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(run_module, "RemoteControl", broken)
        run = short().start(f"lmdb:{tmp_path}/log", engine="inline")
        with pytest.raises(ll.PipelineFailed, match="it breaks"):
            run.wait(PATIENCE)
    assert short().run(f"lmdb:{tmp_path}/log", engine="inline").status().phase == "finished"


def test_a_report_that_fails_does_not_end_the_heartbeat(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker, "HEARTBEAT", 0.0)
    over, third = threading.Event(), threading.Event()
    made = []

    def report() -> None:
        made.append(1)
        if len(made) == 3:
            third.set()
        raise OSError("No space left on device")

    beat = Heartbeat(report, lambda: None, over)
    beat.start()
    assert third.wait(PATIENCE)
    over.set()
    beat.join()
    assert caplog.text.count("No space left on device") == 1


class Counting(ll.Operator[Any, Any]):
    outputs = {"out": "n long"}  # noqa: RUF012

    def __init__(self, n: Any) -> None:
        self.n = n

    def generate(self, inset: Any, acc: Any, ctx: Any) -> Iterator[Any]:
        ctx.count("rows", self.n)
        yield acc


def counting(n: Any) -> ll.Pipeline:
    p = ll.Pipeline("counting")
    numbers = p.source("numbers", ll.sources.batches([pa.table({"n": [1, 2, 3]})]))
    numbers.apply("op", Counting(n)).sink("store", ll.sinks.collect())
    return p


@pytest.mark.parametrize("n", [numpy.int64(3), numpy.uint8(3), numpy.float64(3.0), 3])
@pytest.mark.parametrize("engine", ["inline", "processes"])
def test_numbers_of_numpy_count(tmp_path: Path, n: Any, engine: Any) -> None:
    with counting(n).start(f"lmdb:{tmp_path}/log", engine=engine) as run:
        counters = run.wait(PATIENCE).operators["op"].counters
    assert counters == {"rows": 3}
    assert type(counters["rows"]) is int


@pytest.mark.parametrize("n", [0.5, "3", None, object(), float("nan")])
def test_what_is_no_number_is_the_authors_mistake(n: Any) -> None:
    with pytest.raises(ll.PipelineFailed, match="give a name and a whole number"):
        counting(n).run(engine="inline")
