"""An error is retried or dropped while the pipeline runs: no call that is in flight is made twice (R9)."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.waiting import PATIENCE, until

import logline as ll
from logline.runtime.control import live_resolution
from logline.runtime.control.remote_control import tell_run
from logline.runtime.messages.commands import Retry, Stop

ENGINES = ("inline", "processes")
AT_ONCE = 4
ROWS = 12


def paid(folder: Path) -> Counter[int]:
    """How often each row was asked for, in whatever process."""
    file = folder / "asked"
    return Counter(map(int, file.read_text().split())) if file.exists() else Counter()


def pipeline(folder: Path) -> ll.Pipeline:
    """Row 0 fails until there is a file `fixed`; the others are answered once there is a file `answers`."""

    def ask(row: dict[str, Any], ctx: Any) -> dict[str, Any]:
        with (folder / "asked").open("a") as asked:
            asked.write(f"{row['n']}\n")
        if row["n"] == 0 and not (folder / "fixed").exists():
            raise ValueError("no answer for row 0")
        while row["n"] and not (folder / "answers").exists():
            time.sleep(0.01)
        return {"n": row["n"]}

    p = ll.Pipeline("paid")
    rows = p.source("rows", ll.sources.batches([pa.table({"n": [0]}), pa.table({"n": range(1, ROWS)})]))
    asked = rows.map_rows("ask", ask, schema="n long", concurrency=AT_ONCE, on_error="divert")
    asked.sink("store", ll.sinks.collect())
    return p


def calls_in_flight(folder: Path, engine: Any) -> ll.Run:
    """Begins a run; returns when the error waits, and as many calls as may are in flight."""
    run = pipeline(folder).start(f"lmdb:{folder / 'log'}", engine=engine)
    until(lambda: run.log.errors().num_rows == 1 and len(paid(folder)) == 1 + AT_ONCE)
    return run


def beside(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def finished(run: ll.Run) -> list[int]:
    assert run.wait(PATIENCE).phase == "finished"
    return sorted(run.result("store")["n"].to_pylist())


@pytest.mark.parametrize("engine", ENGINES)
def test_a_retry_lets_calls_in_flight_come_to_their_end(engine: Any, tmp_path: Path) -> None:
    with calls_in_flight(tmp_path, engine) as run:
        (tmp_path / "fixed").touch()
        retry = beside(lambda: run.retry("ask.errors:1"))
        until(lambda: "is in generation" in run.status().operators["ask"].waits)  # it winds up
        assert run.log.errors()["state"].to_pylist() == ["waiting"]
        assert len(paid(tmp_path)) == 1 + AT_ONCE  # and begins nothing
        (tmp_path / "answers").touch()
        retry.join(PATIENCE)
        assert finished(run) == list(range(ROWS))
        assert run.status().operators["ask"].restarts == 1
    assert paid(tmp_path) == {0: 2, **dict.fromkeys(range(1, ROWS), 1)}


@pytest.mark.parametrize("engine", ENGINES)
def test_another_process_may_ask_for_it_and_stop_the_run_meanwhile(engine: Any, tmp_path: Path) -> None:
    """The stop is heard while the retry waits. What was asked for is done when the run has ended."""
    with calls_in_flight(tmp_path, engine) as run:
        (tmp_path / "fixed").touch()
        tell_run(run.log.store, Retry(["ask.errors:1"]))
        until(lambda: bool(run.status().operators["ask"].waits))
        tell_run(run.log.store, Stop())
        until(lambda: run.status().phase == "stopping")
        (tmp_path / "answers").touch()
        assert run.wait(PATIENCE).phase == "stopped"
        assert run.log.errors()["state"].to_pylist() == ["being retried"]
    assert finished(pipeline(tmp_path).start(f"lmdb:{tmp_path / 'log'}", engine=engine)) == list(range(ROWS))
    assert paid(tmp_path) == {0: 2, **dict.fromkeys(range(1, ROWS), 1)}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_stop_while_a_retry_waits_leaves_it_for_the_next_run(engine: Any, tmp_path: Path) -> None:
    done: list[list[str]] = []
    with calls_in_flight(tmp_path, engine) as run:
        (tmp_path / "fixed").touch()
        retry = beside(lambda: done.append(run.retry("ask.errors:1")))
        until(lambda: bool(run.status().operators["ask"].waits))
        stop = beside(run.stop)
        until(lambda: run.status().phase == "stopping")
        (tmp_path / "answers").touch()
        stop.join(PATIENCE)
        retry.join(PATIENCE)
    assert done == [["ask.errors:1"]]
    assert finished(pipeline(tmp_path).start(f"lmdb:{tmp_path / 'log'}", engine=engine)) == list(range(ROWS))
    assert paid(tmp_path) == {0: 2, **dict.fromkeys(range(1, ROWS), 1)}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_call_that_takes_too_long_is_dropped(engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made again, as after a crash; the retry does not wait for good."""
    monkeypatch.setattr(live_resolution, "GRACE", 0.5)
    with calls_in_flight(tmp_path, engine) as run:
        (tmp_path / "fixed").touch()
        assert run.drop("ask.errors:1") == ["ask.errors:1"]
        until(lambda: sum(paid(tmp_path).values()) == 1 + 2 * AT_ONCE)
        (tmp_path / "answers").touch()
        assert finished(run) == list(range(1, ROWS))


@pytest.mark.parametrize("engine", ENGINES)
def test_retries_at_the_same_time_take_turns(engine: Any, tmp_path: Path) -> None:
    with calls_in_flight(tmp_path, engine) as run:
        asking = [beside(lambda: run.retry("ask.errors:1")) for _ in range(2)]
        until(lambda: bool(run.status().operators["ask"].waits))
        (tmp_path / "answers").touch()
        for thread in asking:
            thread.join(PATIENCE)
        assert finished(run) == list(range(1, ROWS))
        assert run.status().open_errors == 1
    assert paid(tmp_path) == {0: 2, **dict.fromkeys(range(1, ROWS), 1)}
