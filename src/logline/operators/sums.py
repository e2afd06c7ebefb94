"""Sums that don't wrap: where Arrow's own type might not hold a sum, it is computed in a wider one.

A sum of integers is int64 (of unsigned ones uint64), a sum of decimals keeps their scale. If the final sum does not
fit that type it is an error, not a wrong number. On the way there it may be larger.

    >>> wide_type(pa.chunked_array([[2**62, 2**62]]))
    Decimal256Type(decimal256(76, 0))
    >>> wide_type(pa.chunked_array([[1, 2]])) is None
    True
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc


class Narrow:
    """By value: the type that its sum has, unless it had to be computed in a wider one. Each partial says so; like
    what `operators.window` keeps of an event, it is no part of what the operator is."""

    __slots__ = ("types",)

    def __init__(self) -> None:
        self.types: dict[str, pa.DataType] = {}

    def __reduce__(self) -> tuple[type[Narrow], tuple[()]]:
        return Narrow, ()


def sum_type(kind: pa.DataType) -> pa.DataType | None:
    """The type that Arrow gives a sum, of types whose sums it lets wrap."""
    if pa.types.is_signed_integer(kind):
        return pa.int64()
    if pa.types.is_unsigned_integer(kind):
        return pa.uint64()
    return pa.decimal128(38, kind.scale) if pa.types.is_decimal128(kind) else None


def wide_type(column: pa.ChunkedArray) -> pa.DataType | None:
    """A type that holds the sum of these values, where Arrow's own might not; None if it does."""
    narrow = sum_type(column.type)
    if narrow is None:
        return None
    ends = pc.min_max(column).as_py()
    if ends["min"] is None:
        return None
    scale = 0 if pa.types.is_integer(narrow) else narrow.scale
    limit = 2**63 if narrow == pa.int64() else 2**64 if narrow == pa.uint64() else Decimal(10) ** (38 - scale)
    if max(abs(ends["min"]), abs(ends["max"])) * len(column) < limit:
        return None
    return pa.decimal256(76, scale)


def joined(partials: Sequence[pa.Table], values: Sequence[str]) -> pa.Table:
    """Partials as one table, in the wider type where one of them has a sum that needed it."""
    for value in values:
        wide = next((p[value].type for p in partials if pa.types.is_decimal256(p[value].type)), None)
        if wide is not None:
            at = partials[0].schema.get_field_index(value)
            partials = [p.set_column(at, value, p[value].cast(wide)) for p in partials]
    return pa.concat_tables(partials)


def narrowed(total: pa.ChunkedArray, narrow: pa.DataType, column: str) -> pa.ChunkedArray:
    """A sum in the type that it shall have; OverflowError, with the column's name, if it does not fit."""
    try:
        return total if total.type == narrow else total.cast(narrow)
    except pa.ArrowInvalid as error:
        raise OverflowError(
            f"the sum of column {column!r} does not fit {narrow} ({error}): cast the column to a wider type "
            "before it is summed, a decimal or a double"
        ) from error
