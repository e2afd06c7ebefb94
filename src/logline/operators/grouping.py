"""Groups as numbers, for what Arrow has no grouped kernel for.

Rows are numbered by their group: 0 for the group of the first row, 1 for the next group that comes, and so on. What
is kept of the groups is then an array with a value for each number.

    >>> groups = Groups.number([pa.chunked_array([["b", "a", "b"]])], 3)
    >>> groups.of.to_pylist(), groups.many
    ([0, 1, 0], 2)
    >>> lists(groups.of, pa.array([1, 2, 3]), groups.many).to_pylist()
    [[1, 3], [2]]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

_NUMBER = pa.int64()


class Groups(NamedTuple):
    """Which group each row is in."""

    of: pa.Array
    many: int

    @classmethod
    def number(cls, keys: Sequence[pa.ChunkedArray], rows: int) -> Groups:
        """The groups of rows with equal keys; without keys all are in one."""
        if not keys:
            return cls(pa.repeat(pa.scalar(0, _NUMBER), rows), 1)
        names = [f"k{i}" for i in range(len(keys))]
        table = pa.Table.from_arrays([*keys, count_to(rows)], names=[*names, "i"])
        found = whole(table.group_by(names, use_threads=False).aggregate([("i", "list")])["i_list"])
        # In which order the rows stand there, turned around: where each row's group is.
        places = pc.sort_indices(pc.list_flatten(found))
        return cls(pc.list_parent_indices(found).cast(_NUMBER).take(places), len(found))


def whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column as one array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def count_to(n: int) -> pa.Array:
    """0, 1, ... n - 1."""
    return pa.array(range(n), _NUMBER)


def reduce(of: pa.Array, values: pa.Array, many: int, function: str) -> pa.Array:
    """One value for each group by one of Arrow's grouped kernels; some groups may have no rows."""
    # A row of each group stands before the others: all are there then, and in order.
    table = pa.table(
        {
            "g": pa.concat_arrays([count_to(many), of]),
            "v": pa.concat_arrays([pa.nulls(many, values.type), values]),
        }
    )
    return whole(table.group_by("g", use_threads=False).aggregate([("v", function)])[f"v_{function}"])


def sizes(of: pa.Array, many: int) -> pa.Array:
    """How many rows each group has."""
    return reduce(of, of, many, "count")


def ends(counts: pa.Array) -> pa.Array:
    """Where each group ends if they lie one behind the other, with so many rows each."""
    return pc.cumulative_sum(counts) if len(counts) else counts


def lists(of: pa.Array, values: pa.Array, many: int) -> pa.ListArray:
    """The values of each group as a list, in their order."""
    order = pc.sort_indices(of)  # stable
    offsets = pa.concat_arrays([pa.array([0], _NUMBER), ends(sizes(of, many))])
    return pa.ListArray.from_arrays(offsets.cast(pa.int32()), values.take(order))


def flat(found: pa.Array, groups: Groups) -> tuple[pa.Array, pa.Array]:
    """The values of all lists, and the group of each: a list is in the group of its row."""
    return groups.of.take(pc.list_parent_indices(found)), pc.list_flatten(found)


def by_value(of: pa.Array, values: pa.Array, order: str = "ascending") -> pa.Array:
    """Places of the rows sorted by group, and within it by value. NaN counts as greater than any number."""
    columns, keys = {"g": of, "v": values}, [("g", "ascending"), ("v", order)]
    if pa.types.is_floating(values.type):
        columns["nan"] = pc.is_nan(values)  # Arrow puts it last, whatever the order
        keys.insert(1, ("nan", order))
    return pc.sort_indices(pa.table(columns), sort_keys=keys)


def comparable(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Floats in which what is equal has the same bits, as Arrow groups them: one NaN, and no zero below zero."""
    if not pa.types.is_floating(values.type):
        return values
    nan, zero = pa.scalar(float("nan"), values.type), pa.scalar(0.0, values.type)
    return pc.if_else(pc.is_nan(values), nan, pc.add(values, zero))
