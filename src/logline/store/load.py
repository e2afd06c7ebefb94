"""What is asked of a journal, read from its rows: the image, and what a receiver has taken and needs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from hashlib import blake2b

from logline.engine import codec
from logline.engine.events import Head, Position
from logline.engine.history import Finished
from logline.engine.image import Image, Needs, Outline, SetCounts, Taken
from logline.engine.keyed import KeyState
from logline.engine.sets import NEVER, Answer, Kept, Member, OpenSet, Timer
from logline.errors import LogError
from logline.names import ERRORS, ChannelName, InsetId, PortName, Serial, Ssn
from logline.store import checkpoints, history, members, pins
from logline.store.encoding import FORMAT
from logline.store.history import KEPT_ANSWERS
from logline.store.layout import (
    ANSWERS,
    FAILURES,
    HEADS,
    JOURNAL,
    KEYED,
    PLAIN,
    POSITIONS,
    RESOLVED,
    RETRYING,
    SETS,
    STATE,
    TIMERS,
    WRITTEN,
    JournalRow,
)
from logline.store.members import MEMBERS
from logline.store.rows import Events, Rows


def journal_row(rows: Rows) -> JournalRow:
    """The row that every commit changes; a fresh one if the journal is new."""
    found = rows.get(JOURNAL, ())
    if found is None:
        return JournalRow()
    if found.format != FORMAT:
        raise LogError(
            f"this log has format {found.format}, this version of Logline reads {FORMAT}: "
            "finish the run with the version that began it, or begin with a fresh log"
        )
    return found


def image(rows: Rows) -> Image:
    """The image that all commits so far have made: what a claim gives to a new life (R5)."""
    found = Image(state=rows.get(STATE, ()))
    _load_outline(rows, found, found.heads)
    dues: list[tuple[int, Serial]] = []
    ids: dict[bytes, InsetId] = {}
    for (serial,), opened in rows.scan(SETS):
        inset = ids[opened.id] = codec.decode(opened.id)
        kept = Kept(opened.kept, opened.seen) if opened.kept else NEVER
        found.sets[serial] = OpenSet(inset, [], opened.cause, kept=kept)
        if opened.due:
            dues.append((opened.due, serial))
    found.due = [serial for _, serial in sorted(dues)]
    for (serial, _), joined in rows.scan(MEMBERS):
        found.sets[serial].members += joined.members()
    for serial, checkpoint in checkpoints.load(rows):
        found.sets[serial].checkpoint = checkpoint
    for _, timer in rows.scan(TIMERS):
        known = ids.get(timer.id)  # most timers are of open sets
        inset = codec.decode(timer.id) if known is None else known
        found.timers[inset] = Timer(timer.at, timer.clock, timer.span)
    for (serial, _, _), answer in rows.scan(ANSWERS):
        found.answers.setdefault(serial, []).append(answer)
    found.failures = {serial: failure for (serial,), failure in rows.scan(FAILURES)}
    found.segments = {segment.number: segment for segment in history.segments(rows)}
    return found


def outline(rows: Rows) -> Outline:
    """What of the image does not grow with its sets. It reads no row of a set, of a member or of a timer."""
    found = Outline()
    _load_outline(rows, found, (ERRORS,))
    return found


def _load_outline(rows: Rows, found: Outline, pinned: Collection[PortName]) -> None:
    """`pinned`: the ports whose pinned events are wanted, which are as many as open sets have members."""
    journal = journal_row(rows)
    found.commits, found.serial = journal.commits, journal.serial
    found.marks, found.left = journal.marks, journal.left
    for plain in PLAIN:
        getattr(found, plain.into).update((key, value) for (key,), value in rows.scan(plain.table))
    for (port,), row in rows.scan(HEADS):
        found.heads[port] = Head(row.last, row.total, row.base)
    for port, known in found.heads.items():
        if known.base > 1 and port in pinned:
            known.pinned = pins.of(rows, port)
    found.retrying = {ssn: serial for (ssn,), serial in rows.scan(RETRYING)}
    found.resolved = {ssn: "retried" if how is True else how for (ssn,), how in rows.scan(RESOLVED)}


def gathering(rows: Rows) -> list[InsetId]:
    """The sets whose timer comes after a span of time. Of the others no id is decoded, and there may be many."""
    return [codec.decode(timer.id) for _, timer in rows.scan(TIMERS) if timer.span > 0]


def count_sets(rows: Rows) -> SetCounts:
    """How many sets there are, from the one row that has it."""
    journal = journal_row(rows)
    return SetCounts(journal.sets, journal.checkpoints, journal.replay)


def keyed(rows: Rows) -> dict[bytes, KeyState]:
    """The states of all keys (R31). There may be millions: a claim puts them into its image, other readers do not."""
    return {raw: KeyState(value, touched) for _, (raw, value, touched) in rows.scan(KEYED)}


def key_state(rows: Rows, raw: bytes) -> KeyState | None:
    """The state of one key."""
    found = rows.get(KEYED, (key_digest(raw),))
    return None if found is None else KeyState(found.value, found.touched)


def key_digest(raw: bytes) -> bytes:
    """What stands for a key of any length."""
    return blake2b(raw, digest_size=16).digest()


def head(rows: Rows, port: PortName) -> Head:
    """A port's head without what is pinned, which may be a lot."""
    row = rows.get(HEADS, (port,))
    return Head() if row is None else Head(row.last, row.total, row.base)


def has(rows: Rows, port: PortName, known: Head, ssn: int) -> bool:
    """Whether an event is visible and not collected; it may lie there all the same."""
    return ssn <= known.last if ssn >= known.base else pins.has(rows, port, ssn)


def stored(rows: Rows, port: PortName) -> list[Ssn]:
    """The SSNs that are visible and not collected."""
    known = head(rows, port)
    return [*sorted(pins.of(rows, port)), *(Ssn(ssn) for ssn in range(known.base, known.last + 1))]


def taken(rows: Rows, channel: ChannelName) -> Taken:
    """How far the receiver is on a channel (R13)."""
    position: Position | None = rows.get(POSITIONS, (channel,))
    return Taken(position or Position())


def needs(rows: Rows, events: Events, channel: ChannelName) -> Needs:
    """What the receiver still needs of a channel (R12, R13)."""
    (position,) = taken(rows, channel)
    needed = members.needed(rows, channel)
    lows = [low for low in (history.low(rows, channel), checkpoints.low(rows, channel)) if low is not None]
    return Needs(position, needed, min(lows, default=None), unwritten(rows, events, channel))


def unwritten(rows: Rows, events: Events, channel: ChannelName) -> Ssn | None:
    """The first event that a write passes on which is not known to be done."""
    found: list[int] = []
    for (port,), _ in rows.scan(HEADS):
        if port[0] == "@":
            done: int = rows.get(WRITTEN, (port[1:],)) or 0
            found += events.passed(port, done + 1, channel)
    return Ssn(min(found)) if found else None


def done_sets(rows: Rows) -> Iterator[Finished]:
    """Memberships of done sets that are still remembered, in the order of their serials."""
    found: dict[Serial, tuple[InsetId, list[Member]]] = {}
    for serial, inset, joined in members.remembered(rows):
        found.setdefault(serial, (inset, []))[1].extend(joined)
    known = {finished.serial: finished for finished in history.every(rows)}
    for serial in sorted({*found, *known}):
        if rows.get(SETS, (serial,)) is not None:
            continue  # it is parked: what lineage keeps of its error has it as a set too
        inset, rest = found.get(serial, ("", []))
        yield known.get(serial) or Finished(serial, inset, tuple(rest))


def answers(rows: Rows, serial: Serial) -> list[Answer]:
    """The answers of a set that is due, or is done and kept."""
    return [answer for table in (ANSWERS, KEPT_ANSWERS) for _, answer in rows.scan(table, (serial,))]
