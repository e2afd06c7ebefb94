"""A table of an SQLite database as a sink: rows and position are one transaction (R8, positioned)."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from logline.connectors.sql_table import (
    POSITIONS,
    Column,
    SqlMode,
    TableSink,
    is_bytes,
    is_text,
    listed,
    on_conflict,
    plain,
    quoted,
)
from logline.errors import ConnectorError, OptionError, PermanentError, SchemaError

_HINTS = {
    "locked": "another program holds the database; end its transaction, and start again on the same log",
    "unable to open": "the folder must be there, and the user that runs the pipeline must be allowed to write there",
    "readonly": "the user that runs the pipeline must be allowed to write the file and its folder",
    "disk is full": "make room, and start the pipeline again on the same log: nothing is lost",
    "not a database": "give the path of an SQLite database, or of a file that is not there yet",
}


class SqliteSink(TableSink):
    """A table; see `sinks.sqlite`."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        table: str,
        mode: SqlMode = "append",
        key: str | Sequence[str] | None = None,
    ) -> None:
        super().__init__("sqlite()", table, mode, key)
        if os.fspath(path) in ("", ":memory:"):
            raise OptionError("sqlite(): a database in memory is gone with its process; give the path of a file")
        if not table or table.lower() == POSITIONS or table.lower().startswith("sqlite_"):
            raise OptionError(f"sqlite(): {table!r} can't be the table; give another name")
        self._path = os.path.abspath(path)  # a worker may have another working directory
        self._db: sqlite3.Connection | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return SqliteSink, (self._path, self._table, self._mode, self._key)  # a connection stays where it is

    def dataset(self) -> tuple[str, str]:
        """The file and the table, in the namespace `sqlite`."""
        return "sqlite", f"{self._path}:{self._table}"

    def open(self, scope: str) -> None:
        """Connects, and makes the file if need be."""
        self._scope = scope
        with self._lock, self._explained():
            # Transactions begin and end where the code says so, not where the module guesses.
            self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)

    def close(self) -> None:
        with self._lock:
            if self._db is not None:
                self._db.close()
            self._db = self._fits = None

    def position(self) -> int:
        """The number of the last write of this scope that is in the table."""
        with self._lock, self._explained():
            return self._position(self._connection())

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        """Writes rows and position in one transaction, unless the position says that they are there."""
        with self._lock, self._explained():
            db = self._connection()
            fits, self._fits = self._fits, None  # known again when all went well: a table may be dropped meanwhile
            if fits != batch.schema:
                self.check_schema(batch.schema)
            columns = [_values(column, field.type) for column, field in zip(batch, batch.schema, strict=True)]
            with _transaction(db):
                if not self._is_next(number, self._position(db)):
                    return
                if fits != batch.schema:
                    self._fit(db, batch.schema)
                self._check_key(batch)
                db.executemany(self._statement(batch.schema.names), zip(*columns, strict=True))
                db.execute(
                    f"create table if not exists {POSITIONS} (scope text primary key, number integer not null)"
                )
                db.execute(f"insert or replace into {POSITIONS} values (?, ?)", (self._scope, number))
            self._fits = batch.schema

    # ---- the table ------------------------------------------------------------------------------------

    @property
    def _named(self) -> str:
        return f"sqlite({self._path}, {self._table!r})"

    def _folded(self, name: str) -> str:
        return name.lower()

    def _as_null(self, column: pa.Array) -> bool:
        nan = pt.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py()  # SQLite keeps it as null
        return bool(nan) or super()._as_null(column)

    def _declared(self, field: pa.Field) -> str:
        kind = _kind(field.type)
        if kind is None:
            raise SchemaError(
                f"{self._named}: SQLite has no type for {plain(field.type)} (column {field.name!r}): make a text of "
                "it before the sink, with json.dumps say"
            )
        return kind

    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            raise ConnectorError(f"{self._named} is not open")
        return self._db

    def _position(self, db: sqlite3.Connection) -> int:
        there = db.execute("select 1 from sqlite_master where type = 'table' and name = ?", (POSITIONS,)).fetchone()
        if not there:
            return 0
        row = db.execute(f"select number from {POSITIONS} where scope = ?", (self._scope,)).fetchone()
        return 0 if row is None else int(row[0])

    def _fit(self, db: sqlite3.Connection, schema: pa.Schema) -> None:
        """Makes the table if it is not there; else its columns must take those of the batch."""
        found = [
            Column(name, kind, bool(needed and default is None and not in_key))
            for _, name, kind, needed, default, in_key in db.execute(f"pragma table_info({quoted(self._table)})")
        ]
        if not found:
            db.execute(f"create table {quoted(self._table)} ({self._definition(schema)})")
            return
        self._check_columns(schema, found)
        if self._key and not self._is_unique(db):
            raise self._not_unique()

    def _is_unique(self, db: sqlite3.Connection) -> bool:
        """Whether SQLite takes the columns for the target of an upsert; it knows, and only prepares the statement."""
        try:
            db.execute(f"explain {self._statement(self._key)}", [None] * len(self._key))
        except sqlite3.OperationalError as error:
            if "ON CONFLICT" in str(error):
                return False
            raise
        return True

    def _statement(self, names: Sequence[str]) -> str:
        marks = ", ".join("?" * len(names))
        insert = f"insert into {quoted(self._table)} ({listed(names)}) values ({marks})"
        return insert if self._mode == "append" else f"{insert} {on_conflict(names, self._key)}"

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OverflowError) as error:
            hint = next((hint for part, hint in _HINTS.items() if part in str(error)), None)
            kind = PermanentError if isinstance(error, OverflowError | sqlite3.IntegrityError) else ConnectorError
            raise kind(f"{self._named}: {error}" + (f"; {hint}" if hint else "")) from error


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All or nothing. It takes the lock at once: two lives that both looked at the position would both write."""
    db.execute("begin immediate")
    try:
        yield
        db.execute("commit")
    except BaseException:
        if db.in_transaction:  # a full disk, say, has ended it already
            db.execute("rollback")
        raise


def _as_text(type_: pa.DataType) -> bool:
    """What SQLite has no type for, and text keeps exactly."""
    return bool(pt.is_decimal(type_) or pt.is_timestamp(type_) or pt.is_date(type_) or pt.is_time(type_))


def _kind(type_: pa.DataType) -> str | None:
    """The type of a column, as SQLite declares it; None if it has none.

    >>> [_kind(kind) for kind in (pa.int32(), pa.float64(), pa.timestamp("us"), pa.binary(), pa.list_(pa.int64()))]
    ['integer', 'real', 'text', 'blob', None]
    """
    type_ = plain(type_)
    if pt.is_boolean(type_) or pt.is_integer(type_) or pt.is_duration(type_):
        return "integer"
    if pt.is_floating(type_):
        return "real"
    if is_text(type_) or _as_text(type_):
        return "text"
    return "blob" if is_bytes(type_) else None


def _values(column: pa.Array, type_: pa.DataType) -> list[Any]:
    """The values as sqlite3 takes them."""
    type_ = plain(type_)
    column = column.cast(type_)
    if _as_text(type_):
        column = column.cast(pa.string())
    elif pt.is_duration(type_):
        column = column.cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values
