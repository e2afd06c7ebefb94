"""Mailboxes as small files of JSON lines in the log's folder.

Not an LMDB environment: a process stopped inside a transaction would block all who want to send. A message is one
`write` to a file opened for appending, which the kernel does not mix with others. A sender that was killed midway
leaves half a line; every message begins a line of its own, so that only the half one is lost.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class FileMailbox:
    """One box; a reader goes on where it stopped."""

    def __init__(self, folder: Path, box: str, ring: Callable[[], None]) -> None:
        self._path = folder / f"{box.replace('/', '~')}.jsonl"
        self._ring = ring
        self._file: int | None = None
        """The file that is read, kept open: after a drop another one stands there, and could have its number."""
        self._read = 0

    def send(self, message: Mapping[str, Any]) -> None:
        """Appends, then rings."""
        line = b"\n" + json.dumps(message).encode() + b"\n"
        self._path.parent.mkdir(exist_ok=True, mode=0o700)
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, line)
        finally:
            os.close(file)
        self._ring()

    def receive(self) -> list[dict[str, Any]]:
        """Whole lines after those that this object has seen."""
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
        found: list[dict[str, Any]] = []
        for line in whole.split(b"\n"):
            with contextlib.suppress(ValueError):  # empty, or the half of a sender that was killed
                found.append(json.loads(line))
        return found

    def drop(self) -> None:
        """An empty box."""
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
