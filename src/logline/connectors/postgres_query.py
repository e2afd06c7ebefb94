"""A query of PostgreSQL as record batches: what its columns are, and its rows by COPY.

A query is described without being run (`limit 0`). Its rows come as CSV, are cut into batches while they come, and
are made into Arrow a column at a time. Each question is a transaction of one snapshot that only reads. It has
settings of its own: a text means the same whatever is set for the role, and a pooler may give each to another process
of the server.

>>> Query.of("select id from orders;").text
'select id from orders'
>>> Query.of("Sales.orders").text
'select * from "Sales"."orders"'
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from logline.connectors.postgres_table import split_name
from logline.connectors.postgres_types import arrow_of, from_array, from_text
from logline.connectors.sql_table import quoted
from logline.errors import OptionError, PermanentError, SchemaError

if TYPE_CHECKING:
    from psycopg import Connection, RawCursor

READS = "logline (only reads)"
"""What a transaction of ours is called while it runs: whoever waits for writers need not wait for it."""
BYTES = 1 << 24
"""Of CSV that make a batch at most, but for a row that is larger."""
_BEGIN = (
    f"begin isolation level repeatable read read only; set local application_name = '{READS}'; "
    "set local datestyle = 'ISO, YMD'; set local timezone = 'UTC'; "
    "set local bytea_output = 'hex'; set local extra_float_digits = 1; "
)
_STATEMENT = re.compile(r"\(|(?:select|with|values|table)\b", re.IGNORECASE)
_TYPES = """
select format_type(t.oid, u.mod), t.typcategory::text, format_type(t.oid, null),
  case when t.typcategory = 'A' then format_type(t.typelem, u.mod) end, coalesce(e.typcategory::text, '')
from unnest($1::oid[], $2::int4[]) with ordinality u(oid, mod, n)
join pg_type t on t.oid = u.oid left join pg_type e on e.oid = t.typelem order by u.n
"""


@dataclass(frozen=True, slots=True)
class Query:
    """What is to be read."""

    text: str
    """A statement that gives rows."""
    table: tuple[str | None, str] | None = None
    """Schema and name, if it is all of a table."""

    @classmethod
    def of(cls, given: object) -> Query:
        """A statement, or the name of a table, as a user writes it."""
        text = given.strip().rstrip(";").rstrip() if isinstance(given, str) else ""
        if not text or "\0" in text:
            raise OptionError(
                f"postgres(): {given!r} can't be read: give a query, 'select id, item from orders', or the name of a "
                "table"
            )
        if _STATEMENT.match(text):
            return cls(text)
        schema, name = split_name(text)
        at = quoted(name) if schema is None else f"{quoted(schema)}.{quoted(name)}"
        return cls(f"select * from {at}", (schema, name))

    @property
    def rows(self) -> str:
        """For the place of a table in another statement. A comment at its end ends with the line."""
        return f"({self.text}\n) q"


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of a query's result."""

    name: str
    kind: str
    """Its type, as the server writes it: numeric(10,2)."""
    category: str
    base: str
    """Its type without length or precision, for a cast that does not shorten."""
    element: str | None
    """The type of an element, if it is an array."""
    element_category: str

    @property
    def arrow(self) -> pa.DataType | None:
        """What it is read as; None if nothing holds all of its values."""
        if self.element is None:
            return arrow_of(self.kind, self.category)
        element = arrow_of(self.element, self.element_category)
        return None if element is None else pa.list_(element)

    @property
    def shown(self) -> str:
        """As COPY is to write it."""
        name = f"q.{quoted(self.name)}"
        return name if self.element is None else f"array_to_json({name}::text[])"

    def read(self, text: pa.Array, type_: pa.DataType) -> pa.Array:
        """The values of what `shown` wrote."""
        if self.element is not None and type_ != pa.string():
            return from_array(text, type_)
        return from_text(text, type_)


@contextmanager
def asking(db: Connection[Any]) -> Iterator[RawCursor[Any]]:
    """A transaction that only reads, on one snapshot."""
    import psycopg

    with psycopg.RawCursor(db) as cursor:
        cursor.execute(_BEGIN)
        yield cursor
        cursor.execute("commit")


def described(cursor: RawCursor[Any], query: Query, named: str) -> dict[str, ResultColumn]:
    """The columns of a query, by name."""
    cursor.execute(f"select * from {query.rows} limit 0")
    result = cursor.pgresult
    assert result is not None
    names = [str(column.name) for column in cursor.description or ()]
    for name in names:
        if names.count(name) > 1:
            raise SchemaError(f"{named}: the query has several columns {name!r}: name them apart, with AS")
    types, mods = ([f(n) for n in range(len(names))] for f in (result.ftype, result.fmod))
    found = cursor.execute(_TYPES, [types, mods]).fetchall()
    return {name: ResultColumn(name, *row) for name, row in zip(names, found, strict=True)}


def schema_of(columns: dict[str, ResultColumn], named: str) -> pa.Schema:
    """What the columns are read as."""
    if not columns:
        raise SchemaError(f"{named}: the query has no columns")
    for column in columns.values():
        if column.arrow is None:
            advice = (
                f"give its digits, as in {quoted(column.name)}::numeric(20, 4)"
                if (column.element or column.kind).startswith("numeric")
                else f"cast it in the query, as in {quoted(column.name)}::text"
            )
            raise SchemaError(
                f"{named}: column {column.name!r} has the type {column.kind}, which can't be read as it is: "
                f"{advice}, or leave it out"
            )
    return pa.schema([(column.name, column.arrow) for column in columns.values()])


@dataclass(frozen=True, slots=True)
class Page:
    """Rows, and the values of the cursor's columns as texts."""

    batch: pa.RecordBatch
    keys: Sequence[pa.Array]


class Rows:
    """The rows of a statement as batches of a schema."""

    def __init__(
        self, columns: dict[str, ResultColumn], schema: pa.Schema, keys: Sequence[str], rows: int, named: str
    ) -> None:
        """`rows`: of a batch, at most."""
        for name in schema.names:
            if name not in columns:
                raise PermanentError(
                    f"{named}: the query has no column {name!r} (it has {', '.join(columns)}): has the table "
                    "changed? Add the column, or change the query or schema="
                )
        self._columns = [columns[name] for name in schema.names]
        self._schema = schema
        self._keys = keys
        self._rows = rows
        self._named = named

    def copy(self, cursor: RawCursor[Any], origin: str) -> Iterator[Page]:
        """What `from ...` gives, as it comes."""
        shown = ", ".join(
            [*(column.shown for column in self._columns), *(f"q.{quoted(key)}::text" for key in self._keys)]
        )
        statement = f"copy (select {shown} from {origin}) to stdout (format csv, null '\\N', force_quote *)"
        with cursor.copy(statement) as copy:
            lines: list[bytes] = []
            size = 0
            for line in copy:  # a row at a time
                lines.append(bytes(line))
                size += len(lines[-1])
                if len(lines) >= self._rows or size >= BYTES:
                    yield self._page(lines)
                    lines, size = [], 0
            if lines:
                yield self._page(lines)

    def _page(self, lines: list[bytes]) -> Page:
        data = b"".join(lines)
        names = [str(n) for n in range(len(self._columns) + len(self._keys))]
        table = pa_csv.read_csv(
            pa.BufferReader(data),
            pa_csv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
            pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            pa_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=["\\N"],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        texts = [_whole(column) for column in table.columns]
        count = len(self._columns)
        values = [self._values(*one) for one in zip(self._columns, texts[:count], self._schema.types, strict=True)]
        return Page(pa.RecordBatch.from_arrays(values, schema=self._schema), texts[count:])

    def _values(self, column: ResultColumn, text: pa.Array, type_: pa.DataType) -> pa.Array:
        try:
            return column.read(text, type_)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise PermanentError(
                f"{self._named}: column {column.name!r} ({column.kind}) has a value that can't be read as {type_}: "
                f"{error}. Cast or filter it in the query, or give another type in schema="
            ) from error


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)
