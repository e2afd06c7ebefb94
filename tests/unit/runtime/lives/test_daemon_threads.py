"""Threads for user code that may hang."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from logline.runtime.lives.daemon_threads import DaemonThreads

PATIENCE = 60.0

HANGS = """
import threading
import pyarrow as pa
import logline as ll

def hang(row, ctx):
    if row["x"] == 1:
        threading.Event().wait()
    return row

p = ll.Pipeline("hanging")
s = p.source("numbers", ll.sources.batches([pa.table({"x": [0, 1, 2]})]))
s.map_rows("op", hang, schema="x long", timeout="200ms", on_error="drop").sink("store", ll.sinks.collect())
print(p.run(engine="inline").result("store")["x"].to_pylist())
"""


def test_a_call_that_hangs_does_not_keep_the_script_from_ending() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", HANGS], check=False, capture_output=True, text=True, timeout=PATIENCE
    )
    assert (ended.returncode, ended.stdout) == (0, "[0, 2]\n"), ended.stderr


def test_as_many_at_once_as_there_may_be_and_no_more() -> None:
    pool = DaemonThreads(2, "both")
    both, third = threading.Barrier(3), threading.Event()
    first = [pool.submit(both.wait, PATIENCE) for _ in range(2)]
    last = pool.submit(third.set)
    assert not third.is_set()
    both.wait(PATIENCE)
    assert sorted(f.result(PATIENCE) for f in first) and last.result(PATIENCE) is None
    pool.shutdown()


def test_whatever_a_call_raises_is_for_who_waits() -> None:
    pool = DaemonThreads(1, "raising")
    with pytest.raises(SystemExit):
        pool.submit(sys.exit, 3).result(PATIENCE)
    assert pool.submit(abs, -1).result(PATIENCE) == 1
    pool.shutdown()


def test_what_has_not_begun_is_dropped_at_the_end() -> None:
    pool = DaemonThreads(1, "dropped")
    began, go_on = threading.Event(), threading.Event()

    def first() -> None:
        began.set()
        go_on.wait(PATIENCE)

    running, waiting = pool.submit(first), pool.submit(abs, -1)
    assert began.wait(PATIENCE)
    pool.shutdown(cancel_futures=True)
    assert waiting.cancelled()
    go_on.set()
    running.result(PATIENCE)
    with pytest.raises(RuntimeError):
        pool.submit(abs, -1)
