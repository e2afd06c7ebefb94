"""Which rows of two tables match: by keys, and by times that are near each other.

Arrow joins keys and times alone, and gives numbers of rows, which are put in a fixed order. So a column that is no
key may have any type, and the same tables always give the same rows in the same order.

    >>> columns = JoinColumns(pa.schema({"id": pa.int64()}), pa.schema({"id": pa.int64()}), ["id"], "left")
    >>> left, right = pa.table({"id": [7, 5, None]}), pa.table({"id": [5, 5, None]})
    >>> Matching(columns).rows("left", left, right).to_pydict()
    {'l': [0, 1, 1, 2], 'r': [None, 0, 1, None]}
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from logline.operators.grouping import count_to
from logline.operators.join_columns import LEFT, RIGHT, How, JoinColumns, Side

Kind = How | Literal["unmatched"]
"""How two tables are joined. `unmatched`: the rows of the right one that match none of the left one."""
_ORDER = {"right": ("r", "l")}
_PAIRS = pa.schema([("l", pa.int64()), ("r", pa.int64())])


class Near(NamedTuple):
    """How far after a row of the left side one of the right side may be, in ticks: both bounds count."""

    low: int
    high: int


class Matching:
    """Finds rows that have the same keys; a null equals nothing."""

    def __init__(self, columns: JoinColumns) -> None:
        self.columns = columns

    def rows(
        self,
        kind: Kind,
        left: pa.Table,
        right: pa.Table,
        near: Near | None = None,
        times: tuple[pa.ChunkedArray, pa.ChunkedArray] | None = None,
    ) -> pa.Table:
        """Pairs of row numbers, `l` and `r`; null where there is no row to match. With `near`, also the `times` of
        both sides count."""
        sides = {LEFT: self._compared(LEFT, left), RIGHT: self._compared(RIGHT, right)}
        if near is None or times is None:
            pairs = _same(sides[LEFT], sides[RIGHT]).select(["l", "r"])
        else:
            pairs = _near(sides[LEFT].append_column("lt", times[0]), sides[RIGHT].append_column("rt", times[1]), near)
        match kind:
            case "semi":
                return _alone("l", pc.unique(pairs["l"]).sort())
            case "anti":
                return _alone("l", _others(pairs["l"], left.num_rows))
            case "unmatched":
                return _alone("r", _others(pairs["r"], right.num_rows))
        if kind in ("left", "outer"):
            pairs = pa.concat_tables([pairs, _alone("l", _others(pairs["l"], left.num_rows))])
        if kind in ("right", "outer"):
            pairs = pa.concat_tables([pairs, _alone("r", _others(pairs["r"], right.num_rows))])
        return pairs.sort_by([(name, "ascending") for name in _ORDER.get(kind, ("l", "r"))])

    def _compared(self, side: Side, table: pa.Table) -> pa.Table:
        """The keys of a side's rows, and their numbers as a column `l` or `r`."""
        return pa.table({**self.columns.key_columns(side, table), side[0]: count_to(table.num_rows)})


def _same(left: pa.Table, right: pa.Table) -> pa.Table:
    keys = [name for name in left.column_names if name in right.column_names]
    return left.join(right, keys, join_type="inner", use_threads=False)


def _near(left: pa.Table, right: pa.Table, near: Near) -> pa.Table:
    """Pairs that are near, too. Time is cut into cells as long as the interval, and rows meet in a cell. Otherwise
    all rows with a frequent key would meet before their times are compared."""
    length = near.high - near.low + 1
    # What a left row matches begins in one cell, and ends there or in the next one.
    first = _cells(pc.add(left["lt"], pa.scalar(near.low, pa.int64())), length)
    begins = left.append_column("cell", first)
    reaches = left.append_column("cell", pc.add(first, pa.scalar(1, pa.int64())))
    meets = _same(pa.concat_tables([begins, reaches]), right.append_column("cell", _cells(right["rt"], length)))
    apart = pc.subtract(meets["rt"], meets["lt"])
    inside = pc.and_(pc.greater_equal(apart, near.low), pc.less_equal(apart, near.high))
    return meets.filter(inside).select(["l", "r"])


def _cells(ticks: pa.ChunkedArray, length: int) -> pa.ChunkedArray:
    cell = pc.divide(ticks, pa.scalar(length, pa.int64()))
    # Arrow divides towards zero; before 1970 that is the cell after.
    return pc.subtract(cell, pc.less(ticks, pc.multiply(cell, length)).cast(pa.int64()))


def _others(rows: Any, many: int) -> pa.Array:
    """The numbers of rows that are not among these."""
    every = count_to(many)
    return every.filter(pc.invert(pc.is_in(every, value_set=pc.unique(rows))))


def _alone(name: str, rows: pa.Array) -> pa.Table:
    """Pairs with nothing on the other side."""
    none = pa.nulls(len(rows), pa.int64())
    return pa.table([rows, none] if name == "l" else [none, rows], schema=_PAIRS)
