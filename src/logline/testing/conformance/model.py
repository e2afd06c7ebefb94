"""What a journal must hold, said without a store: the image by `Image.apply`, the rows and the memberships.

`Scribe` writes to a journal and to the model alike; `check` holds a reader against the model, as exactly as the
seam promises: the order of members, of sets and of what is due counts; the order of timers and of a set's answers
does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pyarrow as pa
import pytest

from logline.engine import codec
from logline.engine.events import Head, Output, Position
from logline.engine.history import Finished, Membership
from logline.engine.image import Image, Needs, Outline, SetCounts
from logline.engine.sets import Answer, Member, own_id
from logline.engine.step import Step
from logline.errors import Collected
from logline.names import ERRORS, OUT, ChannelName, InsetId, InstanceName, PortName, Serial, Ssn
from logline.store.seam import Journal, Reader, Store

ALL = 1 << 30
"""No limit."""


@dataclass
class Model:
    """What one journal must hold, kept in plain dicts."""

    image: Image = field(default_factory=Image)
    rows: dict[PortName, dict[Ssn, Output]] = field(default_factory=dict)
    """Visible and not collected."""
    staged: dict[PortName, list[Output]] = field(default_factory=dict)
    """Rows above the head that belong to the read under way; what an older try left behind is not among them."""
    covered: dict[Serial, list[Member]] = field(default_factory=dict)
    """The members that checkpoints of open sets cover."""
    done: dict[tuple[ChannelName, Ssn, Serial], tuple[InsetId, list[Any]]] = field(default_factory=dict)
    """With the note of each membership: a set that was merged may have an event more than once."""
    dropped: dict[Serial, str] = field(default_factory=dict)
    """Why sets were dropped, for as long as a membership of them is in `done`."""
    forgotten: dict[ChannelName, Ssn] = field(default_factory=dict)
    """Where a channel was last told to forget; it only rises."""
    kept: dict[Serial, Finished] = field(default_factory=dict)
    """Sets whose history a lineage scope keeps."""
    made: dict[Serial, list[tuple[PortName, Ssn]]] = field(default_factory=dict)
    answers: dict[Serial, list[Answer]] = field(default_factory=dict)
    runs: set[Serial] = field(default_factory=set)
    """Those of them that are in runs."""
    segments: dict[Serial, int] = field(default_factory=dict)
    """The segment of each kept set."""

    def apply(self, step: Step) -> None:
        """The step is committed."""
        self._show(step)
        over = list(step.sets.finished)
        for serial in step.sets.done:
            opened, covered = self.image.sets[serial], self.covered.get(serial, [])
            joined = step.sets.members.get(serial, ())
            over.append(Finished(serial, opened.id, (*covered, *opened.members, *joined)))
        for finished in over:
            self._remember(*finished)
        self.dropped |= step.sets.dropped
        self._expire(step.lineage.expired)
        self._keep(step, over)
        self._cover(step)
        self.image.apply(step)
        self.image.commits = step.number
        for port, (base, pinned) in step.collected.items():
            rows = self.rows.get(port, {})
            self.rows[port] = {s: row for s, row in rows.items() if s >= base or s in pinned}
        for channel, base in step.forget.items():
            self.done = {key: v for key, v in self.done.items() if key[0] != channel or key[1] >= base}
            self.forgotten[channel] = base

    def _cover(self, step: Step) -> None:
        """Which members checkpoints cover (R22)."""
        for serial, parked in step.sets.inherits.items():
            self.covered[serial] = list(self.covered.get(parked, ()))
        for serial, checkpoint in step.sets.checkpoints.items():
            known, opened = self.covered.get(serial, []), self.image.sets.get(serial)
            begun = step.sets.opened.get(serial)
            there = [] if opened is None else opened.members
            joined = step.sets.members.get(serial, []) if begun is None else begun.members
            self.covered[serial] = [*known, *there, *joined][: checkpoint.covers]
        for serial in step.sets.done:
            self.covered.pop(serial, None)

    def _show(self, step: Step) -> None:
        for row in step.reads.staged:
            kept = [known for known in self.staged.get(row.port, ()) if known.ssn < row.ssn]
            self.staged[row.port] = [*kept, row]
        for port, (last, _) in step.reads.reveal.items():
            waiting = self.staged[port]
            self.rows.setdefault(port, {}).update({row.ssn: row for row in waiting if row.ssn <= last})
            self.staged[port] = [row for row in waiting if row.ssn > last]
        for output in step.outputs:
            self.rows.setdefault(output.port, {})[output.ssn] = output

    def _remember(self, serial: Serial, inset: InsetId, members: Iterable[Member]) -> None:
        for member in members:
            self.done.setdefault((member.channel, member.ssn, serial), (inset, []))[1].append(member.note)

    def _keep(self, step: Step, over: list[Finished]) -> None:
        found = [finished for finished in over if finished.serial in step.lineage.kept]
        for run in step.lineage.lone:
            for serial in map(Serial, range(run.serial, run.serial + run.count)):
                found.append(Finished(serial, own_id(run.member(serial)), (run.member(serial),)))
                self.runs.add(serial)
        for finished in found:
            assert step.lineage.segment is not None
            serial = finished.serial
            self.kept[serial], self.segments[serial] = finished, step.lineage.segment.number
            self.made[serial] = [(o.port, o.ssn) for o in step.outputs if o.serial == serial]
            self.answers[serial] = list(self.image.answers.get(serial, ()))

    def _expire(self, upto: int) -> None:
        for serial in [s for s, number in self.segments.items() if number <= upto]:
            for known in (self.kept, self.made, self.answers, self.segments):
                del known[serial]
            self.runs.discard(serial)

    def needs(self, channel: ChannelName) -> Needs:
        """What the receiver still needs of a channel."""
        members = [m.ssn for o in self.image.sets.values() for m in o.members if m.channel == channel]
        saved = [o.checkpoint for o in self.image.sets.values() if o.checkpoint is not None]
        lows = [self.image.low(channel), *(checkpoint.lows.get(channel) for checkpoint in saved)]
        low = min((low for low in lows if low is not None), default=None)
        return Needs(self.image.positions.get(channel, Position()), members, low)


class Scribe:
    """One life that writes to a journal, and to the model of it."""

    def __init__(self, store: Store, instance: InstanceName, model: Model | None = None) -> None:
        self.instance = instance
        self.journal: Journal = store.claim(instance)
        self.model = model if model is not None else Model()
        self.reader: Reader = store.read(instance)

    def number(self, step: Step) -> Step:
        """Gives the step its turn."""
        step.number = self.model.image.commits + 1
        return step

    def commit(self, step: Step) -> Step:
        """Commits it as the next one."""
        self.journal.commit(self.number(step))
        self.model.apply(step)
        return step

    def emit(self, count: int = 1, port: PortName = OUT, nbytes: int = 10, *, end: bool = False) -> Step:
        """A step of outputs, not committed."""
        head = self.model.image.heads.get(port, Head())
        rows = [row(port, head.last + k, head.total + k * nbytes, nbytes) for k in range(1, count + 1)]
        if end:
            last = head.total + count * nbytes
            rows.append(Output(port, Ssn(head.last + count + 1), None, 0, 0, last, Serial(0), "end"))
        return Step(outputs=rows)

    def check(self) -> None:
        """The journal holds what the model holds."""
        check(self.reader, self.model)


def step_of(**fields: Any) -> Step:
    """A step with these fields, wherever they are in it: `step_of(state=b"s", done=[Serial(1)])`."""
    step = Step()
    for name, value in fields.items():
        parts = (step, step.sets, step.lineage, step.errors, step.reads, step.writes)
        (where,) = [part for part in parts if name in type(part).__dataclass_fields__]
        setattr(where, name, value)
    return step


# ---- rows ---------------------------------------------------------------------------------------------------


def batch(*numbers: int) -> pa.RecordBatch:
    """A payload with these numbers in one column, `n`."""
    return pa.record_batch({"n": pa.array(numbers, pa.int64())})


def row(port: PortName, ssn: int, total: int, nbytes: int, *, serial: int = 0, payload: Any = None) -> Output:
    """An event as it is logged; the payload tells it from any other unless one is given."""
    found = batch(ssn, total) if payload is None else payload
    return Output(port, Ssn(ssn), found, found.num_rows, nbytes, total, Serial(serial))


def exact_row(output: Output) -> tuple[Any, ...]:
    """An event in a form in which equal means the same: NaN, metadata and rows without columns included."""
    payload = output.payload
    if payload is not None:
        assert isinstance(payload, pa.RecordBatch)
        payload.validate(full=True)
        payload = (
            payload.num_rows,
            payload.schema.to_string(),
            payload.schema.metadata,
            repr(payload.to_pylist()),
        )
    return (*output._replace(payload=payload),)


def exact_rows(outputs: Iterable[Output]) -> list[tuple[Any, ...]]:
    """The same for several."""
    return [exact_row(output) for output in outputs]


# ---- images -------------------------------------------------------------------------------------------------


def _member(member: Member) -> tuple[Any, ...]:
    return member.channel, member.ssn, codec.encode(member.note)


def exact(image: Image) -> dict[str, Any]:
    """An image in a form in which equal means the same: 1 is not True, a tuple is no list, a zone is kept."""
    return {
        "commits": image.commits,
        "positions": dict(image.positions),
        "heads": {p: (h.last, h.total, h.base, h.pinned) for p, h in image.heads.items() if h != Head()},
        "sets": [
            (s, codec.encode(o.id), list(map(_member, o.members)), o.cause, o.kept, o.checkpoint)
            for s, o in image.sets.items()
        ],
        "due": list(image.due),
        "serial": image.serial,
        "state": image.state,
        "clock": dict(image.clock),
        "timers": {codec.encode(inset): timer for inset, timer in image.timers.items()},
        "answers": {serial: sorted(answers) for serial, answers in image.answers.items()},
        "failures": dict(image.failures),
        "retrying": dict(image.retrying),
        "resolved": dict(image.resolved),
        "written": dict(image.written),
        "reads": dict(image.reads),
        "segments": dict(image.segments),
        "marks": image.marks,
        "left": image.left,
    }


def exact_history(found: Iterable[Finished]) -> dict[Serial, tuple[bytes, list[tuple[Any, ...]]]]:
    """Done sets by serial; no set twice."""
    sets: dict[Serial, tuple[bytes, list[tuple[Any, ...]]]] = {}
    for serial, inset, members in found:
        assert serial not in sets
        sets[serial] = (codec.encode(inset), sorted(map(_member, members)))
    return sets


def _wanted_history(model: Model) -> dict[Serial, tuple[bytes, list[tuple[Any, ...]]]]:
    sets: dict[Serial, Finished] = {}
    for (channel, ssn, serial), (inset, notes) in model.done.items():
        known = sets.get(serial, Finished(serial, inset, ()))
        sets[serial] = known._replace(members=(*known.members, *(Member(channel, ssn, note) for note in notes)))
    return exact_history((sets | model.kept).values())


def _check_kept(reader: Reader, model: Model) -> None:
    """What a lineage query asks, one by one."""
    ports = list(model.rows)
    for serial, finished in model.kept.items():
        found = reader.inset(serial)
        assert found is not None
        assert exact_history([found]) == exact_history([finished])
        there = [(port, ssn) for port, ssn in model.made[serial] if ssn in model.rows[port]]
        made = reader.made_from(serial, ports)
        assert sorted(m for m in made if m[1] in model.rows[m[0]]) == sorted(there)
        assert set(made) <= set(model.made[serial])
        assert sorted(reader.answers(serial)) == sorted(model.answers[serial])
        for member in finished.members:
            if serial in model.runs or (member.channel, member.ssn, serial) in model.done:
                assert serial in reader.insets_of(member.channel, member.ssn)
    for channel, ssn, serial in model.done:
        assert serial in reader.insets_of(channel, ssn)
        known = [m for m in reader.memberships(channel, ssn) if m.serial == serial]
        inset, notes = model.done[channel, ssn, serial]
        wanted = [Membership(serial, inset, note, model.dropped.get(serial)) for note in notes]
        assert [list(map(codec.encode, m[1:])) for m in known] == [list(map(codec.encode, m[1:])) for m in wanted]
    for number in range(1, model.image.serial + 2):
        if number not in model.kept:
            assert reader.inset(Serial(number)) is None


def _outline(image: Image) -> Outline:
    """What an outline has of an image."""
    found = Outline(**{known.name: getattr(image, known.name) for known in fields(Outline)})
    heads = {port: head if port == ERRORS else replace(head, pinned=set()) for port, head in image.heads.items()}
    return replace(found, heads=heads)


def check(reader: Reader, model: Model) -> None:
    """Everything a reader can be asked, against the model."""
    assert exact(reader.image()) == exact(model.image)
    assert reader.count_sets() == SetCounts.of(model.image)
    spans = [codec.encode(inset) for inset, timer in model.image.timers.items() if timer.is_span]
    assert sorted(map(codec.encode, reader.gathering())) == sorted(spans)
    assert reader.outline() == _outline(model.image)
    assert reader.keyed() == model.image.keyed
    assert reader.count_keys() == len(model.image.keyed)
    assert all(reader.key_state(raw) == state for raw, state in model.image.keyed.items())
    assert exact_history(reader.history()) == _wanted_history(model)
    for serial, opened in model.image.sets.items():
        assert list(map(_member, reader.covered(serial))) == list(map(_member, model.covered.get(serial, ())))
        row = reader.checkpoints().get(serial)
        saved = opened.checkpoint
        assert (row and (row.covers, row.nbytes)) == (saved and (saved.covers, len(saved.state)))
    for channel, position in model.image.positions.items():
        found, wanted = reader.needs(channel), model.needs(channel)
        assert sorted(found.members) == sorted(wanted.members)
        assert (found.position, found.low) == (position, wanted.low)
        assert reader.taken(channel) == (position,)
    _check_kept(reader, model)
    for port, head in model.image.heads.items():
        assert reader.head(port) == head
        assert reader.base(port) == head.base
        rows = model.rows.get(port, {})
        assert list(reader.stored(port)) == sorted(rows)
        assert exact_rows(reader.pick(port, sorted(rows))) == exact_rows(rows[s] for s in sorted(rows))
        asked = [Ssn(s) for s in range(1, head.last + 2)]
        bare = [rows[s]._replace(payload=None, same=None) if s in rows else None for s in asked]
        assert list(reader.headers(port, asked)) == bare
        _check_events(reader, port, head, rows)


def _check_events(reader: Reader, port: PortName, head: Head, rows: dict[Ssn, Output]) -> None:
    after = Ssn(head.base - 1)
    found = read_on(reader, port, after)
    assert exact_rows(found) == exact_rows(rows[Ssn(s)] for s in range(head.base, head.last + 1))
    gone = next((Ssn(s) for s in range(head.base - 1, 0, -1) if s not in rows), None)
    if gone is not None:
        with pytest.raises(Collected):
            reader.events(port, Ssn(gone - 1), limit=ALL, max_bytes=ALL)
        with pytest.raises(Collected):
            reader.pick(port, [gone])


def read_on(reader: Reader, port: PortName, after: Ssn, limit: int = 3, max_bytes: int = ALL) -> Sequence[Output]:
    """Reads as a receiver does, until there is nothing more; within the limits and without gaps."""
    found: list[Output] = []
    while events := reader.events(port, after, limit=limit, max_bytes=max_bytes):
        assert len(events) <= limit
        assert [e.ssn for e in events] == list(range(after + 1, after + len(events) + 1))
        assert sum(e.nbytes for e in events[:-1]) < max_bytes  # one more than that would have been enough
        found += events
        after = events[-1].ssn
    return found
