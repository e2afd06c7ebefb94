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
    began = time.monotonic()
    while not (found := condition()):
        waited = time.monotonic() - began
        assert waited < PATIENCE, "it does not come"
        time.sleep(min(max(waited / 20, 0.005), 0.25))  # who asks too often slows down what it waits for
    return found
