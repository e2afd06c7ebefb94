"""Rows that become visible late, and how a source does not miss them.

Two transactions insert; the one with the lower id commits last. Whoever reads up to the higher id in between, and
goes on after it, never sees the lower one. So a source first looks how far rows go (the *bound*), then waits until
nothing can come up below the bound any more, and only then reads up to it. What it waits for is its `settle`:

- `transactions`: whoever was in a transaction in this database when the bound was seen. An id or a time that a
  transaction draws, it draws while it runs. Other sources are left out, since they only read: a life that was stopped
  in the midst of a page would hold up the next one for ever.
- `writers`: only those that hold a lock to write to a table of the query. An INSERT takes that lock before it draws a
  default, so this is enough for `serial` and identity columns. A long report or a backup holds nothing up.
- a duration: for values that are drawn before a transaction begins, and where transactions can't be seen.

Locks tell, not transaction ids: a transaction has an id only once it has written, and may draw a number before. A
lock is released after the rows are visible, so a look that no longer finds it is followed by a read that finds the
rows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, get_args

from logline.connectors.postgres_query import READS
from logline.errors import OptionError, PermanentError
from logline.graph.durations import duration
from logline.graph.operator import Duration

if TYPE_CHECKING:
    from psycopg import RawCursor

Settle = Literal["transactions", "writers"]

logger = logging.getLogger("logline.postgres")

_TABLES = """
with recursive read as (
  select c.oid, c.relkind from pg_locks l join pg_class c on c.oid = l.relation
  where l.pid = pg_backend_pid() and l.locktype = 'relation' and c.relkind in ('r', 'p', 'm', 'f')
  and c.relnamespace <> 'pg_catalog'::regnamespace
  union select c.oid, c.relkind from read join pg_inherits i on i.inhparent = read.oid
  join pg_class c on c.oid = i.inhrelid
)
select oid::int8, relkind::text, oid::regclass::text from read order by 1
"""
_WRITERS = """
select virtualtransaction, coalesce(pid, 0) from pg_locks
where locktype = 'relation' and granted and relation = any($1::oid[]) and pid is distinct from pg_backend_pid()
and database = (select oid from pg_database where datname = current_database())
and mode in ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
"""
_TRANSACTIONS = f"""
{_WRITERS}
union
select l.virtualtransaction, l.pid from pg_locks l join pg_stat_activity a on a.pid = l.pid
where l.locktype = 'virtualxid' and l.mode = 'ExclusiveLock' and l.granted and l.pid <> pg_backend_pid()
and a.datname = current_database() and a.usesysid is not null and a.application_name <> '{READS}'
"""
_STILL = f"""
select distinct coalesce(l.pid, 0) from pg_locks l left join pg_stat_activity a on a.pid = l.pid
where l.virtualtransaction = any($1) and a.application_name is distinct from '{READS}' order by 1
"""

_FIRST, _LONGEST = 0.005, 1.0
"""Seconds between two looks: the first ones, and the later ones."""
_TELL = 10.0
"""Seconds after which it says what it waits for."""


class Settling:
    """Waits until nothing can come up below a bound."""

    def __init__(self, settle: Settle | Duration) -> None:
        self.given = settle
        self._span: timedelta | None = None
        if settle not in get_args(Settle):
            try:
                self._span = duration(settle)
            except OptionError:
                raise OptionError(
                    f"postgres(): settle={settle!r}: take 'transactions', 'writers', or a time such as '10s'"
                ) from None

    @property
    def asks(self) -> bool:
        """Whether it has to look at other transactions."""
        return self._span is None

    def tables(self, cursor: RawCursor[Any], named: str) -> list[int]:
        """The tables that this transaction has read, with their partitions. Refuses those whose writers it could not
        see."""
        if not self.asks:
            return []
        advice = "give settle='10s', longer than a transaction takes that inserts rows"
        (standby,) = cursor.execute("select pg_is_in_recovery()").fetchone() or (False,)
        if standby:
            raise PermanentError(
                f"{named}: this server is a standby and does not know who writes, so rows that are committed out of "
                f"order could be missed: {advice}"
            )
        found = cursor.execute(_TABLES).fetchall()
        for _, kind, name in found:
            if kind == "f":
                raise PermanentError(
                    f"{named}: {name} is a foreign table, and nobody here knows who writes: {advice}"
                )
        return [oid for oid, _, _ in found]

    def wait(self, tables: list[int], look: Callable[[str, list[Any]], list[Any]], named: str) -> None:
        """Called after the bound was seen. `look` asks the server, each time in a transaction of its own."""
        if self._span is not None:
            time.sleep(self._span.total_seconds())
            return
        running = look(_WRITERS if self.given == "writers" else _TRANSACTIONS, [tables])
        began, told = time.monotonic(), False
        for pause in _pauses():
            if not running:
                return
            time.sleep(pause)
            holders = look(_STILL, [[name for name, _ in running]])
            if not holders:
                return
            if not told and time.monotonic() - began >= _TELL:
                told = True
                who = ", ".join("a prepared one" if pid == 0 else f"process {pid}" for (pid,) in holders)
                logger.warning(
                    "%s: rows wait for transactions that began before them: %s. End them, or see settle=", named, who
                )


def _pauses() -> Iterator[float]:
    pause = _FIRST
    while True:
        yield pause
        pause = min(pause * 2, _LONGEST)
