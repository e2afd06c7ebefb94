"""What an instance is (its image), and the indivisible changes of it (steps). R1 is about these two.

The image holds exactly what a later life needs: positions, open sets with their members, due sets, global
state, timers, answers, write and read progress. A `Step` says what changes; `Image.apply` is the one meaning
of a step, shared by the machine, every store and every test. A commit holds one or more whole steps, merged.

A set that begins and ends within one step never reaches the image: `Step.open` and `Step.close` cancel out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, NamedTuple

from logline.engine.results import Failure
from logline.graph.operator import Cause, Clock
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
    event_name,
    sender_of,
)

ReadStatus = Literal["incomplete", "complete", "done"]
SetCause = Cause | Literal["parked"]
"""Why a set is due; or that it failed for good, is on port `errors`, and waits to be retried or dropped."""


class Output(NamedTuple):
    """An event or a write action as it is logged: a batch with small headers (R1)."""

    port: PortName
    ssn: Ssn
    payload: Any
    """The batch; None for the end of the stream."""
    rows: int
    nbytes: int
    total: int
    """Bytes of the port up to and including this event: what back-pressure counts (R13)."""
    serial: Serial
    """The input set it was made from, 0 if none."""
    end: bool = False
    same: Member | None = None
    """Of a write action that passes an event on: that event, which a store may keep instead of a copy. The event is
    needed until the write is known to be done (R12)."""


class Position(NamedTuple):
    """What an instance has taken of a channel."""

    ssn: Ssn = Ssn(0)
    total: int = 0
    ended: bool = False


class Member(NamedTuple):
    """An event in an input set, with the note that `assign` attached."""

    channel: ChannelName
    ssn: Ssn
    note: Any = None


def own_id(member: Member) -> InsetId:
    """The id of a set that is one event of its own: the event's name."""
    return f"{_stem(member.channel)}{member.ssn}"


def unassigned_id(member: Member) -> InsetId:
    """The id of a set that is one event for which `assign` failed; no author's id begins so."""
    return f"@{own_id(member)}"


@cache
def _stem(channel: ChannelName) -> str:
    """What the names of a channel's events begin with."""
    return event_name(*sender_of(channel), Ssn(0))[:-1]


class Timer(NamedTuple):
    """A `fire(at=...)` that has not come yet; `at` in microseconds since 1970."""

    at: int
    clock: Clock


class Answer(NamedTuple):
    """The kept answer of one `ctx.call` (R9)."""

    serial: Serial
    row: int
    n: int
    fn: str
    digest: str
    value: bytes


class Progress(NamedTuple):
    """How far a partition has been read (Algorithm 1)."""

    action: int = 1
    """The number k of the current read action r_k."""
    status: ReadStatus = "incomplete"
    offset: bytes | None = None
    until: Ssn = Ssn(0)
    """Staged reads: the last SSN of the effect, once complete."""
    until_total: int = 0
    ended: bool = False
    unconfirmed: tuple[bytes, ...] = ()
    """Destructive reads: ids of messages that are in the log and not known to be confirmed."""


@dataclass(slots=True)
class OpenSet:
    """An input set that is not done. `cause` is set once it is due, or parked."""

    id: InsetId
    members: list[Member] = field(default_factory=list)
    cause: SetCause | None = None


@dataclass(slots=True)
class Head:
    """What an output port (or a write target, as port `@name`) holds."""

    last: Ssn = Ssn(0)
    total: int = 0
    base: Ssn = Ssn(1)
    """Everything below is collected, but for `pinned`."""
    pinned: set[Ssn] = field(default_factory=set)

    @property
    def stored(self) -> int:
        """How many events are visible and not collected."""
        return len(self.pinned) + self.last - self.base + 1


class Collection(NamedTuple):
    """A port's new base, and which events below it stay (R12)."""

    base: Ssn
    pinned: frozenset[Ssn]


class Finished(NamedTuple):
    """The memberships of a set that is done; kept until the events are collected."""

    serial: Serial
    id: InsetId
    members: tuple[Member, ...]


@dataclass(slots=True)
class Lone:
    """Sets of one event each that are done, as a run: serials and SSNs rise by one together. What lies between two
    sets that made something made nothing itself, so a run may reach over it."""

    serial: Serial
    channel: ChannelName
    ssn: Ssn
    count: int = 1

    def reaches(self, serial: Serial, member: Member) -> bool:
        """Whether the run can be made longer, up to this set."""
        return (
            serial - self.serial == member.ssn - self.ssn
            and serial >= self.serial + self.count
            and member.channel == self.channel
        )

    def member(self, serial: Serial) -> Member:
        """The event of one of the sets."""
        return Member(self.channel, Ssn(self.ssn + serial - self.serial))


class Segment(NamedTuple):
    """A stretch of an instance's history under a lineage scope: what it put out by then, and what that was made of.
    Retention is by segment, since to look at each set would cost as much as making it (R12)."""

    number: int
    began: int
    at: int
    """When the last of it was put out, in microseconds since 1970."""
    ports: dict[PortName, tuple[Ssn, int]]
    """The last SSN and the total of each kept port at its end."""
    lows: dict[ChannelName, Ssn]
    """The first event of each channel that a set of this segment has as a member."""


@dataclass(slots=True)
class Step:
    """One or more whole steps, as the change they make."""

    number: int = 0
    """Commits of one life are numbered, so that one repeated after a lost answer is told apart."""
    outputs: list[Output] = field(default_factory=list)
    staged: list[Output] = field(default_factory=list)
    """Rows above the head that nobody sees yet (R9)."""
    reveal: dict[PortName, tuple[Ssn, int]] = field(default_factory=dict)
    """Moves a head over staged rows: (last SSN, total)."""
    positions: dict[ChannelName, Position] = field(default_factory=dict)
    alone: dict[Serial, Member] = field(default_factory=dict)
    """Sets of a stateless operator: one event each, named after it and due at once."""
    opened: dict[Serial, OpenSet] = field(default_factory=dict)
    members: dict[Serial, list[Member]] = field(default_factory=dict)
    """New members of sets that were opened by an earlier commit."""
    due: dict[Serial, Cause] = field(default_factory=dict)
    """Sets that became due, in that order (R6)."""
    parked: list[Serial] = field(default_factory=list)
    """Sets that failed for good and are set aside: not due any more, their members still needed (R12)."""
    resolved: list[Ssn] = field(default_factory=list)
    """Events on port `errors` that were retried or dropped: not needed any more (R12)."""
    done: list[Serial] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)
    kept: list[Serial] = field(default_factory=list)
    """Of the sets that are done or finished: those whose history a lineage scope keeps, answers included."""
    lone: list[Lone] = field(default_factory=list)
    """The same for sets of one event that began and ended within the step."""
    lows: dict[ChannelName, Ssn] = field(default_factory=dict)
    """The first member, by channel, of the sets in `kept` and `lone`; part of the segment when it is committed."""
    segment: Segment | None = None
    """The segment that this step's history belongs to, as it is now."""
    expired: int = 0
    """The history up to the segment of this number is not needed any more."""
    serial: Serial = Serial(0)
    state: bytes | None = None
    clock: dict[ChannelName, int] = field(default_factory=dict)
    timers: dict[InsetId, Timer | None] = field(default_factory=dict)
    answers: dict[Serial, list[Answer]] = field(default_factory=dict)
    failures: dict[Serial, Failure] = field(default_factory=dict)
    """Sets that failed before `generate`: closed, and not to be generated any more."""
    written: dict[TargetName, int] = field(default_factory=dict)
    reads: dict[PartitionName, Progress] = field(default_factory=dict)
    collected: dict[PortName, Collection] = field(default_factory=dict)
    forget: dict[ChannelName, Ssn] = field(default_factory=dict)
    """Memberships of done sets below this SSN are not needed any more."""
    ended: bool = False
    left: bool = False

    @property
    def nbytes(self) -> int:
        """The payload it carries."""
        return sum(o.nbytes for o in self.outputs) + sum(o.nbytes for o in self.staged)

    @property
    def empty(self) -> bool:
        """Whether it changes nothing."""
        return not (
            self.outputs
            or self.positions
            or self.done
            or self.parked
            or self.resolved
            or self.due
            or self.alone
            or self.opened
            or self.members
            or self.finished
            or self.staged
            or self.reveal
            or self.state is not None
            or self.clock
            or self.timers
            or self.answers
            or self.failures
            or self.written
            or self.reads
            or self.collected
            or self.forget
            or self.expired
            or self.ended
            or self.left
        )

    def open(self, serial: Serial, inset: InsetId, members: Iterable[Member] = ()) -> None:
        """A new set."""
        self.opened[serial] = OpenSet(inset, list(members))
        self.serial = max(self.serial, serial)

    def join(self, serial: Serial, member: Member) -> None:
        """A member more, of a set opened in this step or before it."""
        opened = self.opened.get(serial)
        if opened is not None:
            opened.members.append(member)
        else:
            self.members.setdefault(serial, []).append(member)

    def close(self, serial: Serial, *, traced: bool, ordered: bool = True) -> None:
        """The set is done. One that began within this step never reaches the image, only its memberships do; those
        of a set that is one event follow from its name. With `traced` lineage has to find them by the serial: sets
        of one event go into a run, unless outputs of later sets may come before theirs (not `ordered`)."""
        if serial in self.parked:
            self.parked.remove(serial)
            if serial not in self.alone:  # it is remembered with the others that are done, once
                self.finished = [known for known in self.finished if known.serial != serial]
        alone = self.alone.pop(serial, None)
        if alone is not None:
            if traced and ordered:
                self.trace(serial, alone)
            elif traced:
                self.finished.append(Finished(serial, own_id(alone), (alone,)))
                self.kept.append(serial)
            if self.answers:
                self.answers.pop(serial, None)
            return
        self.answers.pop(serial, None)
        self.due.pop(serial, None)
        self.failures.pop(serial, None)
        if traced:
            self.kept.append(serial)
        begun = self.opened.pop(serial, None)
        if begun is not None:
            self.finished.append(Finished(serial, begun.id, tuple(begun.members)))
        else:  # members that joined in this very step stay in it: they are remembered with the others
            self.done.append(serial)

    def park(self, serial: Serial) -> None:
        """The set is not generated for now; what was kept for its generation goes."""
        self.answers.pop(serial, None)
        self.due.pop(serial, None)
        self.failures.pop(serial, None)
        self.parked.append(serial)

    def trace(self, serial: Serial, alone: Member) -> None:
        """The history of a set of one event is kept: it is part of a run."""
        last = self.lone[-1] if self.lone else None
        if last is not None and last.reaches(serial, alone):
            last.count = serial - last.serial + 1
        else:
            self.lone.append(Lone(serial, alone.channel, alone.ssn))

    def reach_down(self, lows: Mapping[ChannelName, Ssn]) -> None:
        """What is kept of this step was made of events from these on."""
        for channel, ssn in lows.items():
            self.lows[channel] = min(ssn, self.lows.get(channel, ssn))

    def absorb(self, later: Step, *, ordered: bool = True) -> None:
        """The steps of `later` after the ones that are here."""
        self.outputs += later.outputs
        self.staged += later.staged
        self.reveal |= later.reveal
        self.positions |= later.positions
        self.alone |= later.alone
        self.opened |= later.opened
        for serial, members in later.members.items():
            for member in members:
                self.join(serial, member)
        self.due |= later.due
        for serial, answers in later.answers.items():
            self.answers.setdefault(serial, []).extend(answers)
        self.failures |= later.failures
        for serial in later.parked:
            self.park(serial)
        self.resolved += later.resolved
        kept = set(later.kept)
        for serial in later.done:
            self.close(serial, traced=serial in kept, ordered=ordered)
            kept.discard(serial)
        self.kept += [serial for serial in later.kept if serial in kept]
        self.finished += later.finished
        self.lone += later.lone
        self.reach_down(later.lows)
        self.expired = max(self.expired, later.expired)
        self.serial = max(self.serial, later.serial)
        if later.state is not None:
            self.state = later.state
        self.clock |= later.clock
        self.timers |= later.timers
        self.written |= later.written
        self.reads |= later.reads
        self.collected |= later.collected
        self.forget |= later.forget
        self.ended = self.ended or later.ended
        self.left = self.left or later.left


@dataclass(slots=True)
class Image:
    """Everything a later life starts from."""

    commits: int = 0
    positions: dict[ChannelName, Position] = field(default_factory=dict)
    heads: dict[PortName, Head] = field(default_factory=dict)
    sets: dict[Serial, OpenSet] = field(default_factory=dict)
    due: list[Serial] = field(default_factory=list)
    serial: Serial = Serial(0)
    state: bytes | None = None
    clock: dict[ChannelName, int] = field(default_factory=dict)
    timers: dict[InsetId, Timer] = field(default_factory=dict)
    answers: dict[Serial, list[Answer]] = field(default_factory=dict)
    failures: dict[Serial, Failure] = field(default_factory=dict)
    resolved: set[Ssn] = field(default_factory=set)
    """Events on port `errors` that were retried or dropped and are not collected yet."""
    written: dict[TargetName, int] = field(default_factory=dict)
    reads: dict[PartitionName, Progress] = field(default_factory=dict)
    segments: dict[int, Segment] = field(default_factory=dict)
    ended: bool = False
    left: bool = False

    def head(self, port: PortName) -> Head:
        """The port's head; a port that has put out nothing has one too."""
        found = self.heads.get(port)
        return found if found is not None else self.heads.setdefault(port, Head())

    @property
    def open_errors(self) -> int:
        """Events on port `errors` that wait to be retried or dropped; the end of the stream is none."""
        return self.head(ERRORS).stored - len(self.resolved) - int(self.ended) if ERRORS in self.heads else 0

    def apply(self, step: Step) -> None:
        """The meaning of a step. Order matters: sets open before they become due, and are due before done."""
        for port, (last, total) in step.reveal.items():  # before the outputs, which come after them
            head = self.head(port)
            head.last, head.total = last, total
        for output in step.outputs:
            head = self.head(output.port)
            head.last, head.total = output.ssn, output.total
        self.positions.update(step.positions)
        self._apply_sets(step)
        if step.state is not None:
            self.state = step.state
        self.clock.update(step.clock)
        for inset, timer in step.timers.items():
            if timer is None:
                self.timers.pop(inset, None)
            else:
                self.timers[inset] = timer
        self.written.update(step.written)
        self.reads.update(step.reads)
        self.resolved.update(step.resolved)
        for port, (base, pinned) in step.collected.items():
            head = self.head(port)
            head.base, head.pinned = base, set(pinned)
            if port == ERRORS:
                self.resolved = {ssn for ssn in self.resolved if ssn >= base or ssn in pinned}
        if step.segment is not None:
            self.segments[step.segment.number] = step.segment
        if step.expired:
            self.segments = {number: s for number, s in self.segments.items() if number > step.expired}
        self.ended = self.ended or step.ended
        self.left = self.left or step.left

    def low(self, channel: ChannelName) -> Ssn | None:
        """The first event of the channel that the kept history leads to (R12)."""
        return min((s.lows[channel] for s in self.segments.values() if channel in s.lows), default=None)

    def _apply_sets(self, step: Step) -> None:
        self.serial = max(self.serial, step.serial)
        for serial, member in step.alone.items():
            self.sets[serial] = OpenSet(own_id(member), [member], "ready")
            self.due.append(serial)
        for serial, opened in step.opened.items():
            self.sets[serial] = OpenSet(opened.id, list(opened.members))
        for serial, members in step.members.items():
            self.sets[serial].members.extend(members)
        for serial, cause in step.due.items():
            self.sets[serial].cause = cause
            self.due.append(serial)
        for serial, answers in step.answers.items():
            self.answers.setdefault(serial, []).extend(answers)
        self.failures.update(step.failures)
        for serial in step.parked:
            self.sets[serial].cause = "parked"
            self.answers.pop(serial, None)
            self.failures.pop(serial, None)
        if step.done or step.parked:
            gone = {*step.done, *step.parked}
            self.due = [serial for serial in self.due if serial not in gone]
            for serial in step.done:
                del self.sets[serial]
                self.answers.pop(serial, None)
                self.failures.pop(serial, None)


class Taken(NamedTuple):
    """How far a receiver is on a channel, as its journal says (R13)."""

    position: Position
    left: bool


class Needs(NamedTuple):
    """What a receiver still needs of a channel, as its journal says (R12, R13)."""

    position: Position
    members: Sequence[Ssn]
    """Members of its open sets, in any order."""
    left: bool
    low: Ssn | None = None
    """Lineage: what it put out and still keeps was made of events from here on; None if of none."""
    unwritten: Ssn | None = None
    """Write actions that are not known to be done pass on events from here on (`Output.same`); None if none does."""


class Claim(NamedTuple):
    """What `claim` returns: a new incarnation and the image it starts from."""

    incarnation: Incarnation
    image: Image
