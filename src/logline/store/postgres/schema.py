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
from typing import TYPE_CHECKING, Any, NamedTuple

from logline.errors import LogError
from logline.names import LogId
from logline.store.encoding import FORMAT
from logline.store.layout import BY_NAME, JOURNAL
from logline.store.marks import Mark
from logline.store.postgres.columns import shape_of
from logline.store.postgres.restore import another_log, write_mark
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


def _create(log_id: str, place: tuple[int, int]) -> Iterator[str]:
    yield from _statements(_TABLES)
    yield (
        "insert into about (format, layout, log_id, server, servers) "
        f"values ({FORMAT}, {LAYOUT}, '{log_id}', {place[0]}, {place[1]})"
    )
    for table in BY_NAME.values():
        if table is not JOURNAL:
            yield _table(table)
    yield from _statements(_VIEWS)


def prepare(
    connection: Connection[Any],
    schema: str,
    *,
    create: bool,
    place: tuple[int, int] = (1, 1),
    part_of: LogId | None = None,
    copy_of: LogId | None = None,
) -> str | None:
    """Makes the log's tables if there are none, brings older ones up to date, and returns the log id. None if there
    is no log and none is to be made. A log that is made as a copy has the id of the other one, and is marked as not
    finished. `place` and `part_of`: see `PgStore`."""
    known = _about(connection, schema)
    if known is None and not create:
        return None
    if known is None or known.layout != LAYOUT:
        with connection.transaction():
            connection.execute("set local lock_timeout = 0")  # another process may be making it
            connection.execute("select pg_advisory_xact_lock(%s, hashtext(%s))", (_LOCK, schema))
            known = _about(connection, schema)
            if known is None:
                _make(connection, schema, copy_of or part_of or LogId(uuid.uuid4().hex[:12]), place)
                if copy_of is not None:
                    write_mark(connection, Mark("unfinished", ""))
                known = _about(connection, schema)
                assert known is not None
            elif known.layout < LAYOUT and known.format == FORMAT:  # another format stays as its version knows it
                _migrate(connection, known.layout)
    if known.format != FORMAT or known.layout > LAYOUT:
        raise LogError(
            f"the log {schema!r} has format {known.format}.{known.layout}, this version of Logline reads "
            f"{FORMAT}.{LAYOUT}: finish the run with the version that began it, or begin with a fresh log"
        )
    if (known.server, known.servers) != place or part_of not in (None, known.log_id):
        if copy_of is not None:
            raise another_log()
        raise LogError(
            f"the log {schema!r} is part {known.server} of {known.servers} of log {known.log_id}, and the address "
            f"has it as part {place[0]} of {place[1]}{f' of log {part_of}' if part_of else ''}: name all its "
            "servers, in the order in which it was made"
        )
    return known.log_id


class About(NamedTuple):
    """What a log is."""

    format: int
    layout: int
    log_id: str
    server: int
    servers: int


def _about(connection: Connection[Any], schema: str) -> About | None:
    (there,) = connection.execute("select to_regclass(%s)", (f'"{schema}".about',)).fetchone() or (None,)
    if there is None:
        return None
    found = connection.execute("select format, layout, log_id, server, servers from about").fetchone()
    if found is None:
        raise LogError(f"the log {schema!r} is damaged: its table 'about' is empty")
    return About(*found)


def _make(connection: Connection[Any], schema: str, log_id: LogId, place: tuple[int, int]) -> None:
    (there,) = connection.execute(
        "select exists (select from pg_namespace where nspname = %s)", (schema,)
    ).fetchone() or (False,)
    if not there:
        connection.execute(f'create schema "{schema}"'.encode())
    for statement in _create(log_id, place):
        connection.execute(statement.encode())


def _migrate(connection: Connection[Any], layout: int) -> None:
    """From an older layout to this one, step by step."""
    for upto in range(layout + 1, LAYOUT + 1):
        for statement in MIGRATIONS[upto]:
            connection.execute(statement.encode())
    connection.execute("update about set layout = %s", (LAYOUT,))


MIGRATIONS: dict[int, tuple[str, ...]] = {}
"""What brings a log to each layout from the one before it."""
