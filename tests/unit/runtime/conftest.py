"""What every test of a run wants: a key of its own, and nothing left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.waiting import PATIENCE


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """The threads of a run are gone after it."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE)
        assert not thread.is_alive(), thread.name


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """Finds the ends of taps and buckets; also good as the name of a log."""
    return str(request.node.name)
