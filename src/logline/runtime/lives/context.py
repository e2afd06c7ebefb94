"""The context of `generate`, and the calls made through it (Algorithm 4; R9).

An answer is handed to user code only once it is committed. Which way the code waits for that differs: on an
event loop it awaits, on a thread of its own it blocks, and where the engine's own thread runs the code, the
engine commits there and then. The three are `Gate`s; the rest is the same for all. What tries of one set share is in
`runtime/lives/calls.py`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from hashlib import blake2b
from typing import Any, Protocol

from logline.engine import codec
from logline.engine.keyed import KeyView
from logline.engine.phase_context import Services, counted
from logline.engine.phases import Phases
from logline.engine.sets import NEVER, Answer, Kept, bare
from logline.errors import AnswerMismatch, CodecError, TryOver
from logline.graph.authored import module_of
from logline.graph.durations import duration
from logline.graph.keys import Keys
from logline.graph.operator import Cause, Clock, Context, Duration
from logline.names import InsetId, PortName, Serial
from logline.runtime.lives.calls import Attempt, SetCalls
from logline.runtime.lives.calls_in_flight import CallInFlight


class Gate(Protocol):
    """Where a call waits: first until it may be made, then until its answer is committed."""

    def is_async(self) -> bool:
        """Whether the code that asks can await."""

    def want(self, serial: Serial, row: int, n: int) -> CallInFlight:
        """Waits until the call may be made: after a stop, for ever."""

    def keep(self, answer: Answer) -> None: ...

    def pause(self, serial: Serial, seconds: float) -> None:
        """Waits so long; a stop does not wait for it, and the code does not come back from it then."""

    async def want_async(self, serial: Serial, row: int, n: int) -> CallInFlight: ...

    async def pause_async(self, serial: Serial, wait: Awaitable[Any]) -> Any: ...

    async def keep_async(self, answer: Answer) -> None: ...

    def follow(self, answer: Answer, is_pending: Callable[[], bool]) -> None:
        """Waits until an answer is committed that another try has handed in."""

    async def follow_async(self, answer: Answer, is_pending: Callable[[], bool]) -> None: ...


def _decoded(logged: bytes, *args: Any) -> Any:
    """An answer that is there already."""
    return codec.decode(logged)


def call_name(fn: Callable[..., Any]) -> str:
    """A function's name, the same in every life."""
    while hasattr(fn, "func"):  # functools.partial
        fn = fn.func
    return f"{module_of(fn)}.{getattr(fn, '__qualname__', type(fn).__qualname__)}"


class SetContext(Context[Any]):
    """The context of one input set in `generate`, or of one row of it."""

    def __init__(
        self,
        phases: Phases,
        services: Services,
        gate: Gate,
        serial: Serial,
        inset: InsetId,
        digest: Callable[[], bytes],
        cause: Cause,
        calls: SetCalls,
        attempt: Attempt,
        row: int = -1,
        made: int = 0,
        used: Mapping[tuple[str, str], int] | None = None,
    ) -> None:
        self._phases = phases
        self._services = services
        self._gate = gate
        self._serial = serial
        self._inset = inset
        self._of_members = digest
        self._calls = calls
        self._attempt = attempt
        self._row = row
        self._made = made
        """How many calls of this row were made."""
        self._used = dict(used or {})
        """How many answers of an earlier set were used for each question: a function with its arguments."""
        self.cause = cause
        self.random = services.random
        self.view: KeyView | None = None

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:  # type: ignore[override]
        return _Tagged(self._services.log, {"operator": self._phases.spec.name, "inset": self._inset})

    @property
    def state(self) -> Any:
        """A copy: only `assign` may change the global state."""
        encoded = self._phases.encoded_state
        if encoded is not None:
            return self._services.decode_state(encoded)
        kind = self._phases.op.State
        return None if kind is None else kind()

    @property
    def keys(self) -> Keys[Any]:  # type: ignore[override]
        if self.view is None:
            raise TypeError("ctx.keys: the operator has no state per key: declare Keyed = the type of a state")
        return self.view

    @property
    def id(self) -> str:  # type: ignore[override]
        """Made of the set's members: a set of other events that gets the same serial after a crash must not be
        taken for this one by the outside."""
        inset = self._inset if not isinstance(self._inset, tuple) else list(self._inset)
        version = [self.version] if self.version > 1 else []  # one may have no members that the one before has not
        text = codec.encode([inset, self._of_members(), *version])
        found = f"{self._phases.spec.log_id}/{self._phases.spec.name}/{blake2b(text, digest_size=12).hexdigest()}"
        return found if self._row < 0 else f"{found}/{self._row}"

    @property
    def version(self) -> int:  # type: ignore[override]
        return self._kept.times + 1

    @property
    def changed(self) -> bool:  # type: ignore[override]
        known = self._phases.sets.get(self._serial)
        return known is None or known.kept.members < known.count

    @property
    def _kept(self) -> Kept:
        known = self._phases.sets.get(self._serial)
        return NEVER if known is None else known.kept

    @property
    def port(self) -> str | None:  # type: ignore[override]
        known = self._phases.sets.get(self._serial)
        if not self._phases.spec.stateless or known is None or not known.members:
            return None
        channel = self._phases.channels.get(known.members[0].channel)
        return None if channel is None else channel.port

    @property
    def watermark(self) -> datetime | None:  # type: ignore[override]
        clock = self._phases.clock
        return None if clock is None or clock.watermark is None else codec.watermark_instant(clock.watermark)

    def now(self) -> datetime:
        return codec.instant(self._phases.moment.wall)

    def row(self, index: int) -> Context[Any]:
        if index < 0:
            raise ValueError("rows are counted from 0")
        return self._like(index, 0)

    def again(self, waits: Callable[[bool], None] | None = None) -> Context[Any]:
        return self._like(self._row, self._made, self._used, waits)

    def give_up(self) -> None:
        self._attempt.end()

    def pause(self, wait: Duration | Awaitable[Any] = "0s") -> Any:
        if self._gate.is_async():
            return self._gate.pause_async(
                self._serial, wait if isinstance(wait, Awaitable) else asyncio.sleep(duration(wait).total_seconds())
            )
        if isinstance(wait, Awaitable):
            raise TypeError("plain code can't await: give ctx.pause() a time")
        return self._gate.pause(self._serial, duration(wait).total_seconds())

    def _like(
        self,
        row: int,
        made: int,
        used: Mapping[tuple[str, str], int] | None = None,
        waits: Callable[[bool], None] | None = None,
    ) -> SetContext:
        found = SetContext(
            self._phases,
            self._services,
            self._gate,
            self._serial,
            self._inset,
            self._of_members,
            self.cause,
            self._calls,
            Attempt(self._attempt, waits),
            row,
            made,
            used,
        )
        found.view = self.view
        return found

    def fire(
        self,
        inset: InsetId,
        *,
        at: datetime | None = None,
        after: Duration | None = None,
        clock: Clock = "event",
        keep: bool = False,
    ) -> None:
        raise TypeError("ctx.fire() belongs into assign() or ready(): generate() can't make a set due")

    def open_sets(self, prefix: tuple[Any, ...] | None = None) -> Mapping[InsetId, Any]:
        raise TypeError("ctx.open_sets() belongs into assign(): others may be open when generate() is repeated")

    def merge(self, into: InsetId, *others: InsetId) -> None:
        raise TypeError("ctx.merge() belongs into assign(): generate() can't change sets")

    def ended(self, port: str = "in") -> bool:
        return self._phases.has_ended(PortName(port))

    def count(self, metric: str, n: int = 1) -> None:
        self._services.count(metric, counted(metric, n))

    # ---- calls ----------------------------------------------------------------------------------------

    def call(self, fn: Callable[..., Any], *args: Any, key: object = None) -> Any:
        name, digest, n = call_name(fn), self._digest(fn, args, key), self._made
        self._check_going(name)
        self._made += 1
        kept = self._calls.find((self._row, n))
        if kept is not None and not self._is_same(kept, name, digest):
            raise self._mismatch(kept, name, n)
        if self._calls.carries:
            kept = self._carried(name, digest) if kept is None else kept
        asynchronous = self._gate.is_async()
        if kept is not None:
            return self._follow_async(kept) if asynchronous else self._follow(kept)
        if name in self._services.stubs:
            stub = self._services.stubs[name]
            fn = stub if callable(stub) else lambda *_: stub
        elif (given := self._services.inherited(name, digest)) is not None:
            fn = partial(_decoded, given)
        if asynchronous:
            return self._ask_async(fn, args, name, digest, n)
        self._calls.asks((self._row, n), name, digest)
        with self._attempt.waiting_for_log():
            asked = self._gate.want(self._serial, self._row, n)
        with asked:
            self._check_going(name)
            value = fn(*args)
            if inspect.isawaitable(value):
                raise TypeError(
                    f"{name} is async: call it from an async generate(), or give ctx.call a plain function"
                )
            answer = self._answer(name, digest, n, value)
            counts = self._hand_in(answer)
            if counts is not answer:
                return self._follow(counts)
            with self._attempt.waiting_for_log():
                self._gate.keep(answer)
        self._check_going(name)
        return value

    def _is_same(self, kept: Answer, name: str, digest: str) -> bool:
        """Whether a kept answer is one to this question. The function of a `map_rows` may be renamed: its row is what
        it is asked about, and there is no other call in its place."""
        of_row = self._row >= 0 and kept.n == 0 and self._phases.op.asks_by_row
        return kept.digest == digest and (of_row or bare(kept.fn) == bare(name))

    def _carried(self, name: str, digest: str) -> Answer | None:
        """The next answer to this question that was given before the row was retried."""
        before = self._used.get((bare(name), digest), 0)
        found = self._calls.find_carried(self._row, name, digest, before)
        if found is not None:
            self._used[bare(name), digest] = before + 1
        return found

    async def _ask_async(self, fn: Callable[..., Any], args: tuple[Any, ...], name: str, digest: str, n: int) -> Any:
        self._calls.asks((self._row, n), name, digest)
        with self._attempt.waiting_for_log():
            asked = await self._gate.want_async(self._serial, self._row, n)
        with asked:
            self._check_going(name)
            value = fn(*args)
            if inspect.isawaitable(value):
                value = await value
            answer = self._answer(name, digest, n, value)
            counts = self._hand_in(answer)
            if counts is not answer:
                return await self._follow_async(counts)
            with self._attempt.waiting_for_log():
                await self._gate.keep_async(answer)
        self._check_going(name)
        return value

    def _check_going(self, name: str) -> None:
        if self._attempt.over:
            raise TryOver(f"{name} is called in a try of input set {self._inset!r} that is over: it was given up")

    def _hand_in(self, answer: Answer) -> Answer:
        """The answer that counts: this one, or that of another try."""
        counts = self._calls.hand_in(answer, self._attempt)
        if counts is not answer:
            self._services.count("late_answers", 1)
            self.log.info("an answer of %s came too late and is dropped", answer.fn)
        if counts is None:
            self._check_going(answer.fn)
            known = self._calls.find((answer.row, answer.n))
            raise self._mismatch(known or answer, answer.fn, answer.n)
        return counts

    def _follow(self, kept: Answer) -> Any:
        """The value of an answer that another try got, once it is committed."""
        if self._is_pending(kept):
            with self._attempt.waiting_for_log():
                self._gate.follow(kept, partial(self._is_pending, kept))
        self._check_going(kept.fn)
        return codec.decode(kept.value)

    async def _follow_async(self, kept: Answer) -> Any:
        if self._is_pending(kept):
            with self._attempt.waiting_for_log():
                await self._gate.follow_async(kept, partial(self._is_pending, kept))
        self._check_going(kept.fn)
        return codec.decode(kept.value)

    def _is_pending(self, kept: Answer) -> bool:
        return self._calls.is_pending((kept.row, kept.n))

    def _mismatch(self, kept: Answer, name: str, n: int) -> AnswerMismatch:
        return AnswerMismatch(
            f"call {n + 1} of input set {self._inset!r} was {kept.fn} with other arguments or another function "
            f"before, now it is {name}: what generate() asks must follow from its inputs and from "
            "earlier answers alone (use ctx.call for whatever else decides it)"
        )

    def _answer(self, name: str, digest: str, n: int, value: Any) -> Answer:
        try:
            return Answer(self._serial, self._row, n, name, digest, codec.encode(value))
        except CodecError as error:
            raise CodecError(f"the answer of {name} can't be kept: {error}") from error

    def _digest(self, fn: Callable[..., Any], args: tuple[Any, ...], key: object) -> str:
        try:
            return codec.digest(key if key is not None else list(args))
        except CodecError as error:
            raise CodecError(
                f"the arguments of {call_name(fn)} can't be compared after a crash: {error}; "
                "give ctx.call(..., key=...) a plain value that stands for them"
            ) from error


class _Tagged(logging.LoggerAdapter[logging.Logger]):
    """Says in each line which operator and input set it is about."""

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        about = self.extra or {}
        return f"[{about['operator']} {about['inset']}] {msg}", {**kwargs, "extra": about}
