"""Events of a journal in PostgreSQL: runs of them (`store/packing.py`) as rows, in tables that are emptied whole.

    events_7_0, events_7_1, events_7_2      segments of the journal with number 7
    port, first, part -> many, schema, kind, heads, more, size, payload, same

To delete an event of 10 KB and vacuum after it costs as much as writing it did. So nothing is deleted when it is
collected: the port's head says what counts. Events go into one segment until it is large, then into the next one
that is empty. A segment that is at least half garbage has what is left moved out and is truncated: a new file, at
once, and nothing to vacuum.

Which segment a run is in, no reader needs to know: it looks into all of them. A run that is larger than PostgreSQL
takes in one value goes in parts.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from logline.engine.events import KINDS, Output
from logline.names import ChannelName, PortName, Ssn
from logline.store import payloads
from logline.store.packing import CODES, Packed, Packer, Run
from logline.store.postgres.columns import escape

if TYPE_CHECKING:
    from psycopg import Connection

SEGMENTS = 3
FULL = 64 << 20
"""Bytes of a segment before the next one is used."""
PART = 64 << 20
"""Bytes of a payload in one row, at most."""
FETCHED = 16
"""Runs that are fetched at once by whoever reads all of a port."""
_HEADER = "first, many, schema, kind, heads, more"
_WHOLE = "first, part, many, schema, kind, heads, more, payload"


def table_of(instance: int, segment: int) -> str:
    """The name of a segment's table."""
    return f"events_{instance}_{segment}"


def tables_of(instance: int) -> list[str]:
    """The names of all segments of a journal."""
    return [table_of(instance, segment) for segment in range(SEGMENTS)]


def create_segments(instance: int) -> Iterator[str]:
    """Makes the tables of a journal. They inherit from `raw_events`, in which views find the events of all journals:
    that waits for nobody who reads, as making a view anew would."""
    for name in tables_of(instance):
        yield f"create table {name} (primary key (port, first, part)) inherits (raw_events)"
        yield f"alter table {name} alter payload set storage external"
        yield f"insert into event_segments values ('{name}', {instance})"


def _from(instance: int, columns: str, where: str) -> str:
    """What is in any of the segments."""
    return " union all ".join(f"select {columns} from {name} where {where}" for name in tables_of(instance))


def run_of(row: Sequence[Any]) -> Run:
    """A run from its columns; without payload if that was not asked for."""
    first, many, schema, kind, heads, more, *payload = row
    return Run(first, many, schema, KINDS[kind], bytes(heads), bytes(more), bytes(payload[0]) if payload else b"")


def joined_parts(rows: Sequence[Sequence[Any]]) -> list[Run]:
    """Runs from rows `(first, part, many, ..., payload)` in order; parts of one payload come after each other."""
    found: list[Run] = []
    for first, part, *rest in rows:
        if part == 0:
            found.append(run_of((first, *rest)))
        else:
            found[-1] = found[-1]._replace(payload=found[-1].payload + bytes(rest[-1]))
    return found


def select_runs(instance: int) -> str:
    """The runs of a port with events from `wanted` on, up to `top`, while they have no more than so many bytes.
    Takes port, wanted, top, max_bytes."""
    low = "(select low from low)"
    headers = _from(instance, "first, size", f"port = %(port)s and first >= {low} and first <= %(top)s")
    whole = _from(instance, _WHOLE, "port = %(port)s and first = r.first")
    before = " union all ".join(
        f"(select first from {name} where port = %(port)s and first <= %(wanted)s order by first desc limit 1)"
        for name in tables_of(instance)
    )
    return (
        f"with low as materialized (select coalesce(max(first), %(wanted)s) as low from ({before}) b), "
        "runs as materialized (select first, sum(size) over (order by first) - size as before from ("
        f"select first, sum(size) as size from ({headers}) h group by first) s) "
        f"select w.* from runs r, lateral ({whole}) w where r.before < %(max_bytes)s order by w.first, w.part"
    )


class PgEvents:
    """The events of a journal as a transaction sees them (see `store.rows.Events`)."""

    def __init__(self, connection: Connection[Any], instance: int) -> None:
        self._connection = connection
        self._instance = instance

    def _runs(self, where: str, given: Sequence[Any], *, order: str = "first", limit: int | None = None) -> list[Run]:
        query = f"select * from ({_from(self._instance, _HEADER, f'part = 0 and {where}')}) r order by {order}"
        if limit is not None:
            query += f" limit {limit}"
        rows = self._connection.execute(query, [*given] * SEGMENTS, binary=True).fetchall()
        return [run_of(row) for row in rows]

    def run_with(self, port: PortName, ssn: int) -> Run | None:
        """The run in which an event lies, or would, without payload."""
        found = self._runs("port = %s and first <= %s", [escape(port), ssn], order="first desc", limit=1)
        return found[0] if found and ssn < found[0].end else None

    def header(self, port: PortName, ssn: Ssn) -> Output | None:
        """The event of this SSN without its payload; None if no run has it."""
        run = self.run_with(port, ssn)
        return None if run is None else run.header(port, ssn)

    def first_from(self, port: PortName, ssn: int) -> Output | None:
        """The first event from `ssn` on that is there, without its payload."""
        found = self.header(port, Ssn(ssn))
        if found is None:
            runs = self._runs("port = %s and first >= %s", [escape(port), ssn], limit=1)
            found = runs[0].header(port, runs[0].first) if runs else None
        return found

    def lying(self, port: PortName) -> Iterator[list[Output]]:
        """All that lies there of a port, a run at a time; some runs are fetched at once."""
        raw = self._connection.execute(
            "select number, schema from schemas where instance = %s and port = %s",
            (self._instance, escape(port)),
            binary=True,
        )
        schemas = {number: pa.ipc.read_schema(pa.py_buffer(schema)) for number, schema in raw}
        after = 0
        while True:
            given = {"port": escape(port), "after": after}
            rows = self._connection.execute(select_next(self._instance), given, binary=True).fetchall()
            if not rows:
                return
            for run in joined_parts(rows):
                yield run.read(port, range(run.first, run.end), schemas.get(run.schema))
                after = run.first

    def passed(self, port: PortName, first: int, channel: ChannelName) -> list[int]:
        """The first of each run that is passed on."""
        where = f"port = %s and first + many > %s and schema = {payloads.SAME}"
        query = f"select * from ({_from(self._instance, _WHOLE, where)}) r order by first, part"
        given = [escape(port), first] * SEGMENTS
        rows = self._connection.execute(query, given, binary=True).fetchall()
        return [ssn for run in joined_parts(rows) for ssn in run.passed_from(first, channel)]


# ---- writing --------------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """Where a run is, how many events it has and how large it is."""

    segment: int
    many: int
    size: int


@dataclass
class Book:
    """Which runs a journal has, in which segment: what its writer knows, and loads when it claims the journal."""

    places: dict[tuple[PortName, int], Place] = field(default_factory=dict)
    """Of the runs that count, by port and first SSN."""
    firsts: dict[PortName, list[int]] = field(default_factory=dict)
    """The same of each port, in order."""
    sizes: list[int] = field(default_factory=lambda: [0] * SEGMENTS)
    """What lies in each segment, garbage included."""
    live: list[int] = field(default_factory=lambda: [0] * SEGMENTS)
    """What of it counts."""
    current: int = 0

    def add(self, port: PortName, first: int, place: Place, *, written: bool = True) -> None:
        """A run is there; one that had its place does not count any more."""
        self.remove(port, first)
        self.places[port, first] = place
        known = self.firsts.setdefault(port, [])
        if known and first < known[-1]:
            insort(known, first)
        else:
            known.append(first)
        self.live[place.segment] += place.size
        if written:
            self.sizes[place.segment] += place.size

    def remove(self, port: PortName, first: int) -> Place | None:
        """A run does not count any more; it still lies there."""
        place = self.places.pop((port, first), None)
        if place is not None:
            known = self.firsts[port]
            del known[bisect_left(known, first)]
            self.live[place.segment] -= place.size
        return place

    def between(self, port: PortName, low: int, high: int) -> list[tuple[int, Place]]:
        """The runs of a port with events from `low` on that begin before `high`."""
        known = self.firsts.get(port, [])
        at = bisect_left(known, low)
        if at and known[at - 1] + self.places[port, known[at - 1]].many > low:
            at -= 1
        return [(first, self.places[port, first]) for first in known[at : bisect_left(known, high)]]

    def touched(self, port: PortName, ssns: Collection[int]) -> list[tuple[int, Place]]:
        """The runs in which these events lie."""
        found: dict[int, Place] = {}
        for ssn in ssns:
            found.update(self.between(port, ssn, ssn + 1))
        return sorted(found.items())

    def rotate(self) -> None:
        """Goes on with an empty segment once the current one is large."""
        if self.sizes[self.current] >= FULL:
            empty = [segment for segment in range(SEGMENTS) if not self.sizes[segment]]
            if empty:
                self.current = empty[0]

    def garbage(self) -> int | None:
        """The segment that is to be emptied: large once, and at least half garbage."""
        old = [
            s for s in range(SEGMENTS) if s != self.current and self.sizes[s] and 2 * self.live[s] <= self.sizes[s]
        ]
        return min(old, key=lambda s: self.live[s] / self.sizes[s], default=None)

    def emptied(self, segment: int) -> None:
        """What counted of a segment is in the current one, and the segment is empty."""
        moved = [(port, first, p) for (port, first), p in self.places.items() if p.segment == segment]
        for port, first, place in moved:
            self.add(port, first, place._replace(segment=self.current))
        self.sizes[segment] = self.live[segment] = 0


def insert_runs(instance: int, segment: int, packed: Sequence[Packed]) -> Iterator[tuple[str, list[Any]]]:
    """Writes runs into a segment."""
    query = f"insert into {table_of(instance, segment)} values (%b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %s)"
    for port, run in packed:
        whole = memoryview(run.payload)
        same = run.passed_text() if run.schema == payloads.SAME else None
        for part, at in enumerate(range(0, max(len(whole), 1), PART)):
            payload = whole[at : at + PART]
            head = [run.heads, run.more] if part == 0 else [b"", b""]
            about = [escape(port), run.first, part, run.many, run.schema, CODES[run.kind]]
            yield query, [*about, *head, len(payload), payload, same]


def delete_run(instance: int, segment: int, port: PortName, first: int) -> tuple[str, list[Any]]:
    """Removes a run for good: other runs take its place."""
    return f"delete from {table_of(instance, segment)} where port = %s and first = %s", [escape(port), first]


def delete_from(instance: int, port: PortName, ssn: int) -> Iterator[tuple[str, list[Any]]]:
    """Removes what was staged from an SSN on, wherever it is."""
    for name in tables_of(instance):
        yield f"delete from {name} where port = %s and first >= %s", [escape(port), ssn]


def move_runs(instance: int, old: int, new: int) -> str:
    """Copies runs into another segment. Takes ports and first SSNs."""
    return (
        f"insert into {table_of(instance, new)} select e.* from {table_of(instance, old)} e "
        "join unnest(%s::text[], %s::bigint[]) as w(port, first) on e.port = w.port and e.first = w.first"
    )


def select_run(instance: int) -> str:
    """A run by its port and first SSN."""
    return f"select * from ({_from(instance, _WHOLE, 'port = %(port)s and first = %(first)s')}) r order by part"


def select_next(instance: int) -> str:
    """The next few runs of a port. Takes port, and the first SSN of the run after which they come."""
    firsts = _from(instance, "first", "port = %(port)s and first > %(after)s and part = 0")
    found = _from(instance, _WHOLE, "port = %(port)s and first = f.first")
    return (
        f"with f as materialized (select first from ({firsts}) c order by first limit {FETCHED}) "
        f"select w.* from f, lateral ({found}) w order by w.first, w.part"
    )


def schema_rows(instance: int, packer: Packer) -> list[tuple[str, list[Any]]]:
    """Writes the schemas that the journal does not have yet."""
    query = (
        "insert into schemas values (%s, %s, %s, %s) "
        "on conflict (instance, port, number) do update set schema = excluded.schema"
    )
    return [
        (query, [instance, escape(port), at, schema.serialize().to_pybytes()])
        for port, at, schema in packer.fresh_schemas()
    ]


def select_headers(instance: int) -> str:
    """Each of these SSNs with the run in which it would lie, without payload. Takes port and SSNs."""
    runs = " union all ".join(
        f"(select {_HEADER} from {name} where port = %(port)s and first <= s.ssn and part = 0 "
        "order by first desc limit 1)"
        for name in tables_of(instance)
    )
    return (
        "select s.ssn, r.* from unnest(%(ssns)s::bigint[]) as s(ssn) "
        f"cross join lateral (select * from ({runs}) c order by first desc limit 1) r"
    )


def select_picked(instance: int) -> str:
    """The runs in which these events of a port lie. Takes port and SSNs."""
    firsts = " union all ".join(
        f"(select first from {name} where port = %(port)s and first <= s.ssn order by first desc limit 1)"
        for name in tables_of(instance)
    )
    found = _from(instance, _WHOLE, "port = %(port)s and first = f.first")
    return (
        "with f as materialized (select distinct (select max(first) from "
        f"({firsts}) c) as first from unnest(%(ssns)s::bigint[]) as s(ssn)) "
        f"select w.* from f, lateral ({found}) w order by w.first, w.part"
    )
