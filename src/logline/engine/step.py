"""Steps: the indivisible changes of an instance (R1). A commit holds one or more whole steps, merged.

A step is made of structures by subject: sets, lineage, errors, reads, writes, and the rest directly in it. Every
field declares how it is merged (`engine/merging.py`); `Step.absorb` and `Step.empty` follow from that. `Image.apply`
is what a step means.

    >>> step, later = Step(), Step()
    >>> step.open(Serial(1), "H", [Member(ChannelName("orders.out>hourly.in"), Ssn(7))])
    >>> later.close(Serial(1), traced=False)
    >>> step.absorb(later)
    >>> step.sets.opened, step.sets.done
    ({}, [])

A set that begins and ends within one step never reaches the image: `Step.open` and `Step.close` cancel out, and only
its memberships stay (`SetChanges.finished`). A set that is merged into another one leaves no trace of its own: the
other one has its members, as if they had joined it when the two became one (`Step.merge`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from logline.engine.events import Collection, Output, Position
from logline.engine.history import Finished, Lone, Segment
from logline.engine.keyed import KeyState
from logline.engine.merging import (
    Part,
    changes,
    changes_nothing,
    either,
    extend,
    gather,
    last,
    maximum,
    merge,
    minima,
    own,
    update,
)
from logline.engine.progress import Progress
from logline.engine.results import Failure, Outcome
from logline.engine.sets import NEVER, Answer, Checkpoint, Kept, Member, OpenSet, Timer, own_id
from logline.graph.operator import Cause
from logline.names import ChannelName, InsetId, PartitionName, PortName, Serial, Ssn, TargetName


@changes
@dataclass(eq=False, repr=False)
class SetChanges:
    """What becomes of input sets."""

    serial: Serial = maximum(counts=False)
    """The newest serial."""
    alone: dict[Serial, Member] = update()
    """Sets of a stateless operator: one event each, named after it and due at once."""
    opened: dict[Serial, OpenSet] = update()
    members: dict[Serial, list[Member]] = own(dict, counts=True)
    """New members of sets that were opened by an earlier commit."""
    merged: dict[Serial, Serial] = own(dict, counts=True)
    """Sets opened by an earlier commit that are part of another one now, which has got their members (R32)."""
    checkpoints: dict[Serial, Checkpoint] = update()
    """The newest checkpoint of each of these sets, no earlier than the memberships that it covers (R22)."""
    inherits: dict[Serial, Serial] = update()
    """Of sets that are opened here: the parked set whose checkpoint is now theirs, with what it covers."""
    due: dict[Serial, Cause] = update()
    """Sets that became due, in that order (R6)."""
    answers: dict[Serial, list[Answer]] = gather()
    failures: dict[Serial, Failure] = update()
    """Sets that failed before `generate`: closed, and not to be generated any more."""
    parked: list[Serial] = own(list, counts=True)
    """Sets that failed for good and are set aside: not due any more, their members still needed (R12)."""
    done: list[Serial] = own(list, counts=True)
    finished: list[Finished] = extend()
    """Sets that began and ended within the step."""
    dropped: dict[Serial, str] = update(counts=False)
    """Of the sets that are done or finished: those that failed and were dropped, with the reason."""


@changes
@dataclass(eq=False, repr=False)
class LineageChanges:
    """What lineage scopes keep of sets that are done, and let go of."""

    kept: list[Serial] = own(list, counts=False)
    """Of the sets that are done or finished: those whose history a lineage scope keeps, answers included."""
    lone: list[Lone] = extend(counts=False)
    """The same for sets of one event that began and ended within the step."""
    lows: dict[ChannelName, Ssn] = minima(counts=False)
    """The first member, by channel, of the sets in `kept` and `lone`; part of the segment when it is committed."""
    segment: Segment | None = own(None, counts=False)
    """The segment that this step's history belongs to, as it is now; known when the step is committed."""
    expired: int = maximum()
    """The history up to the segment of this number is not needed any more."""


@changes
@dataclass(eq=False, repr=False)
class ErrorChanges:
    """What becomes of events on port `errors`."""

    retrying: dict[Ssn, Serial] = update()
    """Those whose diverted set is on its way again, and the set it is now."""
    resolved: dict[Ssn, Outcome] = update()
    """Those that are settled, and how: not needed any more (R12)."""


@changes
@dataclass(eq=False, repr=False)
class ReadChanges:
    """What a source has read."""

    progress: dict[PartitionName, Progress] = update(into="reads")
    staged: list[Output] = extend()
    """Rows above the head that nobody sees yet (R9)."""
    reveal: dict[PortName, tuple[Ssn, int]] = update()
    """Moves a head over staged rows: (last SSN, total)."""


@changes
@dataclass(eq=False, repr=False)
class WriteChanges:
    """What has been written outside."""

    written: dict[TargetName, int] = update(into="written")
    """The number of the last write that is known to be done."""


@changes
@dataclass(eq=False, repr=False)
class Step:
    """One or more whole steps, as the change they make."""

    number: int = own(0, counts=False)
    """Commits of one life are numbered, so that one repeated after a lost answer is told apart."""
    outputs: list[Output] = extend()
    positions: dict[ChannelName, Position] = update(into="positions")
    state: bytes | None = last()
    clock: dict[ChannelName, int] = update(into="clock")
    timers: dict[InsetId, Timer | None] = update()
    """None for one that is cleared."""
    keyed: dict[bytes, KeyState | None] = update()
    """The states of keys that have changed; None for one that is deleted (R31)."""
    collected: dict[PortName, Collection] = update()
    forget: dict[ChannelName, Ssn] = update()
    """Memberships of done sets below this SSN are not needed any more."""
    reopened: bool = either()
    """The end is taken back, and the instance is there again (R11'). A step of its own: it ends nothing itself."""
    ended: bool = either()
    left: bool = either()

    sets = Part(SetChanges)
    lineage = Part(LineageChanges)
    errors = Part(ErrorChanges)
    reads = Part(ReadChanges)
    writes = Part(WriteChanges)

    @property
    def nbytes(self) -> int:
        """The bytes of its payloads."""
        return sum(o.nbytes for o in self.outputs) + sum(o.nbytes for o in Step.reads.peek(self).staged)

    @property
    def empty(self) -> bool:
        """Whether it changes nothing."""
        return not self.outputs and changes_nothing(self)

    def open(self, serial: Serial, inset: InsetId, members: Iterable[Member] = (), kept: Kept = NEVER) -> None:
        """Opens the set `inset` under a serial that was never used before, with the members it begins with."""
        sets = self.sets
        sets.opened[serial] = OpenSet(inset, list(members), kept=kept)
        sets.serial = max(sets.serial, serial)

    def join(self, serial: Serial, member: Member) -> None:
        """A member more, of a set opened in this step or before it."""
        sets = self.sets
        opened = sets.opened.get(serial)
        if opened is not None:
            opened.members.append(member)
        else:
            sets.members.setdefault(serial, []).append(member)

    def merge(self, gone: Serial, into: Serial) -> None:
        """The set is part of another one, which its members have joined; no one finds it under this serial any more.
        One that began within this step never reaches the image."""
        sets = self.sets
        if sets.opened.pop(gone, None) is None:
            sets.members.pop(gone, None)
            sets.merged[gone] = into

    def close(self, serial: Serial, *, traced: bool, ordered: bool = True) -> None:
        """The set is done. One that began within this step never reaches the image, only its memberships do; those
        of a set that is one event follow from its name. With `traced` lineage has to find them by the serial: sets
        of one event go into a run, unless outputs of later sets may come before theirs (not `ordered`)."""
        sets = self.sets
        if serial in sets.parked:
            sets.parked.remove(serial)
            if serial not in sets.alone:  # it is remembered with the others that are done, once
                sets.finished = [known for known in sets.finished if known.serial != serial]
        alone = sets.alone.pop(serial, None)
        if alone is not None:
            dropped = serial in sets.dropped  # why is remembered with the membership, which a run does not hold
            if traced and ordered and not dropped:
                self.trace(serial, alone)
            elif traced or dropped:
                sets.finished.append(Finished(serial, own_id(alone), (alone,)))
                if traced:
                    self.lineage.kept.append(serial)
            if sets.answers:
                sets.answers.pop(serial, None)
            return
        sets.answers.pop(serial, None)
        sets.due.pop(serial, None)
        sets.failures.pop(serial, None)
        sets.checkpoints.pop(serial, None)
        if traced:
            self.lineage.kept.append(serial)
        begun = sets.opened.pop(serial, None)
        if begun is not None:
            sets.finished.append(Finished(serial, begun.id, tuple(begun.members)))
        else:  # members that joined in this very step stay in it: they are remembered with the others
            sets.done.append(serial)

    def park(self, serial: Serial) -> None:
        """The set is not generated for now. Its answers stay: it is not done, and a retry need not ask again (R9)."""
        sets = self.sets
        sets.due.pop(serial, None)
        sets.failures.pop(serial, None)
        sets.parked.append(serial)

    def trace(self, serial: Serial, alone: Member) -> None:
        """The history of a set of one event is kept: it is part of a run."""
        lone = self.lineage.lone
        last = lone[-1] if lone else None
        if last is not None and last.reaches(serial, alone):
            last.count = serial - last.serial + 1
        else:
            lone.append(Lone(serial, alone.channel, alone.ssn))

    def reach_down(self, lows: Mapping[ChannelName, Ssn]) -> None:
        """What is kept of this step was made of events from these on."""
        known = self.lineage.lows
        for channel, ssn in lows.items():
            known[channel] = min(ssn, known.get(channel, ssn))

    def absorb(self, later: Step, *, ordered: bool = True) -> None:
        """The steps of `later` after the ones that are here."""
        there = later.__dict__
        if "sets" in there or "lineage" in there:
            self._absorb_sets(later, ordered)
        merge(self, later)

    def _absorb_sets(self, later: Step, ordered: bool) -> None:
        """The fields with rules of their own: members join, sets are parked and done, as if that happened here."""
        sets, lineage = Step.sets.peek(later), Step.lineage.peek(later)
        kept = set(lineage.kept)
        if sets.dropped:
            self.sets.dropped.update(sets.dropped)
        for serial, members in sets.members.items():
            for member in members:
                self.join(serial, member)
        for gone, into in sets.merged.items():
            self.merge(gone, into)
        for serial in sets.parked:
            self.park(serial)
        for serial in sets.done:
            self.close(serial, traced=serial in kept, ordered=ordered)
            kept.discard(serial)
        if kept:
            self.lineage.kept += [serial for serial in lineage.kept if serial in kept]
