"""Waiting for something that must come, without a time in which it should."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE = 240.0
"""Seconds after which what has not come does not come; nothing is measured with it."""

T = TypeVar("T")


def until(condition: Callable[[], T]) -> T:
    """What the condition gives as soon as it gives something."""
    give_up = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < give_up, "it does not come"
        time.sleep(0.005)
    return found
