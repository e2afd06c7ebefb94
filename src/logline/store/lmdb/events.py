"""Events in a journal: several small ones of a port share a row, so that one costs a share of what a row costs.

    port, first SSN -> how many, schema number, kind, length of the headers;
                       rows, nbytes, total, serial of each; headers, if one has any; one Arrow batch for all

A commit that puts out a run of events writes them so; a reader copies the row out of the map once and hands out
slices. The events of a row have at most `TOGETHER` bytes: user code that keeps one slice keeps them all, and a larger
row makes an event hardly cheaper.
Events of one row are of one kind.
Rows that are staged (R9) hold one event each: another life may stage other events in their place.

A write action that passes an event on (`Output.same`) has that event's channel and SSN in place of a payload; a
reader takes the payload from the sender's journal, where it stays until the write is known to be done (R12).

A collected event may still lie there, beside one that is needed. What counts is the port's head: below its base there
are only the pinned ones. A row goes with its last event, and is taken apart when half of it is not needed (R12).
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import lmdb
import pyarrow as pa

from logline.engine.events import KINDS, Head, Kind, Output
from logline.engine.sets import Member
from logline.errors import EngineError
from logline.names import ChannelName, PortName, Ssn
from logline.store.encoding import pack, reader_of
from logline.store.lmdb import payloads, rows
from logline.store.members import Joined

TOGETHER, MOST = 256 << 10, 64
"""Bytes and number of the events that share a row, at most."""
MOST_SAME = 1024
"""Of those that are passed on, and take no room."""
_WHOLE = (payloads.NONE, payloads.STREAM)
_COUNT = struct.Struct("<HHBI")  # how many, schema number, kind, length of the headers
_ONE = struct.Struct("<IQQQ")  # rows, nbytes, total, serial
_CODES = {kind: code for code, kind in enumerate(KINDS)}
Item = tuple[bytes, bytes]
Schemas = dict[PortName, tuple[int, pa.Schema]]


_read_joined = reader_of(Joined)


def event_key(port: PortName, ssn: int) -> bytes:
    """Where a run of events, write actions or staged rows lies that begins with this one."""
    return rows.EVENTS + rows.hashed(port) + rows.number(ssn)


class _Run:
    """Events of a port that are to share a row."""

    __slots__ = ("events", "kind", "most", "schema", "size")

    def __init__(self, schema: int, kind: Kind, most: int) -> None:
        self.events: list[Output] = []
        self.schema = schema
        self.kind = kind
        self.most = most
        self.size = 0


class Packer:
    """Events as rows. New schemas, which become rows too, are known to others once the commit is through."""

    def __init__(self, known: Schemas) -> None:
        self._known = known
        self.fresh: Schemas = {}
        self.schemas: list[Item] = []

    def alone(self, outputs: Iterable[Output]) -> list[Item]:
        """Packs each event into a row of its own."""
        return [self._row([output], self._schema(output)) for output in outputs]

    def together(self, outputs: Iterable[Output], alone: Collection[PortName]) -> list[Item]:
        """Runs of small events share a row, but for those of the ports `alone`."""
        found: list[Item] = []
        runs: dict[PortName, _Run] = {}
        number = self._schema
        for output in outputs:
            port, schema = output.port, number(output)
            run = runs.get(port)
            own = 0 if schema == payloads.SAME else output.nbytes
            if (
                run is None
                or schema != run.schema
                or run.size + own > TOGETHER
                or len(run.events) >= run.most
                or output.kind != run.kind
            ):
                if run is not None:
                    found += self._rows(run.events, run.schema)
                most = 1 if port in alone or schema in _WHOLE else MOST_SAME if schema == payloads.SAME else MOST
                run = runs[port] = _Run(schema, output.kind, most)
            run.events.append(output)
            run.size += own
        for run in runs.values():
            found += self._rows(run.events, run.schema)
        return found

    def _rows(self, run: list[Output], schema: int) -> list[Item]:
        if len(run) > 1:
            with contextlib.suppress(pa.ArrowException):  # a type that Arrow can't join
                return [self._row(run, schema)]
        return [self._row([output], schema) for output in run]

    def _row(self, run: list[Output], schema: int) -> Item:
        if schema == payloads.NONE:
            payload: bytes | pa.Buffer = b""
        elif schema == payloads.SAME:
            payload = pack(Joined.of([output.same for output in run if output.same is not None]))
        elif schema == payloads.STREAM:
            payload = payloads.write_stream(run[0].payload)
        else:
            batch = run[0].payload if len(run) == 1 else pa.concat_batches([output.payload for output in run])
            payload = payloads.write_batch(batch)
        heads = [_ONE.pack(count, size, total, serial) for _, _, _, count, size, total, serial, _, _, _ in run]
        more = b"" if all(output.headers is None for output in run) else pack([o.headers for o in run])
        begin = _COUNT.pack(len(run), schema, _CODES[run[0].kind], len(more))
        return rows.sealed(event_key(run[0].port, run[0].ssn), b"".join((begin, *heads, more)), payload)

    def _schema(self, output: Output) -> int:
        port, _, batch, _, _, _, _, _, same, _ = output
        if same is not None:
            return payloads.SAME
        if batch is None:
            return payloads.NONE
        known = self.fresh.get(port) or self._known.get(port)
        if known is not None and known[1].equals(batch.schema, check_metadata=True):
            return known[0]
        if payloads.needs_stream(batch.schema):
            return payloads.STREAM
        at = 1 if known is None else known[0] + 1
        if at >= payloads.SAME:  # schemas that differ from event to event, in what pandas notes of its index say
            return payloads.STREAM
        self.fresh[port] = (at, batch.schema)
        value = pack((port, at, batch.schema.serialize().to_pybytes()))
        self.schemas.append(rows.sealed(schema_key(port, at), value))
        return at


class Row(NamedTuple):
    """A row as it lies there: valid while its transaction is."""

    first: int
    many: int
    schema: int
    kind: Kind
    more: int
    """How long the headers are."""
    raw: memoryview

    def header(self, port: PortName, ssn: int) -> Output:
        """An event without its payload."""
        head = _ONE.unpack_from(self.raw, _COUNT.size + _ONE.size * (ssn - self.first))
        return self._special([Output(port, Ssn(ssn), None, *head)])[0]

    def _special(self, found: list[Output]) -> list[Output]:
        """Kind and headers, where there is more to say than that it is an event."""
        if self.kind != "event":
            found = [output._replace(kind=self.kind) for output in found]
        if self.more:
            raw = self.raw[self._body - self.more : self._body]
            more = rows.unpack_all(raw)
            found = [output._replace(headers=more[output.ssn - self.first]) for output in found]
        return found

    @property
    def _body(self) -> int:
        """Where the payload begins."""
        return _COUNT.size + _ONE.size * self.many + self.more

    def read(self, port: PortName, wanted: Sequence[int], schema: pa.Schema | None) -> list[Output]:
        """These events, with payload: copied, since user code may keep it and the map is used again. Writes that pass
        an event on come without."""
        rows.check(event_key(port, self.first), self.raw)
        body, first = self._body, self.first
        heads = list(_ONE.iter_unpack(self.raw[_COUNT.size : body - self.more]))
        if self.schema == payloads.SAME:
            passed = self.passed()
            found = [Output(port, Ssn(ssn), None, *heads[ssn - first]) for ssn in wanted]
            found = [write._replace(same=passed[write.ssn - first]) for write in found]
        else:
            batches = self._batches(bytes(self.raw[body : rows.END]), [head[0] for head in heads], wanted, schema)
            if len(wanted) < self.many:
                heads = [heads[ssn - first] for ssn in wanted]
            each = zip(wanted, batches, heads, strict=True)
            found = [Output(port, ssn, batch, *head) for ssn, batch, head in each]  # type: ignore[arg-type]
        return self._special(found)

    def passed(self) -> list[Member]:
        """The events that the writes of this row pass on."""
        return self._joined().members()

    def passed_from(self, number: int, channel: ChannelName) -> list[int]:
        """Of the writes from that number on: the first event of each run of the channel. A slow target may have a
        long queue, so runs are not taken apart but for the row with which it begins."""
        if number > self.first:
            return [event.ssn for event in self.passed()[number - self.first :] if event.channel == channel]
        return [first for name, first, _ in self._joined().each() if name == channel]

    def _joined(self) -> Joined:
        return _read_joined(self.raw[self._body : rows.END])

    def _batches(self, body: bytes, sizes: list[int], wanted: Sequence[int], schema: pa.Schema | None) -> list[Any]:
        if self.schema == payloads.NONE:
            return [None]
        if self.schema == payloads.STREAM:
            return [payloads.read_stream(body)]
        assert schema is not None
        whole = payloads.read_batch(body, schema)
        if self.many == 1:
            return [whole]
        starts, first = list(accumulate(sizes, initial=0)), self.first
        parts = [whole.slice(starts[ssn - first], sizes[ssn - first]) for ssn in wanted]
        if 2 * len(parts) < self.many:  # who wants few of them should not keep all
            parts = [payloads.read_batch(bytes(payloads.write_batch(part)), schema) for part in parts]
        return parts


def row_of(cursor: lmdb.Cursor, port: PortName, ssn: int) -> Row | None:
    """The row in which an event lies, or would."""
    key = event_key(port, ssn)
    there = cursor.set_range(key)
    if not (there and cursor.key() == key) and not (cursor.prev() if there else cursor.last()):
        return None
    row = _here(cursor, port)
    return row if row is not None and row.first <= ssn < row.first + row.many else None


def rows_from(cursor: lmdb.Cursor, port: PortName, ssn: int) -> Iterator[Row]:
    """The rows with events from `ssn` on, in order. Deleting the one at hand is allowed."""
    row = row_of(cursor, port, ssn)
    if row is None and cursor.set_range(event_key(port, ssn)):
        row = _here(cursor, port)
    while row is not None:
        yield row
        if not cursor.set_range(event_key(port, row.first + row.many)):
            return
        row = _here(cursor, port)


def _here(cursor: lmdb.Cursor, port: PortName) -> Row | None:
    key = bytes(cursor.key())
    if key[:10] != rows.EVENTS + rows.hashed(port):
        return None
    raw = memoryview(cursor.value())
    many, schema, kind, more = _COUNT.unpack_from(raw)
    return Row(rows.read_number(key[10:]), many, schema, KINDS[kind], more, raw)


def collect(txn: lmdb.Transaction, port: PortName, head: Head, base: int, pinned: Collection[int]) -> None:
    """Drops what is below `base` and not pinned; `head` says what was there before."""
    freed = sorted(ssn for ssn in head.pinned if ssn not in pinned)
    with txn.cursor() as cursor:
        done = 0
        for ssn in freed:
            row = None if ssn < done else row_of(cursor, port, ssn)  # a row is looked at once, for all its events
            if row is not None:
                done = row.first + row.many
                _shrink(txn, port, row, base, pinned)
        for row in rows_from(cursor, port, head.base):
            if row.first >= base:
                break
            _shrink(txn, port, row, base, pinned)


def _shrink(txn: lmdb.Transaction, port: PortName, row: Row, base: int, pinned: Collection[int]) -> None:
    end = row.first + row.many
    kept = [ssn for ssn in range(row.first, min(end, base)) if ssn in pinned] if pinned else []
    kept += range(max(row.first, base), end)
    if not kept:
        txn.delete(event_key(port, row.first))
    elif 2 * len(kept) <= row.many and row.schema != payloads.SAME:
        schema = read_schema(txn, port, row.schema)
        outputs = row.read(port, kept, schema)
        txn.delete(event_key(port, row.first))
        rows.put_all(txn, Packer({port: (row.schema, schema)}).alone(outputs))


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
            return None if row is None else row.header(port, ssn)

    def first_from(self, port: PortName, ssn: int) -> Output | None:
        """The first event from `ssn` on that has a row, without its payload."""
        with self._txn.cursor() as cursor:
            row = next(rows_from(cursor, port, ssn), None)
            return None if row is None else row.header(port, max(row.first, ssn))

    def passed(self, port: PortName, first: int, channel: ChannelName) -> Iterator[int]:
        """The first of each run that is passed on."""
        with self._txn.cursor() as cursor:
            for row in rows_from(cursor, port, first):
                if row.schema == payloads.SAME:
                    yield from row.passed_from(first, channel)
