"""Anyone's view of a journal in PostgreSQL: what is committed, nothing else (R2).

What a life asks for on the path of an event is one round trip. Everything else is asked of rows in a transaction that
sees one instant. It first locks the segments of events against being truncated: a snapshot that is older than a
truncation would find them empty.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from logline.engine.events import Head, Output, Position
from logline.engine.history import Finished
from logline.engine.image import Taken
from logline.engine.sets import Answer
from logline.errors import Collected, LogError
from logline.names import ChannelName, Incarnation, InstanceName, PortName, Serial, Ssn, sender_of
from logline.store import load, payloads
from logline.store.memory_rows import MemoryEvents, MemoryRows
from logline.store.packing import Run, whole_writes
from logline.store.pins import BLOCK
from logline.store.postgres import lineage
from logline.store.postgres.columns import escape
from logline.store.postgres.connections import Connections
from logline.store.postgres.dsn import piped
from logline.store.postgres.events import PgEvents, joined_parts, select_picked, select_runs, tables_of
from logline.store.postgres.rows import PgRows
from logline.store.reader import Look, RowsReader

if TYPE_CHECKING:
    from psycopg import Connection

T = TypeVar("T")
PICKED = 4096
"""Events that are picked at once."""
_HEAD = "select last, base from raw_heads where instance = %s and port = %s"


class PgReader(RowsReader):
    """A reader of one journal; any thread may use it."""

    def __init__(self, connections: Connections, instance: InstanceName, readers: Readers) -> None:
        self._connections = connections
        self._instance = instance
        self._find = readers.number
        self._readers = readers
        self._schemas: dict[tuple[PortName, int], pa.Schema] = {}

    # ---- rows -----------------------------------------------------------------------------------------------

    @contextmanager
    def look(self) -> Iterator[Look]:
        """One look at the journal: a transaction that sees one instant."""
        number = self._find(self._instance)
        if number is None:
            yield Look(MemoryRows(), MemoryEvents())
            return
        with self._connections.snapshot(tables_of(number)) as connection:
            yield Look(PgRows(connection, number), PgEvents(connection, number))

    def _one(self, query: str, *given: Any) -> Any:
        number = self._find(self._instance)
        if number is None:
            return None
        return self._connections.run(lambda c: c.execute(query.encode(), (number, *given), binary=True).fetchone())

    def base(self, port: PortName) -> Ssn:
        """Where the committed head begins."""
        found = self._one(_HEAD, escape(port))
        return Head().base if found is None else found[1]

    def taken(self, channel: ChannelName) -> Taken:
        """How far the receiver is on the channel."""
        query = "select ssn, total, marks from raw_positions where instance = %s and channel = %s"
        found = self._one(query, escape(channel))
        return Taken(Position() if found is None else Position(*found))

    def incarnation(self) -> Incarnation:
        """The number of the newest life that has claimed the journal."""
        found = self._one("select incarnation from raw_journal where instance = %s")
        return Incarnation(0 if found is None else found[0])

    # ---- lineage --------------------------------------------------------------------------------------------

    def _many(self, asked: Sequence[Any], work: Callable[[Connection[Any], int, Sequence[Any]], dict[Any, T]]) -> Any:
        """The answers for all that is asked, some thousands in a round trip. None if nobody claimed the journal."""
        number = self._find(self._instance)
        found: dict[Any, T] = {}
        for at in range(0, len(asked) if number is not None else 0, PICKED):
            some = asked[at : at + PICKED]
            found |= self._connections.run(lambda c, some=some: work(c, number, some))  # type: ignore[misc, arg-type]
        return found

    def headers(self, port: PortName, ssns: Sequence[Ssn]) -> list[Output | None]:
        """These events without their payloads; None for one that is not in the log."""
        found = self._many(
            ssns, lambda c, number, some: dict(zip(some, lineage.headers(c, number, port, some), strict=True))
        )
        return [found.get(ssn) for ssn in ssns]

    def insets(self, serials: Sequence[Serial]) -> Mapping[Serial, Finished]:
        """Those of these sets that a lineage scope keeps."""
        found: Mapping[Serial, Finished] = self._many(serials, lineage.insets)
        return found

    def all_insets_of(self, channel: ChannelName, ssns: Sequence[Ssn]) -> Mapping[Ssn, Sequence[Serial]]:
        """The done sets with each of these events as a member."""
        found = self._many(ssns, lambda c, number, some: lineage.all_insets_of(c, number, channel, some))
        return {ssn: found.get(ssn, ()) for ssn in ssns}

    def all_made_from(self, serials: Sequence[Serial], ports: Sequence[PortName]) -> lineage.Made:
        """What each of these sets put out on these ports."""
        found = self._many(serials, lambda c, number, some: dict(lineage.all_made_from(c, number, some, ports)))
        return {serial: found.get(serial, ()) for serial in serials}

    def all_answers(self, serials: Sequence[Serial]) -> Mapping[Serial, Sequence[Answer]]:
        """The answers of each of these sets."""
        found = self._many(serials, lineage.all_answers)
        return {serial: found.get(serial, ()) for serial in serials}

    # ---- events ---------------------------------------------------------------------------------------------

    def events(self, port: PortName, after: Ssn, *, limit: int, max_bytes: int) -> Sequence[Output]:
        """Visible events after `after`."""
        number = self._find(self._instance)
        if number is None or limit <= 0:
            return []
        found = self._connections.run(partial(self._fetch, number, port, after, limit, max_bytes))
        if found is None:  # among holes: as far as events are pinned without a gap
            with self.look() as (rows, _):
                head = load.head(rows, port)
                wanted = range(after + 1, min(head.last, after + limit) + 1)
                ssns = list(takewhile(lambda ssn: load.has(rows, port, head, ssn), wanted))
            found = self._cut(self._pick(port, [Ssn(ssn) for ssn in ssns]), max_bytes) if ssns else []
            if not found and after < head.last:
                raise Collected(f"{self._instance}.{port}:{after + 1} has been collected")
        return self._whole(found) if port[0] == "@" else found

    @staticmethod
    def _cut(events: list[Output], max_bytes: int) -> list[Output]:
        size = 0
        for at, event in enumerate(events):
            size += event.nbytes
            if size >= max_bytes:
                return events[: at + 1]
        return events

    def _fetch(
        self, number: int, port: PortName, after: Ssn, limit: int, max_bytes: int, connection: Connection[Any]
    ) -> list[Output] | None:
        """None if the first one is below the port's base."""
        given = {"port": escape(port), "wanted": after + 1, "top": after + limit, "max_bytes": max_bytes}
        with piped(connection):
            head = connection.execute(_HEAD.encode(), (number, escape(port)), binary=True)
            runs = connection.execute(select_runs(number).encode(), given, binary=True)
            known = head.fetchone()
            rows = runs.fetchall()
        if known is None or after >= known[0]:
            return []
        last, base = known
        if after + 1 < base:
            return None
        found: list[Output] = []
        wanted, top = after + 1, min(last, after + limit)
        for run in joined_parts(rows):
            if run.end <= wanted:
                continue
            if run.first > wanted or wanted > top:
                break
            upto = min(run.end - 1, top)
            found += run.read(port, range(wanted, upto + 1), self._schema(connection, number, port, run))
            wanted = upto + 1
        if not found:
            return None
        return self._cut(found, max_bytes)

    def pick(self, port: PortName, ssns: Sequence[Ssn]) -> Sequence[Output]:
        """Exactly these events, in this order. Raises Collected if one of them is gone."""
        found = self._pick(port, ssns)
        return self._whole(found) if port[0] == "@" else found

    def _pick(self, port: PortName, ssns: Sequence[Ssn]) -> list[Output]:
        number = self._find(self._instance)
        if not ssns:
            return []
        found: dict[Ssn, Output] = {}
        for at in range(0, len(ssns), PICKED):
            if number is not None:
                some = sorted(set(ssns[at : at + PICKED]))
                found |= self._connections.run(partial(self._pick_some, number, port, some))
            for ssn in ssns[at : at + PICKED]:
                if ssn not in found:
                    raise Collected(f"{self._instance}.{port}:{ssn} is not in the log")
        return [found[ssn] for ssn in ssns]

    def _pick_some(
        self, number: int, port: PortName, ssns: Sequence[Ssn], connection: Connection[Any]
    ) -> dict[Ssn, Output]:
        blocks = sorted({ssn // BLOCK for ssn in ssns})
        with piped(connection):
            asked = connection.execute(_HEAD.encode(), (number, escape(port)), binary=True)
            pins = connection.execute(
                "select block, value from raw_pins where instance = %s and port = %s and block = any(%s::bigint[])",
                (number, escape(port), blocks),
            )
            runs = connection.execute(
                select_picked(number).encode(), {"port": escape(port), "ssns": list(ssns)}, binary=True
            )
            head, pinned, rows = asked.fetchone(), {block: int(bits) for block, bits in pins}, runs.fetchall()
        if head is None:
            return {}
        last, base = head
        there = [s for s in ssns if (s <= last if s >= base else pinned.get(s // BLOCK, 0) >> s % BLOCK & 1)]
        found: dict[Ssn, Output] = {}
        for run in joined_parts(rows):
            wanted = there[bisect_left(there, run.first) : bisect_left(there, run.end)]
            if wanted:
                read = run.read(port, wanted, self._schema(connection, number, port, run))
                found |= {event.ssn: event for event in read}
        return found

    def _whole(self, writes: list[Output]) -> list[Output]:
        """With the payloads of the events that they pass on, from the journals where these are."""
        return whole_writes(writes, self._pick_passed)

    def _pick_passed(self, channel: ChannelName, ssns: Sequence[Ssn]) -> Sequence[Output]:
        sender, port = sender_of(channel)
        return self._readers.any(sender).pick(port, ssns)

    def _schema(self, connection: Connection[Any], number: int, port: PortName, run: Run) -> pa.Schema | None:
        if run.schema in (payloads.STREAM, payloads.SAME, payloads.NONE):
            return None
        found = self._schemas.get((port, run.schema))
        if found is None:
            raw = connection.execute(
                "select schema from schemas where instance = %s and port = %s and number = %s",
                (number, escape(port), run.schema),
                binary=True,
            ).fetchone()
            if raw is None:
                raise LogError(f"the journal of {self._instance} has no schema {run.schema} of port {port!r}")
            found = self._schemas[port, run.schema] = pa.ipc.read_schema(pa.py_buffer(raw[0]))
        return found


class Readers:
    """The readers of a server's journals. They know each other, and nothing of the store: who drops a store without
    closing it leaves no cycle behind that keeps it."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._numbers: dict[InstanceName, int] = {}
        self._readers: dict[InstanceName, PgReader] = {}
        self._lock = threading.Lock()
        self.any: Callable[[InstanceName], PgReader] = self.read
        """Reads a journal of the log, also one on another server."""

    def number(self, instance: InstanceName) -> int | None:
        """The number of a journal; None while nobody has claimed it."""
        known = self._numbers.get(instance)
        if known is None:
            query = "select instance from journals where name = %s"
            found = self._connections.run(lambda c: c.execute(query, (instance,)).fetchone())
            if found is None:
                return None
            known = self._numbers[instance] = found[0]
        return known

    def read(self, instance: InstanceName) -> PgReader:
        """The reader of that journal."""
        with self._lock:
            reader = self._readers.get(instance)
            if reader is None:
                reader = self._readers[instance] = PgReader(self._connections, instance, self)
            return reader
