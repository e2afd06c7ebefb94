"""A copy of a log in PostgreSQL, journal by journal (`store/copying.py`)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from logline.errors import LogError
from logline.names import LogId
from logline.store.layout import JOURNAL
from logline.store.marks import Mark
from logline.store.packing import Packer, Schemas
from logline.store.postgres.dsn import piped
from logline.store.postgres.error_texts import insert_texts
from logline.store.postgres.events import insert_runs, schema_rows, tables_of
from logline.store.postgres.rows import JOURNAL_COLUMNS, Changes
from logline.store.rows import Row
from logline.store.seam import Lying

if TYPE_CHECKING:
    from psycopg import Connection

ROWS, RUNS = 2000, 50
"""Rows, and runs of events, that are sent at once."""
_KEPT = ("about", "raw_events")


def read_mark(connection: Connection[Any]) -> Mark | None:
    """What the log says of itself."""
    found = connection.execute("select mark from about").fetchone()
    return None if found is None or found[0] is None else msgspec.json.decode(found[0], type=Mark)


def write_mark(connection: Connection[Any], mark: Mark | None) -> None:
    """Replaces what the log says of itself; None takes it away."""
    text = None if mark is None else msgspec.json.encode(mark).decode()
    connection.execute("update about set mark = %s", (text,))


def another_log() -> LogError:
    """What to say where a copy would overwrite a log."""
    return LogError("there is a log at that address: choose another ?log= for the copy")


def begin_copy(connection: Connection[Any], log_id: LogId, mark: Mark) -> None:
    """Empties a log that was made for a copy, now or by an earlier try. LogError if it is another one."""
    with connection.transaction():
        (there,) = connection.execute("select log_id from about for update").fetchone() or (None,)
        known = read_mark(connection)
        if known is None or known.kind != "unfinished" or there != log_id:
            raise another_log()
        _empty(connection)
        write_mark(connection, mark)


def _empty(connection: Connection[Any]) -> None:
    for (number,) in connection.execute("select instance from journals").fetchall():
        connection.execute(f"drop table {', '.join(tables_of(number))}".encode())
    tables = connection.execute(
        "select quote_ident(relname) from pg_class where relnamespace = current_schema()::regnamespace "
        "and relkind = 'r' and relname <> all(%s)",
        (list(_KEPT),),
    ).fetchall()
    connection.execute(f"truncate {', '.join(name for (name,) in tables)} restart identity".encode())


def restore(connection: Connection[Any], number: int, rows: Iterable[Row], events: Iterable[Lying]) -> None:
    """Writes a journal that was just made, in one transaction."""
    with connection.transaction(), connection.cursor() as cursor:
        rest = iter(rows)
        while some := list(islice(rest, ROWS)):
            changes = Changes()
            for table, key, value in some:
                if table is JOURNAL:
                    places = ", ".join(["%s"] * len(value))
                    query = f"update raw_journal set ({JOURNAL_COLUMNS}) = ({places}) where instance = %s"
                    cursor.execute(query.encode(), (*value, number))
                else:
                    changes.rows.setdefault(table, {})[key] = value
            for query, given in changes.statements(number):
                cursor.execute(query.encode(), given)
        schemas: Schemas = {}
        runs = iter(events)
        while found := list(islice(runs, RUNS)):
            with piped(connection):
                for visible, staged in found:
                    packer = Packer(schemas)
                    packed = packer.together(visible, ()) + packer.alone(staged)
                    schemas |= packer.fresh
                    for query, given in (
                        *schema_rows(number, packer),
                        *insert_runs(number, 0, packed),
                        *insert_texts(number, visible),
                    ):
                        cursor.execute(query.encode(), given)
