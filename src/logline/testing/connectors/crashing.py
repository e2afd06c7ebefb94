"""Crashes within code, at any of its lines, in this process.

A life that dies leaves what it has done outside, and nothing else. Here an exception takes its place, which is raised
at the n-th line that the connector's code comes to, and which is no `Exception`, so that the code does not handle it.
What a `finally` does, a process that is killed would not do; connections that it closes are closed by its death too.
It is not raised where a `with` is left: a lock would stay locked for those who live on.

>>> done = []
>>> def twice():
...     done.append(1)
...     done.append(2)
>>> lines_of(twice)
2
>>> done.clear()
>>> crashes(twice, at=2), done
(True, [1])
>>> crashes(twice, at=3), done
(False, [1, 1, 2])
"""

from __future__ import annotations

import inspect
import linecache
import sys
import sysconfig
from collections.abc import Callable
from types import FrameType
from typing import Any

from logline.errors import PACKAGE

_OTHERS = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_OURS = f"{PACKAGE}connectors"


class Crash(BaseException):
    """The life is over."""


def _is_watched(file: str) -> bool:
    """Whether a file has code of a connector. That of the standard library, of packages and of Logline has not."""
    if file.startswith(_OURS):
        return True
    return not file.startswith((*_OTHERS, PACKAGE, "<frozen"))


class _Lines:
    def __init__(self, at: int | None) -> None:
        self.at = at
        self.count = 0
        self.fired = False
        self._withs: dict[int, set[int]] = {}
        """By frame: lines of `with` that it has come to. It comes to them again to leave them."""

    def enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not _is_watched(frame.f_code.co_filename):
            return None
        if not frame.f_code.co_flags & inspect.CO_GENERATOR:  # that is entered again and again
            self._withs.pop(id(frame), None)
        return self.line

    def _leaves(self, frame: FrameType) -> bool:
        if not linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with "):
            return False
        seen = self._withs.setdefault(id(frame), set())
        if frame.f_lineno in seen:
            return True
        seen.add(frame.f_lineno)
        return False

    def line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line" and not self.fired and not self._leaves(frame):
            self.count += 1
            if self.count == self.at:
                self.fired = True
                raise Crash
        return self.line

    def run(self, code: Callable[[], object]) -> None:
        before = sys.gettrace()
        sys.settrace(self.enter)
        try:
            code()
        except BaseException:
            if not self.fired:  # an error of the connector's own
                raise
        finally:
            sys.settrace(before)


def lines_of(code: Callable[[], object]) -> int:
    """Runs it, and counts the lines that it comes to."""
    lines = _Lines(None)
    lines.run(code)
    return lines.count


def crashes(code: Callable[[], object], at: int) -> bool:
    """Runs it up to its n-th line; False if it came to its end before."""
    lines = _Lines(at)
    lines.run(code)
    return lines.fired


def points(lines: int, most: int) -> list[int]:
    """Lines to crash at: all of them, or so many, evenly spread, with the first and the last.

    >>> points(4, 10), points(9, 3)
    ([1, 2, 3, 4], [1, 5, 9])
    """
    if lines <= most:
        return list(range(1, lines + 1))
    if most < 2:
        return [1][:most]
    return sorted({1 + (lines - 1) * n // (most - 1) for n in range(most)})
