"""The context of a `stateful` function: that of one key of one event, with the key's state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Generic, TypeVar

from logline.graph.keys import Key, Keys
from logline.graph.operator import Cause, Clock, Context, Duration
from logline.names import InsetId

S = TypeVar("S")
_UNREAD: Any = object()


class KeyContext(Context[S], Generic[S]):
    """What a function of `stateful` may ask of the engine, for one key of one event.

    `state` is the key's: change it in place, or assign it. What was changed counts when the function returns, with
    what it returned. If it raises, nothing has changed.
    """

    key: Key
    """The values of the columns `by`."""

    def __init__(
        self, inner: Context[Any], keys: Keys[S], key: Key, make: Callable[[], S], *, touch: bool, fired: bool
    ) -> None:
        self._inner = inner
        self._all = keys
        self._part = keys.part()
        self._make = make
        self._touch = touch
        self._fired = fired
        self._state: Any = _UNREAD
        self.key = key

    # ---- the key's state ------------------------------------------------------------------------------

    @property
    def state(self) -> S:
        """The state of the key; a new one, made without arguments, if it has none."""
        if self._state is _UNREAD:
            self._state = self._part.get(self.key)
        if self._state is None:
            self._state = self._make()
        found: S = self._state
        return found

    @state.setter
    def state(self, value: S | None) -> None:
        self._state = value

    def forget(self) -> None:
        """Forgets the key: it has no state after this call. The same as `ctx.state = None`."""
        self._state = None

    def timer(self, *, at: datetime | None = None, after: Duration | None = None, clock: Clock = "event") -> None:
        """Has the function called for this key, with an empty batch and `ctx.cause == "fired"`: at a time of the
        event or wall clock, or `after` so much time. A key has one timer: the latest call wins."""
        self._part.timer(self.key, at=at, after=after, clock=clock)

    def cancel_timer(self) -> None:
        """Clears the key's timer, if it has one."""
        self._part.cancel_timer(self.key)

    def save(self) -> None:
        """The function has returned: what it changed is part of the event's step (R1)."""
        if self._state is _UNREAD and self._touch:
            self._state = self._part.get(self.key)
            if self._state is None:
                self._state = _UNREAD
        if self._state is None:
            self._part.delete(self.key)
        elif self._state is not _UNREAD:
            self._part.set(self.key, self._state)
        self._part.keep()

    # ---- as in any context ----------------------------------------------------------------------------

    @property
    def keys(self) -> Keys[Any]:  # type: ignore[override]
        raise TypeError("ctx.keys: a stateful function has the state of its own key, in ctx.state")

    @property
    def cause(self) -> Cause:  # type: ignore[override]
        """Why the function is called: rows have come (`ready`), the key's timer has (`fired`), or the `end`."""
        return self._inner.cause if self._fired else "ready"  # the set of rows that are retried was fired

    @property
    def random(self) -> Any:  # type: ignore[override]
        return self._inner.random

    @property
    def id(self) -> str:  # type: ignore[override]
        return self._inner.id

    @property
    def log(self) -> Any:  # type: ignore[override]
        return self._inner.log

    @property
    def port(self) -> str | None:  # type: ignore[override]
        return self._inner.port

    @property
    def watermark(self) -> datetime | None:  # type: ignore[override]
        return self._inner.watermark

    def now(self) -> datetime:
        return self._inner.now()

    def call(self, fn: Callable[..., Any], *args: Any, key: object = None) -> Any:
        return self._inner.call(fn, *args, key=key)

    def row(self, index: int) -> Context[S]:
        raise TypeError("ctx.row(): the calls of a stateful function are counted by key; use ctx.call")

    def again(self, waits: Callable[[bool], None] | None = None) -> KeyContext[S]:
        """For another try: with the state as it was."""
        inner = self._inner.again(waits)
        return KeyContext(inner, self._all, self.key, self._make, touch=self._touch, fired=self._fired)

    def give_up(self) -> None:
        self._inner.give_up()

    def pause(self, wait: Duration | Awaitable[Any] = "0s") -> Any:
        return self._inner.pause(wait)

    def fire(
        self,
        inset: InsetId,
        *,
        at: datetime | None = None,
        after: Duration | None = None,
        clock: Clock = "event",
        keep: bool = False,
    ) -> None:
        raise TypeError("ctx.fire() belongs into assign() or ready(); a key is called again by ctx.timer()")

    def open_sets(self, prefix: tuple[Any, ...] | None = None) -> Mapping[InsetId, Any]:
        return self._inner.open_sets(prefix)

    def merge(self, into: InsetId, *others: InsetId) -> None:
        self._inner.merge(into, *others)

    def ended(self, port: str = "in") -> bool:
        return self._inner.ended(port)

    def count(self, metric: str, n: int = 1) -> None:
        self._inner.count(metric, n)
