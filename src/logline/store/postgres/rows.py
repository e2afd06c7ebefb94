"""Rows of a journal in PostgreSQL: read in a transaction (`PgRows`), and changed in the memory of their one writer.

A commit should be one round trip, and applying a step looks at rows that it changes. The writer of a journal knows
all of its small rows: nobody else changes them. So it holds a copy of those that an image is made of (`Mirror`),
applies a step to the copy, and sends what has changed. What lineage keeps may be large and is hardly ever looked at:
it stays on the server and is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from logline.store.checkpoints import SAVED
from logline.store.history import KEPT_ANSWERS, KEPT_SETS, RUN_EVENTS, RUNS, SEGMENT_SETS
from logline.store.layout import BY_NAME, JOURNAL, KEYED, JournalRow
from logline.store.members import COVERED, DONE
from logline.store.memory_rows import MemoryRows
from logline.store.postgres.columns import Shape, shape_of
from logline.store.rows import Key, Table

if TYPE_CHECKING:
    from psycopg import Connection

V = TypeVar("V")
HISTORY = (DONE, SEGMENT_SETS, KEPT_SETS, KEPT_ANSWERS, RUNS, RUN_EVENTS, COVERED, SAVED, KEYED)
"""Tables that stay on the server: as large as what lineage keeps, as checkpoints are, or as many as there are keys,
whose states the life itself has."""
MIRRORED = [table for table in BY_NAME.values() if table not in HISTORY and table is not JOURNAL]
_AHEAD = 256
"""Rows that are read for one that is asked for: the next ones are about to be."""
JOURNAL_COLUMNS = 'format, incarnation, commits, serial, dues, marks, "left", sets, checkpoints, replay'


class Range(NamedTuple):
    """All rows of a table whose key begins so, and whose next part is below a number."""

    table: Table[Any]
    prefix: Key
    below: int | None

    def has(self, key: Key) -> bool:
        """Whether a key is in it."""
        at = len(self.prefix)
        return key[:at] == self.prefix and (self.below is None or key[at] < self.below)


def _where(shape: Shape, prefix: Key, below: int | None) -> tuple[str, list[Any]]:
    given = shape.key_row(prefix)
    said = [f'"{column.name}" = %s' for column in shape.key[: len(prefix)]]
    if below is not None:
        said.append(f'"{shape.key[len(prefix)].name}" < %s')
        given.append(below)
    return " and ".join(["instance = %s", *said]), given


class PgRows:
    """The rows of a journal as a transaction sees them (see `store.rows.Rows`)."""

    def __init__(self, connection: Connection[Any], instance: int) -> None:
        self._connection = connection
        self._instance = instance

    def _ask(self, query: str, given: list[Any]) -> list[Any]:
        return self._connection.execute(query, [self._instance, *given], binary=True).fetchall()

    def get(self, table: Table[V], key: Key) -> V | None:
        """A row, if there is one."""
        if table is JOURNAL:
            found = self._ask(f"select {JOURNAL_COLUMNS} from raw_journal where instance = %s", [])
            return JournalRow(*found[0]) if found else None  # type: ignore[return-value]
        shape = shape_of(table)
        where, given = _where(shape, key, None)
        found = self._ask(f"select {shape.selected} from {shape.name} where {where}", given)
        return shape.read(found[0])[1] if found else None

    def scan(self, table: Table[V], prefix: Key = (), below: int | None = None) -> Iterable[tuple[Key, V]]:
        """The rows whose key begins so, in the order of their keys."""
        shape = shape_of(table)
        where, given = _where(shape, prefix, below)
        order = ", ".join(f'"{column.name}"' for column in shape.key)
        ordered = f" order by {order}" if order else ""
        return [
            shape.read(row)
            for row in self._ask(f"select {shape.selected} from {shape.name} where {where}{ordered}", given)
        ]

    def count(self, table: Table[Any]) -> int:
        """How many rows a table has."""
        return int(self._ask(f"select count(*) from {shape_of(table).name} where instance = %s", [])[0][0])

    def after(self, table: Table[V], key: Key, limit: int) -> list[tuple[Key, V]]:
        """The first rows from this key on, of a table whose key is one number."""
        shape = shape_of(table)
        name = shape.key[0].name
        query = f'select {shape.selected} from {shape.name} where instance = %s and "{name}" >= %s order by "{name}"'
        return [shape.read(row) for row in self._ask(f"{query} limit %s", [key[0], limit])]

    def floor(self, table: Table[V], key: Key) -> tuple[Key, V] | None:
        """The last row up to this key."""
        shape = shape_of(table)
        where, given = _where(shape, key[:-1], key[-1] + 1)
        last = shape.key[-1].name
        found = self._ask(
            f'select {shape.selected} from {shape.name} where {where} order by "{last}" desc limit 1', given
        )
        return shape.read(found[0]) if found else None

    def put(self, table: Table[V], key: Key, value: V) -> None:
        """Never: a reader changes nothing."""
        raise TypeError("a reader changes nothing")

    def delete(self, table: Table[Any], key: Key) -> None:
        """Never: a reader changes nothing."""
        raise TypeError("a reader changes nothing")

    def delete_range(self, table: Table[Any], prefix: Key = (), below: int | None = None) -> None:
        """Never: a reader changes nothing."""
        raise TypeError("a reader changes nothing")


class Changes:
    """What a step changes, in the order in which it is sent: ranges go, then rows go, then rows come."""

    def __init__(self) -> None:
        self.ranges: list[Range] = []
        self.rows: dict[Table[Any], dict[Key, Any]] = {}
        """None: the row goes."""

    def statements(self, instance: int) -> Iterator[tuple[str, list[Any]]]:
        """As SQL: one statement for each table and kind of change."""
        for table, prefix, below in self.ranges:
            shape = shape_of(table)
            where, given = _where(shape, prefix, below)
            yield f"delete from {shape.name} where {where}", [instance, *given]
        for table, changed in self.rows.items():
            shape = shape_of(table)
            gone = [key for key, value in changed.items() if value is None]
            come = [shape.row(key, value) for key, value in changed.items() if value is not None]
            if gone:
                yield _delete(shape), [instance, *_transposed([shape.key_row(key) for key in gone], len(shape.key))]
            if come:
                yield _upsert(shape), [instance, *_transposed(come, len(shape.all))]


def _transposed(rows: list[list[Any]], width: int) -> list[list[Any]]:
    return [[row[at] for row in rows] for at in range(width)]


_statements: dict[tuple[str, str], str] = {}


def _delete(shape: Shape) -> str:
    known = _statements.get((shape.name, "delete"))
    if known is None:
        names = ", ".join(f'"{column.name}"' for column in shape.key)
        given = ", ".join(f"%s::{column.sent}[]" for column in shape.key)
        known = f"delete from {shape.name} where instance = %s and ({names}) in (select * from unnest({given}))"
        _statements[shape.name, "delete"] = known
    return known


def _upsert(shape: Shape) -> str:
    known = _statements.get((shape.name, "upsert"))
    if known is None:
        names = [f'"{column.name}"' for column in shape.all]
        given = ", ".join(f"%s::{column.sent}[]" for column in shape.all)
        cast = ", ".join(f"a.{n}::{column.type}" for n, column in zip(names, shape.all, strict=True))
        key = ", ".join(["instance", *(f'"{column.name}"' for column in shape.key)])
        new = ", ".join(f"{n} = excluded.{n}" for n in names[len(shape.key) :])
        known = (
            f"insert into {shape.name} (instance, {', '.join(names)}) "
            f"select %s, {cast} from unnest({given}) as a({', '.join(names)}) "
            f"on conflict ({key}) do update set {new}"
        )
        _statements[shape.name, "upsert"] = known
    return known


class Mirror:
    """The rows of a journal as its one writer holds them (see `store.rows.Rows`). What is changed is noted down."""

    def __init__(self, rows: MemoryRows, server: Callable[[Callable[[PgRows], Any]], Any]) -> None:
        """`server` asks the server for rows that are not held here."""
        self.rows = rows
        self._server = server
        self.changes = Changes()
        self._ahead: dict[Table[Any], dict[Key, Any]] = {}
        """Rows that were read ahead, for as long as a commit lasts."""

    def begin(self) -> Changes:
        """The changes from here on."""
        self.changes = Changes()
        self._ahead.clear()
        return self.changes

    def get(self, table: Table[V], key: Key) -> V | None:
        """A row, if there is one."""
        if table not in HISTORY:
            return self.rows.get(table, key)
        changed = self.changes.rows.get(table, {})
        if key in changed:
            return changed[key]  # type: ignore[no-any-return]
        if any(gone.table is table and gone.has(key) for gone in self.changes.ranges):
            return None
        known = self._ahead.setdefault(table, {})
        if key not in known:
            found = self._server(lambda rows: rows.after(table, key, _AHEAD))
            known.update(found)
        return known.get(key)

    def put(self, table: Table[V], key: Key, value: V) -> None:
        """Replaces the row of this key, if there is one."""
        if table not in HISTORY:
            self.rows.put(table, key, value)
        if table is not JOURNAL:
            self.changes.rows.setdefault(table, {})[key] = value

    def delete(self, table: Table[Any], key: Key) -> None:
        """Deletes the row of this key, if there is one."""
        if table not in HISTORY:
            self.rows.delete(table, key)
        self.changes.rows.setdefault(table, {})[key] = None

    def delete_range(self, table: Table[Any], prefix: Key = (), below: int | None = None) -> None:
        """Deletes all rows that `scan` would find."""
        if table not in HISTORY:
            self.rows.delete_range(table, prefix, below)
        gone = Range(table, prefix, below)
        changed = self.changes.rows.get(table, {})
        for key in [key for key in changed if gone.has(key)]:
            del changed[key]
        self.changes.ranges.append(gone)

    def scan(self, table: Table[V], prefix: Key = (), below: int | None = None) -> Iterable[tuple[Key, V]]:
        """The rows whose key begins so, in the order of their keys."""
        if table not in HISTORY:
            return self.rows.scan(table, prefix, below)
        wanted = Range(table, prefix, below)
        found: dict[Key, Any] = {
            key: value
            for key, value in self._server(lambda rows: rows.scan(table, prefix, below))
            if not any(gone.table is table and gone.has(key) for gone in self.changes.ranges)
        }
        found |= {key: value for key, value in self.changes.rows.get(table, {}).items() if wanted.has(key)}
        return [(key, found[key]) for key in sorted(found) if found[key] is not None]

    def floor(self, table: Table[V], key: Key) -> tuple[Key, V] | None:
        """Nobody asks this while a step is applied."""
        raise TypeError("only readers look for the last row up to a key")

    def count(self, table: Table[Any]) -> int:
        """Nobody asks this while a step is applied."""
        raise TypeError("only readers count rows")
