"""Intake: runs of events on their way from the inbox through the first two phases (Algorithm 2; R3, R4, R13).

One run is under way at a time. Its positions become part of a step when the phases have taken it in, not before (R3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from logline.engine import actions as do
from logline.engine.events import Output, Position
from logline.engine.image import Image
from logline.engine.inbox import Inbox
from logline.engine.keyed import KeyChanges
from logline.engine.moments import Moment, Monotonic, Wall
from logline.engine.spec import InstanceSpec
from logline.engine.step import Step
from logline.engine.stimuli import Intake
from logline.names import ChannelName

SHORT, LONG = 10_000, 40_000
"""Microseconds that a run of events should take from intake to outputs."""
APART = 1000
"""Microseconds that two reckonings of one time may differ, unless somebody has set the wall clock."""

Run = Sequence[tuple[ChannelName, Output]]


class EventIntake:
    """What one instance takes in."""

    def __init__(self, spec: InstanceSpec, act: Callable[[do.Action], None]) -> None:
        self._spec = spec
        self._act = act
        self.inbox = Inbox(spec)
        self.applying: Run = ()
        """The run that is taken in and generated at once, if one is."""
        self.wait_until: Monotonic | None = None
        """When the phases want to see whether a channel has fallen silent, or a span is over."""
        self.timer_at: Wall | None = None
        """When the phases want to see which timers of the wall clock have come."""
        self._tick_at: Monotonic | None = None
        """When the wall clock should be at `timer_at`, as it was when that was last reckoned."""
        self.flush = False
        """Whether spans that sets wait for are to be taken as over."""
        self.rest = False
        """Whether sets are open though every input has ended: a look at the clocks makes them due."""
        self.began = Monotonic(0)
        """When the last run was begun."""
        self._positions: dict[ChannelName, Position] | None = None
        """Where the channels are after the run that is under way; empty for a look at the clocks."""
        self._acknowledged: dict[ChannelName, int] = {}
        """Bytes of each channel up to the position that is durable."""
        self._length = 1

    def restore(self, image: Image) -> None:
        """Takes over what the image says."""
        self.inbox.restore(image)
        self._acknowledged = {channel: position.total for channel, position in image.positions.items()}

    @property
    def under_way(self) -> bool:
        """Whether the phases are at a run, or at the clocks."""
        return self._positions is not None

    def wait_for(self, intake: Intake | KeyChanges) -> None:
        """Remembers what the phases wait for."""
        self.wait_until, self.timer_at, self.rest = intake.wait_until, intake.timer_at, intake.rest

    def wakes(self, moment: Moment) -> Iterable[Monotonic]:
        """When to have a Tick for what the phases wait for. When the wall clock will be at a timer's time is reckoned
        anew if somebody has set it; not at every stimulus, since the two clocks are not read at one instant."""
        if self.wait_until is not None:
            yield self.wait_until
        if self.timer_at is not None:
            at, known = moment.until(self.timer_at), self._tick_at
            if known is None or known <= moment.monotonic or abs(at - known) > APART:
                known = self._tick_at = at
            yield known

    def _clocks_due(self, moment: Moment) -> bool:
        if self.rest or (self.wait_until is not None and moment.monotonic >= self.wait_until):
            return True
        return self.timer_at is not None and moment.wall >= self.timer_at

    def begin(self, moment: Moment) -> None:
        """Hands the next run to the phases, or has them look at the clocks; nothing if there is neither."""
        if self.flush or self._clocks_due(moment):
            self.wait_until = self.timer_at = None
            self._positions = {}
            flush, self.flush = self.flush, False
            self._act(do.CheckClock(flush))
        elif self.inbox.waiting:
            self.began = moment.monotonic
            run, self._positions = self.inbox.take(self._length)
            if self._spec.plain and not self.inbox.marked:
                self.applying = run
                self._act(do.Apply(run))
            else:
                self._act(do.TakeIn(run))

    def taken(self) -> tuple[Run, dict[ChannelName, Position]]:
        """The run that was under way, if it was one to apply, and the positions after it."""
        run, positions = self.applying, self._positions or {}
        self.applying, self._positions = (), None
        return run, positions

    def adapt(self, now: Monotonic) -> None:
        """Runs are as long as keeps the machine responsive: many cheap events at once, slow ones one by one."""
        if self._spec.keyed:  # timers that an event reaches come before the next event
            return
        spent = now - self.began
        if spent < SHORT:
            self._length = min(2 * self._length, self._spec.limits.run_events)
        elif spent > LONG:
            self._length = max(1, self._length * SHORT // spent)

    # ---- acknowledging (R3, R13) ----------------------------------------------------------------------

    def half_unacknowledged(self, steps: Iterable[Step]) -> bool:
        """Whether so much is taken in and only in these steps that a sender may soon wait for it: half a port's
        bound, or half of the smallest that a lineage scope can make of it (`InstanceSpec.port_bytes`)."""
        known = self._acknowledged
        most = max((p.total - known.get(c, 0) for step in steps for c, p in step.positions.items()), default=0)
        return most * 2 >= min(self._spec.limits.port_bytes, 2 * self._spec.limits.commit_bytes)

    def durable(self, step: Step) -> None:
        """Remembers that the positions of this step are in the log."""
        for channel, position in step.positions.items():
            self._acknowledged[channel] = position.total
