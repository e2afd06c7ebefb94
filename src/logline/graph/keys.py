"""State per key, as an author of operators sees it: `Operator.Keyed` declares it, `ctx.keys` gives it in `generate`.

>>> import logline as ll
>>> import pyarrow as pa
>>> class Visits(ll.Operator):
...     outputs = {"out": "user string, visits long"}
...     Keyed = int
...     def generate(self, inset, batch, ctx):
...         for user in batch["user"].to_pylist():
...             visits = (ctx.keys.get((user,)) or 0) + 1
...             ctx.keys.set((user,), visits)
...             yield pa.record_batch({"user": [user], "visits": [visits]})
>>> op = ll.testing.drive(Visits())
>>> op.send(pa.record_batch({"user": ["ann", "bob"]})).send(pa.record_batch({"user": ["ann"]})).out().to_pylist()
[{'user': 'ann', 'visits': 1}, {'user': 'bob', 'visits': 1}, {'user': 'ann', 'visits': 2}]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Generic, Literal, TypeVar
from uuid import UUID

V = TypeVar("V")

KeyAtom = None | bool | int | float | str | bytes | date | datetime | time | timedelta | Decimal | UUID
Key = tuple[KeyAtom, ...]
"""A key: the values of its columns. A null is a value like any other, as in SQL's `group by`."""


class Keys(ABC, Generic[V]):
    """The states of an operator's keys, during `generate` of one input set.

    What is changed here is part of the step that logs the outputs of the set (R1). If `generate` fails, or a stop
    cuts it off, nothing has changed. A state is what was logged, read back: to change the object that `get` gave
    changes nothing until it is given to `set`.
    """

    @abstractmethod
    def get(self, key: Key) -> V | None:
        """The state of a key; None if it has none, or if its time to live is over."""

    @abstractmethod
    def get_all(self, keys: Sequence[Key], *, stale: bool = False) -> list[V | None]:
        """The states of many keys. With `stale` also those that are to be forgotten and are still there."""

    @abstractmethod
    def set(self, key: Key, state: V) -> None:
        """The new state of a key; its time to live begins anew."""

    @abstractmethod
    def set_all(self, keys: Sequence[Key], states: Sequence[V]) -> None:
        """The new states of many keys."""

    @abstractmethod
    def delete(self, key: Key) -> None:
        """Forgets the key, if it is there. A timer of it stays."""

    @abstractmethod
    def timer(
        self,
        key: Key,
        *,
        at: datetime | None = None,
        after: str | timedelta | None = None,
        clock: Literal["event", "wall"] = "event",
    ) -> None:
        """Has `generate` called for this key: at a time of the event or wall clock, or `after` so much time.

        It gets no batch then, `ctx.cause` is `fired`, and the id of the input set is the key, followed by the time
        that was waited for. For one key the latest call wins. When the input ends, all timers come with the cause
        `end`; one that is set then is not kept.
        """

    @abstractmethod
    def cancel_timer(self, key: Key) -> None:
        """Clears the timer of a key, if it has one."""

    @abstractmethod
    def part(self) -> Keys[V]:
        """A view for code that may fail by itself: what it changes counts once `keep` is called on it."""

    @abstractmethod
    def keep(self) -> None:
        """What was changed in this part counts."""
