"""A log in PostgreSQL: all journals of one pipeline, in a schema of a database, for processes of any host."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from logline.errors import LogError
from logline.graph.record import from_plain
from logline.names import BellName, BoxName, InstanceName, LogId
from logline.store.bells import BellSocket
from logline.store.channels import HandOver
from logline.store.encoding import FORMAT
from logline.store.marks import Mark, check_may_run
from logline.store.postgres import lease as leases
from logline.store.postgres.address import PgAddress
from logline.store.postgres.columns import escape, unescape
from logline.store.postgres.connections import Connections
from logline.store.postgres.events import create_segments
from logline.store.postgres.graph import write_graph
from logline.store.postgres.journal import PgJournal
from logline.store.postgres.lease import PgLease
from logline.store.postgres.reader import PgReader
from logline.store.postgres.relay import HostBells
from logline.store.postgres.restore import begin_copy, read_mark, restore, write_mark
from logline.store.postgres.schema import prepare
from logline.store.rows import Row
from logline.store.seam import Compacted, Holder, Lying, Meta, StoreTraits, Worth, check_line

if TYPE_CHECKING:
    from psycopg import Connection

OPENING = 10.0
"""Seconds that opening a log waits for a server that does not answer."""


class NoLog(LogError):
    """There is no such log, and none was to be made."""


class PgMailbox:
    """Messages as rows. Senders to one box take turns, so that a number is seen before the next one."""

    def __init__(self, connections: Connections, box: str, ring: Callable[[], None]) -> None:
        self._connections = connections
        self._box = box
        self._ring = ring
        self._seen = 0

    def send(self, message: bytes) -> None:
        """Inserts the message and rings the bell."""
        check_line(message)

        def work(connection: Connection[Any]) -> None:
            with connection.pipeline():
                connection.execute(
                    "select pg_advisory_xact_lock('mail'::regclass::oid::int, hashtext(%s))", (self._box,)
                )
                connection.execute("insert into mail (box, message) values (%s, %s)", (self._box, message))

        self._connections.run(work)
        self._ring()

    def receive(self) -> list[bytes]:
        """Returns what this object has not seen."""
        query = "select number, message from mail where box = %s and number > %s order by number"
        rows = self._connections.run(lambda c: c.execute(query, (self._box, self._seen), binary=True).fetchall())
        if rows:
            self._seen = rows[-1][0]
        return [bytes(message) for _, message in rows]

    def drop(self) -> None:
        """Deletes the messages; numbers go on."""
        self._connections.quickly("delete from mail where box = %s", (self._box,))


class PgCrashHint:
    """A row that is written in place, without waiting for the disk."""

    def __init__(self, connections: Connections, instance: InstanceName) -> None:
        self._connections = connections
        self._instance = instance

    def write(self, text: str) -> None:
        """Replaces what was there."""
        query = "insert into hints values (%s, %s) on conflict (instance) do update set hint = excluded.hint"
        self._connections.quickly(query, (self._instance, escape(text)))

    def read(self) -> str:
        """The text that was written last; empty if there is none."""
        query = "select hint from hints where instance = %s"
        found = self._connections.run(lambda c: c.execute(query, (self._instance,)).fetchone())
        return "" if found is None else unescape(found[0])

    def drop(self) -> None:
        """Removes the hint, if there is one."""
        self._connections.quickly("delete from hints where instance = %s", (self._instance,))

    def close(self) -> None:
        """Does nothing: a hint holds no connection."""


class PgStore:
    """All journals of one pipeline, in one schema."""

    def __init__(
        self,
        address: PgAddress,
        *,
        create: bool = True,
        place: tuple[int, int] = (1, 1),
        part_of: LogId | None = None,
        copy_of: LogId | None = None,
    ) -> None:
        """`place`: its number among the servers of a log, and how many there are; `part_of`: which log, if known.
        `copy_of`: the log that is copied to here; a fresh one has an id of its own."""
        self.address = address
        made = partial(Connections, schema=address.log)
        self._commits = made(address.dsn, prepare=address.prepares)
        self._direct = made(address.direct, prepare=False)
        """Past a pooler: for what belongs to a session."""
        try:
            work = partial(prepare, schema=address.log, create=create, place=place, part_of=part_of, copy_of=copy_of)
            found = self._commits.run(work, patience=OPENING)
        except BaseException:
            self._commits.close()
            raise
        if found is None:
            self._commits.close()
            raise NoLog(f"there is no log {address.log!r} in {address.dsn!r}: run a pipeline on it first")
        self.log_id = LogId(found)
        self.traits = StoreTraits("hosts", frozenset({"claim", "commit", "read"}))
        self.fresh = HandOver()
        self._bells = HostBells(self.log_id, self._direct)
        self._commits.crowded = self._bells.crowded
        self._numbers: dict[InstanceName, int] = {}
        self._readers: dict[InstanceName, PgReader] = {}
        self._leases: list[PgLease] = []
        self._lock = threading.Lock()
        # Of a log that nobody uses any more: nobody calls close().
        self._close = weakref.finalize(self, _close, os.getpid(), self._bells, (self._commits, self._direct))
        self.read_any: Callable[[InstanceName], PgReader] = self.read
        """Reads a journal of the log, also one on another server."""

    # ---- journals -------------------------------------------------------------------------------------------

    def _number(self, instance: InstanceName) -> int | None:
        """The number of a journal; None while nobody has claimed it."""
        known = self._numbers.get(instance)
        if known is None:
            query = "select instance from journals where name = %s"
            found = self._commits.run(lambda c: c.execute(query, (instance,)).fetchone())
            if found is None:
                return None
            known = self._numbers[instance] = found[0]
        return known

    def claim(self, instance: InstanceName) -> PgJournal:
        """Fences older lives (R10)."""
        number = self._number(instance)
        if number is None:
            self._commits.run(partial(self._make_journal, instance))
            number = self._number(instance)
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
        with self._lock:
            reader = self._readers.get(instance)
            if reader is None:
                reader = self._readers[instance] = PgReader(self._commits, instance, self._number, self._read_any)
            return reader

    def _read_any(self, instance: InstanceName) -> PgReader:
        return self.read_any(instance)

    def instances(self) -> list[InstanceName]:
        """The instances that have a journal."""
        rows = self._commits.run(lambda c: c.execute("select name from journals order by name").fetchall())
        return [InstanceName(name) for (name,) in rows]

    def compact(self, worth: Worth) -> Sequence[tuple[InstanceName, Compacted]]:
        """Nothing: segments give their room back when they are emptied."""
        return ()

    # ---- around them ----------------------------------------------------------------------------------------

    def ring(self, whom: BellName) -> None:
        """Rings the bell, if somebody listens; a ring may be lost."""
        self._bells.ring(whom)

    def on_bell(self, whom: BellName, heard: Callable[[], None]) -> Callable[[], None]:
        """Calls `heard` on a thread of its own when the bell rings; returns a function that ends this."""
        return self._bells.listen(whom, heard)

    def bell(self, instance: InstanceName) -> BellSocket:
        """A bell for a loop that waits for it without a thread."""
        return self._bells.bell(instance)

    def mail(self, box: str) -> PgMailbox:
        """The box of that name."""
        return PgMailbox(self._commits, box, lambda: self.ring(BoxName(box)))

    def crash_hint(self, instance: InstanceName) -> PgCrashHint:
        """The crash hint of that instance."""
        return PgCrashHint(self._commits, instance)

    def lease(self, run: str, *, takeover: bool = False) -> PgLease:
        """Takes the lease; raises LogInUse if another run holds it and there is no `takeover`."""
        check_may_run(self.mark())
        taken = PgLease(self._direct, run, takeover=takeover, log=repr(self.address), clear=self._bells.clear)
        for old in self._leases:
            old.lose()
        self._leases = [taken]
        return taken

    def running(self) -> Holder | None:
        """The run that holds the lease, if its process lives."""
        return leases.holder(self._commits)

    def meta(self) -> Meta | None:
        """The pipeline this log belongs to."""
        found = self._commits.run(lambda c: c.execute("select pipeline, graph from about").fetchone())
        if found is None or found[0] is None:
            return None
        return Meta(unescape(found[0]), from_plain(msgspec.json.decode(found[1])))

    def set_meta(self, meta: Meta) -> None:
        """Keeps what the log knows of the pipeline, for the next run."""
        self._commits.run(lambda connection: write_graph(connection, meta))

    def mark(self) -> Mark | None:
        """What the log is besides itself."""
        return self._commits.run(read_mark)

    def set_mark(self, mark: Mark | None) -> None:
        """Replaces it."""
        self._commits.run(partial(write_mark, mark=mark))

    def begin_copy(self, log_id: LogId, mark: Mark) -> None:
        """Empties what is left of an earlier copy of the same log. LogError if this is another one."""
        self._commits.run(partial(begin_copy, log_id=log_id, mark=mark))

    def restore(self, instance: InstanceName, rows: Iterable[Row], events: Iterable[Lying]) -> None:
        """Writes a whole journal, in one transaction."""
        self._commits.run(partial(self._make_journal, instance))
        number = self._number(instance)
        assert number is not None
        import psycopg

        try:
            with self._commits.connect() as connection:  # not to be repeated: half of the rows are taken by then
                restore(connection, number, rows, events)
        except psycopg.Error as error:
            raise self._commits.explained(error) from None

    def put_status(self, name: str, status: bytes) -> None:
        """Keeps the newest status of that name; waits for no disk."""
        query = (
            "insert into statuses (name, status) values (%s, %s) "
            "on conflict (name) do update set status = excluded.status, at = now()"
        )
        self._commits.quickly(query, (name, status))

    def statuses(self) -> Mapping[str, bytes]:
        """The newest status of each name."""
        rows = self._commits.run(lambda c: c.execute("select name, status from statuses", binary=True).fetchall())
        return {name: bytes(status) for name, status in rows}

    def close(self) -> None:
        """Closes the connections, and ends all waiting for the server."""
        self._close()


def _close(pid: int, bells: HostBells, pools: Sequence[Connections]) -> None:
    if pid == os.getpid():  # in a fork they are the parent's
        bells.close()
        for pool in pools:
            pool.close()
