"""What holds for all tests."""

from __future__ import annotations

import pytest
from hypothesis import settings

from logline.runtime.control import supervisor

# No test asserts a time, and a busy machine is no failure.
settings.register_profile("logline", deadline=None)
settings.load_profile("logline")


@pytest.fixture(autouse=True)
def nobody_is_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that makes no report is killed only in the tests of that: they count deaths."""
    monkeypatch.setattr(supervisor.Supervisor, "silence", 1e9)
    monkeypatch.setattr(supervisor, "BEGIN", 1e9)
