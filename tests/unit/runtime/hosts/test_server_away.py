"""Processes whose log is on a server that goes away for longer than a life may be silent."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.paced import EVENTS, allow, paced
from tests.postgres import Database, server
from tests.waiting import PATIENCE, until

import logline as ll
from logline.runtime.control.supervisor import Supervisor
from logline.runtime.messages.reports import StatusReport
from logline.store.postgres.store import OPENING

HALF = EVENTS // 2


@pytest.fixture
def signs(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each group has said nothing but that it lives."""
    found, hear = Counter[str](), Supervisor._hear
    monkeypatch.setattr(Supervisor, "silence", 2.0)

    def counted(self: Supervisor, worker: Any, life: int, report: Any) -> None:
        if isinstance(report, StatusReport) and not report.operators:
            found[worker.group.name] += 1
        hear(self, worker, life, report)

    monkeypatch.setattr(Supervisor, "_hear", counted)
    return found


@pytest.fixture
def run(tmp_path: Path, postgres: Database) -> Iterator[ll.Run]:
    with paced(tmp_path).start(f"{postgres.bare}&log=l_{postgres.schema}", engine="processes") as begun:
        allow(tmp_path, HALF)
        until(lambda: begun.status().operators["plain"].written == HALF)
        yield begun


def check_end(run: ll.Run, folder: Path) -> None:
    allow(folder, EVENTS)
    status = run.wait(PATIENCE)
    assert status.phase == "finished"
    assert sorted(run.result("plain")["n"].to_pylist()) == list(range(1, EVENTS + 1))


def test_nobody_is_killed_for_the_silence_of_the_log(run: ll.Run, signs: Counter[str], tmp_path: Path) -> None:
    """A life is its process; what it reports of the log waits with the log."""
    server().stop()
    try:
        until(lambda: len(signs) == 5 and min(signs.values()) >= 5)  # one in a second, and silence is two
    finally:
        server().start()
    check_end(run, tmp_path)
    assert {name: found.restarts for name, found in run.status().operators.items()} == dict.fromkeys(
        ("numbers", "twice", "sums", "store", "plain"), 0
    )


def test_a_life_that_begins_meanwhile_waits_too(run: ll.Run, signs: Counter[str], tmp_path: Path) -> None:
    """Also for longer than whoever opens a log that may not be there."""
    victim = run.pid("twice")
    assert victim is not None
    server().stop()
    try:
        until(lambda: len(signs) == 5)
        os.kill(victim, signal.SIGKILL)
        until(lambda: run.pid("twice") not in (None, victim))
        begun = signs["store"]
        until(lambda: signs["store"] > begun + OPENING)
    finally:
        server().start()
    check_end(run, tmp_path)
    assert run.status().operators["twice"].restarts == 1
