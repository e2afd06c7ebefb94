"""The tables of a log in PostgreSQL: a schema of the database for each log, made and brought up to date under a lock.

about           format of the records, layout of the tables, log id; one row
journals        number and name of each journal, incarnation, commits, who claimed it
raw_...         small rows, by table (`store/postgres/columns.py`)
events_N_S      events of journal N (`store/postgres/events.py`); together `raw_events`
graph_...       the pipeline (`store/postgres/graph.py`)
lease, mail, statuses, hints, hosts         around them
event_log, lineage_edges, errors, ...       views for people (`views.sql`)
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logline.errors import LogError
from logline.names import LogId
from logline.store.encoding import FORMAT
from logline.store.layout import BY_NAME, JOURNAL
from logline.store.marks import Mark
from logline.store.postgres.columns import shape_of
from logline.store.postgres.restore import write_mark
from logline.store.rows import Table

if TYPE_CHECKING:
    from psycopg import Connection

LAYOUT = 1
"""The version of the tables around the records. A log of an older one is migrated when it is opened."""
_LOG_NAME = re.compile(r"[a-z_][a-z0-9_]{0,48}\Z")
_LOCK = 0x6C6F676C  # "logl"
_TABLES, _VIEWS = (Path(__file__).with_name(name) for name in ("tables.sql", "views.sql"))
HOT = {"positions", "heads", "written", "clock", "state", "reads"}
"""Tables whose rows are written again and again: with room for the next version beside the last one."""

FENCED, MADE_BEFORE, OUT_OF_TURN = "LL001", "LL002", "LL003"
"""What `commit_begins` raises (R10)."""


def check_log_name(name: str) -> str:
    """The name of a log in its database, which is that of a schema."""
    if not _LOG_NAME.match(name):
        raise LogError(
            f"{name!r} can't name a log: ?log= takes small letters, digits and '_', 49 characters at most, as in "
            "?log=sales"
        )
    return name


def _table(table: Table[Any]) -> str:
    shape = shape_of(table)
    columns = ["instance int not null"]
    for column in shape.key:
        order = ' collate "C"' if column.type == "text" else ""
        columns.append(f'"{column.name}" {column.type}{order} not null')
    columns += [f'"{column.name}" {column.type}' for column in shape.all[len(shape.key) :]]
    key = ", ".join(["instance", *(f'"{column.name}"' for column in shape.key)])
    room = " with (fillfactor = 50)" if table.name in HOT else ""
    return f"create table {shape.name} ({', '.join(columns)}, primary key ({key})){room}"


def _statements(file: Path) -> list[str]:
    return file.read_text().rstrip().removesuffix(";").split(";\n\n")


def _create(log_id: str) -> Iterator[str]:
    yield from _statements(_TABLES)
    yield f"insert into about (format, layout, log_id) values ({FORMAT}, {LAYOUT}, '{log_id}')"
    for table in BY_NAME.values():
        if table is not JOURNAL:
            yield _table(table)
    yield from _statements(_VIEWS)


def prepare(connection: Connection[Any], schema: str, *, create: bool, log_id: LogId | None = None) -> str | None:
    """Makes the log's tables if there are none, brings older ones up to date, and returns the log id. None if there
    is no log and none is to be made. A log that is made has the `log_id` of the one that it is a copy of, and is
    marked as not finished; otherwise an id of its own."""
    known = _about(connection, schema)
    if known is None and not create:
        return None
    if known is None or known[1] != LAYOUT:
        with connection.transaction():
            connection.execute("set local lock_timeout = 0")  # another process may be making it
            connection.execute("select pg_advisory_xact_lock(%s, hashtext(%s))", (_LOCK, schema))
            known = _about(connection, schema)
            if known is None:
                _make(connection, schema, log_id)
                known = _about(connection, schema)
                assert known is not None
            elif known[1] < LAYOUT:
                _migrate(connection, known[1])
    format_, layout, found = known
    if format_ != FORMAT or layout > LAYOUT:
        raise LogError(
            f"the log {schema!r} has format {format_}.{layout}, this version of Logline reads {FORMAT}.{LAYOUT}: "
            "finish the run with the version that began it, or begin with a fresh log"
        )
    return found


def _about(connection: Connection[Any], schema: str) -> tuple[int, int, str] | None:
    (there,) = connection.execute("select to_regclass(%s)", (f'"{schema}".about',)).fetchone() or (None,)
    if there is None:
        return None
    found = connection.execute("select format, layout, log_id from about").fetchone()
    if found is None:
        raise LogError(f"the log {schema!r} is damaged: its table 'about' is empty")
    return found[0], found[1], found[2]


def _make(connection: Connection[Any], schema: str, log_id: LogId | None) -> None:
    (there,) = connection.execute(
        "select exists (select from pg_namespace where nspname = %s)", (schema,)
    ).fetchone() or (False,)
    if not there:
        connection.execute(f'create schema "{schema}"'.encode())
    for statement in _create(log_id or uuid.uuid4().hex[:12]):
        connection.execute(statement.encode())
    if log_id is not None:
        write_mark(connection, Mark("unfinished", ""))


def _migrate(connection: Connection[Any], layout: int) -> None:
    """From an older layout to this one, step by step."""
    for upto in range(layout + 1, LAYOUT + 1):
        for statement in MIGRATIONS[upto]:
            connection.execute(statement.encode())
    connection.execute("update about set layout = %s", (LAYOUT,))


MIGRATIONS: dict[int, tuple[str, ...]] = {}
"""What brings a log to each layout from the one before it."""
