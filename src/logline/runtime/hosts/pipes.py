"""What a driver and its worker processes say to each other: one JSON line at a time, over pipes of their own.

A worker that finds its command pipe closed has lost its driver and ends; a driver that finds a report pipe closed
has lost a worker. User code may print what it likes: its output is not ours.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from typing import Any


class Speaker:
    """Writes lines; safe from any thread."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def say(self, **message: Any) -> bool:
        """False if nobody listens any more."""
        line = json.dumps(message).encode() + b"\n"
        try:
            with self._lock:
                while line:
                    line = line[os.write(self._fd, line) :]
        except (BrokenPipeError, OSError):
            return False
        return True

    def close(self) -> None:
        """The other side sees the end."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1


def listen(fd: int) -> Iterator[dict[str, Any]]:
    """Lines as they come, until the other side is gone. A line that was cut off by a kill is dropped."""
    rest = b""
    while True:
        try:
            data = os.read(fd, 1 << 16)
        except OSError:
            return
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield json.loads(line)
