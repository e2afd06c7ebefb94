"""Rows of a journal as typed columns, so that a person can read them with psql.

A table of `store/layout.py` is a table `raw_NAME` here. Its key has a column for each part, its record a column for
each field: numbers, texts, truth values and bytes as what they are; whatever has parts of its own as JSON.

>>> from logline.store.layout import POSITIONS
>>> [f"{column.name} {column.type}" for column in shape_of(POSITIONS).all]
['channel text', 'ssn bigint', 'total bigint', 'marks bigint']

PostgreSQL's texts hold every character but NUL, which is written as U+E000 and a digit. The type is json, not jsonb:
it keeps what was written, NUL included, and costs nothing to write.
"""

from __future__ import annotations

import logging
import types
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, partial
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from logline.engine import codec
from logline.store.pins import Bits
from logline.store.rows import Key, Table
from logline.store.tables import id_text, offset_text, state_text

logger = logging.getLogger("logline")

KEYS: dict[str, tuple[str, ...]] = {
    "state": (),
    "heads": ("port",),
    "pins": ("port", "block"),
    "sets": ("serial",),
    "members": ("serial", "commit"),
    "covered": ("serial", "before"),
    "checkpoints": ("serial",),
    "saved": ("serial",),
    "covered_lows": ("channel", "serial"),
    "done": ("channel", "block", "serial"),
    "timers": ("digest",),
    "keyed": ("digest",),
    "answers": ("of_set", "of_row", "at"),
    "failures": ("serial",),
    "resolved": ("ssn",),
    "retrying": ("ssn",),
    "positions": ("channel",),
    "clock": ("channel",),
    "reads": ("partition",),
    "written": ("target",),
    "segments": ("segment",),
    "segment_sets": ("segment", "commit"),
    "kept_sets": ("serial",),
    "kept_answers": ("of_set", "of_row", "at"),
    "runs": ("first_serial",),
    "run_events": ("of_channel", "first"),
}
"""What the parts of keys are called; those of tables that come later have numbers."""
_KEY_TYPES = {"number": "bigint", "name": "text", "digest": "bytea"}
_MARK = "\ue000"
Write = Callable[[Any], Any]
Read = Callable[[Any], Any]


class Column(NamedTuple):
    """A column, and how its values are written and read."""

    name: str
    type: str
    write: Write
    read: Read
    array: str = ""
    """The type of an array of its values as they are sent, if it is not the column's own."""

    @property
    def sent(self) -> str:
        """The type of what is sent."""
        return self.array or self.type


class Shape:
    """The columns that a table of the log has in PostgreSQL, and how its rows are read and written."""

    def __init__(self, table: Table[Any]) -> None:
        self.name = f"raw_{table.name}"
        names = KEYS.get(table.name, tuple(f"key{at}" for at in range(len(table.key))))
        self.key = [_key(name, kind) for name, kind in zip(names, table.key, strict=True)]
        record = table.record
        hints = _fields(record)
        self.values = [_column(name, hint) for name, hint in hints.items()] if hints else [_column("value", record)]
        self.make: Callable[..., Any] = record if hints else lambda value: value
        self._names = list(hints)
        self.all = [*self.key, *self.values]
        self._label = _label(table)
        if self._label is not None:
            self.all.append(self._label[0])

    def _split(self, value: Any) -> list[Any]:
        """The values of a record, in the order of the columns."""
        found = [getattr(value, name) for name in self._names] if self._names else [value]
        return found if self._label is None else [*found, self._label[1](value)]

    def row(self, key: Key, value: Any) -> list[Any]:
        """What is sent for a row."""
        given = (*key, *self._split(value))
        return [None if v is None else column.write(v) for column, v in zip(self.all, given, strict=True)]

    def key_row(self, key: Key) -> list[Any]:
        """What is sent for a key, or for the beginning of one."""
        return [column.write(part) for column, part in zip(self.key, key, strict=False)]

    def read(self, row: Sequence[Any]) -> tuple[Key, Any]:
        """Key and value of what was selected: all columns but the last one of some, which is for views."""
        known = [None if v is None else c.read(v) for c, v in zip((*self.key, *self.values), row, strict=True)]
        width = len(self.key)
        return tuple(known[:width]), self.make(*known[width:])

    @property
    def selected(self) -> str:
        """The columns that `read` takes."""
        return ", ".join(f'"{column.name}"' for column in (*self.key, *self.values))


shape_of: Callable[[Table[Any]], Shape] = cache(Shape)


def _label(table: Table[Any]) -> tuple[Column, Callable[[Any], str | None]] | None:
    """The last column of a table whose bytes only Python reads: as text, for views. Nobody reads it back."""
    if table.name == "state":
        return Column("text", "text", escape, str), partial(_shown, state_text)
    if table.name == "reads":
        return Column("offset_text", "text", escape, str), lambda read: _shown(offset_text, read.offset)
    if _fields(table.record).get("id") is bytes:
        return Column("id_text", "text", escape, str), lambda record: id_text(codec.decode(record.id))
    return None


def _shown(make: Callable[[Any], str], raw: bytes | None) -> str | None:
    """The text of a value. None if it has none: a commit does not fail for what people would see of it."""
    try:
        return make(raw)
    except Exception:
        logger.debug("a value of %d bytes can't be shown as text", len(raw or b""), exc_info=True)
        return None


def escape(text: str) -> str:
    """A text without NUL."""
    if _MARK not in text and "\0" not in text:
        return text
    return text.replace(_MARK, f"{_MARK}1").replace("\0", f"{_MARK}0")


def unescape(text: str) -> str:
    """The inverse of `escape`.

    >>> unescape(escape("a\\0b\\ue000")) == "a\\0b\\ue000"
    True
    """
    return text.replace(f"{_MARK}0", "\0").replace(f"{_MARK}1", _MARK) if _MARK in text else text


def _same(value: Any) -> Any:
    return value


def _key(name: str, kind: str) -> Column:
    write, read = (escape, unescape) if kind == "name" else (_same, _same)
    return Column(name, _KEY_TYPES[kind], write, bytes if kind == "digest" else read)


def _fields(record: Any) -> dict[str, Any]:
    """The fields of a record with their types; none if it is one plain value."""
    if isinstance(record, type) and issubclass(record, tuple) and hasattr(record, "_fields"):
        hints = get_type_hints(record)
        return {name: hints[name] for name in record._fields}
    if is_dataclass(record):
        hints = get_type_hints(record)
        return {field.name: hints[field.name] for field in fields(record)}
    return {}


def _plain(hint: Any) -> Any:
    """The type that a NewType stands for, or a Literal has, without None."""
    if hint is Bits:
        return Bits
    while hasattr(hint, "__supertype__"):
        hint = hint.__supertype__
    origin = get_origin(hint)
    if origin is Literal:
        kinds = {type(value) for value in get_args(hint)}
        return kinds.pop() if len(kinds) == 1 else None
    if origin in (Union, types.UnionType):
        parts = {_plain(part) for part in get_args(hint) if part is not type(None)}
        return parts.pop() if len(parts) == 1 else None
    return hint


def _column(name: str, hint: Any) -> Column:
    plain = _plain(hint)
    if plain is Bits:
        return Column(name, "numeric", str, int, "text")
    if plain is int:
        return Column(name, "bigint", _same, _same)
    if plain is bool:
        return Column(name, "boolean", _same, _same)
    if plain is str:
        return Column(name, "text", escape, unescape)
    if plain is bytes:
        return Column(name, "bytea", _same, bytes)
    decoder = msgspec.json.Decoder(hint)
    return Column(name, "json", lambda value: msgspec.json.encode(value).decode(), decoder.decode, "text")
