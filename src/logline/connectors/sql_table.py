"""What sinks that write to a table of a database have in common (R8, positioned).

Beside the table there is another one, `_logline_positions`, with the number of the last write of each scope. A
transaction has the rows of one event and its number. So a write that is repeated, also a late one by a life that is
over, finds its number there and changes nothing. That holds for an upsert as well: what is older than the position
never takes the place of what is newer, so rows need no number of their own.

>>> print(quoted('the "new" table'))
"the ""new"" table"
>>> on_conflict(["id", "name"], ["id"])
'on conflict ("id") do update set "name" = excluded."name"'
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Literal, get_args

import pyarrow as pa
import pyarrow.types as pt

from logline.errors import OptionError, PermanentError, SchemaError
from logline.graph.connector import Guarantee, Sink

SqlMode = Literal["append", "upsert"]

POSITIONS = "_logline_positions"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table that is there."""

    name: str
    kind: str
    """Its type, as the database writes it."""
    required: bool
    """Whether a row must bring a value for it."""


class TableSink(Sink):
    """Checks options, columns and keys. A subclass has the transaction."""

    guarantee: Guarantee = "positioned"

    def __init__(self, maker: str, table: str, mode: SqlMode, key: str | Sequence[str] | None) -> None:
        """`maker`: the function that a user calls, for messages."""
        if mode not in get_args(SqlMode):
            raise OptionError(f"{maker}: mode={mode!r}: take one of {', '.join(get_args(SqlMode))}")
        self._key = (key,) if isinstance(key, str) else tuple(key or ())
        if mode == "upsert" and not self._key:
            raise OptionError(f"{maker}: mode='upsert' needs key=, the column or columns that tell rows apart")
        if mode == "append" and self._key:
            raise OptionError(f"{maker}: key= is for mode='upsert'; rows are appended without one")
        if len(set(self._key)) < len(self._key):
            raise OptionError(f"{maker}: key={list(self._key)!r} names a column twice")
        self._table = table
        self._mode: SqlMode = mode
        self._scope = ""
        self._lock = Lock()
        """The engine may close the sink on another thread than the one that writes."""
        self._fits: pa.Schema | None = None
        """The schema of the last batch: the table is known to have its columns."""

    @property
    @abstractmethod
    def _named(self) -> str:
        """The sink, for messages. Without secrets."""

    @abstractmethod
    def _declared(self, field: pa.Field) -> str:
        """The type of a column of the table that it makes; raises SchemaError if there is none."""

    def _folded(self, name: str) -> str:
        """The same for names of columns that the database takes for the same."""
        return name

    def check_schema(self, schema: pa.Schema) -> None:
        """Refuses columns that no table of this database could have."""
        if not schema.names:
            raise SchemaError(f"{self._named}: the rows have no columns")
        seen: set[str] = set()
        for field in schema:
            self._declared(field)
            if self._folded(field.name) in seen:
                raise SchemaError(f"{self._named}: the rows have several columns {field.name!r}: rename one")
            seen.add(self._folded(field.name))
        lacking = [name for name in self._key if name not in schema.names]
        if lacking:
            raise SchemaError(f"{self._named}: the rows have no column {lacking[0]!r}, which key= names")

    def _definition(self, schema: pa.Schema) -> str:
        """The columns of a table that is made for rows of this schema."""
        parts = [f"{quoted(f.name)} {self._declared(f)}{'' if f.nullable else ' not null'}" for f in schema]
        if self._key:
            parts.append(f"primary key ({listed(self._key)})")
        return ", ".join(parts)

    def _check_columns(self, schema: pa.Schema, found: Sequence[Column]) -> None:
        """A table that is there must have the columns of the rows; others only if it can do without a value."""
        there = {self._folded(column.name) for column in found}
        ours = {self._folded(name) for name in schema.names}
        for name in schema.names:
            if self._folded(name) not in there:
                raise PermanentError(
                    f"{self._named}: the table is there and has no column {name!r} (it has "
                    f"{', '.join(column.name for column in found)}): add the column, or give another table"
                )
        for column in found:
            if column.required and self._folded(column.name) not in ours:
                raise PermanentError(
                    f"{self._named}: the table is there, and its column {column.name!r} ({column.kind}) is NOT NULL "
                    "and not in the rows: give it a default, or give another table"
                )

    def _not_unique(self) -> PermanentError:
        return PermanentError(
            f"{self._named}: the table is there, and nothing in it makes {', '.join(self._key)} unique: create a "
            "unique index on the key, or give another table"
        )

    def _check_key(self, batch: pa.RecordBatch) -> None:
        for name in self._key:
            column = batch.column(name)
            if self._as_null(column.dictionary_decode() if pt.is_dictionary(column.type) else column):
                raise PermanentError(
                    f"{self._named}: column {name!r} is part of the key and has a null, which is like no other: "
                    "filter such rows out before the sink"
                )

    def _as_null(self, column: pa.Array) -> bool:
        """Whether the database will have a null in this column."""
        return bool(column.null_count)

    def _is_next(self, number: int, last: int) -> bool:
        """Whether a write is to be applied, when the table has those up to `last`: n only after n - 1 (R8)."""
        if number > last + 1:
            raise PermanentError(
                f"{self._named}: write {number} comes, and the table has {last} writes of this log only: it was "
                "taken back further than the log remembers, or it is another one than before; restore a newer copy "
                "of the database, give the sink another name to go on with this one, or begin with a fresh log and "
                "a fresh table"
            )
        return number > last


def quoted(name: str) -> str:
    """The name of a table or column as SQL takes it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def listed(names: Sequence[str]) -> str:
    """Names with commas between them."""
    return ", ".join(map(quoted, names))


def on_conflict(names: Sequence[str], key: Sequence[str]) -> str:
    """What makes an insert an upsert: a row takes the place of the one with the same key."""
    others = [name for name in names if name not in key]
    sets = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in others)
    return f"on conflict ({listed(key)}) " + (f"do update set {sets}" if others else "do nothing")


def plain(type_: pa.DataType) -> pa.DataType:
    """The type of the values: that of a dictionary's, if they are encoded."""
    return type_.value_type if pt.is_dictionary(type_) else type_


def is_text(type_: pa.DataType) -> bool:
    return bool(pt.is_string(type_) or pt.is_large_string(type_) or pt.is_string_view(type_))


def is_bytes(type_: pa.DataType) -> bool:
    found = pt.is_binary(type_) or pt.is_large_binary(type_) or pt.is_binary_view(type_)
    return bool(found or pt.is_fixed_size_binary(type_))
