"""Where code of `generate` waits on a thread that may block: for a call, for a commit, after a stop."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from logline.engine import stimuli as on
from logline.engine.sets import Answer
from logline.errors import Abandoned
from logline.names import Serial
from logline.runtime.lives.calls_in_flight import CallInFlight, CallsInFlight

Key = tuple[Serial, int, int]
Report = Callable[[on.Stimulus], None]


def key_of(answer: Answer) -> Key:
    """The call that an answer is of."""
    return answer.serial, answer.row, answer.n


class Waits:
    """Calls that wait, from threads and from the event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Key, list[Callable[[], None]]] = {}
        """Several tries may wait for one call."""
        self._cut_off: list[Callable[[], None]] = []
        self.over = threading.Event()
        self.closed = False

    def add(self, key: Key, wake: Callable[[], None]) -> None:
        with self._lock:
            if self.closed:
                raise Abandoned
            self._waiting.setdefault(key, []).append(wake)

    def cut_off(self, wake: Callable[[], None]) -> None:
        """Somebody waits for the end of the life, after a stop."""
        with self._lock:
            if self.closed:
                raise Abandoned
            self._cut_off.append(wake)

    def wake(self, key: Key) -> None:
        with self._lock:
            wakes = self._waiting.pop(key, ())
        for wake in wakes:
            wake()

    def close(self) -> None:
        with self._lock:
            self.closed = True
            waiting, self._waiting = self._waiting, {}
        self.over.set()
        for wakes in (*waiting.values(), self._cut_off):
            for wake in wakes:
                wake()


class BlockingGate:
    """For code on a thread that may block."""

    def __init__(self, waits: Waits, report: Report, calls: CallsInFlight, *, announced: bool) -> None:
        self._waits = waits
        self._report = report
        self._calls = calls
        self._announced = announced

    def is_async(self) -> bool:
        return False

    def want(self, serial: Serial, row: int, n: int) -> CallInFlight:
        if self._announced:
            with self._calls.waiting(serial):
                self._wait((serial, row, n), on.CallWanted(serial, row, n))
        return self._calls.begin(serial) or self._cut_off(serial)

    def pause(self, serial: Serial, seconds: float) -> None:
        with self._calls.waiting(serial):
            self._waits.over.wait(seconds)
        if self._waits.closed:
            raise Abandoned
        if self._calls.stopping:
            self._cut_off(serial)

    def _cut_off(self, serial: Serial) -> NoReturn:
        """Waits for the end of the life."""
        with self._calls.waiting(serial):
            self._waits.over.wait()
        raise Abandoned

    def keep(self, answer: Answer) -> None:
        self._wait(key_of(answer), on.Answered(answer))

    def follow(self, answer: Answer, is_pending: Callable[[], bool]) -> None:
        self._wait(key_of(answer), None, is_pending)

    def _wait(self, key: Key, stimulus: on.Stimulus | None, still: Callable[[], bool] = lambda: True) -> None:
        """Until the machine says so; not at all if it has, after `still` was true."""
        woken = threading.Event()
        self._waits.add(key, woken.set)
        if stimulus is not None:
            self._report(stimulus)
        if not still():
            self._waits.wake(key)
        woken.wait()
        if self._waits.closed:
            raise Abandoned

    async def follow_async(self, answer: Answer, is_pending: Callable[[], bool]) -> None:
        raise AssertionError("plain code does not await")

    async def want_async(self, serial: Serial, row: int, n: int) -> CallInFlight:
        raise AssertionError("plain code does not await")

    async def pause_async(self, serial: Serial, wait: Awaitable[Any]) -> Any:
        raise AssertionError("plain code does not await")

    async def keep_async(self, answer: Answer) -> None:
        raise AssertionError("plain code does not await")
