"""Arrow's types and values as PostgreSQL's, and back: which column takes which type, and a column of values as text.

Texts are made a column at a time by Arrow, and parsed by the server. `copy_lines` puts them together for COPY,
`array_literal` for a parameter that is an array. `arrow_of` and `from_text` are the way back.

>>> kind_of(pa.timestamp("ns", "UTC")), kind_of(pa.uint64()), kind_of(pa.list_(pa.int64()))
('timestamp with time zone', 'numeric', 'jsonb')
>>> bytes(copy_lines([text_of(pa.array([1, None])), text_of(pa.array(["tea\\tcup", "jam"]))])).decode()
'1\\ttea\\\\tcup\\n\\\\N\\tjam\\n'
>>> print(array_literal(text_of(pa.array(["tea", None, 'a "cup"']))))
{"tea",NULL,"a \\"cup\\""}
>>> from_text(pa.array(["2026-03-01", None]), arrow_of("date")).to_pylist()
[datetime.date(2026, 3, 1), None]
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from logline.connectors.sql_table import is_bytes, is_text, plain

_TEXT = pa.large_string()
_INTEGERS = ("smallint", "integer", "bigint", "numeric")
_TAKEN_BY = {
    "smallint": _INTEGERS,
    "integer": _INTEGERS,
    "bigint": _INTEGERS,
    "numeric": ("numeric",),
    "real": ("real", "double precision", "numeric"),
    "double precision": ("double precision", "numeric"),
    "jsonb": ("jsonb", "json"),
    "uuid": ("uuid", "text", "character varying"),
}
"""Kind -> the types of columns that keep its values as they are. Others are taken by columns of their own type."""
_NOT_TEXT = {
    *_INTEGERS,
    *("boolean", "real", "double precision", "bytea", "date", "interval"),
    *("time without time zone", "timestamp without time zone", "timestamp with time zone"),
}
"""Types of columns that a text must be cast to before. Any other type reads a text: an enum, an address, JSON."""
_ARROW = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "oid": pa.uint32(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "time without time zone": pa.time64("us"),
    "timestamp without time zone": pa.timestamp("us"),
    "timestamp with time zone": pa.timestamp("us", "UTC"),
    **dict.fromkeys(("uuid", "json", "jsonb", "xml", "inet", "cidr", "macaddr", "macaddr8"), pa.string()),
}
"""Type of a column -> what its values are read as, where that is all of the value."""
_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_MODIFIER = re.compile(r"\(.*?\)")


def kind_of(type_: pa.DataType) -> str | None:
    """The type of a column for these values, without precision; None if there is none."""
    type_ = plain(type_)
    if pt.is_boolean(type_):
        return "boolean"
    if pt.is_integer(type_):
        if type_.bit_width == 64 and pt.is_unsigned_integer(type_):
            return "numeric"
        bits = type_.bit_width + pt.is_unsigned_integer(type_)
        return "smallint" if bits <= 16 else "integer" if bits <= 32 else "bigint"
    if pt.is_floating(type_):
        return "double precision" if type_.bit_width == 64 else "real"
    if pt.is_decimal(type_):
        return "numeric"
    if is_text(type_) or pt.is_null(type_):
        return "text"
    if is_bytes(type_):
        return "bytea"
    return _kind_of_time(type_) or _kind_of_rest(type_)


def _kind_of_time(type_: pa.DataType) -> str | None:
    if pt.is_timestamp(type_):
        return "timestamp without time zone" if type_.tz is None else "timestamp with time zone"
    if pt.is_date(type_):
        return "date"
    if pt.is_time(type_):
        return "time without time zone"
    return "interval" if pt.is_duration(type_) else None


def _kind_of_rest(type_: pa.DataType) -> str | None:
    if isinstance(type_, pa.UuidType):
        return "uuid"
    return "jsonb" if pt.is_nested(type_) and not pt.is_union(type_) else None


def declared(type_: pa.DataType) -> str | None:
    """The type of a column in a table that is made for these values.

    >>> declared(pa.decimal128(10, 2))
    'numeric(10, 2)'
    """
    kind, type_ = kind_of(type_), plain(type_)
    if pt.is_decimal(type_) and 0 <= type_.scale <= type_.precision:
        return f"{kind}({type_.precision}, {type_.scale})"
    return kind


def is_taken_by(type_: pa.DataType, column: str, scale: int | None = None) -> bool:
    """Whether a column of this type keeps the values exactly, or refuses them. `scale`: of a numeric one, if it has.

    >>> is_taken_by(pa.int32(), "bigint"), is_taken_by(pa.float64(), "real"), is_taken_by(pa.string(), "integer")
    (True, False, False)
    """
    kind, type_ = kind_of(type_), plain(type_)
    if pt.is_null(type_):
        return True
    if kind == "text":
        return column not in _NOT_TEXT
    if pt.is_decimal(type_) and scale is not None and type_.scale > scale:
        return False  # it would be rounded
    return kind is not None and column in _TAKEN_BY.get(kind, (kind,))


def text_of(column: pa.Array) -> pa.Array:
    """The values as PostgreSQL reads them. Raises ArrowInvalid for a value that it has no text for."""
    type_ = plain(column.type)
    column = column.cast(type_)
    if pt.is_float16(type_):
        column = column.cast(pa.float32())
    elif pt.is_timestamp(type_):
        zone = None if type_.tz is None else "UTC"  # the same moment, written with a Z
        column = column.cast(pa.timestamp("us" if type_.unit == "ns" else type_.unit, zone))
    elif pt.is_time64(type_):
        column = column.cast(pa.time64("us"))
    elif pt.is_date64(type_):
        column = column.cast(pa.date32())
    elif pt.is_duration(type_):
        micros = column.cast(pa.duration("us")).cast(pa.int64()).cast(_TEXT)
        return pc.binary_join_element_wise(micros, _scalar("microseconds"), _scalar(" "))
    elif is_bytes(type_):
        return pa.array([None if value is None else f"\\x{value.hex()}" for value in column.to_pylist()], _TEXT)
    elif isinstance(type_, pa.UuidType):
        return pa.array([None if value is None else str(value) for value in column.to_pylist()], _TEXT)
    elif pt.is_nested(type_):
        values = column.to_pylist(maps_as_pydicts="strict")
        return pa.array([None if value is None else _json(value) for value in values], _TEXT)
    return column.cast(_TEXT)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def first_nul(text: pa.Array) -> int | None:
    """The row of the first text with a NUL character, which PostgreSQL can't hold."""
    found = pc.index(pc.match_substring(text, "\0"), True).as_py()
    return None if found < 0 else int(found)


def copy_lines(texts: Sequence[pa.Array]) -> memoryview:
    """Rows as `COPY ... FROM STDIN` takes them in its text format."""
    columns = []
    for text in texts:
        for raw, escaped in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
            text = pc.replace_substring(text, raw, escaped)
        columns.append(pc.coalesce(text, _scalar("\\N")))
    lines = pc.binary_join_element_wise(*columns, _scalar("\t"))
    lines = pc.binary_join_element_wise(lines, _scalar(""), _scalar("\n"))
    _, offsets, data = lines.buffers()
    if not len(lines):
        return memoryview(b"")
    end = pa.Array.from_buffers(pa.int64(), len(lines) + 1, [None, offsets])[-1].as_py()
    return memoryview(data)[:end]


def array_literal(text: pa.Array) -> str:
    """A column as the text of an array."""
    for raw, escaped in (("\\", "\\\\"), ('"', '\\"')):
        text = pc.replace_substring(text, raw, escaped)
    quotes, nothing = _scalar('"'), _scalar("")
    text = pc.coalesce(pc.binary_join_element_wise(quotes, text, quotes, nothing), _scalar("NULL"))
    whole = pa.LargeListArray.from_arrays(pa.array([0, len(text)], pa.int64()), text)
    return "{" + (pc.binary_join(whole, _scalar(","))[0].as_py() or "") + "}"


# ---- from the server ----------------------------------------------------------------------------------------


def arrow_of(column: str, category: str = "") -> pa.DataType | None:
    """What a column of this type is read as, which is written as `format_type` does; None if nothing holds all of its
    values. `category`: as in pg_type.typcategory.

    >>> [str(arrow_of(kind)) for kind in ("timestamp(3) with time zone", "interval", "numeric")]
    ['timestamp[us, tz=UTC]', 'None', 'None']
    >>> str(arrow_of("shop.colour", "E"))
    'string'
    """
    if (found := _NUMERIC.fullmatch(column)) is not None:
        precision, scale = int(found[1]), int(found[2])
        if precision > 76:
            return None
        return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    if category in ("S", "E"):  # texts of any name, enums
        return pa.string()
    return _ARROW.get(_MODIFIER.sub("", column))


def from_text(text: pa.Array, type_: pa.DataType) -> pa.Array:
    """Values that the server has written (ISO dates, UTC), as this type. Raises ArrowException or ValueError if one
    is none of it. What is nested is written in JSON."""
    if pt.is_boolean(type_):
        # A cast in SQL says true, the output of a column t.
        text = pc.replace_substring_regex(pc.replace_substring_regex(text, "^t$", "true"), "^f$", "false")
    elif pt.is_time(type_):
        on_a_day = pc.binary_join_element_wise(pa.scalar("1970-01-01", text.type), text, pa.scalar(" ", text.type))
        text = on_a_day.cast(pa.timestamp("us")).cast(pa.time64("us"))
    elif is_bytes(type_):
        text = pa.array([None if value is None else _unhex(value) for value in text.to_pylist()], pa.binary())
    elif isinstance(type_, pa.UuidType):
        return pa.array([None if value is None else UUID(value).bytes for value in text.to_pylist()], type_)
    elif pt.is_nested(type_):
        return pa.array([None if value is None else msgspec.json.decode(value) for value in text.to_pylist()], type_)
    return text.cast(type_)


def _unhex(value: str) -> bytes:
    if not value.startswith("\\x"):
        raise ValueError(f"{value[:40]!r} is no bytea")
    return bytes.fromhex(value[2:])


def from_array(text: pa.Array, type_: pa.DataType) -> pa.Array:
    """Arrays, each written as a JSON array of texts, as lists of this type.

    >>> from_array(pa.array(['["1",null]', None, "[]"]), pa.list_(pa.int16())).to_pylist()
    [[1, None], None, []]
    """
    rows = [None if value is None else msgspec.json.decode(value) for value in text.to_pylist()]
    flat = [value for row in rows if row is not None for value in row]
    if any(isinstance(value, list) for value in flat):
        raise ValueError("an array of several dimensions is no list")
    ends, end = [], 0
    for row in rows:
        ends.append(None if row is None else end)
        end += len(row or ())
    values = from_text(pa.array(flat, pa.string()), type_.value_type)
    return pa.ListArray.from_arrays(pa.array([*ends, end], pa.int32()), values).cast(type_)


def _scalar(text: str) -> pa.Scalar:
    return pa.scalar(text, _TEXT)
