"""A time limit for user code that counts the code's own time alone.

A `ctx.call` hands its answer in and waits until the log has it. How long that takes is not up to the code: a
neighbour may hold up the thread that commits, the disk may be busy. So the clock stands still while a call of the
code waits for the log, and once a function on a thread has returned, however late the event loop hears of it.

    >>> async def waits_for_the_log():
    ...     async with OwnTime(0.01) as time:
    ...         time.stand_still(True)
    ...         await asyncio.sleep(0.05)               # takes longer than it may
    ...         time.stand_still(False)
    ...         return "in time"
    >>> asyncio.run(waits_for_the_log())
    'in time'
"""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType

ROUNDING = 1e-6
"""Seconds. A timer may come a rounding error too early."""


class OwnTime:
    """The block raises TimeoutError once its code has had so many seconds. Made on the event loop that it is for."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        """What the code had left when the clock was last set going."""
        self._loop = asyncio.get_running_loop()
        self._timeout = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None
        self._lock = threading.Lock()
        self._going_since: float | None = None
        """When the clock was last set going; None while it stands still."""
        self._waits = 0
        """Several calls of the code may wait at once, on several threads."""
        self._over = False

    @property
    def expired(self) -> bool:
        """Whether the code has had its time."""
        return self._timeout.expired()

    async def __aenter__(self) -> OwnTime:
        await self._timeout.__aenter__()
        self._going_since = self._loop.time()
        self._look()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:  # from here on no thread wakes the loop, which may be closed soon
            self._over = True
        if self._timer is not None:
            self._timer.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def stand_still(self, begins: bool) -> None:
        """Stops the clock, or lets it go on once nothing stops it any more. May be called on any thread."""
        with self._lock:
            self._waits += 1 if begins else -1
            if begins and self._going_since is not None:
                self._left -= self._loop.time() - self._going_since
                self._going_since = None
            elif not self._waits:
                self._going_since = self._loop.time()
                if not self._over:
                    self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        """Ends the block if its time is up, or comes back when it may be."""
        with self._lock:
            if self._over or self._going_since is None:
                return
            left = self._left - (self._loop.time() - self._going_since)
        if self._timer is not None:
            self._timer.cancel()
        if left > ROUNDING:
            self._timer = self._loop.call_later(left, self._look)
        else:
            self._timeout.reschedule(self._loop.time())
