"""The history that lineage scopes keep, as rows: sets that are done, what they were made of and what they made.

A set of several events is a row of its own. Sets of one event are kept as runs, two rows for as many as one commit
finished, since a row for each would cost a fast operator more than its work does. What a set of a run put out is
found in the events themselves: each holds its set's serial, and on a port they rise with the SSN (see `Step.close`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import lmdb

from logline.engine import codec
from logline.engine.events import Output
from logline.engine.history import Finished, Lone, Segment
from logline.engine.sets import Answer, own_id
from logline.engine.step import Step
from logline.names import ChannelName, InsetId, PortName, Serial, Ssn
from logline.store.encoding import read_segment
from logline.store.lmdb import events, members, rows

Raw = bytes | memoryview
Made = dict[Serial, list[tuple[PortName, Ssn]]]


def _last_until(txn: lmdb.Transaction, prefix: bytes, number: int) -> tuple[bytes, Raw] | None:
    """The last row of the prefix whose number is not above this one."""
    with txn.cursor() as cursor:
        found = cursor.set_range(prefix + rows.number(number + 1))
        if not (cursor.prev() if found else cursor.last()):
            return None
        key, value = cursor.item()
        return (bytes(key), value) if bytes(key).startswith(prefix) else None


# ---- writing ------------------------------------------------------------------------------------------------


def made_by(outputs: Sequence[Output], kept: Sequence[Serial]) -> Made:
    """What each kept set of a step put out."""
    found: Made = {serial: [] for serial in kept}
    if found:
        for output in outputs:
            if output.serial in found:
                found[output.serial].append((output.port, output.ssn))
    return found


def put_set(
    txn: lmdb.Transaction,
    serial: Serial,
    inset: InsetId,
    joined: members.Joined,
    made: Sequence[tuple[PortName, Ssn]],
) -> None:
    """A set that is done."""
    rows.put(txn, b"F" + rows.number(serial), rows.pack((codec.encode(inset), joined, made)))


def put_step(txn: lmdb.Transaction, step: Step) -> None:
    """The segment, and what the step adds to it; sets were put when they were finished."""
    expire(txn, step.lineage.expired)
    segment = step.lineage.segment
    if segment is None or segment.number <= step.lineage.expired:
        return
    rows.put(txn, b"g" + rows.number(segment.number), rows.pack(segment))
    if not step.lineage.kept and not step.lineage.lone:
        return
    for run in step.lineage.lone:
        rows.put(txn, b"R" + rows.number(run.serial), rows.pack((run.channel, run.ssn, run.count)))
        rows.put(txn, _event_key(run.channel, run.ssn), rows.pack((run.serial, run.count)))
    key = b"G" + rows.number(segment.number) + rows.number(step.number)
    rows.put(txn, key, rows.pack((step.lineage.kept, [run.serial for run in step.lineage.lone])))


def _event_key(channel: ChannelName, ssn: Ssn) -> bytes:
    return b"Q" + rows.hashed(channel) + rows.number(ssn)


def expire(txn: lmdb.Transaction, upto: int) -> None:
    """Forgets the segments up to this number. Memberships stay until their events go, as without lineage."""
    if not upto:
        return
    for key, value in [(k, rows.unpack(v)) for k, v in _numbered(txn, b"G", upto)]:
        txn.delete(key)
        kept, runs = value
        for serial in kept:
            _forget_set(txn, serial)
        for serial in runs:
            run = _read_run(serial, txn.get(b"R" + rows.number(serial)))
            txn.delete(_event_key(run.channel, run.ssn))
            txn.delete(b"R" + rows.number(serial))
    for key, _ in list(_numbered(txn, b"g", upto)):
        txn.delete(key)


def _numbered(txn: lmdb.Transaction, kind: bytes, upto: int) -> Iterator[tuple[bytes, Raw]]:
    for key, value in rows.scan(txn, kind):
        if rows.read_number(key[1:9]) > upto:
            return
        yield key, value


def _forget_set(txn: lmdb.Transaction, serial: Serial) -> None:
    for key in [k for k, _ in rows.scan(txn, b"A" + rows.number(serial))]:
        txn.delete(key)
    txn.delete(b"F" + rows.number(serial))


# ---- reading ------------------------------------------------------------------------------------------------


def segments(txn: lmdb.Transaction) -> Iterator[Segment]:
    """In order."""
    for _, value in rows.scan(txn, b"g"):
        yield read_segment(rows.unpack(value))


def low(txn: lmdb.Transaction, channel: ChannelName) -> Ssn | None:
    """The first event of the channel that the kept history leads to."""
    return min((s.lows[channel] for s in segments(txn) if channel in s.lows), default=None)


def inset(txn: lmdb.Transaction, serial: Serial) -> Finished | None:
    """A set by its serial."""
    raw = txn.get(b"F" + rows.number(serial))
    if raw is not None:
        return _read_set(serial, raw)
    run = _run_of(txn, serial)
    return None if run is None else one_of(run, serial)


def _read_set(serial: Serial, raw: Raw) -> Finished:
    encoded, joined, _ = rows.unpack(raw)
    return Finished(serial, codec.decode(encoded), tuple(members.Joined(*joined).members()))


def one_of(run: Lone, serial: Serial) -> Finished:
    """A set of a run."""
    member = run.member(serial)
    return Finished(serial, own_id(member), (member,))


def _run_of(txn: lmdb.Transaction, serial: Serial) -> Lone | None:
    found = _last_until(txn, b"R", serial)
    if found is None:
        return None
    run = _read_run(rows.read_number(found[0][1:]), found[1])
    return run if serial < run.serial + run.count else None


def _read_run(serial: int, raw: Raw | None) -> Lone:
    assert raw is not None
    channel, ssn, count = rows.unpack(raw)
    return Lone(Serial(serial), channel, ssn, count)


def every(txn: lmdb.Transaction) -> Iterator[Finished]:
    """Every set; for tables and checks."""
    for key, value in rows.scan(txn, b"F"):
        yield _read_set(Serial(rows.read_number(key[1:])), value)
    for key, value in rows.scan(txn, b"R"):
        run = _read_run(rows.read_number(key[1:]), value)
        for serial in range(run.serial, run.serial + run.count):
            yield one_of(run, Serial(serial))


def insets_of(txn: lmdb.Transaction, channel: ChannelName, ssn: Ssn) -> list[Serial]:
    """The sets that have this event as a member."""
    found = members.sets_of(txn, channel, ssn)
    index = _last_until(txn, b"Q" + rows.hashed(channel), ssn)
    if index is not None:
        serial, count = rows.unpack(index[1])
        ahead = ssn - rows.read_number(index[0][9:])
        if ahead < count:
            found.add(Serial(serial + ahead))
    return sorted(found)


def made_from(
    txn: lmdb.Transaction, serial: Serial, ports: Sequence[PortName], last: dict[PortName, Ssn]
) -> list[tuple[PortName, Ssn]]:
    """What a set put out."""
    raw = txn.get(b"F" + rows.number(serial))
    if raw is not None:
        return [(port, Ssn(ssn)) for port, ssn in rows.unpack(raw)[2] if port in ports]
    if _run_of(txn, serial) is None:
        return []
    return [(port, ssn) for port in ports for ssn in _search(txn, port, serial, last[port])]


def _search(txn: lmdb.Transaction, port: PortName, serial: Serial, last: Ssn) -> Iterator[Ssn]:
    """Events of a port whose set has this serial, found by halving: serials rise with the SSN."""
    with txn.cursor() as cursor:

        def first_from(ssn: int) -> tuple[int, int] | None:
            """The first event that is there from `ssn` on, with its serial; the end has none and comes last."""
            row = next(events.rows_from(cursor, port, ssn), None)
            if row is None or (found := max(row.first, ssn)) > last:
                return None
            event = row.header(port, found)
            return None if event.end else (found, event.serial)

        low, high = 1, last + 1
        while low < high:
            middle = (low + high) // 2
            found = first_from(middle)
            if found is None or found[1] >= serial:
                high = middle
            else:
                low = found[0] + 1
        while (found := first_from(low)) is not None and found[1] == serial:
            yield Ssn(found[0])
            low = found[0] + 1


def answers(txn: lmdb.Transaction, serial: Serial) -> list[Answer]:
    """Of a set that is due, or done and kept."""
    kinds = (b"a", b"A")
    return [rows.read_answer(value) for kind in kinds for _, value in rows.scan(txn, kind + rows.number(serial))]
