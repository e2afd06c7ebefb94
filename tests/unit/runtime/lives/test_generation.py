"""Sets in generation on threads."""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from tests.waiting import PATIENCE

from logline.engine import stimuli as on
from logline.engine.actions import Job
from logline.engine.results import Result
from logline.names import Serial
from logline.runtime.lives.calls_in_flight import CallsInFlight
from logline.runtime.lives.generation import ThreadRunner

SETS = 200


class Queue:
    """A generation that has to find out which of its sets kills."""

    def __init__(self) -> None:
        self.begun: list[Serial] = []
        self.working = threading.Lock()
        self.left = threading.Semaphore(0)
        self.phases = SimpleNamespace(spec=SimpleNamespace(name="eat"))
        self.calls = CallsInFlight(lambda serial: None)

    def alone(self) -> bool:
        return True

    def begin(self, job: Job, gate: Any) -> tuple[Serial, None]:
        assert self.working.acquire(blocking=False), "another set is at work"
        self.begun.append(job.serial)
        os.sched_yield()  # the other threads ask for their turn
        return job.serial, None

    def collect(self, serial: Serial, made: None) -> list[Any]:
        self.working.release()
        return []

    def outcome(self, serial: Serial, outputs: list[Any]) -> on.Stimulus:
        return on.Generated([Result(serial)])

    def report(self, stimulus: Any) -> None:
        self.left.release()


@pytest.mark.parametrize("run", [1, 7])
def test_while_a_culprit_is_looked_for_sets_are_taken_one_at_a_time_in_their_order(run: int) -> None:
    """Or the sets after it go on being taken while it waits for its turn, and nobody finds it."""
    generation = Queue()
    jobs = [Job(Serial(serial), "ready") for serial in range(SETS)]
    runner = ThreadRunner(generation, concurrency=4, announced=False)  # type: ignore[arg-type]
    for first in range(0, SETS, run):
        runner.start(jobs[first : first + run])
    for _ in jobs:
        assert generation.left.acquire(timeout=PATIENCE)
    runner.close()
    assert generation.begun == list(range(SETS))
