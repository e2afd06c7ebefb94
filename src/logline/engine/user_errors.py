"""Exceptions of user code: what it may raise, and each as text that can be sent and logged."""

from __future__ import annotations

from logline.engine.results import Failure
from logline.errors import message_of, told

USER_ERRORS = (BaseException,)
"""What user code may raise: anything. A script that was made a function calls `sys.exit`, a cancelled client raises
`CancelledError`, a panic of a Rust library is no Exception. What is not caught where user code is called ends a
thread or an event loop, and the set is waited for in vain."""


class UserError(Exception):
    """User code failed where stopping is all that is left; carries the failure as text."""

    def __init__(self, failure: Failure, event: str = "") -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.event = event


def failure_of(error: BaseException, retry_on: tuple[type[BaseException], ...] = ()) -> Failure:
    """An exception as text, without Logline's own frames, unless there are no others."""
    return Failure(type(error).__name__, message_of(error), told(error), isinstance(error, retry_on))
