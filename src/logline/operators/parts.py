"""What is kept of a group for aggregates that are no single kernel of Arrow: one array with a value for each group.

A part is made of values (`of`), and several of them merge into one (`merge`). Nulls count for nothing.

    >>> groups = Groups(pa.array([0, 1, 0, 0]), 2)
    >>> Distinct().of(pa.array([5, 7, 5, 6]), groups).to_pylist()
    [[5, 6], [7]]
    >>> Top(1).of(pa.array([5, 7, 5, 6]), groups).to_pylist()
    [[6], [7]]
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from logline.errors import StateError
from logline.operators.custom_aggregate import Aggregate
from logline.operators.grouping import (
    Groups,
    by_value,
    comparable,
    count_to,
    ends,
    flat,
    lists,
    reduce,
    sizes,
)


class Part(Protocol):
    """A mergeable part of the state of groups."""

    def of(self, values: pa.Array, groups: Groups) -> pa.Array:
        """The state of each group of these values."""

    def merge(self, states: pa.Array, groups: Groups) -> pa.Array:
        """The states of rows that are in the same group as one."""


@dataclass(frozen=True)
class Edge:
    """The first value in order of arrival, or the last one."""

    function: str
    """`min` or `max` of the values' places."""

    def of(self, values: pa.Array, groups: Groups) -> pa.Array:
        places = pc.if_else(pc.is_valid(values), count_to(len(values)), None)
        return values.take(reduce(groups.of, places, groups.many, self.function))

    merge = of


@dataclass(frozen=True)
class Distinct:
    """The different values of each group, in order of arrival."""

    def of(self, values: pa.Array, groups: Groups) -> pa.Array:
        there = pc.is_valid(values)
        return self._lists(groups.of.filter(there), values.filter(there), groups.many)

    def merge(self, states: pa.Array, groups: Groups) -> pa.Array:
        return self._lists(*flat(states, groups), groups.many)

    @staticmethod
    def _lists(of: pa.Array, values: pa.Array, many: int) -> pa.Array:
        table = pa.table({"g": of, "v": comparable(values)})
        once = table.group_by(["g", "v"], use_threads=False).aggregate([]).combine_chunks()
        return lists(once["g"].combine_chunks(), once["v"].combine_chunks(), many)


@dataclass(frozen=True)
class Collected:
    """All values of each group, in order of arrival."""

    def of(self, values: pa.Array, groups: Groups) -> pa.Array:
        there = pc.is_valid(values)
        return lists(groups.of.filter(there), values.filter(there), groups.many)

    def merge(self, states: pa.Array, groups: Groups) -> pa.Array:
        return lists(*flat(states, groups), groups.many)


@dataclass(frozen=True)
class Top:
    """The `n` greatest values of each group, the greatest first."""

    n: int

    def of(self, values: pa.Array, groups: Groups) -> pa.Array:
        there = pc.is_valid(values)
        return self._lists(groups.of.filter(there), values.filter(there), groups.many)

    def merge(self, states: pa.Array, groups: Groups) -> pa.Array:
        return self._lists(*flat(states, groups), groups.many)

    def _lists(self, of: pa.Array, values: pa.Array, many: int) -> pa.Array:
        order = by_value(of, values, "descending")
        of, values = of.take(order), values.take(order)
        counts = sizes(of, many)
        rank = pc.subtract(count_to(len(of)), pc.subtract(ends(counts), counts).take(of))
        kept = pc.less(rank, self.n)
        return lists(of.filter(kept), values.filter(kept), many)


@dataclass(frozen=True)
class Moments:
    """How many values there are, their mean, and the sum of the squares of their distances to it.

    They merge after Chan, Golub and LeVeque, which does not lose what a sum of squares loses.
    """

    def of(self, values: pa.Array, groups: Groups) -> pa.Array:
        numbers = values.cast(pa.float64(), safe=False)
        n = reduce(groups.of, numbers, groups.many, "count")
        mean, variance = (reduce(groups.of, numbers, groups.many, function) for function in ("mean", "variance"))
        return self._struct(
            n, pc.fill_null(mean, 0.0), pc.fill_null(pc.multiply(variance, n.cast(pa.float64())), 0.0)
        )

    def merge(self, states: pa.Array, groups: Groups) -> pa.Array:
        n, mean, squares = (states.field(name) for name in ("n", "mean", "squares"))
        weights = n.cast(pa.float64())
        total = reduce(groups.of, weights, groups.many, "sum")
        weighted = reduce(groups.of, pc.multiply(mean, weights), groups.many, "sum")
        middle = pc.if_else(pc.equal(total, 0.0), 0.0, pc.divide(weighted, total))
        apart = pc.subtract(mean, middle.take(groups.of))
        more = pc.add(squares, pc.multiply(weights, pc.multiply(apart, apart)))
        return self._struct(total.cast(pa.int64()), middle, reduce(groups.of, more, groups.many, "sum"))

    @staticmethod
    def _struct(n: pa.Array, mean: pa.Array, squares: pa.Array) -> pa.Array:
        return pa.StructArray.from_arrays([n, mean, squares], ["n", "mean", "squares"])

    @staticmethod
    def variance(states: pa.Array) -> pa.Array:
        """Of a sample, as `variance` of SQL: null for fewer than two values."""
        n = states.field("n")
        found = pc.divide(states.field("squares"), pc.subtract(n, 1).cast(pa.float64()))
        return pc.if_else(pc.greater(n, 1), found, None)


@dataclass(frozen=True)
class Own:
    """The accumulators of an author's aggregate, pickled: what is changed in place is a copy, so `update` stays pure.
    Null is a group without values."""

    name: str
    aggregate: Aggregate[Any]

    # The loops are over groups: it is the author's function that takes a group's whole column.

    def of(self, values: pa.Array, groups: Groups) -> pa.Array:
        there = pc.is_valid(values)
        found = lists(groups.of.filter(there), values.filter(there), groups.many)
        made = (self._told(self._added, column.values) if column.values else None for column in found)
        return pa.array(made, pa.large_binary())

    def merge(self, states: pa.Array, groups: Groups) -> pa.Array:
        made: list[bytes | None] = [None] * groups.many
        for group, state in zip(groups.of.to_pylist(), states.to_pylist(), strict=True):
            before = made[group]
            if before is None or state is None:
                made[group] = before or state
            else:
                made[group] = self._told(self._merged, before, state)
        return pa.array(made, pa.large_binary())

    def results(self, states: pa.Array, kind: pa.DataType) -> pa.Array:
        """What the accumulators come to."""
        return pa.array(list(self._told(self._values, states)), kind)

    def check_encodes(self) -> None:
        """Raises a StateError unless the accumulators can be written to the log, where pickles don't belong."""
        kind = type(self.aggregate)
        if kind.encode is Aggregate.encode or kind.decode is Aggregate.decode:
            raise StateError(
                f"the aggregate {kind.__name__} of column {self.name!r} keeps accumulators that can't be logged: "
                "define encode(self, acc) -> bytes and decode(self, data) in it"
            )

    def encoded(self, states: pa.ChunkedArray) -> pa.Array:
        """Accumulators as the aggregate writes them, for a checkpoint."""
        encode = self.aggregate.encode
        made = (None if one is None else self._told(encode, pickle.loads(one)) for one in states.to_pylist())
        return pa.array(made, pa.large_binary())

    def decoded(self, states: pa.ChunkedArray) -> pa.Array:
        """The inverse of `encoded`."""
        decode = self.aggregate.decode
        made = (None if one is None else pickle.dumps(self._told(decode, one)) for one in states.to_pylist())
        return pa.array(made, pa.large_binary())

    def _added(self, values: pa.Array) -> bytes:
        return pickle.dumps(self.aggregate.add(self.aggregate.init(), values))

    def _merged(self, before: bytes, after: bytes) -> bytes:
        return pickle.dumps(self.aggregate.merge(pickle.loads(before), pickle.loads(after)))

    def _values(self, states: pa.Array) -> list[Any]:
        accs: Iterator[Any] = (
            self.aggregate.init() if state is None else pickle.loads(state) for state in states.to_pylist()
        )
        return [self.aggregate.result(acc) for acc in accs]

    def _told(self, fn: Any, *args: Any) -> Any:
        try:
            return fn(*args)
        except Exception as error:
            error.add_note(f"in the aggregate {type(self.aggregate).__name__} of column {self.name!r}")
            raise
