"""What a check of a connector comes to: which promise was broken, or how many faults it has survived."""

from __future__ import annotations

from dataclasses import dataclass


class BrokenPromise(AssertionError):
    """A connector does not do what it says. The message is one sentence: the promise, where it broke, and numbers."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A connector that has kept its promise."""

    promise: str
    """Its guarantee, or its kind of source."""
    faults: int
    """How often something went wrong on purpose."""
