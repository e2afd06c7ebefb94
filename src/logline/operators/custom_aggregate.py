"""An aggregate of one's own: what a group's values come to, batch by batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

import pyarrow as pa

A = TypeVar("A")


class Aggregate(ABC, Generic[A]):
    """A function of a column's values, for `window(agg={"range": ("amount", Range())})`.

    Each group has an accumulator. It must be picklable, and may be changed in place: the engine works on copies.
    Nulls are left out before `add` sees the values. Of a group of nothing but nulls it is `result(init())`.

    >>> import pyarrow.compute as pc
    >>> import logline as ll
    >>> class Range(ll.Aggregate):
    ...     type = "long"
    ...     def init(self):
    ...         return None
    ...     def add(self, acc, values):
    ...         return self.merge(acc, tuple(pc.min_max(values).as_py().values()))
    ...     def merge(self, acc, other):
    ...         return other if acc is None else (min(acc[0], other[0]), max(acc[1], other[1]))
    ...     def result(self, acc):
    ...         return None if acc is None else acc[1] - acc[0]
    """

    type: ClassVar[pa.DataType | str]
    """The type of the result: of Arrow, or a text as in a schema (`"double"`)."""
    in_order: ClassVar[bool] = False
    """Whether the result depends on the order of the values. Sliding windows then share nothing: what they share is
    merged by time, and not in order of arrival."""

    @abstractmethod
    def init(self) -> A:
        """The accumulator of a group without values."""

    @abstractmethod
    def add(self, acc: A, values: pa.Array) -> A:
        """The accumulator with more values of its group: a whole column of them, without nulls, never empty."""

    @abstractmethod
    def merge(self, acc: A, other: A) -> A:
        """Two accumulators as one; the values of `other` came later."""

    @abstractmethod
    def result(self, acc: A) -> Any:
        """What the values come to: a Python value that fits `type`, or None."""

    def encode(self, acc: A) -> bytes:
        """The accumulator as bytes, for checkpoints of windows (`policy="eventual"`); needed for these alone."""
        raise TypeError(f"{type(self).__name__} has no encode()")  # an operator looks for an override

    def decode(self, data: bytes) -> A:
        """The accumulator that `encode` wrote."""
        raise TypeError(f"{type(self).__name__} has no decode()")
