"""What a run says of itself where nobody sees a table."""

from __future__ import annotations

import logging
import math

import pyarrow as pa
import pytest

import logline as ll
from logline.runtime.control import progress
from logline.runtime.status import OperatorStatus, Status


class Scripted:
    """A run that looks like this, then like that, then is over."""

    def __init__(self, *looks: Status) -> None:
        self.looks = list(looks)

    def wait(self, timeout: float | None = None) -> Status:
        if len(self.looks) > 1:
            raise TimeoutError
        return self.looks[0]

    def status(self) -> Status:
        return self.looks.pop(0)

    def stop(self, *, timeout: float = 0.0) -> Status:
        raise AssertionError("nobody stops it")


def look(taken: int) -> Status:
    return Status("running", {"store": OperatorStatus(taken=taken)})


def test_a_line_when_something_has_changed(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(progress, "SPEAK", 0.0)
    caplog.set_level(logging.INFO, "logline")
    assert progress.follow(Scripted(look(1), look(1), look(7), look(9)), "sales") == look(9)
    assert [line.partition(";")[0] for line in caplog.messages] == [
        "sales running: store 1 in",
        "sales running: store 7 in",
    ]


def test_not_a_line_for_every_change(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(progress, "SPEAK", math.inf)
    caplog.set_level(logging.INFO, "logline")
    progress.follow(Scripted(*(look(n) for n in range(100))), "sales")
    assert caplog.messages == []


def test_rates_are_over_the_last_seconds() -> None:
    rates = progress.Rates()
    assert rates.note(look(0), 0.0) == {"store": 0.0}
    assert rates.note(look(100), 2.0) == {"store": 50.0}
    rates.note(look(100), 4.0)
    rates.note(look(100), 6.0)
    assert rates.note(look(100), 8.0) == {"store": 0.0}
    assert rates.note(look(60), 9.0) == {"store": 0.0}  # a new life begins with what is logged


def test_by_default_a_run_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    p = ll.Pipeline("quiet")
    p.source("s", ll.sources.batches([pa.table({"n": [1]})])).sink("t", ll.sinks.collect())
    p.run(engine="inline")
    assert capfd.readouterr() == ("", "")
