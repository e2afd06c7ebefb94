"""A journal in LMDB: its one writer, and anyone's readers."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import takewhile

import lmdb
import pyarrow as pa

from logline.engine.events import Head, Output
from logline.engine.step import Step
from logline.errors import Collected
from logline.names import ChannelName, Incarnation, InstanceName, PortName, Ssn, sender_of
from logline.store import load, payloads
from logline.store.apply import admit, apply, prepare
from logline.store.faults import point
from logline.store.layout import JOURNAL
from logline.store.lmdb import rows
from logline.store.lmdb.environment import Environment, release
from logline.store.lmdb.events import (
    LmdbEvents,
    Row,
    collect,
    read_schema,
    read_schemas,
    row_of,
    rows_from,
    sealed_runs,
    sealed_schemas,
)
from logline.store.lmdb.rows import LmdbRows
from logline.store.memory_rows import MemoryEvents, MemoryRows
from logline.store.packing import Packer, whole_writes
from logline.store.reader import Look, RowsReader


class LmdbJournal:
    """A journal as the one life that writes to it holds it."""

    def __init__(self, env: Environment, instance: InstanceName) -> None:
        self._env = env
        self._instance = instance
        with env.write() as txn:
            point(instance, "claim.inside")
            rows.verify(txn)
            table = LmdbRows(txn)
            journal = load.journal_row(table)
            journal = journal._replace(incarnation=journal.incarnation + 1)
            table.put(JOURNAL, (), journal)
            self.image = load.image(table)
            self.image.keyed = load.keyed(table)
            self._schemas = read_schemas(txn)
            self._staging = self._staged(txn)
        self.incarnation = Incarnation(journal.incarnation)
        self._heads = {p: Head(h.last, h.total, h.base, set(h.pinned)) for p, h in self.image.heads.items()}
        self._closed = False

    def _staged(self, txn: lmdb.Transaction) -> set[PortName]:
        """Ports with rows above their head. Another life may stage there too: no two events share a row."""
        with txn.cursor() as cursor:
            heads = self.image.heads.items()
            return {port for port, head in heads if next(rows_from(cursor, port, head.last + 1), None) is not None}

    def commit(self, step: Step) -> None:
        """One transaction. Whatever can fail for its own reasons is made before it begins."""
        packer, staged = Packer(self._schemas), Step.reads.peek(step).staged
        self._staging.update(output.port for output in staged)
        events = sealed_runs(packer.alone(staged) + packer.together(step.outputs, self._staging))
        prepared = prepare(step)
        with self._env.write() as txn:
            table = LmdbRows(txn)
            journal = admit(table, self.incarnation, step.number)
            if journal is None:
                return
            rows.put_all(txn, (*sealed_schemas(packer), *events))
            heads = apply(table, step, prepared, journal, self._heads, partial(self._collect, txn))
            point(self._instance, "commit.inside")
        self._heads |= heads  # only once the transaction is through
        self._schemas |= packer.fresh

    @staticmethod
    def _collect(txn: lmdb.Transaction, port: PortName, head: Head, base: Ssn, pinned: Collection[Ssn]) -> None:
        collect(txn, port, head, base, pinned)

    def close(self) -> None:
        """Lets go of the environment."""
        if not self._closed:
            self._closed = True
            self._env.disown()
            release(self._env)

    def __del__(self) -> None:
        # Of a life that was dropped as by a crash: nobody calls close(). In a fork it is the parent's.
        if not getattr(self, "_closed", True) and self._env.pid == os.getpid():
            self.close()


class LmdbReader(RowsReader):
    """Anyone's view of a journal: what is committed, nothing else."""

    def __init__(
        self,
        find: Callable[[], Environment | None],
        instance: InstanceName,
        read: Callable[[InstanceName], LmdbReader],
    ) -> None:
        """`read` gives the readers of other journals."""
        self._find = find
        self._read = read
        self._found: Environment | None = None
        self._instance = instance
        self._schemas: dict[tuple[PortName, int], pa.Schema] = {}

    @property
    def _env(self) -> Environment | None:
        """None while nobody has claimed the journal; it may be claimed at any time. A file that was closed to be
        compacted is opened again."""
        if self._found is None or self._found.closed:
            self._found = self._find()
        return self._found

    @contextmanager
    def look(self) -> Iterator[Look]:
        """One look at the journal: a transaction is a snapshot."""
        env = self._env
        if env is None:
            yield Look(MemoryRows(), MemoryEvents())
            return
        with env.read() as txn:
            yield Look(LmdbRows(txn), LmdbEvents(txn))

    def events(self, port: PortName, after: Ssn, *, limit: int, max_bytes: int) -> Sequence[Output]:
        """Visible events after `after`."""
        found = self._events(port, after, limit, max_bytes)
        return self._whole(found) if port[0] == "@" else found

    def _events(self, port: PortName, after: Ssn, limit: int, max_bytes: int) -> list[Output]:
        found: list[Output] = []
        env = self._env
        if env is None:
            return found
        with env.read() as txn:
            table = LmdbRows(txn)
            head = load.head(table, port)
            if after >= head.last or limit <= 0:
                return found
            wanted, top = after + 1, min(head.last, after + limit)
            size = 0
            if wanted < head.base:  # among holes: as far as events are pinned without a gap
                here = takewhile(lambda ssn: load.has(table, port, head, ssn), range(wanted, top + 1))
                top = max(here, default=wanted - 1)
            with txn.cursor() as cursor:
                for row in rows_from(cursor, port, wanted):
                    if row.run.first > wanted or wanted > top:
                        break
                    upto = min(row.run.end - 1, top)
                    for output in row.read(port, range(wanted, upto + 1), self._schema(txn, port, row.run.schema)):
                        found.append(output)
                        size += output.nbytes
                        if size >= max_bytes:
                            return found
                    wanted = upto + 1
            if not found:
                raise Collected(f"{self._instance}.{port}:{wanted} has been collected")
        return found

    def pick(self, port: PortName, ssns: Sequence[Ssn]) -> Sequence[Output]:
        """Exactly these events, in this order. Raises Collected if one of them is gone."""
        if self._env is None:
            if ssns:
                raise Collected(f"{self._instance}.{port}:{ssns[0]} is not in the log")
            return []
        with self._env.read() as txn:
            found: list[Output] = []
            with txn.cursor() as cursor:
                for row, wanted in self._by_row(LmdbRows(txn), cursor, port, ssns):
                    found += row.read(port, wanted, self._schema(txn, port, row.run.schema))
        return self._whole(found) if port[0] == "@" else found

    def _whole(self, writes: list[Output]) -> list[Output]:
        """With the payloads of the events that they pass on, from the journals where these are."""
        return whole_writes(writes, self._pick_passed)

    def _pick_passed(self, channel: ChannelName, ssns: Sequence[Ssn]) -> Sequence[Output]:
        sender, port = sender_of(channel)
        return self._read(sender).pick(port, ssns)

    def _by_row(
        self, table: LmdbRows, cursor: lmdb.Cursor, port: PortName, ssns: Sequence[Ssn]
    ) -> Iterator[tuple[Row, list[Ssn]]]:
        """Each row once, for as many of these events as stand there one after the other."""
        head = load.head(table, port)
        row: Row | None = None
        wanted: list[Ssn] = []
        for ssn in ssns:
            if row is None or not row.run.first <= ssn < row.run.end or ssn <= wanted[-1]:
                if row is not None:
                    yield row, wanted
                row, wanted = row_of(cursor, port, ssn), []
            if row is None or not load.has(table, port, head, ssn):
                raise Collected(f"{self._instance}.{port}:{ssn} is not in the log")
            wanted.append(ssn)
        if row is not None:
            yield row, wanted

    def _schema(self, txn: lmdb.Transaction, port: PortName, number: int) -> pa.Schema | None:
        found = self._schemas.get((port, number))
        if found is None and number not in (payloads.STREAM, payloads.SAME, payloads.NONE):
            found = self._schemas[port, number] = read_schema(txn, port, number)
        return found
