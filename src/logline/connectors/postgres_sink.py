"""A table of PostgreSQL as a sink: rows and position are one transaction (R8, positioned).

A transaction begins with `update _logline_positions set number = n where scope = ... and number = n - 1`. This locks
the row, so of two lives that write at once one waits for the other. If no row was changed, the write is there, and
nothing is done. A commit whose answer got lost is recognised in this way at the next try.

A life that was stopped in the midst of its transaction would hold that lock for as long as it stands still. Whoever
waits for longer than `lock_timeout` has the server end that connection, and so its transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from logline.connectors.postgres_table import (
    LONGEST_NAME,
    Place,
    columns_of,
    create,
    dataset_of,
    exists,
    find,
    is_unique,
    split_name,
)
from logline.connectors.postgres_types import array_literal, copy_lines, declared, first_nul, is_taken_by, text_of
from logline.connectors.sql_table import SqlMode, TableSink, is_text, listed, on_conflict, plain, quoted
from logline.errors import ConnectorError, OptionError, PermanentError, SchemaError
from logline.graph.durations import duration
from logline.graph.operator import Duration
from logline.graph.secrets import Secret
from logline.store.postgres.dsn import Dsn, check_installed, explained

if TYPE_CHECKING:
    from psycopg import Connection, RawCursor

_END_HOLDER = """
select pg_terminate_backend(l.pid) from {positions} p join pg_locks l
on l.locktype = 'transactionid' and l.granted and l.transactionid = p.xmax
where p.scope = $1 and l.pid <> pg_backend_pid()
"""


class _Held(Exception):
    """Another transaction holds the position for longer than this one may wait."""


class PostgresSink(TableSink):
    """A table; see `sinks.postgres`."""

    def __init__(
        self,
        dsn: str | Secret,
        table: str,
        mode: SqlMode = "append",
        key: str | Sequence[str] | None = None,
        statement_timeout: Duration = "1m",
        lock_timeout: Duration = "10s",
    ) -> None:
        check_installed()
        super().__init__("postgres()", table, mode, key)
        self._dsn = Dsn(dsn)
        self._schema, self._name = split_name(table)
        self._statement_timeout = _limit("statement_timeout", statement_timeout)
        self._lock_timeout = _limit("lock_timeout", lock_timeout)
        self._db: Connection[Any] | None = None
        self._place: Place | None = None
        """None if it is not known whether the scope has a position."""
        self._casts: list[str] = []

    def __reduce__(self) -> tuple[Any, ...]:
        # A connection stays where it is.
        timeouts = (self._statement_timeout, self._lock_timeout)
        return PostgresSink, (self._dsn.given, self._table, self._mode, self._key, *timeouts)

    def __repr__(self) -> str:
        return self._named

    def dataset(self) -> tuple[str, str] | None:
        """The table. None if the DSN is not known here."""
        return dataset_of(self._dsn, self._schema, self._name)

    def open(self, scope: str) -> None:
        """Connects to the server. The table is looked at with the first write."""
        with self._lock, self._explained():
            self._scope = scope
            self._connection()

    def close(self) -> None:
        with self._lock:
            self._drop()
            self._scope = ""

    def position(self) -> int:
        """The number of the last write of this scope that is in the table."""
        with self._lock, self._explained(), self._transaction() as cursor:
            place = self._find(cursor)
            return (self._position(cursor, place) or 0) if exists(cursor, place.positions) else 0

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        """Writes rows and position in one transaction, unless the position says that they are there."""
        with self._lock, self._explained():
            fits = self._fits
            if fits != batch.schema:
                self.check_schema(batch.schema)
            self._check_key(batch)
            texts = [self._text(column, name) for column, name in zip(batch, batch.schema.names, strict=True)]
            place = self._place or self._prepare()
            with self._transaction(self._advance(place, number)) as cursor:
                if cursor.rowcount == 0:
                    self._check_late(cursor, place, number)
                    return
                if fits != batch.schema:
                    self._fit(cursor, place, batch.schema)
                if batch.num_rows:
                    self._put(cursor, place, batch.schema.names, texts)
            self._fits = batch.schema

    # ---- transactions ---------------------------------------------------------------------------------

    @property
    def _named(self) -> str:
        return f"postgres({self._dsn!r}, {self._table!r})"

    def _connection(self) -> Connection[Any]:
        if not self._scope:
            raise ConnectorError(f"{self._named} is not open")
        if self._db is None:
            self._db = self._dsn.connect(self._statement_timeout)
        return self._db

    def _drop(self) -> None:
        """Forgets the connection, and what was true on it: a server that is back may be another one."""
        db, self._db = self._db, None
        self._fits = self._place = None
        if db is not None:
            db.close()

    @contextmanager
    def _transaction(self, first: str = "") -> Iterator[RawCursor[Any]]:
        """All or nothing. Its beginning is one message, with the statement `first`; the cursor is at its result."""
        import psycopg

        db = self._connection()
        begin = (
            "begin isolation level read committed; "
            f"set local statement_timeout = {_millis(self._statement_timeout)}; "
            f"set local lock_timeout = {_millis(self._lock_timeout)}; {first}"
        )
        with psycopg.RawCursor(db) as cursor:
            try:
                cursor.execute(begin)
            except psycopg.errors.LockNotAvailable as error:
                raise _Held from error
            while cursor.nextset():
                pass
            yield cursor
            cursor.execute("commit")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """After any failure the connection is given up: the server ends its transaction."""
        import psycopg

        try:
            yield
        except _Held:
            self._drop()
            raise self._end_holder() from None
        except psycopg.Error as error:
            self._drop()
            raise explained(error, self._named, self._dsn) from None
        except BaseException:
            self._drop()
            raise

    def _end_holder(self) -> ConnectorError:
        """Ends the connection of a life that is over and holds the position: it was stopped, or its host is gone."""
        import psycopg

        try:
            with self._transaction() as cursor:
                ended = cursor.execute(_END_HOLDER.format(positions=self._find(cursor).positions), [self._scope])
                what = f"the server was asked to end it ({ended.rowcount} found)"
        except psycopg.Error as error:
            what = f"it can't be ended: {explained(error, self._named, self._dsn)}"
        return ConnectorError(f"{self._named}: another connection holds the position of this log; {what}")

    # ---- the position ---------------------------------------------------------------------------------

    def _find(self, cursor: RawCursor[Any]) -> Place:
        place = find(cursor, self._schema, self._name)
        if place.schema is None:
            raise PermanentError(
                f"{self._named}: the search path names no schema that is there; name one: 'public.t'"
            )
        if not place.is_table:
            raise PermanentError(
                f"{self._named}: this is no table (relkind {place.kind!r}): give the name of a table"
            )
        return place

    def _position(self, cursor: RawCursor[Any], place: Place) -> int | None:
        query = f"select number from {place.positions} where scope = $1"
        found = cursor.execute(query, [self._scope]).fetchone()
        return None if found is None else int(found[0])

    def _prepare(self) -> Place:
        """Makes the table of positions, and a position 0 of this scope, if they are not there."""
        with self._transaction() as cursor:
            place = self._find(cursor)
            if not exists(cursor, place.positions):
                create(cursor, place.positions, "scope text primary key, number bigint not null")
            if self._position(cursor, place) is None:
                cursor.execute(
                    f"insert into {place.positions} (scope, number) values ($1, 0) on conflict do nothing",
                    [self._scope],
                )
        self._place = place
        return place

    def _advance(self, place: Place, number: int) -> str:
        """Takes number n only after n - 1, and locks the position."""
        from psycopg import sql

        scope = sql.Literal(self._scope).as_string(self._connection())
        return f"update {place.positions} set number = {number} where scope = {scope} and number = {number - 1}"

    def _check_late(self, cursor: RawCursor[Any], place: Place, number: int) -> None:
        last = self._position(cursor, place)
        if last is None or self._is_next(number, last):
            raise ConnectorError(f"{self._named}: somebody else changed the position of this log meanwhile")

    # ---- the table ------------------------------------------------------------------------------------

    def _declared(self, field: pa.Field) -> str:
        if len(field.name.encode()) > LONGEST_NAME or not field.name or "\0" in field.name:
            raise SchemaError(
                f"{self._named}: a column can't be called {field.name!r}: PostgreSQL takes names of 1 to "
                f"{LONGEST_NAME} bytes; rename it before the sink"
            )
        kind = declared(field.type)
        if kind is None:
            raise SchemaError(
                f"{self._named}: PostgreSQL has no type for {plain(field.type)} (column {field.name!r}): cast it "
                "before the sink"
            )
        return kind

    def _fit(self, cursor: RawCursor[Any], place: Place, schema: pa.Schema) -> None:
        """Makes the table if it is not there; else its columns must take those of the batch."""
        oid = self._find(cursor).oid
        if oid is None:
            create(cursor, place.name, self._definition(schema))
            oid = self._find(cursor).oid
        columns = {column.name: column for column in columns_of(cursor, oid)}
        self._check_columns(schema, list(columns.values()))
        for field in schema:
            column = columns[field.name]
            if not is_taken_by(field.type, column.base, column.scale):
                raise PermanentError(
                    f"{self._named}: the table is there, and its column {field.name!r} has the type {column.kind}, "
                    f"which does not take {field.type} as it is: cast the column before the sink, or change the table"
                )
        if self._key and not is_unique(cursor, oid, self._key):
            raise self._not_unique()
        self._casts = [columns[name].cast for name in schema.names]

    def _text(self, column: pa.Array, name: str) -> pa.Array:
        try:
            text = text_of(column)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise PermanentError(f"{self._named}: column {name!r}: {error}; cast it before the sink") from error
        if is_text(plain(column.type)) and (row := first_nul(text)) is not None:
            raise PermanentError(
                f"{self._named}: column {name!r} has a NUL character (row {row} of the event, counted from 0), which "
                "PostgreSQL can't hold: remove it before the sink, with pyarrow.compute.replace_substring say"
            )
        return text

    def _put(self, cursor: RawCursor[Any], place: Place, names: Sequence[str], texts: Sequence[pa.Array]) -> None:
        if self._mode == "append":
            with cursor.copy(f"copy {place.name} ({listed(names)}) from stdin") as copy:
                copy.write(copy_lines(texts))
            return
        order = "n"
        while order in names:
            order += "n"
        arrays = ", ".join(f"${n}::{cast}[]" for n, cast in enumerate(self._casts, 1))
        # The last one of a key counts. Rows are locked in the order of their keys, so two writers can't deadlock.
        rows = (
            f"select distinct on ({listed(self._key)}) {listed(names)} from unnest({arrays}) with ordinality "
            f"as r({listed([*names, order])}) order by {listed(self._key)}, {quoted(order)} desc"
        )
        query = f"insert into {place.name} ({listed(names)}) {rows} {on_conflict(names, self._key)}"
        cursor.execute(query, [array_literal(text) for text in texts])


def _limit(option: str, value: Duration) -> timedelta:
    found = duration(value)
    if found < timedelta(milliseconds=1):
        raise OptionError(f"postgres(): {option}={value!r}: a millisecond at least, for example '30s'")
    return found


def _millis(span: timedelta) -> int:
    return int(span / timedelta(milliseconds=1))
