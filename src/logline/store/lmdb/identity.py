"""Which log it is that a process has opened. The folder may be removed while it is used, and another log be made in
its place: in a notebook, say, that begins anew under the same name.

`log.json` is written once, when the log is made. It is kept open here, so that no other file can have its number: if
the file at the path is another one, the log is.
"""

from __future__ import annotations

import os
from pathlib import Path

from logline.errors import LogError
from logline.store.descriptors import disown, own


class LogIdentity:
    """The log that was in a folder when it was opened."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pid = os.getpid()
        self._file: int | None = own(os.open(folder / "log.json", os.O_RDONLY))

    def check(self) -> None:
        """Raises LogError if the folder holds another log by now, or none. Costs two calls of the system."""
        if self._file is None:
            return
        if self._pid != os.getpid():
            raise LogError("a log can't be used across a fork: open it in the process that uses it")
        try:
            there = os.stat(self._folder / "log.json")
        except FileNotFoundError:
            raise self.gone() from None
        if not os.path.samestat(os.fstat(self._file), there):
            raise LogError(
                f"the log in {self._folder} is another one by now: somebody has put a fresh log in the place of the "
                "one that this process had opened. Open it again, with ll.open_log(...), or start the pipeline again"
            )

    def gone(self) -> LogError:
        """The error for a log that somebody has removed."""
        return LogError(
            f"the log is gone: somebody has removed {self._folder} while this process used it. Bring the folder back "
            "and open it again, or start the pipeline again on a fresh log"
        )

    def close(self) -> None:
        """Nothing is checked any more."""
        if self._file is not None:
            disown(self._file)
            os.close(self._file)
            self._file = None
