"""Threads for user code that may block for ever.

The threads of `concurrent.futures` are joined when the interpreter ends: one call that hangs keeps the user's script
from ending long after its run is over. These are daemons, which nobody joins, and one without work ends by itself.

    >>> pool = DaemonThreads(2, "example")
    >>> pool.submit(abs, -3).result()
    3
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

IDLE = 1.0
"""Seconds that a thread waits for more work before it ends."""


class DaemonThreads(Executor):
    """At most `most` threads, begun when there is work for them."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._change = threading.Condition()
        self._todo: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._threads = self._idle = 0
        self._closed = False

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Calls it on one of the threads, after what was submitted before."""
        future: Future[R] = Future()
        with self._change:
            if self._closed:
                raise RuntimeError("these threads take no more work")
            self._todo.append((future, partial(fn, *args, **kwargs)))
            if self._idle >= len(self._todo):
                self._change.notify()
            elif self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._work, name=f"{self._name}_{self._threads}", daemon=True).start()
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        """No more work is taken. Never waits: a call may hang."""
        with self._change:
            self._closed = True
            dropped = list(self._todo) if cancel_futures else []
            if cancel_futures:
                self._todo.clear()
            self._change.notify_all()
        for future, _ in dropped:
            future.cancel()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            future, call = job
            if future.set_running_or_notify_cancel():
                try:
                    result = call()
                except BaseException as error:  # whatever it is, it is for whoever waits
                    future.set_exception(error)
                else:
                    future.set_result(result)
                    del result
            del job, future, call  # a thread that waits keeps nothing of the user's alive

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        """The next job; None if none comes for a while, or none will."""
        with self._change:
            self._idle += 1
            self._change.wait_for(lambda: self._todo or self._closed, IDLE)
            self._idle -= 1
            if self._todo:
                return self._todo.popleft()
            self._threads -= 1
            return None
