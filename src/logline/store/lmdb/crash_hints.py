"""A crash hint as a small file in the log's folder: it survives a kill of its process, not a power cut."""

from __future__ import annotations

import os
from pathlib import Path

from logline.store.lmdb.files import room_for


class FileCrashHint:
    """The hint of one instance. The file is opened once and written in place: only its first line counts, the rest is
    left over from a longer hint."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def write(self, text: str) -> None:
        """Replaces the hint with one system call, without an fsync."""
        with room_for(self._path):
            if self._file is None:
                self._path.parent.mkdir(exist_ok=True, mode=0o700)
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
            os.pwrite(self._file, f"{text}\n".encode(), 0)

    def read(self) -> str:
        """The hint that was written last; an empty text if there is none."""
        try:
            return self._path.read_bytes().partition(b"\n")[0].decode(errors="replace")
        except FileNotFoundError:
            return ""

    def drop(self) -> None:
        """Removes the file with the hint."""
        self.close()
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Closes the file; the hint stays for the next life."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __del__(self) -> None:
        self.close()
