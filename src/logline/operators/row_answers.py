"""What a row function gave, as the plain values of the declared schema.

An answer is checked before it is kept: a wrong one in the log would outlive the correction of the function.
Arrow alone would not do: it makes 1 of 1.5, a date of a time, and leaves unknown keys of a struct out.

    >>> plain_answer({"id": 1.0}, pa.schema({"id": pa.int64()}))
    {'id': 1}
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from logline.errors import SchemaError

Row = dict[str, Any]


def plain_answer(answer: object, schema: pa.Schema) -> Row | None:
    """A dict with exactly the schema's columns, each of plain Python values; None for None."""
    if answer is None:
        return None
    if not isinstance(answer, dict):
        raise SchemaError(f"the function gave a {type(answer).__name__}; it must return a dict or None")
    names = schema.names
    if missing := [repr(name) for name in names if name not in answer]:
        raise SchemaError(f"{_are(missing)} missing: the row needs the columns {', '.join(names)}")
    if extra := [repr(name) for name in answer if name not in names]:
        raise SchemaError(f"{_are(extra)} not in the schema, which has {', '.join(names)}")
    return {field.name: _plain(answer[field.name], field) for field in schema}


def plain_rows(batch: pa.RecordBatch) -> list[Row]:
    """The rows as dicts of plain Python values; SchemaError where one has nanoseconds, which Python's times don't."""
    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        try:
            columns.append(in_micros(column))
        except pa.ArrowInvalid as error:
            raise SchemaError(
                f"column {field.name!r} is {field.type} and has values between two microseconds, which Python "
                f"can't hold ({error}): round it, or cast it to an integer, before map_rows"
            ) from error
    if not columns:
        return batch.to_pylist()  # type: ignore[no-any-return]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names).to_pylist()  # type: ignore[no-any-return]


def in_micros(column: pa.Array) -> pa.Array:
    """Nanoseconds, pandas' default, as microseconds: of nanoseconds Arrow makes values of pandas, or cuts them."""
    kind = _micro_type(column.type)
    return column if kind == column.type else column.cast(kind)


def _micro_type(kind: Any) -> Any:
    if pt.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if pt.is_time64(kind) and kind.unit == "ns":
        return pa.time64("us")
    if pt.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if pt.is_list(kind):
        return pa.list_(_micro_type(kind.value_type))
    if pt.is_struct(kind):
        return pa.struct([f.with_type(_micro_type(f.type)) for f in kind])
    return kind


def _are(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"


def _plain(value: object, field: pa.Field) -> Any:
    try:
        plain = in_micros(pa.array([value], field.type))[0].as_py()
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _refused(value, field, str(error)) from error
    if not _same(value, plain, field.type):
        raise _refused(value, field, f"it would become {plain!r:.80}")
    if plain is None and not field.nullable:
        raise SchemaError(f"column {field.name!r} is declared NOT NULL and the function gave None")
    return plain


def _refused(value: object, field: pa.Field, why: str) -> SchemaError:
    return SchemaError(f"column {field.name!r} is {field.type}, and {value!r:.80} is not: {why}")


def _same(value: Any, plain: Any, type: pa.DataType) -> bool:
    """Whether Arrow took the value over whole; a float may be rounded to its column."""
    if value is None or plain is None:
        return value is plain
    if pt.is_struct(type):
        return set(value) <= set(plain) and all(_same(value.get(f.name), plain[f.name], f.type) for f in type)
    if pt.is_list(type) or pt.is_large_list(type) or pt.is_fixed_size_list(type):
        if not isinstance(value, Sequence):
            return True  # an array of a library, of one type: Arrow's own checks hold
        return all(_same(v, p, type.value_type) for v, p in zip(value, plain, strict=True))
    if pt.is_timestamp(type) and type.tz is not None and isinstance(value, datetime) and value.tzinfo is None:
        value = value.replace(tzinfo=UTC)  # as for every time without a zone
    if pt.is_integer(type) or pt.is_temporal(type) or pt.is_decimal(type):
        return bool(value == plain)
    return True
