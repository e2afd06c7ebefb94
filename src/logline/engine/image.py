"""What an instance is: its image, everything that a later life starts from (R1).

It holds positions, open sets with their members, due sets, global state, timers, answers, write and read progress.
`Image.apply` is what a step means. The engine and the simulator use it as it is; the stores do the same to rows
(`store/apply.py`), and the conformance suite holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from logline.engine.clock import SHOWN, marks_key, port_marks_key
from logline.engine.events import Head, Position
from logline.engine.history import Segment
from logline.engine.keyed import KeyState
from logline.engine.merging import replacing
from logline.engine.progress import Progress
from logline.engine.results import Failure, Outcome
from logline.engine.sets import Answer, OpenSet, Timer, own_id
from logline.engine.step import Step
from logline.names import (
    ERRORS,
    ChannelName,
    Incarnation,
    InsetId,
    PartitionName,
    PortName,
    Serial,
    Ssn,
    TargetName,
)

_REPLACING = replacing(Step)
"""The fields of a step whose entries replace those of the image, and mean nothing else."""


@dataclass(slots=True)
class Outline:
    """What of an image does not grow with open sets, timers and keys: how far an instance is. Whoever only looks asks
    for this (`Reader.outline`), and for numbers of sets (`SetCounts`)."""

    commits: int = 0
    positions: dict[ChannelName, Position] = field(default_factory=dict)
    heads: dict[PortName, Head] = field(default_factory=dict)
    """An outline alone says what is pinned on port `errors` only; an image says it of every port."""
    serial: Serial = Serial(0)
    clock: dict[ChannelName, int] = field(default_factory=dict)
    retrying: dict[Ssn, Serial] = field(default_factory=dict)
    """Events on port `errors` whose diverted set is on its way again, and the set it is now."""
    resolved: dict[Ssn, Outcome] = field(default_factory=dict)
    """Events on port `errors` that were retried or dropped and are not collected yet, and how each was settled."""
    written: dict[TargetName, int] = field(default_factory=dict)
    reads: dict[PartitionName, Progress] = field(default_factory=dict)
    marks: int = 0
    """How many marks each port has: the end, that it was taken back, the next end, and so on (R11, R11'). Watermarks
    do not count."""
    left: bool = False

    @property
    def ended(self) -> bool:
        """Whether the last mark is an end."""
        return self.marks % 2 == 1

    def head(self, port: PortName) -> Head:
        """The port's head; a port that has put out nothing has one too."""
        found = self.heads.get(port)
        return found if found is not None else self.heads.setdefault(port, Head())

    @property
    def port_time(self) -> int | None:
        """How far event time is, as the ports have said it; None if they have none (R30)."""
        return self.clock.get(SHOWN)

    def put_out(self, port: PortName) -> int:
        """How many events the port has put out; marks are none."""
        return self.head(port).last - self.marks - self.clock.get(port_marks_key(port), 0)

    def taken(self, channel: ChannelName) -> int:
        """How many events were taken of the channel; marks are none."""
        at = self.positions.get(channel, Position())
        return at.ssn - at.marks - self.clock.get(marks_key(channel), 0)

    @property
    def unsettled_errors(self) -> int:
        """Events on port `errors` that wait to be retried or dropped, or are being retried; a mark is none."""
        return self.head(ERRORS).stored - len(self.resolved) - int(self.ended) if ERRORS in self.heads else 0


@dataclass(slots=True)
class Image(Outline):
    """Everything a later life starts from."""

    sets: dict[Serial, OpenSet] = field(default_factory=dict)
    due: list[Serial] = field(default_factory=list)
    state: bytes | None = None
    timers: dict[InsetId, Timer] = field(default_factory=dict)
    keyed: dict[bytes, KeyState] = field(default_factory=dict)
    """The states of keys (R31). A claim has them; other readers ask for them alone, since there may be millions."""
    answers: dict[Serial, list[Answer]] = field(default_factory=dict)
    failures: dict[Serial, Failure] = field(default_factory=dict)
    segments: dict[int, Segment] = field(default_factory=dict)

    def apply(self, step: Step) -> None:
        """The meaning of a step. Order matters: sets open before they become due, and are due before done."""
        for port, (last, total) in Step.reads.peek(step).reveal.items():  # before the outputs, which come after them
            head = self.head(port)
            head.last, head.total = last, total
        for output in step.outputs:
            head = self.head(output.port)
            head.last, head.total = output.ssn, output.total
        for part, name, into in _REPLACING:
            where = step if part is None else step.__dict__.get(part)
            entries = getattr(where, name, None)
            if entries:
                getattr(self, into).update(entries)
        self._apply_sets(step)
        if step.state is not None:
            self.state = step.state
        for inset, timer in step.timers.items():
            if timer is None:
                self.timers.pop(inset, None)
            else:
                self.timers[inset] = timer
        for raw, state in step.keyed.items():
            if state is None:
                self.keyed.pop(raw, None)
            else:
                self.keyed[raw] = state
        errors = Step.errors.peek(step)
        self.retrying.update(errors.retrying)
        self.resolved.update(errors.resolved)
        for ssn in errors.resolved:
            self.retrying.pop(ssn, None)
        for port, (base, pinned) in step.collected.items():
            head = self.head(port)
            head.base, head.pinned = base, set(pinned)
            if port == ERRORS:
                self.resolved = {ssn: how for ssn, how in self.resolved.items() if ssn >= base or ssn in pinned}
        lineage = Step.lineage.peek(step)
        segment, expired = lineage.segment, lineage.expired
        if segment is not None:
            self.segments[segment.number] = segment
        if expired:
            self.segments = {number: s for number, s in self.segments.items() if number > expired}
        self.marks += step.reopened + step.ended
        self.left = step.left or (self.left and not step.reopened)

    def low(self, channel: ChannelName) -> Ssn | None:
        """The first event of the channel that the kept history leads to (R12)."""
        return min((s.lows[channel] for s in self.segments.values() if channel in s.lows), default=None)

    def _apply_sets(self, step: Step) -> None:
        sets = Step.sets.peek(step)
        self.serial = max(self.serial, sets.serial)
        for serial, member in sets.alone.items():
            self.sets[serial] = OpenSet(own_id(member), [member], "ready")
            self.due.append(serial)
        for serial, opened in sets.opened.items():
            parked = self.sets.get(sets.inherits[serial]) if serial in sets.inherits else None
            saved = None if parked is None else parked.checkpoint
            self.sets[serial] = replace(opened, members=list(opened.members), checkpoint=saved)
        for serial, members in sets.members.items():
            self.sets[serial].members.extend(members)
        for serial in sets.merged:  # its members are among those of another set by now (R32)
            del self.sets[serial]
        for serial, checkpoint in sets.checkpoints.items():
            self.sets[serial].cover(checkpoint)
        for serial, cause in sets.due.items():
            self.sets[serial].cause = cause
            self.due.append(serial)
        for serial, answers in sets.answers.items():
            self.answers.setdefault(serial, []).extend(answers)
        self.failures.update(sets.failures)
        for serial in sets.parked:
            self.sets[serial].cause = "parked"
            self.failures.pop(serial, None)
        if sets.done or sets.parked:
            gone = {*sets.done, *sets.parked}
            self.due = [serial for serial in self.due if serial not in gone]
            for serial in sets.done:
                del self.sets[serial]
                self.answers.pop(serial, None)
                self.failures.pop(serial, None)


class SetCounts(NamedTuple):
    """How many sets an instance has that are open or due, without those that are parked. A journal keeps these
    numbers in the row that every commit writes, so that nobody has to look at the sets to know them."""

    sets: int = 0
    checkpoints: int = 0
    """How many of them have a checkpoint."""
    replay: int = 0
    """Their members that no checkpoint covers: what a recovery takes in again (R22)."""

    @classmethod
    def of(cls, image: Image) -> SetCounts:
        """What the numbers mean.

        >>> from logline.engine.sets import Member
        >>> sets = {Serial(1): OpenSet("a", [Member(ChannelName("x.out>y.in"), Ssn(1))]), Serial(2): OpenSet("b")}
        >>> SetCounts.of(Image(sets=sets))
        SetCounts(sets=2, checkpoints=0, replay=1)
        """
        found = [opened for opened in image.sets.values() if opened.cause != "parked"]
        saved = sum(opened.checkpoint is not None for opened in found)
        return cls(len(found), saved, sum(len(opened.members) for opened in found))


class Taken(NamedTuple):
    """How far a receiver is on a channel, as its journal says (R13)."""

    position: Position


class Needs(NamedTuple):
    """What a receiver still needs of a channel, as its journal says (R12, R13)."""

    position: Position
    members: Sequence[Ssn]
    """Members of its open sets, in any order."""
    low: Ssn | None = None
    """Lineage: what it put out and still keeps was made of events from here on; None if of none."""
    unwritten: Ssn | None = None
    """Write actions that are not known to be done pass on events from here on (`Output.same`); None if none does."""


class Claim(NamedTuple):
    """What `claim` returns: a new incarnation and the image it starts from."""

    incarnation: Incarnation
    image: Image
