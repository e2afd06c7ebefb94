"""Exceptions of user code: what it may raise, and each as text that can be sent and logged."""

from __future__ import annotations

from logline.engine.results import Failure
from logline.errors import told

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
    try:
        message = str(error)
    except USER_ERRORS as other:  # __str__ is user code too
        message = f"(it can't be shown: its __str__ raised {type(other).__name__})"
    try:
        trace = told(error)
    except USER_ERRORS:
        trace = message
    return Failure(type(error).__name__, _loggable(message), _loggable(trace), isinstance(error, retry_on))


def _loggable(text: str) -> str:
    """Text may hold halves of characters (from a file name, say) that no log can."""
    return text.encode(errors="replace").decode()
