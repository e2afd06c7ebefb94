"""What every part of the suite has: a fresh log, and a way to open it again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from logline.names import InstanceName
from logline.store.seam import Store
from logline.testing.conformance.model import Scribe

HOURLY = InstanceName("hourly")
"""The instance that most tests write to."""

OpenLog = Callable[[], Callable[[], Store]]
"""Makes a fresh log; what it returns opens that log, each time anew."""


class StoreSuite:
    """The base of the parts."""

    bells_are_reliable = False
    """Whether a bell that is rung while somebody listens is always heard. The seam does not ask for it."""

    examples = settings(
        max_examples=60,
        stateful_step_count=25,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    """How much of what is drawn is tried; nothing is timed."""

    def make_store(self, location: Path) -> Store:
        """Opens the log at this place, an empty folder at first: the same log for the same place.

        A log is closed before it is opened again.
        """
        raise NotImplementedError("a store's own test class says how it is opened")

    @pytest.fixture
    def open_log(self, tmp_path_factory: pytest.TempPathFactory) -> OpenLog:
        """For tests that need several logs."""

        def fresh() -> Callable[[], Store]:
            location = tmp_path_factory.mktemp("log")
            return lambda: self.make_store(location)

        return fresh

    @pytest.fixture
    def reopen(self, open_log: OpenLog) -> Iterator[Callable[[], Store]]:
        """Opens the log of this test, after closing it if it is open."""
        open_store = open_log()
        known: list[Store] = []

        def reopened() -> Store:
            if known:
                known.pop().close()
            known.append(open_store())
            return known[-1]

        yield reopened
        known.pop().close()

    @pytest.fixture
    def store(self, reopen: Callable[[], Store]) -> Store:
        """The log of this test, open."""
        return reopen()

    @pytest.fixture
    def scribe(self, store: Store) -> Iterator[Scribe]:
        """A life of `hourly` that writes to the log and to a model."""
        scribe = Scribe(store, HOURLY)
        yield scribe
        scribe.journal.close()
