"""What holds for all tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from logline.runtime.control import supervisor

if TYPE_CHECKING:
    from tests.postgres import Database

# No test asserts a time, and a busy machine is no failure.
settings.register_profile("logline", deadline=None)
settings.load_profile("logline")

# A JVM of a test ends before optimized code pays off. Without the optimizing compiler it takes a third less CPU time.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Assigns tests to workers (`-n 2`)."""
    from tests.scheduling import Together

    return Together(config, log)


def pytest_unconfigure() -> None:
    if "tests.postgres" in sys.modules:
        sys.modules["tests.postgres"].end_server()


@pytest.fixture(autouse=True)
def nobody_is_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that makes no report is killed only in the tests of that: they count deaths."""
    monkeypatch.setattr(supervisor.Supervisor, "silence", 1e9)
    monkeypatch.setattr(supervisor, "BEGIN", 1e9)


@pytest.fixture
def postgres() -> Iterator[Database]:
    """A schema of its own on this process's PostgreSQL."""
    from tests.postgres import fresh

    with fresh() as made:
        yield made
