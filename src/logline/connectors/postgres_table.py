"""Tables as PostgreSQL's catalogue has them: where one is, its columns, and what makes its rows unique."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from logline.connectors.sql_table import POSITIONS, Column, quoted
from logline.errors import OptionError

if TYPE_CHECKING:
    from psycopg import RawCursor

    from logline.store.postgres.dsn import Dsn

LONGEST_NAME = 63
"""Bytes. PostgreSQL cuts off the rest of a name without a word."""

_NAME = re.compile(r'(?:("(?:[^"]|"")+"|[^".]+)\.)?("(?:[^"]|"")+"|[^".]+)')
_FIND = """
select coalesce(n.nspname, $2, current_schema()), c.oid::int8, c.relkind::text
from to_regclass($1) r left join pg_class c on c.oid = r left join pg_namespace n on n.oid = c.relnamespace
"""
_COLUMNS = """
select a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull and not a.atthasdef and a.attidentity = '',
  format_type(case when t.typtype = 'd' then t.typbasetype else t.oid end, null),
  quote_ident(n.nspname) || '.' || quote_ident(t.typname),
  case when t.typname = 'numeric' and a.atttypmod > 4 then (a.atttypmod - 4) & 2047 end
from pg_attribute a join pg_type t on t.oid = a.atttypid join pg_namespace n on n.oid = t.typnamespace
where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped order by a.attnum
"""
_IS_UNIQUE = """
select exists (
  select 1 from pg_index i
  where i.indrelid = $1 and i.indisunique and i.indisvalid and i.indimmediate and i.indpred is null
  and (select array_agg(a.attname::text collate "C" order by a.attname::text collate "C")
       from unnest((i.indkey::int2[])[0:i.indnkeyatts - 1]) k
       left join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k) = $2::text[])
"""
_IS_UNIQUE_WITHIN = """
select exists (
  select 1 from pg_index i
  where i.indrelid = $1 and i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null
  and (select array_agg(a.attname::text) from unnest((i.indkey::int2[])[0:i.indnkeyatts - 1]) k
       join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k) <@ $2::text[])
"""


@dataclass(frozen=True, slots=True)
class PostgresColumn(Column):
    """A column of a table that is there."""

    base: str
    """Its type without length or precision, and without a domain around it."""
    cast: str
    """The name of its type, for a cast that neither shortens nor rounds."""
    scale: int | None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table is, or would be made. The positions are in the same schema."""

    schema: str | None
    """None if the search path names no schema that is there."""
    table: str
    oid: int | None
    """None if there is no such table yet."""
    kind: str | None
    """As in pg_class.relkind."""

    @property
    def name(self) -> str:
        """The table, for a statement."""
        return f"{quoted(self.schema or '')}.{quoted(self.table)}"

    @property
    def positions(self) -> str:
        """The table of positions, for a statement."""
        return f"{quoted(self.schema or '')}.{POSITIONS}"

    @property
    def is_table(self) -> bool:
        """Whether it takes rows: a table, one in partitions, a foreign one."""
        return self.kind in (None, "r", "p", "f")


def split_name(table: str) -> tuple[str | None, str]:
    """The schema, if it is named, and the table.

    >>> split_name("hourly"), split_name("Sales.hourly"), split_name('sales."by.hour"')
    ((None, 'hourly'), ('Sales', 'hourly'), ('sales', 'by.hour'))
    """
    found = _NAME.fullmatch(table)
    names = [] if found is None else [_unquoted(part) for part in found.groups() if part is not None]
    if (
        not names
        or names[-1] == POSITIONS
        or any(len(name.encode()) > LONGEST_NAME or "\0" in name for name in names)
    ):
        raise OptionError(
            f"postgres(): {table!r} can't be the table: write 'table' or 'schema.table', names of at most "
            f"{LONGEST_NAME} bytes, as they are in the database. A name with a dot is written as '\"a.b\"'"
        )
    return (None, names[0]) if len(names) == 1 else (names[0], names[1])


def _unquoted(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part


def dataset_of(dsn: Dsn, schema: str | None, table: str) -> tuple[str, str] | None:
    """The server, and database, schema and table, as OpenLineage has them. None if the DSN is not known here."""
    try:
        _, host, port, database = dsn.parts()
    except OptionError:
        return None
    return f"postgres://{host or 'localhost'}:{port or 5432}", f"{database}.{schema or 'public'}.{table}"


def find(cursor: RawCursor[Any], schema: str | None, table: str) -> Place:
    """Looks for a table, in the search path if no schema is named."""
    asked = quoted(table) if schema is None else f"{quoted(schema)}.{quoted(table)}"
    row = cursor.execute(_FIND, [asked, schema]).fetchone()
    assert row is not None
    found, oid, kind = row
    return Place(found, table, oid, kind)


def exists(cursor: RawCursor[Any], name: str) -> bool:
    """Whether there is a table of this name, which is written as in a statement."""
    row = cursor.execute("select to_regclass($1) is not null", [name]).fetchone()
    return row is not None and bool(row[0])


def columns_of(cursor: RawCursor[Any], oid: int | None) -> list[PostgresColumn]:
    """The columns of a table, in their order."""
    return [PostgresColumn(*row) for row in cursor.execute(_COLUMNS, [oid]).fetchall()]


def is_unique(cursor: RawCursor[Any], oid: int | None, key: Sequence[str]) -> bool:
    """Whether an upsert can go by these columns: they are a whole unique index, in any order."""
    row = cursor.execute(_IS_UNIQUE, [oid, sorted(key)]).fetchone()
    return row is not None and bool(row[0])


def is_unique_within(cursor: RawCursor[Any], oid: int, names: Sequence[str]) -> bool:
    """Whether no two rows are equal in all of these columns: some of them are a whole unique index."""
    row = cursor.execute(_IS_UNIQUE_WITHIN, [oid, list(names)]).fetchone()
    return row is not None and bool(row[0])


def never_null(cursor: RawCursor[Any], oid: int) -> set[str]:
    """The columns of a table that are NOT NULL."""
    found = cursor.execute("select attname from pg_attribute where attrelid = $1 and attnotnull", [oid]).fetchall()
    return {name for (name,) in found}


def create(cursor: RawCursor[Any], name: str, definition: str) -> None:
    """Makes a table unless somebody else does. `if not exists` fails when two make the same one at once, so the
    others wait until this transaction has ended."""
    cursor.execute("select pg_advisory_xact_lock(hashtextextended($1, 0))", [f"logline {name}"])
    cursor.execute(f"create table if not exists {name} ({definition})")
