"""The pipes between a driver and its worker processes: one message per line (`runtime/messages`).

A worker that finds its command pipe closed has lost its driver and ends; a driver that finds a report pipe closed
has lost a worker. What user code prints goes elsewhere: these pipes are not its standard output.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

from logline.runtime.messages.wire import Message, encode


class Speaker:
    """Writes messages to a pipe; safe from any thread."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def say(self, message: Message) -> bool:
        """Writes the message whole. Returns False if nobody listens any more."""
        line = encode(message) + b"\n"
        try:
            with self._lock:
                while line:
                    line = line[os.write(self._fd, line) :]
        except (BrokenPipeError, OSError):
            return False
        return True

    def close(self) -> None:
        """Closes the pipe; the other side sees its end."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1


def listen(fd: int) -> Iterator[bytes]:
    """Yields lines as they come, until the other side is gone. Drops the last line if a kill has cut it off."""
    rest = b""
    while True:
        try:
            data = os.read(fd, 1 << 16)
        except OSError:
            return
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        yield from lines
