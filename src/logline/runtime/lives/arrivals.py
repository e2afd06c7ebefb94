"""The queue of a loop: other threads put items into it, and bells that ring put theirs.

The loop waits for the bells itself. If a thread of its own waited for a bell, each event that goes from process to
process would have to wake two threads.
"""

from __future__ import annotations

import os
import queue
import select
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from logline.store.seam import Bell

T = TypeVar("T")


class Arrivals(Generic[T]):
    """A queue with bells. `put` is for any thread, the rest for the loop's own."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[T] = queue.SimpleQueue()
        self._bells: dict[int, tuple[Bell, Callable[[], T]]] = {}
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.epoll()
        self._poll.register(self._wake, select.EPOLLIN)
        self._asleep = False
        self._open = threading.Lock()
        self._closed = False

    def put(self, item: T) -> None:
        """Adds the item, and wakes the loop if it sleeps. It says so before it looks here, so none is missed."""
        self._items.put(item)
        if self._asleep:
            with self._open:  # a closed descriptor may be somebody else's by now
                if not self._closed:
                    os.eventfd_write(self._wake, 1)

    def listen(self, bell: Bell, rung: Callable[[], T]) -> Callable[[], None]:
        """Has `rung()` arrive whenever the bell rings; returns a function that ends this."""
        number = bell.fileno()
        self._bells[number] = (bell, rung)
        self._poll.register(number, select.EPOLLIN)

        def stop() -> None:
            del self._bells[number]
            if not self._closed:
                self._poll.unregister(number)
            bell.close()

        return stop

    def wait(self, seconds: float) -> None:
        """Waits until something is there, or the time is over."""
        self._asleep = True
        try:
            self._look(seconds if self._items.empty() else 0)
        finally:
            self._asleep = False

    def take(self) -> list[T]:
        """Takes all that is there."""
        if self._bells:
            self._look(0)
        found: list[T] = []
        try:
            while True:
                found.append(self._items.get_nowait())
        except queue.Empty:
            return found

    def _look(self, seconds: float) -> None:
        for number, _ in self._poll.poll(seconds):
            if number == self._wake:
                os.eventfd_read(self._wake)
            elif number in self._bells:
                bell, rung = self._bells[number]
                bell.hear()
                self._items.put(rung())

    @property
    def empty(self) -> bool:
        """Whether nothing was put or heard that is not taken."""
        return self._items.empty()

    def close(self) -> None:
        """The loop is over; what comes now is for nobody."""
        with self._open:
            if not self._closed:
                self._closed = True
                self._poll.close()
                os.close(self._wake)

    def __del__(self) -> None:
        self.close()
