"""What an operator knows of event time, and what it passes on (R30).

The clock moves by what senders say, or by a column of its own. `Operator.passes` says how far the time of the outputs
is then, `Operator.earliest` what can come of one set with the rows that it has: those that join it later are not
before the watermark, unless they are late. Both are pure, and asked anew by every life. What is not known of a set
follows from when it was opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from logline.engine.clock import SHOWN, EventClock, of_inputs
from logline.engine.codec import micros, watermark_instant
from logline.engine.events import Output
from logline.engine.image import Image
from logline.engine.moments import Monotonic
from logline.engine.spec import InstanceSpec
from logline.engine.stimuli import Intake
from logline.engine.user_errors import USER_ERRORS, UserError, failure_of
from logline.graph.operator import Operator, is_stateless
from logline.names import ChannelName, InsetId, PortName, Serial

IDLE = ChannelName(">?")
"""The key under which the logged clock has whether all inputs are idle."""


class EventTime:
    """The event clock of one instance, with the author's answers."""

    def __init__(
        self,
        spec: InstanceSpec,
        op: Operator[Any, Any],
        greatest: Callable[[PortName, Any], int | None],
        *,
        lateness: int,
        idle: int | None,
    ) -> None:
        """`greatest`: the greatest event time in a batch of a port."""
        self._op = op
        self._greatest = greatest
        self._same = type(op).passes is Operator.passes
        self.knows = type(op).earliest is not Operator.earliest and not is_stateless(op)
        """Whether the author says what can come of a set. That is asked after each update, since a row may be earlier
        than those before it."""
        self._last: tuple[int, int | None] | None = None
        self._logged: dict[ChannelName, int] = {}
        self._idle = False
        self.clock = EventClock((), lateness=lateness, idle=idle)
        self.rewire(spec, Monotonic(0))

    @classmethod
    def of(
        cls, spec: InstanceSpec, op: Operator[Any, Any], greatest: Callable[[PortName, Any], int | None], **how: Any
    ) -> EventTime | None:
        """None for an operator without event time."""
        return cls(spec, op, greatest, **how) if op.time or spec.timed_in else None

    def rewire(self, spec: InstanceSpec, now: Monotonic) -> None:
        """Other channels: those count whose sender says how far it is, or of which a column does."""
        self._told, self._passes = spec.timed_in, bool(spec.timed_out)
        self._ports = {c.name: c.port for c in spec.inputs if c.name in spec.timed_in or c.port in self._op.time}
        self.clock.rewire(self._ports, now)

    def restore(self, image: Image, ended: Iterable[ChannelName], now: Monotonic) -> None:
        """Goes on with the clock as it is logged."""
        self._logged = of_inputs(image.clock)
        self.clock.restore(self._logged, ended, now)
        self._idle = bool(image.clock.get(IDLE))

    def see(self, channel: ChannelName, output: Output, now: Monotonic, *, failed: bool = False) -> bool:
        """What came, and whether it may move the watermark. Of an event that `assign` has `failed` on, only what the
        sender says counts."""
        port, clock = self._ports.get(channel), self.clock
        if port is None:
            return False
        if channel not in self._told:
            if output.kind == "event" and not failed:
                clock.saw(channel, self._greatest(port, output.payload), now)
            return True
        rested = clock.resting.get(channel, False)
        if output.kind == "event":
            clock.saw(channel, None, now)
        if output.headers is not None:
            clock.told(channel, output.headers, now, mark=output.kind == "watermark")
        return rested or output.headers is not None

    # ---- what is passed on ----------------------------------------------------------------------------

    def opened(self, serial: Serial, intake: Intake) -> None:
        """A set of which nobody knows more holds the time of the outputs back as it is when the set is opened."""
        if self._passes:
            intake.holds.append((serial, self._passed()))

    def updated(self, serial: Serial, inset: InsetId, acc: Any, intake: Intake) -> None:
        """A set has got an event, and holds the time of the outputs back as its author says; without a state it has
        failed."""
        if self._passes and self.knows:
            intake.holds.append((serial, self._earliest(inset, acc, self._passed())))

    def hold_again(self, image: Image, states: Mapping[Serial, Any], intake: Intake) -> None:
        """The sets of an earlier life hold it back again. Of one of which nobody knows more, not more was shown than
        it allowed when it was opened."""
        if self._passes:
            shown = image.clock.get(SHOWN)
            sets = ((serial, image.sets[serial].id, acc) for serial, acc in states.items())
            intake.holds += [(serial, self._earliest(inset, acc, shown)) for serial, inset, acc in sets]

    def report(self, intake: Intake, now: Monotonic, *, waits: bool) -> None:
        """What has changed. `waits`: something is let out at a time of the wall clock, so that its time counts."""
        logged = self.clock.image()
        if logged != self._logged:
            intake.clock = self._logged = logged
        if not self._passes:
            return
        intake.passed = self._passed()
        intake.idle = self.clock.rests(now) and not waits
        if intake.idle != self._idle:
            self._idle = intake.idle
            intake.clock = {**intake.clock, IDLE: int(intake.idle)}

    def _passed(self) -> int | None:
        """How far the outputs' time is; None as long as nobody knows."""
        watermark = self.clock.watermark
        if watermark is None or self._same:
            return watermark
        if self._last is None or self._last[0] != watermark:
            self._last = watermark, self._asked("passes", self._op.passes, watermark_instant(watermark))
        return self._last[1]

    def _earliest(self, inset: InsetId, acc: Any, passed: int | None) -> int | None:
        known = None
        if self.knows and acc is not None:
            known = self._asked("earliest", self._op.earliest, inset, acc)
        return passed if known is None else known

    def _asked(self, method: str, ask: Callable[..., datetime | None], *about: Any) -> int | None:
        try:
            found: Any = ask(*about)
            if found is None:
                return None
            if not isinstance(found, datetime) or found.tzinfo is None:
                what = f"{type(self._op).__name__}.{method}({about[0]!r})"
                raise TypeError(f"{what} returned {found!r:.80}: return a datetime with a time zone, or None")
            return micros(found)
        except USER_ERRORS as error:
            raise UserError(failure_of(error)) from error
