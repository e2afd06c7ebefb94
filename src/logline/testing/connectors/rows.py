"""Rows to write: of any schema, and no two of them equal.

>>> made = Rows(pa.schema({"id": pa.int64(), "item": pa.string()}), None, ("id",))
>>> made.batch([1, 2]).to_pylist()
[{'id': 1, 'item': 'r1'}, {'id': 2, 'item': 'r2'}]
>>> made.batch([3], key=2).to_pylist()
[{'id': 2, 'item': 'r3'}]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.types as pt

from logline.errors import OptionError

Row = tuple[Any, ...]
"""The values of a row, as something that can be compared."""


class Rows:
    """Makes rows by number."""

    def __init__(
        self, schema: pa.Schema, make: Callable[[int], Mapping[str, Any]] | None, key: tuple[str, ...]
    ) -> None:
        self.schema = schema
        self.key = key
        self._make = make or self._made
        self._seen: dict[Row, int] = {}
        for name in key:
            if name not in schema.names:
                raise OptionError(f"check(): key= names {name!r}, and the schema has {', '.join(schema.names)}")
        if key and len(key) == len(schema.names):
            raise OptionError("check(): key= names all columns; with another one it shows which write a row is of")

    def _made(self, n: int) -> dict[str, Any]:
        return {field.name: _value(field.type, n) for field in self.schema}

    def batch(self, numbers: Sequence[int], key: int | None = None) -> pa.RecordBatch:
        """The rows of these numbers; with the key of another one, if it is given."""
        rows = []
        for n in numbers:
            row = dict(self._make(n))
            if key is not None:
                row.update({name: self._make(key)[name] for name in self.key})
            rows.append(row)
        batch = pa.RecordBatch.from_pylist(rows, schema=self.schema)
        for n, made in zip(numbers, self.of(batch), strict=True):
            if self._seen.setdefault(made, n) != n:
                raise OptionError(
                    f"check(): rows {self._seen[made]} and {n} are equal, {self.shown(made)}: give a schema with a "
                    "column of 32 bits or a text, or rows= that makes them different"
                )
        return batch

    def of(self, found: pa.Table | pa.RecordBatch) -> list[Row]:
        """The rows of what was read back, in their order. Columns that the check did not write are left out."""
        lacking = [name for name in self.schema.names if name not in found.schema.names]
        if lacking and found.num_rows:
            raise OptionError(
                f"check(): read_back() gave no column {lacking[0]!r}; it gave {', '.join(found.schema.names)}"
            )
        if not found.num_rows:
            return []
        columns = [found[name].to_pylist() for name in self.schema.names]
        return [tuple(_frozen(value) for value in row) for row in zip(*columns, strict=True)]

    def shown(self, row: Row) -> str:
        """A row as messages show it, with the names of its columns."""
        return str(dict(zip(self.schema.names, row, strict=True)))

    def key_of(self, row: Row) -> Row:
        """What tells it from other rows in the target."""
        return tuple(row[self.schema.names.index(name)] for name in self.key) if self.key else row


def _frozen(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    if isinstance(value, dict):
        return tuple((name, _frozen(part)) for name, part in value.items())
    return value


_DAY = date(2026, 1, 1)
_NOON = datetime(2026, 1, 1, 12)


def _value(type_: pa.DataType, n: int) -> Any:
    """The n-th value of a type; different for different numbers, as far as the type has so many."""
    if pt.is_dictionary(type_):
        return _value(type_.value_type, n)
    if pt.is_boolean(type_):
        return n % 2 == 0
    if pt.is_integer(type_):
        return n % (1 << (type_.bit_width - 1))
    for is_kind, make in _KINDS:
        if is_kind(type_):
            return make(n)
    if pt.is_timestamp(type_):
        return (_NOON if type_.tz is None else _NOON.replace(tzinfo=UTC)) + timedelta(seconds=n)
    if pt.is_list(type_) or pt.is_large_list(type_):
        return [_value(type_.value_type, n)]
    if pt.is_struct(type_):
        return {field.name: _value(field.type, n) for field in type_}
    if isinstance(type_, pa.UuidType):
        return UUID(int=n).bytes
    raise OptionError(f"check(): it can't make values of {type_}: give rows=, a function of n that returns a row")


_KINDS: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[int], Any]]] = [
    (pt.is_floating, float),
    (pt.is_decimal, Decimal),
    (lambda t: pt.is_string(t) or pt.is_large_string(t) or pt.is_string_view(t), lambda n: f"r{n}"),
    (lambda t: pt.is_binary(t) or pt.is_large_binary(t) or pt.is_binary_view(t), lambda n: f"r{n}".encode()),
    (pt.is_date, lambda n: _DAY + timedelta(days=n)),
    (pt.is_time, lambda n: (_NOON + timedelta(seconds=n)).time()),
    (pt.is_duration, lambda n: timedelta(seconds=n)),
    (pt.is_null, lambda n: None),
]
