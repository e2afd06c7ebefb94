"""Memberships as rows. Events join a set one after the other, so what is written is runs, not a row for each:

    m  serial, commit -> what joined an open set in that commit
    D  channel, block of SSNs, serial -> what a done set had of that block, with the set's id

An open set of 10^5 events is a few hundred rows then, for the commits that add to it and for a sender that looks what
is needed (R12). A block is where the sets of an event are found, and goes when the sender's base has passed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import lmdb

from logline.engine import codec
from logline.engine.history import Finished
from logline.engine.sets import Member
from logline.engine.step import Step
from logline.names import ChannelName, InsetId, Serial, Ssn
from logline.store.lmdb import rows

Raw = bytes | memoryview
BLOCK = 64
"""SSNs whose memberships share a row."""


class Joined(NamedTuple):
    """Members of a set, in the order in which they joined it."""

    runs: list[tuple[ChannelName, list[int]]]
    """Channel -> first, number, first, number, ...; a channel comes again when another one came between."""
    notes: list[bytes | None] | None
    """One for each; None if nobody has any."""

    @classmethod
    def of(cls, members: Iterable[Member]) -> Joined:
        """As runs."""
        found: list[tuple[ChannelName, list[int]]] = []
        notes: list[bytes | None] = []
        channel, runs, after = None, [0], 0
        for member in members:
            if member.channel != channel:
                channel, runs, after = member.channel, [], 0
                found.append((channel, runs))
            if member.ssn == after:
                runs[-1] += 1
            else:
                runs += (member.ssn, 1)
            after = member.ssn + 1
            notes.append(None if member.note is None else codec.encode(member.note))
        return cls(found, notes if any(note is not None for note in notes) else None)

    def each(self) -> Iterator[tuple[ChannelName, int, int]]:
        """Channel, first, number."""
        for channel, runs in self.runs:
            for at in range(0, len(runs), 2):
                yield channel, runs[at], runs[at + 1]

    def members(self) -> list[Member]:
        """One by one."""
        found = [Member(c, Ssn(ssn)) for c, first, many in self.each() for ssn in range(first, first + many)]
        if self.notes is None:
            return found
        decoded = (None if note is None else codec.decode(note) for note in self.notes)
        return [member._replace(note=note) for member, note in zip(found, decoded, strict=True)]


# ---- open sets ----------------------------------------------------------------------------------------------------


def joining(step: Step) -> list[tuple[bytes, bytes]]:
    """What joins open sets in a step, as rows that are ready to be put."""
    lists: list[tuple[Serial, Sequence[Member]]] = [(serial, (member,)) for serial, member in step.sets.alone.items()]
    lists += [(serial, opened.members) for serial, opened in step.sets.opened.items()]
    lists += step.sets.members.items()
    return [rows.sealed(_key(s, step.number), rows.pack(Joined.of(members))) for s, members in lists if members]


def _key(serial: int, commit: int) -> bytes:
    return b"m" + rows.number(serial) + rows.number(commit)


def every(txn: lmdb.Transaction) -> Iterator[tuple[Serial, list[Member]]]:
    """What has joined open sets: a set comes once for each commit, in that order."""
    for key, value in rows.scan(txn, b"m"):
        yield Serial(rows.read_number(key[1:9])), Joined(*rows.unpack(value)).members()


def needed(txn: lmdb.Transaction, channel: ChannelName) -> list[Ssn]:
    """The events of a channel that are members of open sets."""
    found: list[Any] = []
    for _, value in rows.scan(txn, b"m"):
        for name, runs in Joined(*rows.unpack(value)).runs:
            if name == channel:
                for at in range(0, len(runs), 2):
                    found += range(runs[at], runs[at] + runs[at + 1])
    return found


def take(txn: lmdb.Transaction, serial: Serial) -> Joined:
    """All that has joined a set, which is open no longer."""
    parts: list[Joined] = []
    for key, value in [(key, bytes(value)) for key, value in rows.scan(txn, b"m" + rows.number(serial))]:
        parts.append(Joined(*rows.unpack(value)))
        txn.delete(key)
    notes: list[bytes | None] | None = None
    if any(part.notes is not None for part in parts):
        notes = []
        for part in parts:
            notes += part.notes or [None] * sum(many for _, _, many in part.each())
    return Joined([run for part in parts for run in part.runs], notes)


# ---- done sets ----------------------------------------------------------------------------------------------------


def remember(txn: lmdb.Transaction, serial: Serial, inset: InsetId, joined: Joined) -> None:
    """The memberships of a set that is done."""
    blocks: dict[tuple[ChannelName, int], tuple[list[int], list[bytes | None]]] = {}
    done = 0
    for channel, first, many in joined.each():
        end = first + many
        while first < end:
            upto = min(end, (first // BLOCK + 1) * BLOCK)
            runs, notes = blocks.setdefault((channel, first // BLOCK), ([], []))
            runs += (first, upto - first)
            if joined.notes is not None:
                notes += joined.notes[done : done + upto - first]
            done += upto - first
            first = upto
    encoded = codec.encode(inset)
    for (channel, block), (runs, notes) in blocks.items():
        _put_done(txn, _done_key(channel, block, serial), channel, encoded, runs, notes if any(notes) else None)


def _put_done(
    txn: lmdb.Transaction,
    key: bytes,
    channel: ChannelName,
    inset: bytes,
    runs: list[int],
    notes: list[bytes | None] | None,
) -> None:
    rows.put(txn, key, rows.pack((inset, ([(channel, runs)], notes))))


def _done_key(channel: ChannelName, block: int, serial: int) -> bytes:
    return _block_key(channel, block) + rows.number(serial)


def _block_key(channel: ChannelName, block: int) -> bytes:
    return b"D" + rows.hashed(channel) + rows.number(block)


def forget(txn: lmdb.Transaction, channel: ChannelName, base: Ssn) -> None:
    """Drops the memberships of done sets in events below `base`."""
    gone = [key for key, _ in rows.until(txn, _block_key(channel, 0), _block_key(channel, base // BLOCK))]
    for key in gone:
        txn.delete(key)
    if base % BLOCK == 0:
        return
    for key, value in [(k, bytes(v)) for k, v in rows.scan(txn, _block_key(channel, base // BLOCK))]:
        inset, joined = rows.unpack(value)
        members = Joined(*joined).members()
        kept = [member for member in members if member.ssn >= base]
        if not kept:
            txn.delete(key)
        elif len(kept) < len(members):
            [(_, runs)], notes = Joined.of(kept)
            _put_done(txn, key, channel, inset, runs, notes)


def remembered(txn: lmdb.Transaction) -> Iterator[Finished]:
    """Done sets, a block of a channel at a time."""
    for key, value in rows.scan(txn, b"D"):
        inset, joined = rows.unpack(value)
        serial = Serial(rows.read_number(key[17:25]))
        yield Finished(serial, codec.decode(inset), tuple(Joined(*joined).members()))


def sets_of(txn: lmdb.Transaction, channel: ChannelName, ssn: Ssn) -> set[Serial]:
    """The done sets that have this event as a member."""
    return {
        Serial(rows.read_number(key[17:25]))
        for key, value in rows.scan(txn, _block_key(channel, ssn // BLOCK))
        if any(first <= ssn < first + many for _, first, many in Joined(*rows.unpack(value)[1]).each())
    }
