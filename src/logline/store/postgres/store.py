"""A log in PostgreSQL: all journals of one pipeline, in a schema of a database, for processes of any host."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from logline.errors import LogError
from logline.names import InstanceName, LogId
from logline.store.encoding import FORMAT
from logline.store.marks import Mark
from logline.store.postgres.address import PgAddress
from logline.store.postgres.around import PgLog
from logline.store.postgres.connections import PATIENCE, Connections
from logline.store.postgres.events import create_segments
from logline.store.postgres.journal import PgJournal
from logline.store.postgres.reader import PgReader, Readers
from logline.store.postgres.relay import HostBells
from logline.store.postgres.restore import begin_copy, restore
from logline.store.postgres.schema import prepare
from logline.store.rows import Row
from logline.store.seam import Lying

if TYPE_CHECKING:
    from psycopg import Connection

OPENING = 10.0
"""Seconds that opening a log waits for a server that does not answer."""


class NoLog(LogError):
    """There is no such log, and none was to be made."""


class PgStore(PgLog):
    """All journals of one pipeline, in one schema."""

    def __init__(
        self,
        address: PgAddress,
        *,
        create: bool = True,
        place: tuple[int, int] = (1, 1),
        part_of: LogId | None = None,
        copy_of: LogId | None = None,
        known: bool = False,
    ) -> None:
        """`place`: its number among the servers of a log, and how many there are; `part_of`: which log, if known.
        `copy_of`: the log that is copied to here; a fresh one has an id of its own. `known`: whether the server was
        there a moment ago, so that it is waited for as in a run."""
        made = partial(Connections, schema=address.log)
        commits, direct = made(address.dsn, pooled=address.pooled), made(address.direct)
        try:
            work = partial(prepare, schema=address.log, create=create, place=place, part_of=part_of, copy_of=copy_of)
            found = commits.run(work, patience=PATIENCE if known else OPENING)
            if found is None:
                raise NoLog(f"there is no log {address.log!r} in {address.dsn!r}: run a pipeline on it first")
            log_id = LogId(found)
            bells = HostBells(log_id, direct)
        except BaseException:
            commits.close()
            raise
        commits.crowded = bells.crowded
        super().__init__(address, log_id, commits, direct, bells)
        self.readers = Readers(commits)
        # Of a log that nobody uses any more: nobody calls close(). Nothing that the store has refers to it, so that
        # this does not wait for the collector of cycles.
        self._close = weakref.finalize(self, _close, os.getpid(), bells, (commits, direct))

    def claim(self, instance: InstanceName) -> PgJournal:
        """Fences older lives (R10)."""
        number = self.readers.number(instance)
        if number is None:
            self._commits.run(partial(self._make_journal, instance))
            number = self.readers.number(instance)
            assert number is not None
        return PgJournal(self._commits, instance, number)

    def _make_journal(self, instance: InstanceName, connection: Connection[Any]) -> None:
        with connection.transaction():
            connection.execute("lock table journals in share row exclusive mode")  # others may make it too
            made = connection.execute(
                "insert into journals (name) values (%s) on conflict (name) do nothing returning instance",
                (instance,),
            ).fetchone()
            if made is None:
                return
            connection.execute(
                'insert into raw_journal (instance, format, incarnation, commits, serial, dues, marks, "left") '
                "values (%s, %s, 0, 0, 0, 0, 0, false)",
                (made[0], FORMAT),
            )
            for statement in create_segments(made[0]):
                connection.execute(statement.encode())

    def read(self, instance: InstanceName) -> PgReader:
        """A reader of the instance's journal; a journal that nobody has claimed is empty."""
        return self.readers.read(instance)

    def instances(self) -> list[InstanceName]:
        """The instances that have a journal."""
        rows = self._commits.run(lambda c: c.execute("select name from journals order by name").fetchall())
        return [InstanceName(name) for (name,) in rows]

    def begin_copy(self, log_id: LogId, mark: Mark) -> None:
        """Empties what is left of an earlier copy of the same log. LogError if this is another one."""
        self._commits.run(partial(begin_copy, log_id=log_id, mark=mark))

    def restore(self, instance: InstanceName, rows: Iterable[Row], events: Iterable[Lying]) -> None:
        """Writes a whole journal, in one transaction."""
        self._commits.run(partial(self._make_journal, instance))
        number = self.readers.number(instance)
        assert number is not None
        import psycopg

        try:
            with self._direct.connect() as connection:  # not to be repeated: half of the rows are taken by then
                restore(connection, number, rows, events)
        except psycopg.Error as error:
            raise self._direct.explained(error) from None

    def close(self) -> None:
        """Closes the connections, and ends all waiting for the server."""
        self._close()


def _close(pid: int, bells: HostBells, pools: Sequence[Connections]) -> None:
    if pid == os.getpid():  # in a fork they are the parent's
        bells.close()
        for pool in pools:
            pool.close()
