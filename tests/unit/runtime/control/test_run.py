"""A run from outside: waiting, stopping, restarting, failing. `test_resume` has what a second run does."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.runtime.taps import IDS, Bucket, Lookup, Tap, Threes, piped, shared, start
from tests.waiting import PATIENCE, until

from logline.connectors import sinks, sources
from logline.errors import BadName, LogError, PipelineFailed
from logline.graph.connector import Source
from logline.names import InstanceName
from logline.pipeline import Pipeline, Stream
from logline.runtime.lives import inline


def numbers(p: Pipeline, count: int = 4) -> Stream:
    return p.source("orders", sources.batches([pa.table({"id": [n]}) for n in range(count)]), rows=1)


# ---- to the end -------------------------------------------------------------------------------------------


def test_a_run_finishes_and_says_what_it_did() -> None:
    p = Pipeline("sales")
    kept = numbers(p).filter("even", lambda b: pa.array([n % 2 == 0 for n in b["id"].to_pylist()]))
    kept.sink("store", sinks.collect())
    run = start(p)
    status = run.wait(PATIENCE)
    assert status.phase == "finished"
    assert run.result("store").to_pylist() == [{"id": 0}, {"id": 2}]
    even = status.operators["even"]
    assert (status.operators["orders"].out, even.taken, even.lag, even.open_sets) == (4, 4, 0, 0)
    assert status.operators["store"].taken == even.out
    assert status.table().column("operator").to_pylist() == ["orders", "even", "store"]


def test_a_temporary_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    p = Pipeline("sales")
    numbers(p).sink("store", sinks.collect())
    with caplog.at_level(logging.INFO, "logline"):
        start(p).wait(PATIENCE)
    assert "keeps its log in memory: it is gone with this process" in caplog.text


def test_status_of_a_running_pipeline(key: str) -> None:
    p, tap, bucket = piped(key)
    with start(p) as run:
        tap.put(1, 2, run=run)
        bucket.wait_for(1, 2)
        status = run.status()
        assert status.phase == "running"
        assert status.operators["tap"].out == 2
        assert status.operators["store"].taken == 2
        assert "running" in repr(run)


def test_waiting_can_end_before_the_run(key: str) -> None:
    p, tap, bucket = piped(key)
    with start(p) as run:
        with pytest.raises(TimeoutError, match="'piped' still runs"):
            run.wait("1ms")
        tap.put(1, run=run)
        tap.close_it(run)
        assert run.wait(PATIENCE).phase == "finished"
    assert bucket.written == [1]


def test_until_now_ends_where_there_is_nothing_more(key: str) -> None:
    p, tap, bucket = piped(key)
    tap.put(1, 2)
    assert start(p, until="now").wait(PATIENCE).phase == "caught up"
    assert bucket.written == [1, 2]


def test_the_result_of_what_is_no_collect_sink() -> None:
    p = Pipeline("sales")
    orders = numbers(p)
    orders.sink("store", sinks.collect())
    orders.sink("call", sinks.call(lambda batch, number, write_id: None, guarantee="named"))
    run = start(p)
    run.wait(PATIENCE)
    for name in ("call", "orders", "nobody", "store.other"):
        with pytest.raises(BadName, match="there are store"):
            run.result(name)


def test_a_timer_far_off_keeps_nobody_from_looking_around(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No bell rings for what comes from outside: a source has to look by itself, whatever others wait for."""
    monkeypatch.setattr(inline, "POLL", 1000)
    tap = Tap(key)
    p = Pipeline("patient")
    p.source("tap", tap).rebatch("hours", rows=10, within="1h").sink("store", sinks.collect())
    with start(p) as run:
        tap.put(1, run=run)
        looks = shared(key).looks
        shared(key).wait_for(lambda: shared(key).looks >= looks + 20)  # bells for events would give it a few


# ---- stopping ---------------------------------------------------------------------------------------------


def test_stop_fires_no_open_set(key: str) -> None:
    tap, bucket = Tap(key), Bucket(key)
    p = Pipeline("threes")
    p.source("tap", tap).apply("threes", Threes(key)).sink("store", bucket)
    run = start(p, "memory:stop-open")
    tap.put(1, 2, run=run)
    shared(key).wait_for(lambda: len(shared(key).calls) == 2)
    status = run.stop()
    assert status.phase == "stopped"
    assert bucket.written == []
    assert [(row["status"], row["inset_id"]) for row in run.log.table("event_log").to_pylist()] == [
        ("undone", "open#1"),
        ("undone", "open#1"),
    ]
    assert run.stop().phase == "stopped"  # once more does no harm
    assert run.wait(PATIENCE).phase == "stopped"


@pytest.mark.parametrize("drain", [False, True])
def test_drain_lets_what_is_in_the_pipeline_finish(key: str, drain: bool) -> None:
    """The sink is held at the first write while five events are in the pipeline; `seen` says they are read."""
    tap, bucket, seen = Tap(key), Bucket(key), Bucket(f"{key} seen")
    p = Pipeline("drained")
    taps = p.source("tap", tap)
    taps.sink("store", bucket)
    taps.sink("seen", seen)
    bucket.hold()
    run = start(p)
    tap.put(1, 2, 3, 4, 5, run=run)
    seen.wait_for(1, 2, 3, 4, 5)
    bucket.wait_until_writing()
    stopping = threading.Thread(target=run.stop, kwargs={"drain": drain, "timeout": PATIENCE})
    stopping.start()
    assert isinstance(run._engine, inline.InlineEngine)
    source = run._engine.drivers[InstanceName("tap")].machine
    until(lambda: (source.draining or source.stopping) and not source._busy())  # told, and no read is under way
    tap.put(6)  # not read any more
    bucket.release()
    stopping.join(PATIENCE)
    assert run.status().phase == "stopped"
    if drain:
        assert bucket.written == [1, 2, 3, 4, 5]
        assert run.status().operators["store"].lag == 0
    else:
        assert bucket.written[:1] == [1]  # the write that was under way ends in order
        assert 6 not in bucket.written


class Stuck(Source):
    """A read that does not return until it is let go."""

    schema = IDS

    def __init__(self, key: str) -> None:
        self.key = key

    def read(self, partition: str, offset: Any) -> Iterator[None]:
        both = shared(self.key)
        with both.changed:
            both.waiting += 1
            both.changed.notify_all()
            both.changed.wait_for(lambda: both.closed, PATIENCE)
        yield None


def test_what_does_not_stop_in_time_is_dropped(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline, "GRACE", 0.0)
    p = Pipeline("stuck")
    p.source("tap", Stuck(key)).sink("store", sinks.collect())
    run = start(p, "memory:stuck")
    shared(key).wait_for(lambda: shared(key).waiting == 1)
    assert run.stop(timeout="1ms").phase == "stopped"
    with shared(key).changed:
        shared(key).closed = True
        shared(key).changed.notify_all()
    assert start(p, "memory:stuck", until="now").wait(PATIENCE).phase == "caught up"


def test_leaving_the_with_stops(key: str) -> None:
    p, tap, bucket = piped(key)
    with start(p) as run:
        tap.put(1, run=run)
        bucket.wait_for(1)
    assert run.status().phase == "stopped"


# ---- restarting -------------------------------------------------------------------------------------------


def test_restart_drops_a_life_and_the_next_one_goes_on(key: str) -> None:
    tap, bucket = Tap(key), Bucket(key)
    p = Pipeline("threes")
    p.source("tap", tap).apply("threes", Threes(key)).sink("store", bucket)
    with start(p) as run:
        tap.put(1, 2, run=run)
        shared(key).wait_for(lambda: len(shared(key).calls) == 2)
        for operator in ("threes", "tap", "store"):
            run.restart(operator)
        tap.put(4, 8, 16, 32, run=run)
        bucket.wait_for(1 + 2 + 4, 8 + 16 + 32)
        restarts = {name: o.restarts for name, o in run.status().operators.items()}
        assert restarts == {"tap": 1, "threes": 1, "store": 1}
        # Recovery has applied the first two events once more, and no other.
        assert shared(key).calls[2:4] == ["tap:1", "tap:2"]
        assert len(shared(key).calls) == 2 + 2 + 4
        tap.close_it(run)
        assert run.wait(PATIENCE).phase == "finished"


@pytest.mark.parametrize("concurrency", [1, 2])
def test_restart_in_the_midst_of_a_call(key: str, concurrency: int) -> None:
    """With concurrency 1 user code is on the engine's own thread, which hears of the restart while it commits
    the answer; otherwise a thread of the old life comes back with an answer that nobody wants any more."""
    both, kept = shared(key), sinks.collect()
    p = Pipeline("calls")
    orders = p.source("orders", sources.batches([pa.table({"id": [7]})]))
    orders.apply("slow", Lookup(key), concurrency=concurrency).sink("store", kept)
    with start(p) as run:
        both.wait_for(lambda: len(both.calls) == 1)
        assert run._engine is not None
        run._engine.restart(InstanceName("slow"), lambda: None)  # run.restart() would wait for it
        with both.changed:
            both.closed = True
            both.changed.notify_all()
        assert run.wait(PATIENCE).phase == "finished"
        assert run.status().operators["slow"].restarts == 1
    assert kept.table().to_pylist() == [{"id": 70}]
    assert set(both.calls) == {7}
    assert len(both.calls) <= 2  # again only if its answer was not committed


def test_a_restart_leaves_no_threads_of_the_life_before(key: str) -> None:
    tap, bucket = Tap(key), Bucket(key)
    p = Pipeline("rows")
    ids = p.source("tap", tap).map_rows("calls", lambda row, ctx: {"id": row["id"]}, schema="id long", concurrency=3)
    ids.sink("store", bucket)
    before: set[threading.Thread] = set()
    with start(p) as run:
        for number in (1, 2, 3):
            tap.put(number, run=run)
            bucket.wait_for(*range(1, number + 1))
            callers = {thread for thread in threading.enumerate() if thread.name.startswith("calls")}
            assert callers - before
            before |= callers
            run.restart("calls")
            for thread in callers:
                thread.join(PATIENCE)
                assert not thread.is_alive()


def test_a_close_that_fails_does_not_stop_a_restart(key: str, caplog: pytest.LogCaptureFixture) -> None:
    closed: list[bool] = []

    class Clings(Threes):
        def close(self) -> None:
            closed.append(True)
            if len(closed) == 1:
                raise ValueError("the client is gone")

    tap, bucket = Tap(key), Bucket(key)
    p = Pipeline("threes")
    p.source("tap", tap).apply("threes", Clings(key)).sink("store", bucket)
    with start(p) as run:
        tap.put(1, 2, run=run)
        shared(key).wait_for(lambda: len(shared(key).calls) == 2)
        run.restart("threes")
        assert "threes.close() failed in a restart" in caplog.text
        tap.put(4, run=run)
        bucket.wait_for(7)


def test_restart_of_nobody_and_of_a_run_that_is_over() -> None:
    p = Pipeline("sales")
    numbers(p).sink("store", sinks.collect())
    run = start(p)
    with pytest.raises(BadName, match="no operator 'shop'; there are orders, store"):
        run.restart("shop")
    run.wait(PATIENCE)
    with pytest.raises(LogError, match="the run is over"):
        run.restart("store")


# ---- failing ----------------------------------------------------------------------------------------------


def explode(batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch.num_rows and batch["id"][0].as_py() == 2:
        raise ValueError("two is too many")
    return batch


def failing() -> Pipeline:
    p = Pipeline("sales")
    numbers(p).map_batches("careful", explode).sink("store", sinks.collect())
    return p


def test_wait_raises_with_operator_event_and_the_users_traceback() -> None:
    run = start(failing())
    with pytest.raises(PipelineFailed) as caught:
        run.wait(PATIENCE)
    error = caught.value
    assert (error.operator, error.event) == ("careful", "orders:3")
    assert "operator 'careful' failed on orders:3: ValueError: two is too many" in str(error)
    assert "in explode" in error.traceback
    status = run.status()
    assert status.phase == "failed"
    assert "two is too many" in status.error
    assert run.stop().phase == "failed"


def test_a_failure_nobody_heard_of_is_raised_on_leaving() -> None:
    with pytest.raises(PipelineFailed, match="two is too many"), start(failing()) as run:
        run._over.wait(PATIENCE)
    run = start(failing())
    with run, pytest.raises(PipelineFailed):
        run.wait(PATIENCE)  # heard: leaving is silent


# ---- Ctrl-C -----------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[4]
SCRIPT = """
import signal
import threading
from tests.unit.runtime.taps import Bucket, Tap
from tests.waiting import until
from logline.pipeline import Pipeline
from logline.runtime.control.launch import start as start_inline
from logline.runtime.control.settings import StartSettings

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits "ignored"
p = Pipeline("endless")
p.source("tap", Tap("k")).sink("store", Bucket("k"))
run = start_inline(p.graph(), StartSettings())
try:
    print("ready", flush=True)
    run.wait()
except KeyboardInterrupt:
    phase = run.stop().phase
    until(lambda: threading.active_count() == 1)  # the run's own thread ends just after the run is over
    print(phase, flush=True)
"""


def test_ctrl_c_ends_a_wait() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=PATIENCE)
    finally:
        child.kill()
    assert (out, err, child.returncode) == ("stopped\n", "", 0)


# ---- bells ------------------------------------------------------------------------------------------------


def test_a_bell_that_another_took_down_is_hung_again(key: str, tmp_path: Path) -> None:
    """By a life that was fenced off and woke late, say: the living one would hear of nothing but by looking."""
    p, tap, bucket = piped(key)
    with start(p, f"lmdb:{tmp_path}/log") as run:
        tap.put(1, run=run)
        bucket.wait_for(1)
        store, name = run.log.store, InstanceName("store")
        late = store.bell(name)
        assert late is not None
        until(lambda: not late.hangs())
        late.close()
        tap.put(2, run=run)
        bucket.wait_for(1, 2)


def test_a_run_whose_life_was_fenced_off_stops_when_told(key: str, tmp_path: Path) -> None:
    """An error that is retried fences the life and restarts it; a stop that comes between does not wait for that."""
    p, tap, bucket = piped(key)
    run = start(p, f"lmdb:{tmp_path}/log")
    tap.put(1, run=run)
    bucket.wait_for(1)
    assert isinstance(run._engine, inline.InlineEngine)
    hosts, abandoned = run._engine.drivers, []
    run._engine.abandon = lambda: abandoned.append(True)  # type: ignore[method-assign]
    run.log.store.claim(InstanceName("store")).close()
    tap.put(2, run=run)
    until(lambda: hosts[InstanceName("store")].over == "fenced")
    assert run.stop(timeout=PATIENCE).phase == "stopped"
    assert not abandoned


def test_a_life_that_is_fenced_off_leaves_the_bell_to_the_next(key: str, tmp_path: Path) -> None:
    p, tap, bucket = piped(key)
    with start(p, f"lmdb:{tmp_path}/log") as run:
        tap.put(1, run=run)
        bucket.wait_for(1)
        store, name = run.log.store, InstanceName("store")
        journal, bell = store.claim(name), store.bell(name)
        engine = run._engine
        assert bell is not None and isinstance(engine, inline.InlineEngine)
        for _ in range(2):  # looks around
            looked = engine._looked
            until(partial(lambda before: engine._looked != before, looked))
        assert bell.hangs()
        bell.close()
        journal.close()
