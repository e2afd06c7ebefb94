"""Events in the embedded log: runs of them as rows (`store/packing.py`).

    port, first SSN -> how many, schema number, kind, length of the headers;
                       rows, nbytes, total, serial of each; headers, if one has any; one Arrow batch for all

A reader copies the row out of the map once and hands out slices.

A collected event may still lie there, beside one that is needed. What counts is the port's head: below its base there
are only the pinned ones. A row goes with its last event, and is taken apart when half of it is not needed (R12).
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import lmdb
import pyarrow as pa

from logline.engine.events import KINDS, Head, Output
from logline.errors import EngineError
from logline.names import ChannelName, PortName, Ssn
from logline.store import payloads
from logline.store.encoding import pack
from logline.store.lmdb import rows
from logline.store.packing import CODES, ONE, Packed, Packer, Run, Schemas, is_mostly_empty, kept_of

_COUNT = struct.Struct("<HHBI")  # how many, schema number, kind, length of the headers
Item = tuple[bytes, bytes]


def event_key(port: PortName, ssn: int) -> bytes:
    """Where a run of events, write actions or staged rows lies that begins with this one."""
    return rows.EVENTS + rows.hashed(port) + rows.number(ssn)


def sealed_runs(packed: Sequence[Packed]) -> list[Item]:
    """Runs of events as keys and values of LMDB, with their checksums."""
    return [
        rows.sealed(
            event_key(port, run.first),
            b"".join((_COUNT.pack(run.many, run.schema, CODES[run.kind], len(run.more)), run.heads, run.more)),
            run.payload,
        )
        for port, run in packed
    ]


def sealed_schemas(packer: Packer) -> list[Item]:
    """The schemas that the journal does not have yet, as rows."""
    return [
        rows.sealed(schema_key(port, at), pack((port, at, schema.serialize().to_pybytes())))
        for port, at, schema in packer.fresh_schemas()
    ]


class Row(NamedTuple):
    """A row as it lies there: valid while its transaction is."""

    run: Run
    raw: memoryview

    def read(self, port: PortName, wanted: Sequence[int], schema: pa.Schema | None) -> list[Output]:
        """These events, with payload, once the row has proved to be what was written."""
        rows.check(event_key(port, self.run.first), self.raw)
        return self.run.read(port, wanted, schema)


def row_of(cursor: lmdb.Cursor, port: PortName, ssn: int) -> Row | None:
    """The row in which an event lies, or would."""
    key = event_key(port, ssn)
    there = cursor.set_range(key)
    if not (there and cursor.key() == key) and not (cursor.prev() if there else cursor.last()):
        return None
    row = _here(cursor, port)
    return row if row is not None and row.run.first <= ssn < row.run.end else None


def rows_from(cursor: lmdb.Cursor, port: PortName, ssn: int) -> Iterator[Row]:
    """The rows with events from `ssn` on, in order. Deleting the one at hand is allowed."""
    row = row_of(cursor, port, ssn)
    if row is None and cursor.set_range(event_key(port, ssn)):
        row = _here(cursor, port)
    while row is not None:
        yield row
        if not cursor.set_range(event_key(port, row.run.end)):
            return
        row = _here(cursor, port)


def _here(cursor: lmdb.Cursor, port: PortName) -> Row | None:
    key = bytes(cursor.key())
    if key[:10] != rows.EVENTS + rows.hashed(port):
        return None
    raw = memoryview(cursor.value())
    many, schema, kind, more = _COUNT.unpack_from(raw)
    heads = _COUNT.size + ONE.size * many
    run = Run(
        rows.read_number(key[10:]),
        many,
        schema,
        KINDS[kind],
        raw[_COUNT.size : heads],
        raw[heads : heads + more],
        raw[heads + more : rows.END],
    )
    return Row(run, raw)


def collect(txn: lmdb.Transaction, port: PortName, head: Head, base: int, pinned: Collection[int]) -> None:
    """Drops what is below `base` and not pinned; `head` says what was there before."""
    freed = sorted(ssn for ssn in head.pinned if ssn not in pinned)
    with txn.cursor() as cursor:
        done = 0
        for ssn in freed:
            row = None if ssn < done else row_of(cursor, port, ssn)  # a row is looked at once, for all its events
            if row is not None:
                done = row.run.end
                _shrink(txn, port, row, base, pinned)
        for row in rows_from(cursor, port, head.base):
            if row.run.first >= base:
                break
            _shrink(txn, port, row, base, pinned)


def _shrink(txn: lmdb.Transaction, port: PortName, row: Row, base: int, pinned: Collection[int]) -> None:
    run = row.run
    kept = kept_of(run, base, pinned)
    if not kept:
        txn.delete(event_key(port, run.first))
    elif is_mostly_empty(run, kept):
        schema = read_schema(txn, port, run.schema)
        outputs = row.read(port, kept, schema)
        txn.delete(event_key(port, run.first))
        rows.put_all(txn, sealed_runs(Packer({port: (run.schema, schema)}).alone(outputs)))


def schema_key(port: PortName, at: int) -> bytes:
    """Where a schema lies."""
    return rows.SCHEMAS + rows.hashed(port) + rows.number(at)


def read_schema(txn: lmdb.Transaction, port: PortName, at: int) -> pa.Schema:
    """A schema by its number."""
    raw = txn.get(schema_key(port, at))
    if raw is None:
        raise EngineError(f"the journal has no schema {at} of port {port!r}")
    rows.check(schema_key(port, at), memoryview(raw))
    return pa.ipc.read_schema(pa.py_buffer(rows.unpack(raw)[2]))


def read_schemas(txn: lmdb.Transaction) -> Schemas:
    """The newest schema of each port."""
    found: Schemas = {}
    with txn.cursor() as cursor:
        if cursor.set_range(rows.SCHEMAS):
            for key, value in cursor:
                if bytes(key[:2]) != rows.SCHEMAS:
                    break
                port, at, raw = rows.unpack(value)
                found[port] = (at, pa.ipc.read_schema(pa.py_buffer(raw)))
    return found


class LmdbEvents:
    """The events of a journal in a transaction (see `store.rows.Events`)."""

    __slots__ = ("_txn",)

    def __init__(self, txn: lmdb.Transaction) -> None:
        self._txn = txn

    def header(self, port: PortName, ssn: Ssn) -> Output | None:
        """The event of this SSN without its payload; None if no row has it."""
        with self._txn.cursor() as cursor:
            row = row_of(cursor, port, ssn)
            return None if row is None else row.run.header(port, ssn)

    def first_from(self, port: PortName, ssn: int) -> Output | None:
        """The first event from `ssn` on that has a row, without its payload."""
        with self._txn.cursor() as cursor:
            row = next(rows_from(cursor, port, ssn), None)
            return None if row is None else row.run.header(port, max(row.run.first, ssn))

    def lying(self, port: PortName) -> Iterator[list[Output]]:
        """All that lies there of a port, row by row."""
        with self._txn.cursor() as cursor:
            for row in rows_from(cursor, port, 1):
                special = row.run.schema in (payloads.NONE, payloads.SAME, payloads.STREAM)
                schema = None if special else read_schema(self._txn, port, row.run.schema)
                yield row.read(port, range(row.run.first, row.run.end), schema)

    def passed(self, port: PortName, first: int, channel: ChannelName) -> Iterator[int]:
        """The first of each run that is passed on."""
        with self._txn.cursor() as cursor:
            for row in rows_from(cursor, port, first):
                if row.run.schema == payloads.SAME:
                    yield from row.run.passed_from(first, channel)
