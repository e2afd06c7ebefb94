"""Logical times and frontiers: the sets of times that a rollback keeps (Falkirk Wheel 2, 3.1).

An event has a logical time. How times compare is an `Order`; each instance has one:

- `SEQUENCES`: a time is (edge, number). Only times of one edge compare.
- `EPOCHS`: a time is (epoch,) or (epoch, loop counter, ...), and the first difference decides.
- `LOOPS`: the same tuples, compared in each place: (1, 4) and (2, 3) do not compare.

A `Frontier` is a set of times that has, with each time, all times below it. It is written by its greatest times.

    >>> taken = SEQUENCES.upto(("e1", 4), ("e2", 7))
    >>> ("e1", 3) in taken, ("e2", 8) in taken
    (True, False)
    >>> taken & SEQUENCES.upto(("e2", 5))
    upto(('e2', 5))
    >>> EPOCHS.upto((1, FOREVER)) <= EPOCHS.upto((2, 0))
    True
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Any

Time = tuple[Any, ...]
FOREVER = inf
"""A number above all others: (1, FOREVER) is the end of epoch 1, however often it goes round a loop."""


class Order(ABC):
    """How the times of one domain compare."""

    @abstractmethod
    def below(self, time: Time, other: Time) -> bool:
        """Whether `time` is `other` or comes before it."""

    @abstractmethod
    def meet(self, time: Time, other: Time) -> Time | None:
        """The greatest time that is below both; None if there is none."""

    def upto(self, *times: Time) -> Frontier:
        """The smallest frontier with these times in it."""
        return Frontier(self, _greatest(self, times))

    @property
    def nothing(self) -> Frontier:
        """The frontier of an instance that has done nothing yet."""
        return Frontier(self, frozenset())

    @property
    def everything(self) -> Frontier:
        """The frontier of an instance that keeps all it did, whatever that is: one that did not fail."""
        return Frontier(self, frozenset(), every=True)


@dataclass(frozen=True, slots=True, repr=False)
class Frontier:
    """A set of times that has, with each time, all times below it."""

    order: Order
    maxima: frozenset[Time]
    """Its greatest times; none of them is below another."""
    every: bool = False
    """Whether it has all times there are."""

    def __contains__(self, time: Time) -> bool:
        return self.every or any(self.order.below(time, top) for top in self.maxima)

    def __le__(self, other: Frontier) -> bool:
        """Whether the other one has all times of this one."""
        if other.every or not (self.every or self.maxima):
            return True
        return not self.every and all(top in other for top in self.maxima)

    def __and__(self, other: Frontier) -> Frontier:
        """The times that are in both."""
        if self.every or other.every:
            return other if self.every else self
        meets = (self.order.meet(mine, its) for mine in self.maxima for its in other.maxima)
        return self.order.upto(*(time for time in meets if time is not None))

    def __or__(self, other: Frontier) -> Frontier:
        """The times that are in one of them."""
        if self.every or other.every:
            return self if self.every else other
        return self.order.upto(*self.maxima, *other.maxima)

    def __repr__(self) -> str:
        return "everything" if self.every else f"upto({', '.join(map(repr, sorted(self.maxima)))})"


def _greatest(order: Order, times: Iterable[Time]) -> frozenset[Time]:
    found = set(times)
    return frozenset(t for t in found if not any(t != other and order.below(t, other) for other in found))


class _Sequences(Order):
    def below(self, time: Time, other: Time) -> bool:
        return bool(time[0] == other[0] and time[1] <= other[1])

    def meet(self, time: Time, other: Time) -> Time | None:
        return (time[0], min(time[1], other[1])) if time[0] == other[0] else None


class _Epochs(Order):
    def below(self, time: Time, other: Time) -> bool:
        return time <= other

    def meet(self, time: Time, other: Time) -> Time | None:
        return min(time, other)


class _Loops(Order):
    def below(self, time: Time, other: Time) -> bool:
        return all(mine <= its for mine, its in zip(time, other, strict=True))

    def meet(self, time: Time, other: Time) -> Time | None:
        return tuple(min(mine, its) for mine, its in zip(time, other, strict=True))


SEQUENCES: Order = _Sequences()
"""Sequence numbers on edges: what a channel's SSNs are."""
EPOCHS: Order = _Epochs()
"""Epochs, also with loop counters: the first difference decides, so all times compare (Falkirk 4.1)."""
LOOPS: Order = _Loops()
"""Epochs with loop counters, compared in each place: several iterations may be under way at once (Falkirk 2.3)."""
