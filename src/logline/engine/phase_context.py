"""What user code may ask of the engine in `open`, `assign` and `ready`, and what the engine asks of its driver."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from logline.engine.codec import check_inset, instant, watermark_instant
from logline.engine.event_state import NO_EVENT_STATES, EventStates
from logline.engine.fires import Fire
from logline.engine.open_sets import Merges
from logline.engine.set_state import SetState
from logline.engine.sets import Member
from logline.graph.key_states import KeyCodec
from logline.graph.keys import Keys
from logline.graph.operator import Cause, Clock, Context, Duration
from logline.names import InsetId, PortName, Serial

if TYPE_CHECKING:
    from random import Random

    from logline.engine.phases import Phases


@dataclass(frozen=True)
class Services:
    """What an operator may ask for that only the driver has."""

    random: Random
    log: logging.Logger
    count: Callable[[str, int], None]
    greatest_time: Callable[[PortName, Any], int | None]
    """The greatest event time in a batch of that port, in microseconds; None if it has none."""
    encode_state: Callable[[Any], bytes]
    decode_state: Callable[[bytes], Any]
    check_state: Callable[[Any, bytes], None]
    """Raises unless the bytes come back as the state."""
    event_states: EventStates = NO_EVENT_STATES
    """How the event state of a set is written to the log and read back (R22)."""
    all_members: Callable[[Serial, SetState], Iterable[Member]] = lambda serial, known: known.members
    """Of a set with a checkpoint: those that were let go too."""
    stubs: Mapping[str, Any] = field(default_factory=dict)
    """Tests: what `ctx.call` gives, by the name of the function: a value, or a function to call instead."""
    inherited: Callable[[str, str], bytes | None] = lambda fn, digest: None
    """The answer that an earlier generation of the operator got to this question, as it is logged (R14)."""
    rejected: Callable[[Any], Any] = lambda payload: payload
    """The rows of an event on port `errors`."""
    keyed: KeyCodec | None = None
    """Writes and reads the states of keys; None if the operator has none."""


def counted(metric: str, n: Any) -> int:
    """What `ctx.count` was given as a plain number, which every report can carry: NumPy's count too.

    >>> import numpy
    >>> counted("rows", numpy.int64(3))
    3
    """
    try:
        whole = int(n)
    except (TypeError, ValueError, OverflowError):
        whole = None
    if whole is None or whole != n or not isinstance(metric, str):
        raise TypeError(f"ctx.count({metric!r}, {n!r}): give a name and a whole number")
    return whole


class PhaseContext(Context[Any]):
    """The context of `open`, `assign` and `ready`."""

    def __init__(self, phases: Phases, services: Services, merges: Merges) -> None:
        self._phases = phases
        self.merges = merges
        self.random = services.random
        self.log = services.log
        self.id = ""
        self.cause: Cause = "ready"
        self.fires: list[Fire] = []

    @property
    def state(self) -> Any:
        return self._phases.state

    @state.setter
    def state(self, value: Any) -> None:
        self._phases.state = value

    @property
    def keys(self) -> Keys[Any]:  # type: ignore[override]
        raise TypeError("ctx.keys belongs into generate(): what is changed there is logged with its outputs")

    @property
    def watermark(self) -> datetime | None:  # type: ignore[override]
        clock = self._phases.clock
        return None if clock is None or clock.watermark is None else watermark_instant(clock.watermark)

    def now(self) -> datetime:
        return instant(self._phases.moment.wall)

    def call(self, fn: Callable[..., Any], *args: Any, key: object = None) -> Any:
        raise TypeError("ctx.call() belongs into generate(): only there can its answer be kept")

    def row(self, index: int) -> Context[Any]:
        raise TypeError("ctx.row() belongs into generate()")

    def again(self, waits: Callable[[bool], None] | None = None) -> Context[Any]:
        raise TypeError("ctx.again() belongs into generate()")

    def pause(self, wait: Duration | Awaitable[Any] = "0s") -> Any:
        raise TypeError("ctx.pause() belongs into generate()")

    def give_up(self) -> None:
        raise TypeError("ctx.give_up() belongs into generate()")

    def fire(
        self,
        inset: InsetId,
        *,
        at: datetime | None = None,
        after: Duration | None = None,
        clock: Clock = "event",
        keep: bool = False,
    ) -> None:
        check_inset(inset)
        if keep:
            self._check_whole("fire(keep=True)", inset)
        self.fires.append(Fire(inset, self._phases.make_timer(f"fire({inset!r}, ", at, after, clock), keep))

    def open_sets(self, prefix: tuple[Any, ...] | None = None) -> dict[InsetId, Any]:
        if prefix is not None and not isinstance(prefix, tuple):
            raise TypeError(f"ctx.open_sets({prefix!r}): give the first parts of the ids as a tuple")
        return self._phases.open_sets(prefix)

    def merge(self, into: InsetId, *others: InsetId) -> None:
        self._check_whole("ctx.merge()", into, *others)
        self.merges.ask(into, *others)

    def _check_whole(self, said: str, *insets: InsetId) -> None:
        """A checkpoint speaks for members that are let go, so no other set can have them (R22, R32)."""
        if self._phases.spec.policy == "eventual":
            raise TypeError(
                f"{said} needs all members of a set, and policy='eventual' lets some go: leave the policy out"
            )
        for inset in filter(self._phases.is_saved, insets):
            raise TypeError(
                f"{said} needs all members of set {inset!r}, and a checkpoint of a run with policy='eventual' has "
                "let some go: such a set can only be generated as it is"
            )

    def ended(self, port: str = "in") -> bool:
        return self._phases.has_ended(PortName(port))

    def count(self, metric: str, n: int = 1) -> None:
        self._phases.services.count(metric, counted(metric, n))
