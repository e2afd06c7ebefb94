"""The columns that order what a source reads: where to go on, as SQL, and what makes them fit for it.

An offset is the cursor's value in the last row that was read, a text for each column as the server writes it. Texts
come back as the same value, whatever the type. The names are part of it: an offset of another cursor is noticed.

>>> Cursor.of(["day", "id"]).order("desc")
'q."day" desc, q."id" desc'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from logline.connectors.postgres_query import Query, ResultColumn
from logline.connectors.postgres_table import find, is_unique_within, never_null
from logline.connectors.sql_table import quoted
from logline.errors import OptionError, PermanentError

if TYPE_CHECKING:
    from psycopg import RawCursor

Offset = dict[str, str]


@dataclass(frozen=True, slots=True)
class Cursor:
    """Columns, the most significant one first."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, given: str | Sequence[str]) -> Cursor:
        """One column or several, as a user names them."""
        names: tuple[object, ...] = (given,) if isinstance(given, str) else tuple(given)
        if not names or not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
            raise OptionError(
                f"postgres(): cursor={given!r}: name the column that orders the rows, or several: ['day', 'id']"
            )
        return cls(tuple(map(str, names)))

    def offset(self, logged: Any, named: str) -> Offset | None:
        """What the log has, if it is of this cursor."""
        if logged is None:
            return None
        if not isinstance(logged, dict) or tuple(logged) != self.names:
            there = ", ".join(logged) if isinstance(logged, dict) else repr(logged)
            raise PermanentError(
                f"{named}: the log has read up to a value of {there}, and the cursor is {', '.join(self.names)}: "
                "take the former cursor, or begin with a fresh log"
            )
        return logged

    def order(self, direction: str = "asc") -> str:
        """What follows ORDER BY in a query: the columns of the cursor, each with the direction."""
        return ", ".join(f"{name} {direction}" for name in self._columns)

    @property
    def _columns(self) -> list[str]:
        return [f"q.{quoted(name)}" for name in self.names]

    def check(self, db: RawCursor[Any], query: Query, columns: dict[str, ResultColumn], named: str) -> Keys:
        """Refuses columns that rows can't be read by, as far as that shows before any is read."""
        import psycopg

        for name in self.names:
            if name not in columns:
                raise PermanentError(
                    f"{named}: the query has no column {name!r}, which cursor= names; it has {', '.join(columns)}"
                )
        mine = ", ".join(self._columns)
        try:
            db.execute(f"select 1 from {query.rows} where ({mine}) > ({mine}) order by {self.order()} limit 0")
        except psycopg.errors.UndefinedFunction:
            kinds = ", ".join(f"{name} {columns[name].kind}" for name in self.names)
            raise PermanentError(
                f"{named}: rows can't be ordered by {kinds}: take a column of numbers, times or texts as cursor="
            ) from None
        oid = self._table(db, query)
        if oid is None:
            return Keys(self, columns, query, named, sure=False, nullable=self.names)
        if not is_unique_within(db, oid, self.names):
            raise PermanentError(
                f"{named}: nothing in the table makes {', '.join(self.names)} unique, so of rows that are equal some "
                f"could be left out: add a column that tells them apart, as in cursor={[*self.names, 'id']!r}, or "
                "create a unique index"
            )
        nullable = tuple(name for name in self.names if name not in never_null(db, oid))
        return Keys(self, columns, query, named, sure=True, nullable=nullable)

    @staticmethod
    def _table(db: RawCursor[Any], query: Query) -> int | None:
        """None if it is no plain table: a query, a view."""
        if query.table is None:
            return None
        place = find(db, *query.table)
        return place.oid if place.kind in ("r", "p") else None


@dataclass(frozen=True, slots=True)
class Keys:
    """The cursor of a query whose columns are known."""

    cursor: Cursor
    columns: dict[str, ResultColumn]
    query: Query
    named: str
    sure: bool
    """Whether the database makes them unique."""
    nullable: tuple[str, ...]

    def bound(self, db: RawCursor[Any], after: Offset | None) -> Offset | None:
        """The cursor of the last row, if there is one after this offset."""
        rows, names = self.query.rows, self.cursor.names
        if self.nullable:
            missing = " or ".join(f"q.{quoted(name)} is null" for name in self.nullable)
            if _found(db, f"select exists (select 1 from {rows} where {missing})"):
                raise PermanentError(
                    f"{self.named}: a row has a null in {', '.join(self.nullable)}, so it has no place in the order "
                    "of the cursor and would never be read: fill it, or leave such rows out in the query"
                )
        if after is not None:
            self.check_alone(db, after)
        texts = ", ".join(f"q.{quoted(name)}::text" for name in names)
        order = self.cursor.order("desc")
        row = db.execute(
            f"select {texts} from {rows} where {self._after(db, after)} order by {order} limit 1"
        ).fetchone()
        return None if row is None else dict(zip(names, row, strict=True))

    def page(self, db: RawCursor[Any], after: Offset | None, bound: Offset, rows: int) -> str:
        """The next rows, for FROM."""
        upto = f"({self._mine}) <= ({self._values(db, bound)})"
        order = self.cursor.order()
        return f"{self.query.rows} where {self._after(db, after)} and {upto} order by {order} limit {rows}"

    def last(self, keys: Sequence[pa.Array]) -> Offset:
        """The offset after a page. Refuses a page with rows that are equal."""
        if not self.sure and len(keys[0]) > 1:
            same = [pc.equal(key[1:], key[:-1]) for key in keys]
            for more in same[1:]:
                same[0] = pc.and_(same[0], more)
            at = pc.index(same[0], True).as_py()
            if at >= 0:
                raise self._not_unique(self._at(keys, at))
        return self._at(keys, len(keys[0]) - 1)

    def check_alone(self, db: RawCursor[Any], at: Offset) -> None:
        """Refuses a second row with the cursor of one that was read: the next page would begin after both."""
        equal = f"({self._mine}) = ({self._values(db, at)})"
        if not self.sure and _found(db, f"select count(*) > 1 from {self.query.rows} where {equal}"):
            raise self._not_unique(at)

    def is_behind(self, db: RawCursor[Any], at: Offset) -> bool:
        """Whether there are rows, and all of them before this one, which was read and is gone."""
        before = f"({self._mine}) < ({self._values(db, at)})"
        where = f"select coalesce(bool_and({before}), false) from"
        last = f"(select * from {self.query.rows} order by {self.cursor.order('desc')} limit 1) q"
        return _found(db, f"{where} {last}")

    def _not_unique(self, at: Offset) -> PermanentError:
        value = ", ".join(f"{name} = {text}" for name, text in at.items())
        return PermanentError(
            f"{self.named}: several rows have {value}, so some of them could be left out: a cursor must tell all "
            f"rows apart, as cursor={[*self.cursor.names, 'id']!r} may do"
        )

    def _at(self, keys: Sequence[pa.Array], row: int) -> Offset:
        return {name: key[row].as_py() for name, key in zip(self.cursor.names, keys, strict=True)}

    @property
    def _mine(self) -> str:
        return ", ".join(f"q.{quoted(name)}" for name in self.cursor.names)

    def _after(self, db: RawCursor[Any], offset: Offset | None) -> str:
        return "true" if offset is None else f"({self._mine}) > ({self._values(db, offset)})"

    def _values(self, db: RawCursor[Any], offset: Offset) -> str:
        from psycopg import sql

        literals = [sql.Literal(offset[name]).as_string(db.connection) for name in self.cursor.names]
        kinds = [self.columns[name].base for name in self.cursor.names]
        return ", ".join(f"{literal}::{kind}" for literal, kind in zip(literals, kinds, strict=True))


def _found(db: RawCursor[Any], question: str) -> bool:
    (answer,) = db.execute(question).fetchone() or (False,)
    return bool(answer)
