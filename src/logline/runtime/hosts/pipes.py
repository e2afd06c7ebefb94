"""The pipes between a driver and its worker processes: one message per line (`runtime/messages`).

A worker that finds its command pipe closed has lost its driver and ends. A driver learns of the end of a worker from
the process itself, see `listen`. What user code prints goes elsewhere: these pipes are not its standard output.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator

from logline.runtime.messages.wire import Message, encode
from logline.store.descriptors import disown, own


class Speaker:
    """Writes messages to a pipe; safe from any thread."""

    def __init__(self, fd: int) -> None:
        self._fd = own(fd)
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
                disown(self._fd)
                os.close(self._fd)
                self._fd = -1


def listen(fd: int, gone: int | None = None) -> Iterator[bytes]:
    """Yields lines as they come, until the other side is gone. Drops the last line if a kill has cut it off.

    `gone` becomes readable when the process at the other end is no more. What it wrote is in the pipe then, and the
    pipe need not end: a process that it forked may hold it open.
    """
    own(fd)
    try:
        yield from _lines(fd, gone)
    finally:
        disown(fd)


def _lines(fd: int, gone: int | None) -> Iterator[bytes]:
    rest = b""
    poll = select.poll()
    for number in (fd,) if gone is None else (fd, gone):
        poll.register(number, select.POLLIN)
    while True:
        if all(number == gone for number, _ in poll.poll()):
            return
        try:
            data = os.read(fd, 1 << 16)
        except OSError:
            return
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        yield from lines
