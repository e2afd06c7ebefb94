"""Mailboxes as small files of lines in the log's folder.

Not an LMDB environment: a process stopped inside a transaction would block all who want to send. A message is one
`write` to a file opened for appending, which the kernel does not mix with others: a line break, so that it has a line
of its own whatever stands before it; the message; CR LF, which show that it is whole.

    {"kind": "drain"}CRLF
    {"kind": "sto               the sender was killed here: dropped, and only this
    {"kind": "stop"}CRLF

A line without CR that an empty line or the end of the file follows was written by somebody else, with an editor say.
It is handed on: the receiver tells that it is no message.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from logline.errors import LogError
from logline.store.lmdb.files import room_for
from logline.store.seam import check_line


class FileMailbox:
    """One box; a reader goes on where it stopped."""

    def __init__(self, folder: Path, box: str, ring: Callable[[], None], check: Callable[[], None]) -> None:
        """`check` raises LogError if the folder holds another log by now: its mail is not ours."""
        self._path = folder / f"{box.replace('/', '~')}.jsonl"
        self._ring = ring
        self._check = check
        self._file: int | None = None
        """The file that is read, kept open: after a drop another one stands there, and could have its number."""
        self._read = 0

    def send(self, message: bytes) -> None:
        """Appends the message and rings the bell."""
        check_line(message)
        self._check()
        with room_for(self._path):
            self._path.parent.mkdir(exist_ok=True, mode=0o700)
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(file, b"\n" + message + b"\r\n")
            finally:
                os.close(file)
        self._ring()

    def receive(self) -> list[bytes]:
        """Returns whole lines after those that this object has seen."""
        self._check()
        if self._file is not None and not self._stands():
            self._close()
        if self._file is None:
            try:
                self._file, self._read = os.open(self._path, os.O_RDONLY), 0
            except FileNotFoundError:
                return []
        data = os.pread(self._file, os.fstat(self._file).st_size - self._read, self._read)
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        found = []
        for line, after in pairwise(whole.split(b"\n")):
            if line.endswith(b"\r"):
                found.append(line[:-1])
            elif line and not after:
                found.append(line)
        return found

    def drop(self) -> None:
        """Removes the file; the next message makes it anew."""
        with contextlib.suppress(LogError):  # the box of another log stays as it is
            self._check()
            self._path.unlink(missing_ok=True)

    def _stands(self) -> bool:
        assert self._file is not None
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._file), os.stat(self._path))
        return False

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __del__(self) -> None:
        self._close()
