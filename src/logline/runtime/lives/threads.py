"""Where user code and blocking calls run: threads of lives, and event loops for async user code."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
logger = logging.getLogger("logline")


class WorkThread(Generic[T]):
    """Does what may block, one thing after the other."""

    def __init__(self, name: str, work: Callable[[T], None]) -> None:
        self._todo: queue.SimpleQueue[tuple[T] | None] = queue.SimpleQueue()
        self._work = work
        self._busy = False
        self._last: Callable[[], None] | None = None
        self.closing = False
        """Whether all that is left to it is to clean up."""
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def put(self, item: T) -> None:
        """Queues a piece of work after those that were put before."""
        self._todo.put((item,))

    def _run(self) -> None:
        while (item := self._todo.get()) is not None:
            self._busy = True
            self._work(*item)
            self._busy = False
        if self._last is not None:
            self._last()

    def stop(self, last: Callable[[], None] | None = None) -> None:
        """Ends it after what was put before; it calls `last` then, to clean up."""
        self._last = last
        self.closing = last is not None and not self._busy
        self._todo.put(None)


class EventLoopThread:
    """The event loop of async operators, on its own thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._stopping = False
        self.thread = threading.Thread(target=self._run, name="logline-async", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        loop = self.loop
        asyncio.set_event_loop(loop)
        while not self._stopping:
            try:
                loop.run_forever()
            except BaseException:  # asyncio lets SystemExit of any task of user code through to here
                # It is the task's result too: whoever awaits the task gets it.
                logger.warning("a task on the event loop of async operators ended it; it goes on", exc_info=True)
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        if pending:
            loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        loop.close()

    def stop(self) -> None:
        """Cancels what still runs there."""
        self._stopping = True
        self.loop.call_soon_threadsafe(self.loop.stop)


class SteppedLoop:
    """An event loop without a thread: async user code runs only while the owner lets it."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def get(self) -> asyncio.AbstractEventLoop:
        """The event loop, made when it is first asked for."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop

    def run(self) -> bool:
        """Lets user code run until it reports; False if there is no loop."""
        if self._loop is None:
            return False
        self._loop.run_forever()
        return True

    def heard(self) -> None:
        """Ends the turn of user code, which has reported."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def close(self) -> None:
        """Cancels the tasks, lets them come to their end, and closes the loop."""
        if self._loop is not None:
            for _ in range(3):
                self._loop.call_soon(self._loop.stop)
                self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()
            self._loop = None
