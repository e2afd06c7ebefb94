"""Steps and images as bytes. What a life leaves behind is bytes, in every store, the memory store included:
a later life can't be handed an object that an earlier one still holds.

Payloads are not in here; a store keeps them in its own way.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from logline.engine import codec
from logline.engine.events import Collection, Head, Position
from logline.engine.history import Finished, Lone, Segment
from logline.engine.image import Image
from logline.engine.progress import Progress
from logline.engine.results import Failure
from logline.engine.sets import Answer, Member, OpenSet, Timer
from logline.engine.step import Step
from logline.errors import LogError
from logline.names import Serial, Ssn

FORMAT = 5
"""The version of this encoding; a log written with another one is refused."""

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode


def _members(members: Iterable[Member]) -> list[Any]:
    return [(m.channel, m.ssn, None if m.note is None else codec.encode(m.note)) for m in members]


def _read_members(raw: list[Any]) -> list[Member]:
    return [Member(c, s, None if n is None else codec.decode(n)) for c, s, n in raw]


def _failure(failure: Failure) -> tuple[Any, ...]:
    return failure.kind, failure.message, failure.traceback, failure.retryable


def _sets(sets: dict[Serial, OpenSet]) -> list[Any]:
    return [(s, codec.encode(o.id), _members(o.members), o.cause) for s, o in sets.items()]


def _read_sets(raw: list[Any]) -> dict[Serial, OpenSet]:
    return {s: OpenSet(codec.decode(i), _read_members(m), c) for s, i, m, c in raw}


def _progress(raw: list[Any]) -> Progress:
    return Progress(*raw)._replace(unconfirmed=tuple(raw[-1]))


def read_segment(raw: list[Any]) -> Segment:
    """A segment of the history, as it is packed."""
    number, began, at, ports, lows = raw
    return Segment(number, began, at, {p: (ssn, total) for p, (ssn, total) in ports.items()}, lows)


def encode_step(step: Step) -> bytes:
    """The image side of a step: everything but outputs and staged rows."""
    return _pack(
        [
            FORMAT,
            step.number,
            step.reads.reveal,
            step.positions,
            list(_members(step.sets.alone.values())),
            list(step.sets.alone),
            _sets(step.sets.opened),
            {s: _members(m) for s, m in step.sets.members.items()},
            step.sets.due,
            step.sets.parked,
            step.errors.resolved,
            step.sets.done,
            [(f.serial, codec.encode(f.id), _members(f.members)) for f in step.sets.finished],
            step.sets.serial,
            step.state,
            step.clock,
            [(codec.encode(i), t) for i, t in step.timers.items()],
            step.sets.answers,
            {s: _failure(f) for s, f in step.sets.failures.items()},
            step.writes.written,
            step.reads.progress,
            {p: (c.base, sorted(c.pinned)) for p, c in step.collected.items()},
            step.forget,
            step.lineage.kept,
            [(run.serial, run.channel, run.ssn, run.count) for run in step.lineage.lone],
            step.lineage.segment,
            step.lineage.expired,
            step.ended,
            step.left,
        ]
    )


def decode_step(raw: bytes) -> Step:
    """The inverse of `encode_step`; outputs and staged rows are empty."""
    fields = _unpack(raw)
    if fields[0] != FORMAT:
        raise LogError(f"this log has format {fields[0]}, this version of Logline reads {FORMAT}")
    (
        number,
        reveal,
        positions,
        alone,
        alone_serials,
        opened,
        members,
        due,
        parked,
        resolved,
        done,
        finished,
        serial,
        state,
        clock,
        timers,
        answers,
        failures,
        written,
        reads,
        collected,
        forget,
        kept,
        lone,
        segment,
        expired,
        ended,
        left,
    ) = fields[1:]
    step = Step()
    step.number = number
    step.reads.reveal = {p: (s, t) for p, (s, t) in reveal.items()}
    step.positions = {c: Position(*p) for c, p in positions.items()}
    step.sets.alone = dict(zip(alone_serials, _read_members(alone), strict=True))
    step.sets.opened = _read_sets(opened)
    step.sets.members = {s: _read_members(m) for s, m in members.items()}
    step.sets.due = due
    step.sets.parked = parked
    step.errors.resolved = resolved
    step.sets.done = done
    step.sets.finished = [Finished(s, codec.decode(i), tuple(_read_members(m))) for s, i, m in finished]
    step.sets.serial = serial
    step.state = state
    step.clock = clock
    step.timers = {codec.decode(i): None if t is None else Timer(*t) for i, t in timers}
    step.sets.answers = {s: [Answer(*a) for a in found] for s, found in answers.items()}
    step.sets.failures = {s: Failure(*f) for s, f in failures.items()}
    step.writes.written = written
    step.reads.progress = {p: _progress(r) for p, r in reads.items()}
    step.collected = {p: Collection(b, frozenset(k)) for p, (b, k) in collected.items()}
    step.forget = forget
    step.lineage.kept = kept
    step.lineage.lone = [Lone(*run) for run in lone]
    step.lineage.segment = None if segment is None else read_segment(segment)
    step.lineage.expired = expired
    step.ended = ended
    step.left = left
    return step


def encode_image(image: Image) -> bytes:
    """A whole image; used when an instance is claimed."""
    return _pack(
        [
            FORMAT,
            image.commits,
            image.positions,
            {p: (h.last, h.total, h.base, sorted(h.pinned)) for p, h in image.heads.items()},
            _sets(image.sets),
            image.due,
            image.serial,
            image.state,
            image.clock,
            [(codec.encode(i), t) for i, t in image.timers.items()],
            image.answers,
            {s: _failure(f) for s, f in image.failures.items()},
            sorted(image.resolved),
            image.written,
            image.reads,
            list(image.segments.values()),
            image.ended,
            image.left,
        ]
    )


def decode_image(raw: bytes) -> Image:
    """The inverse of `encode_image`."""
    (
        _,
        commits,
        positions,
        heads,
        sets,
        due,
        serial,
        state,
        clock,
        timers,
        answers,
        failures,
        resolved,
        written,
        reads,
        segments,
        ended,
        left,
    ) = _unpack(raw)
    return Image(
        commits=commits,
        positions={c: Position(*p) for c, p in positions.items()},
        heads={p: Head(Ssn(a), t, Ssn(b), set(k)) for p, (a, t, b, k) in heads.items()},
        sets=_read_sets(sets),
        due=due,
        serial=serial,
        state=state,
        clock=clock,
        timers={codec.decode(i): Timer(*t) for i, t in timers},
        answers={s: [Answer(*a) for a in found] for s, found in answers.items()},
        failures={s: Failure(*f) for s, f in failures.items()},
        resolved=set(resolved),
        written=written,
        reads={p: _progress(r) for p, r in reads.items()},
        segments={found[0]: read_segment(found) for found in segments},
        ended=ended,
        left=left,
    )
