"""The meaning of a step in rows: what `Image.apply` does to an image, one implementation for every store (R1).

prepared = prepare(step)                    whatever can fail for its own reasons, before anything is changed
journal = admit(rows, incarnation, number)  the fence (R10); None if this commit was made before
heads = apply(rows, step, prepared, ...)    the changes; the caller's transaction makes them one
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

from logline.engine import codec
from logline.engine.events import Head
from logline.engine.sets import own_id
from logline.engine.step import Step
from logline.errors import EngineError, Fenced
from logline.names import ERRORS, Incarnation, PortName, Serial
from logline.store import checkpoints, history, members, pins
from logline.store.history import KEPT_ANSWERS, KEPT_SETS, KeptSet, Made
from logline.store.layout import (
    ANSWERS,
    FAILURES,
    HEADS,
    JOURNAL,
    KEYED,
    PLAIN,
    RESOLVED,
    RETRYING,
    SETS,
    STATE,
    TIMERS,
    HeadRow,
    JournalRow,
    KeyRow,
    SetRow,
    TimerRow,
    answer_key,
)
from logline.store.load import journal_row, key_digest
from logline.store.members import MEMBERS, Joined
from logline.store.rows import Collector, Rows

_sets, _lineage, _errors, _reads = Step.sets.peek, Step.lineage.peek, Step.errors.peek, Step.reads.peek


class Prepared(NamedTuple):
    """What a step holds of user code's values, encoded: ids and notes that can't be logged exactly are refused."""

    ids: dict[Serial, bytes]
    """Of the sets that begin."""
    joining: list[tuple[Serial, Joined]]
    finished: list[tuple[Serial, bytes, Joined]]
    timers: list[tuple[bytes, TimerRow | None]]
    keyed: list[tuple[bytes, KeyRow | None]]


def prepare(step: Step) -> Prepared:
    """Raises CodecError, and then nothing has happened."""
    sets, encode, of = _sets(step), codec.encode, Joined.of
    ids = {serial: encode(own_id(member)) for serial, member in sets.alone.items()}
    ids |= {serial: encode(opened.id) for serial, opened in sets.opened.items()}
    joining = [(serial, of((member,))) for serial, member in sets.alone.items()]
    joining += [(serial, of(opened.members)) for serial, opened in sets.opened.items() if opened.members]
    joining += [(serial, of(joined)) for serial, joined in sets.members.items() if joined]
    finished = [(serial, encode(inset), of(joined)) for serial, inset, joined in sets.finished]
    timers = [
        (
            blake2b(codec.canonical(inset), digest_size=16).digest(),
            None if timer is None else TimerRow(encode(inset), *timer),
        )
        for inset, timer in step.timers.items()
    ]
    keyed = [
        (key_digest(raw), None if state is None else KeyRow(raw, state.value, state.touched))
        for raw, state in step.keyed.items()
    ]
    return Prepared(ids, joining, finished, timers, keyed)


def admit(rows: Rows, incarnation: Incarnation, number: int) -> JournalRow | None:
    """Whether a commit may be made now; None if it was made before and its answer got lost."""
    journal = journal_row(rows)
    if journal.incarnation != incarnation:
        raise Fenced("a newer incarnation has claimed the journal")
    if number == journal.commits:
        return None
    if number != journal.commits + 1:
        raise EngineError(f"commit {number} after commit {journal.commits}: out of turn")
    return journal


def apply(
    rows: Rows,
    step: Step,
    prepared: Prepared,
    journal: JournalRow,
    heads: Mapping[PortName, Head],
    collect: Collector,
) -> dict[PortName, Head]:
    """Changes the rows. `heads` are those of before; returns the ones that have moved.
    Order matters: sets open before they become due, and are due before they are done."""
    for part, field, _, table in PLAIN:
        where = step.__dict__.get(part) if part is not None else step
        if where is not None:
            for key, value in getattr(where, field).items():
                rows.put(table, (key,), value)
    if step.state is not None:
        rows.put(STATE, (), step.state)
    for digest, timer in prepared.timers:
        if timer is None:
            rows.delete(TIMERS, (digest,))
        else:
            rows.put(TIMERS, (digest,), timer)
    for digest, row in prepared.keyed:
        if row is None:
            rows.delete(KEYED, (digest,))
        else:
            rows.put(KEYED, (digest,), row)
    errors = _errors(step)
    for ssn, serial in errors.retrying.items():
        rows.put(RETRYING, (ssn,), serial)
    for ssn, how in errors.resolved.items():
        rows.put(RESOLVED, (ssn,), how)
        rows.delete(RETRYING, (ssn,))
    tally = Tally(journal)
    _apply_sets(rows, step, prepared, tally)
    moved = _moved(step, heads)
    for port, (base, pinned) in step.collected.items():
        head = moved[port]
        collect(port, head, base, pinned)
        if port == ERRORS:
            for ssn in (s for s in (*head.pinned, *range(head.base, base)) if s not in pinned):
                rows.delete(RESOLVED, (ssn,))
        pins.change(rows, port, head.pinned, pinned)
        head.base, head.pinned = base, set(pinned)
    for port, head in moved.items():
        rows.put(HEADS, (port,), HeadRow(head.last, head.total, head.base))
    changed = JournalRow(
        journal.format,
        journal.incarnation,
        step.number,
        max(journal.serial, _sets(step).serial),
        tally.dues,
        journal.marks + step.reopened + step.ended,
        step.left or (journal.left and not step.reopened),
        tally.sets,
        tally.checkpoints,
        tally.replay,
    )
    rows.put(JOURNAL, (), changed)
    return moved


def _moved(step: Step, heads: Mapping[PortName, Head]) -> dict[PortName, Head]:
    """The heads that the step moves, as copies: the old ones hold until the commit is through."""
    moved: dict[PortName, Head] = {}

    def head(port: PortName) -> Head:
        if port not in moved:
            old = heads.get(port)
            moved[port] = Head() if old is None else Head(old.last, old.total, old.base, old.pinned)
        return moved[port]

    for port, (last, total) in _reads(step).reveal.items():  # before the outputs, which come after them
        head(port).last, head(port).total = last, total
    newest = {output.port: output for output in step.outputs}
    for port, output in newest.items():
        head(port).last, head(port).total = output.ssn, output.total
    for port in step.collected:
        head(port)
    return moved


class Tally:
    """Numbers of sets that the journal's row has, as a step changes them (`SetCounts`). A set that is parked leaves
    them; whatever becomes of it later does not count."""

    __slots__ = ("checkpoints", "dues", "replay", "sets")

    def __init__(self, before: JournalRow) -> None:
        self.dues = before.dues
        """How many sets have become due up to now."""
        self.sets, self.checkpoints, self.replay = before.sets, before.checkpoints, before.replay

    def leaves(self, members: int, *, saved: bool) -> None:
        """A set is neither open nor due any more. `members`: those that no checkpoint covers."""
        self.sets -= 1
        self.checkpoints -= saved
        self.replay -= members


def _apply_sets(rows: Rows, step: Step, prepared: Prepared, tally: Tally) -> None:
    sets, lineage, ids = _sets(step), _lineage(step), prepared.ids
    tally.sets += len(sets.alone) + len(sets.opened)
    for serial, joined in prepared.joining:
        tally.replay += joined.many
        rows.put(MEMBERS, (serial, step.number), joined)
    for serial in sets.merged:  # what had joined it joins another set in this step (R32)
        tally.leaves(members.count(rows, serial), saved=False)
        rows.delete(SETS, (serial,))
        rows.delete_range(MEMBERS, (serial,))
    for serial, parked in sets.inherits.items():
        tally.checkpoints += checkpoints.hand_on(rows, parked, serial)
    for serial, checkpoint in sets.checkpoints.items():
        before = checkpoints.put(rows, serial, checkpoint)
        tally.checkpoints += before is None
        tally.replay -= checkpoint.covers - (before or 0)
    for serial in sets.alone:
        tally.dues += 1
        rows.put(SETS, (serial,), SetRow(ids[serial], "ready", tally.dues))
    opened = {serial: SetRow(ids[serial], None, 0, *one.kept) for serial, one in sets.opened.items()}
    for serial, row in opened.items():
        if serial not in sets.due:
            rows.put(SETS, (serial,), row)
    for serial, cause in sets.due.items():
        tally.dues += 1
        row = opened.get(serial) or _set(rows, serial)
        rows.put(SETS, (serial,), row._replace(cause=cause, due=tally.dues))
    for answers in sets.answers.values():
        for answer in answers:
            rows.put(ANSWERS, answer_key(answer), answer)
    for serial, failure in sets.failures.items():
        rows.put(FAILURES, (serial,), failure)
    for serial in sets.parked:
        row = opened.get(serial) or _set(rows, serial)
        tally.leaves(members.count(rows, serial), saved=checkpoints.has(rows, serial))
        rows.put(SETS, (serial,), row._replace(cause="parked", due=0))
        rows.delete(FAILURES, (serial,))
    made = history.made_by(step.outputs, lineage.kept)
    for serial, inset, joined in prepared.finished:
        _remember(rows, serial, inset, joined, made, sets.dropped.get(serial))
    for serial in sets.done:
        _finish(rows, serial, made, sets.dropped.get(serial), tally)
    if lineage.segment is not None or lineage.expired:
        history.put_step(rows, step.number, lineage)
    for channel, base in step.forget.items():
        members.forget(rows, channel, base)


def _set(rows: Rows, serial: Serial) -> SetRow:
    found = rows.get(SETS, (serial,))
    if found is None:
        raise EngineError(f"the journal has no set {serial}")
    return found


def _remember(rows: Rows, serial: Serial, inset: bytes, joined: Joined, made: Made, dropped: str | None) -> None:
    members.remember(rows, serial, inset, joined, dropped)
    if serial in made:
        rows.put(KEPT_SETS, (serial,), KeptSet(inset, joined, made[serial]))


def _finish(rows: Rows, serial: Serial, made: Made, dropped: str | None, tally: Tally) -> None:
    """The set leaves the image; its memberships are remembered, and its answers if lineage keeps what it made."""
    row = _set(rows, serial)
    rows.delete(SETS, (serial,))
    covered = checkpoints.drop(rows, serial)
    joined = members.take(rows, serial, covered=covered is not None)
    if row.cause != "parked":
        tally.leaves(joined.many - (covered or 0), saved=covered is not None)
    _remember(rows, serial, row.id, joined, made, dropped)
    for key, answer in list(rows.scan(ANSWERS, (serial,))):
        rows.delete(ANSWERS, key)
        if serial in made:
            rows.put(KEPT_ANSWERS, key, answer)
    rows.delete(FAILURES, (serial,))
