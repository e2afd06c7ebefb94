"""Keyed state: one value per key, changed by `generate` in the step that logs its outputs (R1, R31; ADR 0041).

`KeyedStates` is what an instance has of it in memory: bytes, as the log has them. Each try of `generate` works on a
`KeyView` of its own. What a view has changed is taken over when the set is generated, so that the next set sees it;
a try that failed or was cut off leaves nothing behind. Since a state is read from its bytes whenever it is asked for,
a life sees exactly what the next one would see.

    >>> states = KeyedStates(KeyCodec("visits", int))
    >>> view = states.view()
    >>> view.set(("BZ234", None), 7)
    >>> states.view().get(("BZ234", None)) is None      # another try does not see it
    True
    >>> states.apply(view.take())
    >>> states.view().get(("BZ234", None))
    7

A time to live is a span since the state was last set, by the event clock if the operator has one, else by the wall
clock. The time is stored with the state; nothing waits for it. A state whose time is over is not seen any more, and
each set that is generated removes a bounded number of those.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from math import isnan
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from logline.engine import codec
from logline.engine.moments import Monotonic, Wall
from logline.engine.sets import Timer
from logline.errors import CodecError, TryOver
from logline.graph.key_states import KeyCodec
from logline.graph.keys import Key, Keys
from logline.names import InsetId

KEY = "@key"
"""What the ids of keys' timers begin with; no author's id does."""
NEVER = 1 << 62
"""When a state was set, if its operator's event clock had not begun: it is not forgotten before it is set again."""
SWEPT = 64
"""States that one set removes at least, if the time of so many is over."""

_pack = msgspec.msgpack.Encoder().encode
_PLAIN = {str, int, bool, bytes, type(None)}
_OTHERS = {float, date, datetime, time, timedelta, Decimal, UUID}
_NAN = float("nan")


class KeyState(msgspec.Struct, frozen=True, gc=False):
    """The state of one key. There may be millions: it is small, and nothing for the garbage collector."""

    value: bytes
    touched: int = 0
    """When it was last set, in microseconds since 1970; only where there is a time to live."""


class KeyChanges(NamedTuple):
    """What one input set has changed of keys."""

    states: Mapping[bytes, KeyState | None]
    """None for one that is deleted."""
    timers: Mapping[InsetId, Timer | None]
    wait_until: Monotonic | None = None
    timer_at: Wall | None = None
    rest: bool = False
    """As in `Intake`: what the timers wait for, and whether one has come already. Only if there are new ones."""


def encode_key(key: Key) -> bytes:
    """A key as bytes: the same for keys that are equal in SQL. One instant in two time zones is one key, and so is
    every NaN.

    >>> decode_key(encode_key(("BZ234", None, 7)))
    ('BZ234', None, 7)
    """
    if type(key) is tuple and key:
        kinds = set(map(type, key))
        try:
            if kinds <= _PLAIN:
                return _pack(key)
            if kinds <= _PLAIN | _OTHERS:
                return codec.encode([_normal(atom) for atom in key])
        except OverflowError:
            return codec.encode(list(key))  # an int of more than 64 bits
        except UnicodeEncodeError as error:
            raise CodecError(f"{key!r:.80} can't be a key: a text in it is not valid Unicode ({error})") from None
    raise CodecError(
        f"{key!r:.80} can't be a key: give a tuple with a value for each column, as in ('BZ234', 7): texts, numbers, "
        "bytes, dates, times, decimals or None"
    )


def decode_key(raw: bytes) -> Key:
    """The key that was encoded."""
    return tuple(codec.decode(raw))


def _normal(atom: Any) -> Any:
    if type(atom) is float:
        return _NAN if isnan(atom) else atom + 0.0  # no zero below zero
    if type(atom) is datetime and atom.tzinfo is not None:
        return atom.astimezone(UTC)
    return atom


def timer_id(raw: bytes) -> InsetId:
    """The id of a key's timer."""
    return (KEY, *decode_key(raw))  # type: ignore[arg-type]


def is_key_timer(inset: InsetId) -> bool:
    """Whether a timer is one of a key."""
    return type(inset) is tuple and inset[:1] == (KEY,)


def fired_id(inset: InsetId, at: int) -> InsetId:
    """The id of the set in which a key's timer comes: the key, and the time that was waited for."""
    assert isinstance(inset, tuple)
    return (*inset[1:], codec.instant(at))


class KeyedStates:
    """The states of all keys of one instance."""

    def __init__(
        self,
        codec: KeyCodec,
        *,
        ttl: int | None = None,
        timer: Callable[..., Timer | None] | None = None,
    ) -> None:
        """`timer` makes a timer of what an author asks for."""
        self.codec = codec
        self.ttl = ttl
        self.make_timer = timer
        self.states: dict[bytes, KeyState] = {}
        self._oldest: OrderedDict[bytes, None] = OrderedDict()
        """With a time to live: the keys in the order in which they were set."""

    def __len__(self) -> int:
        return len(self.states)

    def restore(self, states: dict[bytes, KeyState]) -> None:
        """As they were logged; decoded when somebody asks for them."""
        self.states = states
        if self.ttl is not None:
            self._oldest = OrderedDict.fromkeys(sorted(states, key=lambda raw: states[raw].touched))

    def view(self, now: int | None = None, *, at_end: bool = False) -> KeyView:
        """For one try of `generate`. `now`: what the clock says that counts for the time to live."""
        return KeyView(self, now, at_end=at_end)

    def is_over(self, state: KeyState, now: int | None) -> bool:
        """Whether a state is to be forgotten."""
        return self.ttl is not None and now is not None and now - state.touched >= self.ttl

    def expired(self, now: int | None, most: int, but: Mapping[bytes, Any]) -> Iterable[bytes]:
        """Up to so many keys whose time is over, the longest first."""
        found: list[bytes] = []
        for raw in self._oldest:
            if len(found) == most or not self.is_over(self.states[raw], now):
                break
            if raw not in but:
                found.append(raw)
        return found

    def apply(self, changes: KeyChanges) -> None:
        """Takes over what a set has changed."""
        for raw, state in changes.states.items():
            if state is None:
                self.states.pop(raw, None)
                self._oldest.pop(raw, None)
            else:
                self.states[raw] = state
                if self.ttl is not None:
                    self._oldest[raw] = None
                    self._oldest.move_to_end(raw)


class KeyView(Keys[Any]):
    """The states as one try of `generate` sees and changes them."""

    def __init__(self, states: KeyedStates, now: int | None, *, at_end: bool, within: KeyView | None = None) -> None:
        self._all = states
        self._within = within
        self._now = now
        self._at_end = at_end
        self._changed: dict[bytes, KeyState | None] = {}
        self._timers: dict[InsetId, Timer | None] = {}
        self._over = False

    def get(self, key: Key) -> Any:
        return self._get(encode_key(key), stale=False)

    def get_all(self, keys: Sequence[Key], *, stale: bool = False) -> list[Any]:
        get = self._get
        return [get(raw, stale) for raw in map(encode_key, keys)]

    def _get(self, raw: bytes, stale: bool) -> Any:
        state = self._state(raw, stale)
        return None if state is None else self._all.codec.decode(state.value)

    def _state(self, raw: bytes, stale: bool) -> KeyState | None:
        if raw in self._changed:
            return self._changed[raw]
        if self._within is not None:
            return self._within._state(raw, stale)
        state = self._all.states.get(raw)
        return None if state is None or (not stale and self._all.is_over(state, self._now)) else state

    def set(self, key: Key, state: Any) -> None:
        self.set_all((key,), (state,))

    def set_all(self, keys: Sequence[Key], states: Sequence[Any]) -> None:
        self._check_going()
        known, encode, ttl = self._all.states, self._all.codec.encode, self._all.ttl
        touched = 0 if ttl is None else NEVER if self._now is None else self._now
        changed: dict[bytes, KeyState | None] = {}
        for key, state in zip(keys, states, strict=True):
            raw, value = encode_key(key), encode(state)
            before = known.get(raw)
            same = ttl is None and before is not None and before.value == value
            if not same or self._is_changed(raw):
                changed[raw] = KeyState(value, touched)
        self._changed.update(changed)

    def delete(self, key: Key) -> None:
        self._check_going()
        raw = encode_key(key)
        if raw in self._all.states or self._is_changed(raw):
            self._changed[raw] = None

    def _is_changed(self, raw: bytes) -> bool:
        return raw in self._changed or (self._within is not None and self._within._is_changed(raw))

    def timer(
        self,
        key: Key,
        *,
        at: datetime | None = None,
        after: str | timedelta | None = None,
        clock: Any = "event",
    ) -> None:
        self._check_going()
        assert self._all.make_timer is not None
        if at is None and after is None:
            raise TypeError(f"timer({key!r}): give a time with at=, or a span with after=")
        timer = self._all.make_timer(f"timer({key!r}, ", at, after, clock)
        if timer is None:
            raise ValueError(f"timer({key!r}, after={after!r}): the span must be positive")
        if not self._at_end:
            self._timers[timer_id(encode_key(key))] = timer

    def cancel_timer(self, key: Key) -> None:
        self._check_going()
        self._timers[timer_id(encode_key(key))] = None

    def part(self) -> KeyView:
        return KeyView(self._all, self._now, at_end=self._at_end, within=self)

    def keep(self) -> None:
        if self._within is None:
            raise TypeError("keep() is for what ctx.keys.part() gave: the rest counts when generate() is through")
        self._check_going()
        self._within._changed.update(self._changed)
        self._within._timers.update(self._timers)
        self._over = True

    def _check_going(self) -> None:
        if self._over or (self._within is not None and self._within._over):
            raise TryOver("ctx.keys is used in a try of an input set that is over")

    def take(self) -> KeyChanges:
        """What was changed, and some of the states whose time is over. Nothing can be changed here any more."""
        self._over = True
        changed = self._changed
        for raw in self._all.expired(self._now, max(SWEPT, 2 * len(changed)), changed):
            changed[raw] = None
        return KeyChanges(changed, self._timers)
