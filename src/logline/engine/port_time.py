"""How far event time is on the output ports of an instance (R30).

The watermark of the ports is what the operator passes on of its own, but never ahead of a set that waits: a set holds
time back from when it is opened until what came of it is logged. It goes with the step that logs it, in a header of
what the port puts out last, the end included, or as a mark where a port has nothing. It never goes back.

    >>> time = PortTime([PortName("out")])
    >>> time.hold(Serial(1), 20)                   # a row that came at 20 waits in set 1
    >>> time.passes(50, rests=False)
    >>> time.seal(waits=True)
    >>> time.sealed
    20
    >>> time.let_go(Serial(1))                     # what came of it is part of the step
    >>> time.seal(waits=False)
    >>> time.sealed
    50
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush

from logline.engine.clock import SHOWN, port_marks_key
from logline.engine.events import IDLE_HEADER, WATERMARK_HEADER, Headers
from logline.engine.outbox import Outbox
from logline.engine.step import Step
from logline.names import ChannelName, PortName, Serial

_RESTS = ChannelName(f"{SHOWN}~")
NEVER = -(1 << 62)
"""The hold of a set that may put out any time."""


class PortTime:
    """The watermark of one instance's ports, and what holds it back."""

    def __init__(self, ports: Iterable[PortName]) -> None:
        self._ports = tuple(sorted(ports))
        self.shown: int | None = None
        """What the ports have said last."""
        self._idle = False
        """Whether they have said that they are idle."""
        self.marks: dict[PortName, int] = {}
        """How often each port has said it by a mark, not with an event."""
        self._passed: int | None = None
        self._rests = False
        self._holds: dict[Serial, int] = {}
        self._least: list[tuple[int, Serial]] = []
        self.sealed: int | None = None
        """How far time is for all that comes after the steps that are sealed."""
        self._sealed_idle = False

    def restore(self, clock: Mapping[ChannelName, int]) -> None:
        """Takes over what the image's clock says."""
        self.shown = clock.get(SHOWN)
        self._idle = self._sealed_idle = bool(clock.get(_RESTS))
        self.marks = {port: clock[key] for port in self._ports if (key := port_marks_key(port)) in clock}

    # ---- what is known ----------------------------------------------------------------------------------

    def passes(self, time: int | None, *, rests: bool) -> None:
        """What the operator passes on by now, and whether its inputs are idle."""
        if time is not None and (self._passed is None or time > self._passed):
            self._passed = time
        self._rests = rests

    def hold(self, serial: Serial, time: int | None) -> None:
        """What comes of this set has no earlier time than this; None if nobody knows. What is said of a set again may
        be earlier, and never makes it later: it still has its rows."""
        held, known = NEVER if time is None else time, self._holds.get(serial)
        if known is None or held < known:
            self._holds[serial] = held
            heappush(self._least, (held, serial))

    def inherit(self, serial: Serial, other: Serial) -> None:
        """The set has the members of another one (R32), or goes on with them."""
        if other in self._holds:
            self.hold(serial, self._holds[other])

    def let_go(self, serial: Serial) -> None:
        """What came of the set is logged, or it is set aside."""
        self._holds.pop(serial, None)

    def seal(self, *, waits: bool) -> None:
        """A step is whole: from here on nothing comes before this time. `waits`: a set is still to be generated."""
        least, holds = self._least, self._holds
        while least and holds.get(least[0][1]) != least[0][0]:
            heappop(least)
        bound = self._passed
        if bound is not None and least:
            bound = min(bound, least[0][0])
        if bound is not None and bound != NEVER and (self.sealed is None or bound > self.sealed):
            self.sealed = bound
        self._sealed_idle = self._rests and not waits

    @property
    def news(self) -> bool:
        """Whether the ports have not said all that is known."""
        return self._sealed_idle != self._idle or self._moved

    @property
    def _moved(self) -> bool:
        return self.sealed is not None and (self.shown is None or self.sealed > self.shown)

    # ---- what is said -----------------------------------------------------------------------------------

    def show(self, step: Step, outbox: Outbox) -> None:
        """Makes it part of the step that is about to be committed: once for each port."""
        news = self.news
        if not news and not self._sealed_idle:
            return
        if self._moved:
            self.shown = step.clock[SHOWN] = self.sealed  # type: ignore[assignment]
        if self._sealed_idle != self._idle:
            self._idle = self._sealed_idle
            step.clock[_RESTS] = int(self._idle)
        headers: Headers = {} if self.shown is None else {WATERMARK_HEADER: self.shown}
        if self._idle or not headers:  # that it is no longer idle may be all there is to say
            headers = {**headers, IDLE_HEADER: self._idle}
        last = {output.port: at for at, output in enumerate(step.outputs)}
        for port in self._ports:
            at = last.get(port)
            if at is not None:  # an event says that the port is not idle, unless it says that it is
                output = step.outputs[at]
                step.outputs[at] = output._replace(headers={**(output.headers or {}), **headers})
            elif news:
                step.outputs.append(outbox.watermark(port, headers))
                self.marks[port] = step.clock[port_marks_key(port)] = self.marks.get(port, 0) + 1
