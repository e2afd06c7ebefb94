"""The operator of sessions is killed while its sets merge: what it puts out equals a run without failure."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from tests.waiting import PATIENCE, until

import logline as ll
from logline.runtime.control.supervisor import Supervisor

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
EVENTS, KILLS = 60, 5


def clicks() -> list[pa.RecordBatch]:
    """Out of order within ten minutes, so that many sessions merge."""
    rnd = Random(32)
    found = []
    for event in range(EVENTS):
        seconds = [event * 20 + rnd.randrange(600) for _ in range(20)]
        times = pa.array([BEGIN + timedelta(seconds=second) for second in seconds], pa.timestamp("us", "UTC"))
        found.append(pa.record_batch({"user": [rnd.choice("abcdef") for _ in seconds], "at": times, "n": seconds}))
    return found


def paced(folder: str) -> Iterator[pa.RecordBatch]:
    """A part of the events for each file that the test has made."""
    for part in range(KILLS + 1):
        while not Path(folder, str(part)).exists():
            time.sleep(0.01)
        size = EVENTS // (KILLS + 1)
        yield from clicks()[part * size : (part + 1) * size]


def pipeline(data: Any, database: Path) -> ll.Pipeline:
    p = ll.Pipeline("clicks")
    source = p.source("clicks", ll.sources.batches(data, schema=clicks()[0].schema), rows=20)
    window = ll.session_window("30s", on="at", lateness="10m")
    visits = source.window("visits", window, by=["user"], agg={"n": ("n", "count"), "total": ("n", "sum")})
    visits.sink("store", ll.sinks.sqlite(str(database), "visits"))
    return p


def visits(database: Path) -> list[tuple[Any, ...]]:
    with sqlite3.connect(database) as db:
        return sorted(db.execute("select window_start, window_end, user, n, total from visits"))


def pid_of(run: ll.Run) -> int:
    pid = until(lambda: run.pid("visits"))
    assert pid is not None
    return pid


def test_kills_while_sessions_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Supervisor, "soon", 0.0)  # so many deaths in a row are no crash loop
    folder = str(tmp_path)
    job = pipeline(lambda: paced(folder), tmp_path / "killed.db")
    with job.start(f"lmdb:{tmp_path / 'log'}", engine="processes", durability="process") as run:
        for part in range(KILLS + 1):
            (tmp_path / str(part)).touch()
            if part < KILLS:
                taken = (part + 1) * EVENTS // (KILLS + 1)
                until(lambda taken=taken: run.status().operators["visits"].taken >= taken)  # type: ignore[misc]
                os.kill(pid_of(run), signal.SIGKILL)
                until(lambda part=part: run.status().operators["visits"].restarts > part)  # type: ignore[misc]
        assert run.wait(PATIENCE).phase == "finished"
    pipeline(clicks(), tmp_path / "calm.db").run(f"lmdb:{tmp_path / 'calm'}", engine="inline")
    assert visits(tmp_path / "killed.db") == visits(tmp_path / "calm.db")
    assert len(visits(tmp_path / "calm.db")) > 10
