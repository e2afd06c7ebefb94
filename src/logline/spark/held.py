"""Values that stay in the driver: a DataFrame, or a function on DataFrames. A shipped copy leads back to the value.

>>> import copy
>>> box = Held(print, "the function of 'enrich'")
>>> copy.deepcopy(box).value is print
True
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar
from uuid import uuid4
from weakref import WeakValueDictionary

from logline.errors import ShippingError

T = TypeVar("T")
_held: WeakValueDictionary[str, Held[Any]] = WeakValueDictionary()


class Held(Generic[T]):
    """A value that does not leave its process; elsewhere it can't be had, and says so."""

    # The key is another one in each run: in a slot, it is no part of what makes up the version of an operator.
    __slots__ = ("__dict__", "__weakref__", "_key", "_what")

    def __init__(self, value: T, what: str) -> None:
        self.value = value
        self._what = what
        self._key = uuid4().hex
        _held[self._key] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return _find, (self._key, self._what)


def _find(key: str, what: str) -> Any:
    return _held.get(key) or Elsewhere(what)


class Elsewhere:
    """In the place of a value in another process."""

    def __init__(self, what: str) -> None:
        self._what = what

    @property
    def value(self) -> Any:
        """Raises a ShippingError: outside the driver's process the value does not exist."""
        raise ShippingError(f"{self._what} lives in the driver's process, and only what runs there can use it")

    def __reduce__(self) -> tuple[Any, ...]:
        return Elsewhere, (self._what,)
