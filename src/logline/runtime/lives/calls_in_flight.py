"""The calls that user code of one life has under way, so that a stop waits for these and begins no other (R9).

A stop must not lose an answer that is paid for, and must not pay for another one. So from `stop` on:

- no call begins: the code that wants to make one waits, and does not come back in this life;
- calls that are under way end, and their answers are committed as always;
- a set whose code only waits, with no call under way, is *interrupted*: it stays due in the log with the answers that
  it has, and the next life generates it.

A call may be made inside another one, as `map_rows` does. The outer one then only waits for the inner one, and does
not count.

    >>> from logline.names import Serial
    >>> told = []
    >>> calls = CallsInFlight(told.append)
    >>> first = calls.begin(Serial(7))
    >>> calls.stop()
    >>> calls.begin(Serial(7)) is None              # another one is refused,
    True
    >>> with calls.waiting(Serial(7)):              # so the code that wants it waits;
    ...     before = list(told)
    ...     first.end()                             # with the end of the first nothing is under way any more
    >>> before, told, calls.refused(Serial(7))
    ([], [7], True)
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType

from logline.names import Serial


class CallInFlight:
    """One call, from the moment it may be made until its answer is committed."""

    __slots__ = ("_outer", "calls", "inner", "over", "serial")

    def __init__(self, calls: CallsInFlight, serial: Serial, outer: CallInFlight | None) -> None:
        self.calls = calls
        self.serial = serial
        self.inner = 0
        """Calls and waits inside of it."""
        self.over = False
        self._outer = outer

    def __enter__(self) -> CallInFlight:
        _around.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if _around.get() is self:  # else it is dropped somewhere else than where it was made
            _around.set(self._outer)
        self.end()

    def end(self) -> None:
        """It is over; once is enough."""
        self.calls.end(self, self._outer)


_around: ContextVar[CallInFlight | None] = ContextVar("logline_call", default=None)
"""The call that the code is in."""


class CallsInFlight:
    """What is under way in one life, for all sets and on all threads."""

    def __init__(self, interrupted: Callable[[Serial], None]) -> None:
        """`interrupted` hears of each set that a stop has cut off, on any thread."""
        self._interrupted = interrupted
        self._lock = threading.Lock()
        self._calls: Counter[Serial] = Counter()
        """Calls under way by set; those that wait for an inner one do not count."""
        self._count = 0
        self._waiting: Counter[Serial] = Counter()
        self._refused: set[Serial] = set()
        self.stopping = False

    @property
    def count(self) -> int:
        """How many calls are under way."""
        return self._count

    def stop(self) -> None:
        """No call begins from now on."""
        with self._lock:
            self.stopping = True
            found = [serial for serial in self._waiting if self._cut_off(serial)]
        self._tell(found)

    def refused(self, serial: Serial) -> bool:
        """Whether code of this set was cut off. Whatever comes of it now does not count: the code may have caught
        the exception that ended it, or a time limit of its own."""
        return serial in self._refused

    def refuse(self, serial: Serial) -> None:
        """A stop cuts the code of this set off."""
        with self._lock:
            self._refused.add(serial)

    def begin(self, serial: Serial) -> CallInFlight | None:
        """A call that is to be made now, to be entered where it is made; None after a stop."""
        with self._lock:
            if self.stopping:
                return None
            outer = self._outer(serial)
            self._enclose(outer, 1)
            self._add(serial, 1)
            return CallInFlight(self, serial, outer)

    def end(self, call: CallInFlight, outer: CallInFlight | None) -> None:
        """For the call itself."""
        with self._lock:
            if call.over:
                return
            call.over = True
            if not call.inner:
                self._add(call.serial, -1)
            self._enclose(outer, -1)
            found = [call.serial] if self._cut_off(call.serial) else []
        self._tell(found)

    @contextmanager
    def waiting(self, serial: Serial) -> Iterator[None]:
        """Code of this set waits for something that need not come before a stop: its turn, a pause, a permission."""
        with self._lock:
            outer = self._outer(serial)
            _count(self._waiting, serial, 1)
            self._enclose(outer, 1)
            found = [serial] if self._cut_off(serial) else []
        self._tell(found)
        try:
            yield
        finally:
            with self._lock:
                _count(self._waiting, serial, -1)
                self._enclose(outer, -1)

    def _outer(self, serial: Serial) -> CallInFlight | None:
        """The call of the same set that the code is in."""
        outer = _around.get()
        return outer if outer is not None and outer.calls is self and outer.serial == serial else None

    def _enclose(self, outer: CallInFlight | None, more: int) -> None:
        """Something inside a call begins or ends: a call with something inside only waits for that."""
        if outer is None or outer.over:
            return
        before, outer.inner = outer.inner, outer.inner + more
        self._add(outer.serial, (not outer.inner) - (not before))

    def _add(self, serial: Serial, more: int) -> None:
        self._count += more
        _count(self._calls, serial, more)

    def _cut_off(self, serial: Serial) -> bool:
        """Whether the set has come to where a stop leaves it."""
        if self.stopping and self._waiting[serial] and not self._calls[serial]:
            self._refused.add(serial)
            return True
        return False

    def _tell(self, serials: list[Serial]) -> None:
        for serial in serials:
            self._interrupted(serial)


def _count(counter: Counter[Serial], serial: Serial, more: int) -> None:
    """Sets come and go: one without anything has no entry."""
    counter[serial] += more
    if not counter[serial]:
        del counter[serial]
