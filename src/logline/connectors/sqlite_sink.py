"""A table of an SQLite database as a sink: rows and position are one transaction (R8, positioned).

The table `_logline_positions` has the number of the last write of each scope. A write that is repeated, also a late
one by a life that is over, finds its number there and changes nothing. That holds for an upsert as well: what is
older than the position never takes the place of what is newer, so rows need no number of their own.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.types as pt

from logline.errors import ConnectorError, OptionError
from logline.graph.connector import Guarantee, Sink

SqlMode = Literal["append", "upsert"]

_POSITIONS = "_logline_positions"
_HINTS = {
    "locked": "another program holds the database; end its transaction, and start again on the same log",
    "unable to open": "the folder must be there, and the user that runs the pipeline must be allowed to write there",
    "readonly": "the user that runs the pipeline must be allowed to write the file and its folder",
    "disk is full": "make room, and start the pipeline again on the same log: nothing is lost",
    "not a database": "give the path of an SQLite database, or of a file that is not there yet",
}


class SqliteSink(Sink):
    """A table; see `sinks.sqlite`."""

    guarantee: Guarantee = "positioned"

    def __init__(
        self,
        path: str | os.PathLike[str],
        table: str,
        mode: SqlMode = "append",
        key: str | Sequence[str] | None = None,
    ) -> None:
        if mode not in get_args(SqlMode):
            raise OptionError(f"sqlite(): mode={mode!r}: take one of {', '.join(get_args(SqlMode))}")
        if os.fspath(path) in ("", ":memory:"):
            raise OptionError("sqlite(): a database in memory is gone with its process; give the path of a file")
        if not table or table.lower() == _POSITIONS or table.lower().startswith("sqlite_"):
            raise OptionError(f"sqlite(): {table!r} can't be the table; give another name")
        self._key = (key,) if isinstance(key, str) else tuple(key or ())
        if mode == "upsert" and not self._key:
            raise OptionError("sqlite(): mode='upsert' needs key=, the column or columns that tell rows apart")
        if mode == "append" and self._key:
            raise OptionError("sqlite(): key= is for mode='upsert'; rows are appended without one")
        self._path = os.path.abspath(path)  # a worker may have another working directory
        self._table = table
        self._mode: SqlMode = mode
        self._scope = ""
        self._lock = Lock()
        """The engine may close the sink on another thread than the one that writes."""
        self._db: sqlite3.Connection | None = None
        self._fits: pa.Schema | None = None
        """The schema of the last batch: the table is known to have its columns."""

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
            columns = [_values(column, field, self._named) for column, field in zip(batch, batch.schema, strict=True)]
            fits, self._fits = self._fits, None  # known again when all went well: a table may be dropped meanwhile
            with _transaction(db):
                last = self._position(db)
                if number <= last:
                    return
                if number != last + 1:
                    raise ConnectorError(
                        f"{self._named}: write {number} comes, and the table has {last} writes of this log only: it "
                        "was taken back further than the log remembers; restore a newer copy of the database, or "
                        "begin with a fresh log and a fresh table"
                    )
                if fits != batch.schema:
                    self._fit(db, batch.schema)
                self._check_key(batch)
                db.executemany(self._statement(batch.schema.names), zip(*columns, strict=True))
                db.execute(
                    f"create table if not exists {_POSITIONS} (scope text primary key, number integer not null)"
                )
                db.execute(f"insert or replace into {_POSITIONS} values (?, ?)", (self._scope, number))
            self._fits = batch.schema

    # ---- the table ------------------------------------------------------------------------------------

    @property
    def _named(self) -> str:
        return f"sqlite({self._path}, {self._table!r})"

    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            raise ConnectorError(f"{self._named} is not open")
        return self._db

    def _position(self, db: sqlite3.Connection) -> int:
        there = db.execute("select 1 from sqlite_master where type = 'table' and name = ?", (_POSITIONS,)).fetchone()
        if not there:
            return 0
        row = db.execute(f"select number from {_POSITIONS} where scope = ?", (self._scope,)).fetchone()
        return 0 if row is None else int(row[0])

    def _fit(self, db: sqlite3.Connection, schema: pa.Schema) -> None:
        """Makes the table if it is not there; else its columns must take those of the batch."""
        lacking = [name for name in self._key if name not in schema.names]
        if lacking:
            raise ConnectorError(f"{self._named}: the rows have no column {lacking[0]!r}, which key= names")
        found = db.execute(f"pragma table_info({_quoted(self._table)})").fetchall()
        if not found:
            columns = [f"{_quoted(field.name)} {_kind(field, self._named)}" for field in schema]
            if self._key:
                columns.append(f"primary key ({_listed(self._key)})")
            db.execute(f"create table {_quoted(self._table)} ({', '.join(columns)})")
            return
        there = {name.lower() for _, name, *_ in found}
        ours = {name.lower() for name in schema.names}
        for name in schema.names:
            if name.lower() not in there:
                raise ConnectorError(
                    f"{self._named}: the table is there and has no column {name!r} (it has "
                    f"{', '.join(name for _, name, *_ in found)}): add the column, or give another table"
                )
        for _, name, kind, needed, default, in_key in found:
            if name.lower() not in ours and needed and default is None and not in_key:
                raise ConnectorError(
                    f"{self._named}: the table is there, and its column {name!r} ({kind}) is NOT NULL and not in the "
                    "rows: give it a default, or give another table"
                )
        if self._key and not self._is_unique(db):
            raise ConnectorError(
                f"{self._named}: the table is there, and nothing in it makes {', '.join(self._key)} unique: create a "
                "unique index on the key, or give another table"
            )

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
        insert = f"insert into {_quoted(self._table)} ({_listed(names)}) values ({marks})"
        if self._mode == "append":
            return insert
        others = [name for name in names if name not in self._key]
        sets = ", ".join(f"{_quoted(name)} = excluded.{_quoted(name)}" for name in others)
        then = f"do update set {sets}" if others else "do nothing"
        return f"{insert} on conflict ({_listed(self._key)}) {then}"

    def _check_key(self, batch: pa.RecordBatch) -> None:
        for name in self._key:
            if batch.column(name).null_count:
                raise ConnectorError(
                    f"{self._named}: column {name!r} is part of the key and has a null, which is like no other: "
                    "filter such rows out before the sink"
                )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OverflowError) as error:
            hint = next((hint for part, hint in _HINTS.items() if part in str(error)), None)
            raise ConnectorError(f"{self._named}: {error}" + (f"; {hint}" if hint else "")) from error


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


def _quoted(name: str) -> str:
    """
    >>> print(_quoted('my "table"'))
    "my ""table\"""
    """
    return '"' + name.replace('"', '""') + '"'


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(_quoted, names))


def _plain(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pt.is_dictionary(type_) else type_


def _as_text(type_: pa.DataType) -> bool:
    """What SQLite has no type for, and text keeps exactly."""
    return bool(pt.is_decimal(type_) or pt.is_timestamp(type_) or pt.is_date(type_) or pt.is_time(type_))


def _kind(field: pa.Field, where: str) -> str:
    """The type of a column, as SQLite declares it.

    >>> [_kind(pa.field("x", kind), "") for kind in (pa.int32(), pa.float64(), pa.timestamp("us"), pa.binary())]
    ['integer', 'real', 'text', 'blob']
    """
    type_ = _plain(field.type)
    if pt.is_boolean(type_) or pt.is_integer(type_) or pt.is_duration(type_):
        kind = "integer"
    elif pt.is_floating(type_):
        kind = "real"
    elif pt.is_string(type_) or pt.is_large_string(type_) or pt.is_string_view(type_) or _as_text(type_):
        kind = "text"
    elif (
        pt.is_binary(type_) or pt.is_large_binary(type_) or pt.is_binary_view(type_) or pt.is_fixed_size_binary(type_)
    ):
        kind = "blob"
    else:
        raise ConnectorError(
            f"{where}: SQLite has no type for {type_} (column {field.name!r}): make a text of it before the sink, "
            "with json.dumps say"
        )
    return kind if field.nullable else f"{kind} not null"


def _values(column: pa.Array, field: pa.Field, where: str) -> list[Any]:
    """The values as sqlite3 takes them; the type is refused if there is none for it."""
    _kind(field, where)
    type_ = _plain(field.type)
    column = column.cast(type_)
    if _as_text(type_):
        column = column.cast(pa.string())
    elif pt.is_duration(type_):
        column = column.cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values
