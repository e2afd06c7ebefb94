"""Partial checkpoints of open sets, as one life makes them (R22; CEC).

    schedule -> Checkpoint -> Checkpointed -> the next commit -> durable -> LetGo

Which sets, and when, is the schedule's to say (`logline.recovery.checkpointing`). This part keeps the order that
makes a checkpoint right. It is encoded while no run of events is at the phases and every membership so far is part
of a whole step, so that it covers exactly the members that are in the log or on their way there. It goes into what is
pending, and so into the log with those memberships or after them, never before. And a set has no second checkpoint on
its way, so that the newest one that is durable is also the newest that was made, but for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.image import Image
from logline.engine.moments import Monotonic
from logline.engine.retention import Retention
from logline.engine.sets import Checkpoint
from logline.engine.step import Step
from logline.names import Serial


class Schedule(Protocol):
    """Which open sets are to have a checkpoint, and when. It knows sets by their serial, and has no clock."""

    records: int
    """Checkpoints and records of members that recovery would read now (CEC's q)."""

    def restore(self, image: Image, now: Monotonic, spent: int) -> None:
        """A life begins, with these open sets. Rebuilding them took so many microseconds."""

    def joined(self, serials: Iterable[Serial], now: Monotonic, spent: int) -> None:
        """Sets have a member more, once for each entry. Taking it all in took so many microseconds."""

    def logged(self, serials: Iterable[Serial]) -> None:
        """Each of these sets has one more record of members in the log."""

    def closed(self, serial: Serial) -> None:
        """The set is open no longer."""

    def due(self, now: Monotonic) -> Sequence[Serial]:
        """The sets that are to have a checkpoint now, the first one first; none if it is not the time."""

    def checkpointed(self, made: Mapping[Serial, Checkpoint], now: Monotonic, spent: int) -> None:
        """These were made, in so many microseconds."""

    def wake(self, now: Monotonic) -> Monotonic | None:
        """When to ask again, if nothing happens meanwhile; None if something has to happen first."""


class Checkpointing:
    """The checkpoints of one life."""

    def __init__(self, schedule: Schedule | None, retention: Retention, act: Callable[[do.Action], None]) -> None:
        self._schedule = schedule
        self._retention = retention
        self._act = act
        self.under_way = False
        """Whether the phases are encoding."""
        self._began = Monotonic(0)
        self._undurable: set[Serial] = set()
        """Sets whose newest checkpoint is not durable yet."""
        self._image: Image | None = None

    def restore(self, image: Image, now: Monotonic) -> None:
        """A life begins to rebuild its sets."""
        self._image, self._began = image, now

    def rebuilt(self, now: Monotonic) -> None:
        """All sets are whole again."""
        if self._schedule is not None and self._image is not None:
            self._schedule.restore(self._image, now, now - self._began)
        self._image = None

    def took_in(self, intake: on.Intake, began: Monotonic, now: Monotonic) -> None:
        """What the phases decided for a run of events."""
        if self._schedule is None:
            return
        if intake.members:
            self._schedule.joined((serial for serial, _ in intake.members), now, now - began)
        for serial, _ in (*intake.due, *intake.failed):
            self._schedule.closed(serial)

    def begin(self, now: Monotonic) -> bool:
        """Has sets encoded, if it is time for some. Whoever asks sees to it that nothing else is at the phases, and
        that no membership waits for its step to be whole."""
        if self._schedule is None or self.under_way:
            return self.under_way
        wanted = tuple(serial for serial in self._schedule.due(now) if serial not in self._undurable)
        if wanted:
            self.under_way, self._began = True, now
            self._act(do.Checkpoint(wanted))
        return self.under_way

    def made(self, stimulus: on.Checkpointed, pending: Step, now: Monotonic) -> None:
        """The next commit has them."""
        self.under_way = False
        for serial, checkpoint in stimulus.checkpoints.items():
            pending.sets.checkpoints[serial] = checkpoint._replace(lows=self._retention.lows(serial))
        self._undurable.update(stimulus.checkpoints)
        if self._schedule is not None:
            self._schedule.checkpointed(stimulus.checkpoints, now, now - self._began)

    def durable(self, step: Step) -> None:
        """What the checkpoints of this step cover is needed no more: by this life here, by later ones in the log."""
        sets = Step.sets.peek(step)
        if self._schedule is not None:
            self._schedule.logged((*sets.opened, *sets.members))
        if self._undurable:
            self._undurable.difference_update(sets.checkpoints, sets.done, (f.serial for f in sets.finished))
        if sets.checkpoints:
            self._act(do.LetGo({serial: checkpoint.covers for serial, checkpoint in sets.checkpoints.items()}))

    @property
    def extent(self) -> int:
        """Records of open sets that recovery would read now; 0 if nobody counts them."""
        return 0 if self._schedule is None else self._schedule.records

    def wake(self, now: Monotonic) -> Monotonic | None:
        """When to ask again whether it is time for some."""
        return None if self._schedule is None or self.under_way else self._schedule.wake(now)
