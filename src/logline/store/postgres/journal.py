"""A journal in PostgreSQL as its one writer holds it. A commit is one round trip.

A commit begins with the fence (`commit_begins` in `store/postgres/schema.py`): it moves the commit's number by one
where the incarnation is still this life's, and raises otherwise (R10). All statements go out at once, as one implicit
transaction (libpq's pipeline mode), so that what follows a fence that raised is not executed (R1). If the answer gets
lost, the same statements go out again on another connection: the fence then says that the commit was made before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from logline.engine.events import Head
from logline.engine.step import Step
from logline.errors import EngineError, Fenced
from logline.names import ERRORS, Incarnation, InstanceName, PortName, Ssn
from logline.store import checkpoints, load
from logline.store.apply import admit, apply, prepare
from logline.store.faults import point
from logline.store.layout import JOURNAL, JournalRow
from logline.store.memory_rows import MemoryRows
from logline.store.packing import Packed, Packer, Run, Schemas, is_mostly_empty, kept_of
from logline.store.postgres.columns import escape, shape_of, unescape
from logline.store.postgres.connections import Connections
from logline.store.postgres.dsn import piped
from logline.store.postgres.error_texts import delete_texts, insert_texts
from logline.store.postgres.events import (
    Book,
    Place,
    delete_from,
    delete_run,
    insert_runs,
    joined_parts,
    move_runs,
    schema_rows,
    select_run,
    table_of,
    tables_of,
)
from logline.store.postgres.rows import JOURNAL_COLUMNS, MIRRORED, Mirror, PgRows
from logline.store.postgres.schema import FENCED, MADE_BEFORE, OUT_OF_TURN

if TYPE_CHECKING:
    from psycopg import Connection

T = TypeVar("T")
Statement = tuple[str, Sequence[Any]]
MOVED = 16 << 20
"""Bytes that are moved, at most, to empty a segment."""
AGAIN = 64
"""Commits until an attempt to empty a segment is repeated that had to wait for a reader."""
_HELD = (
    "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and granted "
    "and database = (select oid from pg_database where datname = current_database()) "
    "and classid = 'raw_journal'::regclass and objid = %s and pid <> pg_backend_pid()"
)


def unblocked(connections: Connections, number: int, work: Callable[[Connection[Any]], T]) -> T:
    """Has the work done on a journal. Whoever holds it up is terminated: a client that was stopped inside its
    transaction would block it for good, and what it had not committed has not happened (R10)."""
    import psycopg

    while True:
        try:
            return connections.run(partial(_marked, work))
        except _Blocked:
            connections.run(lambda c: c.execute(_HELD, (number,)))
        except psycopg.Error as error:
            raise connections.explained(error) from None


class _Blocked(Exception):
    """Somebody else holds the journal."""


def _marked(work: Callable[[Connection[Any]], T], connection: Connection[Any]) -> T:
    import psycopg

    try:
        return work(connection)
    except psycopg.errors.LockNotAvailable:
        raise _Blocked from None


_FENCE = f"select commit_begins(%s::int, {', '.join(['%s::bigint'] * 5)}, %s, {', '.join(['%s::bigint'] * 3)})"


class PgJournal:
    """A journal as the one life that writes to it holds it."""

    def __init__(self, connections: Connections, instance: InstanceName, number: int) -> None:
        self._connections = connections
        self._instance = instance
        self._number = number
        found = unblocked(connections, number, self._claim)
        self._journal = JournalRow(*found)
        self.incarnation = Incarnation(self._journal.incarnation)
        rows = MemoryRows()
        rows.put(JOURNAL, (), self._journal)
        self._mirror = Mirror(rows, self._ask)
        self._schemas: Schemas = {}
        self._book = Book()
        connections.run(partial(self._load, rows))
        self.image = load.image(rows)
        self.image.keyed = self._ask(load.keyed)
        for serial, checkpoint in self._ask(lambda stored: list(checkpoints.load(stored))):
            self.image.sets[serial].checkpoint = checkpoint  # their states are not among the small rows
        self._heads = {p: Head(h.last, h.total, h.base, set(h.pinned)) for p, h in self.image.heads.items()}
        self._staging = self._place_runs()
        self._wait = 0
        """Commits until a segment may be emptied again."""

    # ---- claim --------------------------------------------------------------------------------------------

    def _claim(self, connection: Connection[Any]) -> Any:
        with connection.transaction():
            connection.execute("set local lock_timeout = 1000")
            connection.execute("select pg_advisory_xact_lock('raw_journal'::regclass::oid::int, %s)", (self._number,))
            point(self._instance, "claim.inside")
            return connection.execute(
                "update raw_journal set incarnation = incarnation + 1, claimed = now() where instance = %s "
                f"returning {JOURNAL_COLUMNS}",
                (self._number,),
            ).fetchone()

    def _load(self, rows: MemoryRows, connection: Connection[Any]) -> None:
        """All small rows but those of history, and where the runs are: in one round trip. Nobody else changes
        anything any more."""
        segments = " union all ".join(
            f"select {at}, port, first, max(many), sum(size)::bigint from {name} group by port, first"
            for at, name in enumerate(tables_of(self._number))
        )
        with piped(connection):
            asked = [
                connection.execute(
                    f"select {shape_of(table).selected} from {shape_of(table).name} where instance = %s".encode(),
                    (self._number,),
                    binary=True,
                )
                for table in MIRRORED
            ]
            schemas = connection.execute(
                "select distinct on (port) port, number, schema from schemas where instance = %s "
                "order by port, number desc",
                (self._number,),
                binary=True,
            )
            runs = connection.execute(segments.encode(), binary=True)
            for table, cursor in zip(MIRRORED, asked, strict=True):
                shape = shape_of(table)
                for row in cursor:
                    rows.put(table, *shape.read(row))
            self._schemas = {
                PortName(unescape(port)): (number, pa.ipc.read_schema(pa.py_buffer(raw)))
                for port, number, raw in schemas
            }
            self._found = [
                (PortName(unescape(port)), first, Place(segment, many, size))
                for segment, port, first, many, size in runs
            ]

    def _place_runs(self) -> set[PortName]:
        """Books the runs, and returns the ports with rows above their head. Another life may stage there too: no two
        events share a row."""
        book, staging = self._book, set()
        for port, first, place in self._found:
            head = self._heads.get(port, Head())
            if first > head.last:
                staging.add(port)
            if kept_of(_bare(first, place), head.base, head.pinned):
                book.add(port, first, place)
            else:
                book.sizes[place.segment] += place.size
        book.current = max(range(len(book.sizes)), key=lambda s: book.sizes[s])
        book.rotate()
        self._found = []
        return staging

    # ---- commit -------------------------------------------------------------------------------------------

    def commit(self, step: Step) -> None:
        """One round trip. Whatever can fail for its own reasons is made before it begins."""
        packer, staged = Packer(self._schemas), Step.reads.peek(step).staged
        self._staging.update(output.port for output in staged)
        alone, together = packer.alone(staged), packer.together(step.outputs, self._staging)
        prepared = prepare(step)
        if step.number != self._journal.commits + 1:
            self._check_fence()
        mirror, book = self._mirror, self._book
        if admit(mirror, self.incarnation, step.number) is None:
            return
        changes, after = mirror.begin(), list[Statement]()
        events = self._write(alone, together)
        collect = partial(self._collect, after, {(port, run.first) for port, run in (*alone, *together)})
        heads = apply(mirror, step, prepared, self._journal, self._heads, collect)
        self._journal = load.journal_row(mirror)
        statements = [self._fence(), *schema_rows(self._number, packer), *events, *after]
        statements += insert_texts(self._number, step.outputs)
        statements += changes.statements(self._number)
        unblocked(self._connections, self._number, partial(self._send, statements))
        self._heads |= heads
        self._schemas |= packer.fresh
        book.rotate()
        self._tidy()

    def _fence(self) -> Statement:
        j = self._journal
        numbers = (j.sets, j.checkpoints, j.replay)
        given = (self._number, self.incarnation, j.commits, j.serial, j.dues, j.marks, j.left, *numbers)
        return _FENCE, given

    def _write(self, alone: list[Packed], together: list[Packed]) -> list[Statement]:
        """The runs of the commit. What an earlier try has staged from the same SSN on goes: it may lie in another
        segment."""
        book, found = self._book, list[Statement]()
        again: dict[PortName, int] = {}
        for port, run in (*alone, *together):
            if port in self._staging:
                again[port] = min(run.first, again.get(port, run.first))
        for port, first in again.items():
            if book.between(port, first, 1 << 62):
                found += delete_from(self._number, port, first)
                for old, _ in book.between(port, first, 1 << 62):
                    book.remove(port, old)
        packed = [*alone, *together]
        for port, run in packed:
            book.add(port, run.first, Place(book.current, run.many, len(memoryview(run.payload))))
        return [*found, *insert_runs(self._number, book.current, packed)]

    def _collect(
        self,
        after: list[Statement],
        fresh: Collection[tuple[PortName, int]],
        port: PortName,
        head: Head,
        base: Ssn,
        pinned: Collection[Ssn],
    ) -> None:
        """Lets go of runs that nobody needs, and takes those apart of which half is not needed (R12)."""
        book = self._book
        if port == ERRORS:
            after.append(delete_texts(self._number, base, pinned))
        freed = [ssn for ssn in head.pinned if ssn not in pinned]
        runs = dict([*book.touched(port, freed), *book.between(port, head.base, base)])
        for first, place in runs.items():
            run = _bare(first, place)
            kept = kept_of(run, base, pinned)
            if not kept:
                book.remove(port, first)
            elif is_mostly_empty(run, kept) and (port, first) not in fresh:
                self._take_apart(after, port, first, kept)

    def _take_apart(self, after: list[Statement], port: PortName, first: int, kept: Sequence[int]) -> None:
        book = self._book
        run, schema = self._connections.run(partial(self._read_run, port, first))
        if schema is None:
            return  # writes that pass events on take no room
        outputs = run.read(port, kept, schema)
        place = book.remove(port, first)
        assert place is not None
        after.append(delete_run(self._number, place.segment, port, first))
        packed = Packer({port: (run.schema, schema)}).alone(outputs)
        for _, one in packed:
            book.add(port, one.first, Place(book.current, 1, len(memoryview(one.payload))))
        after += insert_runs(self._number, book.current, packed)

    def _read_run(self, port: PortName, first: int, connection: Connection[Any]) -> tuple[Run, pa.Schema | None]:
        rows = connection.execute(
            select_run(self._number).encode(), {"port": escape(port), "first": first}, binary=True
        ).fetchall()
        (run,) = joined_parts(rows)
        raw = connection.execute(
            "select schema from schemas where instance = %s and port = %s and number = %s",
            (self._number, escape(port), run.schema),
            binary=True,
        ).fetchone()
        return run, None if raw is None else pa.ipc.read_schema(pa.py_buffer(raw[0]))

    def _send(self, statements: Sequence[Statement], connection: Connection[Any]) -> None:
        import psycopg

        try:
            with piped(connection), connection.cursor() as cursor:
                for query, given in statements:
                    cursor.execute(query.encode(), given)
                point(self._instance, "commit.inside")
        except psycopg.Error as error:
            if error.sqlstate == MADE_BEFORE:
                return
            if error.sqlstate == FENCED:
                raise Fenced("a newer incarnation has claimed the journal") from None
            if error.sqlstate == OUT_OF_TURN:
                raise EngineError(f"{self._instance}: {error.diag.message_primary}") from None
            raise

    def _check_fence(self) -> None:
        found = self._connections.run(
            lambda c: c.execute("select incarnation from raw_journal where instance = %s", (self._number,)).fetchone()
        )
        if found is None or found[0] != self.incarnation:
            raise Fenced("a newer incarnation has claimed the journal")

    def _ask(self, work: Callable[[PgRows], T]) -> T:
        return self._connections.run(lambda connection: work(PgRows(connection, self._number)))

    # ---- room ---------------------------------------------------------------------------------------------

    def _tidy(self) -> None:
        """Empties a segment that is mostly garbage. No part of a step: nothing that counts changes."""
        if self._wait:
            self._wait -= 1
            return
        segment = self._book.garbage()
        if segment is None or self._book.live[segment] > MOVED:
            return
        if self._connections.run(partial(self._empty, segment)):
            self._book.emptied(segment)
        else:
            self._wait = AGAIN

    def _empty(self, segment: int, connection: Connection[Any]) -> bool:
        import psycopg

        book = self._book
        moved = [key for key, place in book.places.items() if place.segment == segment]
        try:
            with connection.transaction():
                # A reader that looks at the segment now is not waited for: this can be done at any time.
                connection.execute("set local lock_timeout = 100")
                found = connection.execute(
                    "select incarnation from raw_journal where instance = %s for share", (self._number,)
                ).fetchone()
                if found is None or found[0] != self.incarnation:
                    raise Fenced("a newer incarnation has claimed the journal")
                if moved:
                    ports, firsts = [escape(port) for port, _ in moved], [first for _, first in moved]
                    connection.execute(move_runs(self._number, segment, book.current).encode(), (ports, firsts))
                connection.execute(f"truncate {table_of(self._number, segment)}".encode())
        except psycopg.errors.LockNotAvailable:
            return False
        return True

    def close(self) -> None:
        """Does nothing: a journal holds no lock, and a connection only while it commits."""


def _bare(first: int, place: Place) -> Run:
    return Run(first, place.many, 1, "event", b"", b"", b"")
