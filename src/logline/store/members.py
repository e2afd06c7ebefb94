"""Memberships as rows. Events join a set one after the other, so what is written is runs, not a row for each:

    MEMBERS  serial, commit                     what joined an open set in that commit
    COVERED  serial, how many before them       the same, once a checkpoint covers it (R22): recovery reads none of
                                                it, and no sender is asked to keep it
    DONE     channel, block of SSNs, serial     what a done set had of that block, with the set's id

An open set of 10^5 events is a few hundred rows then, for the commits that add to it and for a sender that looks what
is needed (R12). A block is where the sets of an event are found, and goes when the sender's base has passed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from logline.engine import codec
from logline.engine.history import Finished, Membership
from logline.engine.sets import Member
from logline.errors import EngineError
from logline.names import ChannelName, Serial, Ssn
from logline.store.rows import Rows, Table

BLOCK = 64
"""SSNs whose memberships share a row."""


class Joined(NamedTuple):
    """Members of a set, in the order in which they joined it. Never changed once it is made."""

    runs: list[tuple[ChannelName, list[int]]]
    """Channel -> first, number, first, number, ...; a channel comes again when another one came between."""
    notes: list[bytes | None] | None
    """One for each; None if nobody has any."""

    @classmethod
    def of(cls, members: Iterable[Member]) -> Joined:
        """Packs members into runs: channel by channel, SSNs that follow each other as one pair."""
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
        """Each run as (channel, first SSN, how many)."""
        for channel, runs in self.runs:
            for at in range(0, len(runs), 2):
                yield channel, runs[at], runs[at + 1]

    @property
    def many(self) -> int:
        """How many they are."""
        return sum(many for _, _, many in self.each())

    def split(self, count: int) -> tuple[Joined, Joined]:
        """The first so many of them, and the others."""
        parts: tuple[list[tuple[ChannelName, list[int]]], ...] = [], []
        left = count
        for channel, first, many in self.each():
            here = min(many, left)
            left -= here
            for part, ssn, some in ((parts[0], first, here), (parts[1], first + here, many - here)):
                if some:
                    if not part or part[-1][0] != channel:
                        part.append((channel, []))
                    part[-1][1].extend((ssn, some))
        notes = self.notes or ()
        some_notes, others = list(notes[:count]) or None, list(notes[count:]) or None
        return Joined(parts[0], some_notes), Joined(parts[1], others)

    def members(self) -> list[Member]:
        """The members one by one, in the order in which they joined, with their notes."""
        runs = self.runs
        if self.notes is None and len(runs) == 1 and len(runs[0][1]) == 2 and runs[0][1][1] == 1:
            return [Member(runs[0][0], Ssn(runs[0][1][0]))]  # one event: so begin most of very many sets
        found = [Member(c, Ssn(ssn)) for c, first, many in self.each() for ssn in range(first, first + many)]
        if self.notes is None:
            return found
        decoded = (None if note is None else codec.decode(note) for note in self.notes)
        return [member._replace(note=note) for member, note in zip(found, decoded, strict=True)]


class DoneRow(NamedTuple):
    """What a done set had of one block of a channel."""

    id: bytes
    runs: list[int]
    """First, number, first, number, ..."""
    notes: list[bytes | None] | None
    dropped: str | None = None
    """Why the set came to nothing, if it failed and was dropped. In older logs there is none."""

    def joined(self, channel: ChannelName) -> Joined:
        """The row as members of the set."""
        return Joined([(channel, self.runs)], self.notes)


MEMBERS = Table("members", Joined, "number", "number")
COVERED = Table("covered", Joined, "number", "number")
DONE = Table("done", DoneRow, "name", "number", "number")


# ---- open sets ----------------------------------------------------------------------------------------------------


def needed(rows: Rows, channel: ChannelName) -> list[Ssn]:
    """The events of a channel that are members of open sets."""
    found: list[Ssn] = []
    for _, joined in rows.scan(MEMBERS):
        for name, runs in joined.runs:
            if name == channel:
                for at in range(0, len(runs), 2):
                    found += map(Ssn, range(runs[at], runs[at] + runs[at + 1]))
    return found


def count(rows: Rows, serial: Serial) -> int:
    """How many members of an open set no checkpoint covers."""
    return sum(joined.many for _, joined in rows.scan(MEMBERS, (serial,)))


def take(rows: Rows, serial: Serial, *, covered: bool) -> Joined:
    """All that has joined a set, which is open no longer; `covered`: it had a checkpoint."""
    parts: list[Joined] = []
    for table in (COVERED, MEMBERS) if covered else (MEMBERS,):
        for key, joined in list(rows.scan(table, (serial,))):
            parts.append(joined)
            rows.delete(table, key)
    return _together(parts)


def _together(parts: Sequence[Joined]) -> Joined:
    if len(parts) == 1:
        return parts[0]
    notes: list[bytes | None] | None = None
    if any(part.notes is not None for part in parts):
        notes = []
        for part in parts:
            notes += part.notes or [None] * part.many
    return Joined([run for part in parts for run in part.runs], notes)


def cover(rows: Rows, serial: Serial, before: int, count: int) -> None:
    """The first `count` members of an open set are covered by a checkpoint, `before` of them by the last one. Only
    what was not covered before is looked at, so that a set pays for each of its members once."""
    for key, joined in list(rows.scan(MEMBERS, (serial,))):
        if before >= count:
            break
        many = min(joined.many, count - before)
        if many == joined.many:
            rows.delete(MEMBERS, key)
            rows.put(COVERED, (serial, before), joined)
        else:
            first, rest = joined.split(many)
            rows.put(MEMBERS, key, rest)
            rows.put(COVERED, (serial, before), first)
        before += many
    if before != count:
        raise EngineError(f"a checkpoint of set {serial} covers {count} members, and the log has {before}")


def covered(rows: Rows, serial: Serial) -> list[Member]:
    """The members of an open set that its checkpoint covers, in the order in which they joined it."""
    return [member for _, joined in rows.scan(COVERED, (serial,)) for member in joined.members()]


def hand_on(rows: Rows, serial: Serial, to: Serial) -> None:
    """What is covered of a set is now of another one, which has nothing covered itself. The first one keeps its own:
    it is done in the same step, and remembered. Merging sets (R32) would hand on what each of them has, in turn, and
    write a checkpoint that covers it all."""
    for (_, before), joined in list(rows.scan(COVERED, (serial,))):
        rows.put(COVERED, (to, before), joined)


# ---- done sets ----------------------------------------------------------------------------------------------------


def remember(rows: Rows, serial: Serial, inset: bytes, joined: Joined, dropped: str | None) -> None:
    """The memberships of a set that is done, and why it was dropped if it was."""
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
    for (channel, block), (runs, notes) in blocks.items():
        rows.put(DONE, (channel, block, serial), DoneRow(inset, runs, notes if any(notes) else None, dropped))


def forget(rows: Rows, channel: ChannelName, base: Ssn) -> None:
    """Drops the memberships of done sets in events below `base`."""
    rows.delete_range(DONE, (channel,), below=base // BLOCK)
    if base % BLOCK == 0:
        return
    for key, row in list(rows.scan(DONE, (channel, base // BLOCK))):
        members = row.joined(channel).members()
        kept = [member for member in members if member.ssn >= base]
        if not kept:
            rows.delete(DONE, key)
        elif len(kept) < len(members):
            [(_, runs)], notes = Joined.of(kept)
            rows.put(DONE, key, DoneRow(row.id, runs, notes, row.dropped))


def remembered(rows: Rows) -> Iterator[Finished]:
    """Done sets, a block of a channel at a time."""
    for (channel, _, serial), row in rows.scan(DONE):
        yield Finished(serial, codec.decode(row.id), tuple(row.joined(channel).members()))


def memberships(rows: Rows, channel: ChannelName, ssn: Ssn) -> list[Membership]:
    """The done sets that have this event as a member; one that has it twice, by a merge, comes with each note."""
    return [
        Membership(serial, codec.decode(row.id), member.note, row.dropped)
        for (_, _, serial), row in rows.scan(DONE, (channel, ssn // BLOCK))
        for joined in [row.joined(channel)]
        if any(first <= ssn < first + many for _, first, many in joined.each())
        for member in joined.members()
        if member.ssn == ssn
    ]
