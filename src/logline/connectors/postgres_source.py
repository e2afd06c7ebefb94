"""A query of PostgreSQL as a source (R9).

With a cursor, columns that order the rows, it is replayable: the offset is the cursor's value in the last row, and
the next page is `where cursor > offset order by cursor limit n`. `postgres_settling` says how rows that are committed
out of order are not missed. Without a cursor nothing tells which rows were read. So the whole result, which is of one
snapshot, is one read action.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from logline.connectors.postgres_cursor import Cursor, Keys, Offset
from logline.connectors.postgres_listening import Bell, Following
from logline.connectors.postgres_query import Query, Rows, asking, described, schema_of
from logline.connectors.postgres_settling import Settle, Settling
from logline.connectors.postgres_table import dataset_of
from logline.errors import ConnectorError, OptionError, PermanentError
from logline.graph.connector import Source
from logline.graph.operator import Duration, SchemaLike
from logline.graph.schemas import schema as read_schema
from logline.graph.secrets import Secret
from logline.store.postgres.dsn import Dsn, check_installed, explained

if TYPE_CHECKING:
    from psycopg import Connection

logger = logging.getLogger("logline.postgres")

_HINTS: Mapping[str, str] = {
    "25006": "a source only reads: give a query that changes nothing",
    "28P01": "check user and password",
    "42501": "the role needs SELECT on what the query reads, and USAGE on its schema",
    "42601": "give a query, or the name of a table",
    "42P01": "give a query, or the name of a table as it is in the database",
    "57014": "the query takes longer than this role's statement_timeout: raise it, or create an index on the cursor",
}
_TIMEOUT = timedelta(minutes=1)
"""How long a network may keep silent about what was sent."""
_PAUSES = (0.1, 0.3, 0.9, 2.7, 8.1)
"""Seconds before a server that is away is asked again, as for a sink."""
_HOLD = 5.0
"""Seconds for which `read` may wait for rows at a time. A life that is over notices in between."""

Item = tuple[pa.RecordBatch, Any]


class PostgresSource(Source):
    """A query; see `sources.postgres`."""

    schema: pa.Schema
    reuses_memory = False

    def __init__(
        self,
        dsn: str | Secret,
        query: str,
        cursor: str | Sequence[str] | None = None,
        poll: Duration | None = None,
        listen: str | None = None,
        settle: Settle | Duration = "transactions",
        page: int = 10_000,
        schema: SchemaLike | None = None,
    ) -> None:
        check_installed()
        self._given = (query, cursor, poll, listen, settle, page)
        self._dsn = Dsn(dsn)
        self._query = Query.of(query)
        self._cursor = None if cursor is None else Cursor.of(cursor)
        if self._cursor is None and (poll is not None or listen is not None):
            raise OptionError(
                "postgres(): poll= and listen= need cursor=, the column or columns that tell new rows from old ones"
            )
        self._following = Following.of(poll, listen)
        self._settling = Settling(settle)
        asked: object = page
        if not isinstance(asked, int) or asked < 1:
            raise OptionError(f"postgres(): page={page!r}: rows that are asked for at a time, 1 at least")
        self._page = page
        self.replayable = self._cursor is not None
        self.grows = self.replayable  # without a cursor another look would give all rows again
        self.schema = self._described() if schema is None else read_schema(schema)

    def __reduce__(self) -> tuple[Any, ...]:
        return PostgresSource, (self._dsn.given, *self._given, self.schema)

    def __repr__(self) -> str:
        return self._named

    def describe(self, partition: str) -> str:
        """The text of the read action."""
        return self._named

    def dataset(self) -> tuple[str, str] | None:
        """The table. None if it is a query, or the DSN is not known here."""
        return None if self._query.table is None else dataset_of(self._dsn, *self._query.table)

    def sample(self, rows: int) -> Source:
        """What is there, without waiting for anything."""
        query, cursor, *_, page = self._given
        return PostgresSource(self._dsn.given, query, cursor, None, None, "0s", min(page, rows), self.schema)

    def read(self, partition: str, offset: Any) -> Iterator[Item | None]:
        """With a cursor: what is there, and then what comes if it is to follow. A server that is away is asked again,
        unless half of a result that has no offsets was read."""
        at, tries = offset, 0
        with closing(Bell(self._following, self._dsn, self._named)) as bell:
            while True:
                try:
                    with self._explained():
                        for item in self._whole() if self._cursor is None else self._after(at, bell):
                            at, tries = at if item is None else item[1], 0
                            yield item
                        return
                except ConnectorError as error:
                    half = self._cursor is None and at is not offset
                    if isinstance(error, PermanentError) or half or tries == len(_PAUSES):
                        raise
                    logger.warning("%s; it tries again", error)
                time.sleep(_PAUSES[tries])
                tries += 1

    # ---- what is read ---------------------------------------------------------------------------------

    def _described(self) -> pa.Schema:
        """The schema, as the server knows it. Refuses what could not be read, as far as that shows."""
        try:
            self._dsn.settings()
        except OptionError as error:
            raise OptionError(f"{error}; set it here too, or give schema=: then nobody is asked here") from None
        with self._explained(), closing(self._connect()) as db, asking(db) as cursor:
            columns = described(cursor, self._query, self._named)
            if self._cursor is not None:
                self._cursor.check(cursor, self._query, columns, self._named)
        return schema_of(columns, self._named)

    def _whole(self) -> Iterator[Item]:
        with closing(self._connect()) as db, asking(db) as cursor:
            columns = described(cursor, self._query, self._named)
            rows = Rows(columns, self.schema, (), self._page, self._named)
            for page in rows.copy(cursor, self._query.rows):
                yield page.batch, "read"

    def _after(self, offset: Any, bell: Bell) -> Iterator[Item | None]:
        """All rows after an offset that are there, and then those that come."""
        assert self._cursor is not None
        at = self._cursor.offset(offset, self._named)
        with closing(self._connect()) as db:
            with asking(db) as cursor:
                columns = described(cursor, self._query, self._named)
                tables = self._settling.tables(cursor, self._named)
                keys = self._cursor.check(cursor, self._query, columns, self._named)
                if at is not None and keys.is_behind(cursor, at):
                    self._warn_behind(at)
            rows = Rows(columns, self.schema, self._cursor.names, self._page, self._named)
            given: float | None = None
            while True:
                bell.arm()
                with asking(db) as cursor:
                    bound = keys.bound(cursor, at)
                if bound is not None:
                    self._settling.wait(tables, partial(_look, db), self._named)
                    at = yield from self._pages(db, keys, rows, at, bound)
                if self._following is None:
                    return
                if given is None or time.monotonic() >= given + _HOLD:
                    yield None  # all that was there at first is read; later: is this life over?
                    given = time.monotonic()
                while not bell.wait(_HOLD):
                    yield None
                    given = time.monotonic()

    def _pages(
        self, db: Connection[Any], keys: Keys, rows: Rows, at: Offset | None, bound: Offset
    ) -> Generator[Item, None, Offset | None]:
        """The rows up to a bound, and the offset after them."""
        count = self._page
        while count == self._page:
            count = 0
            with asking(db) as cursor:
                for page in rows.copy(cursor, keys.page(cursor, at, bound, self._page)):
                    at = keys.last(page.keys)
                    count += page.batch.num_rows
                    yield page.batch, at
                if at is not None:
                    keys.check_alone(cursor, at)
        return at

    def _warn_behind(self, at: Offset) -> None:
        value = ", ".join(f"{name} = {text}" for name, text in at.items())
        logger.warning(
            "%s: the log has read up to %s, and all rows that are there come before it. If the database was restored "
            "from an older copy, rows that get the same values again are not read: begin with a fresh log",
            *(self._named, value),
        )

    # ---- the server -----------------------------------------------------------------------------------

    @property
    def _named(self) -> str:
        query = self._given[0].strip()
        return f"postgres({self._dsn!r}, {query if len(query) <= 60 else query[:57] + '...'!r})"

    def _connect(self) -> Connection[Any]:
        return self._dsn.connect(_TIMEOUT)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            raise explained(error, self._named, self._dsn, _HINTS) from None


def _look(db: Connection[Any], query: str, values: list[Any]) -> list[Any]:
    import psycopg

    with psycopg.RawCursor(db) as cursor:
        return cursor.execute(query, values).fetchall()
