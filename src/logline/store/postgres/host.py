"""Which host this is, and where the processes of this host meet that use the same log.

A host is a machine between two boots. Hosts share nothing but the log; processes of one host also share a folder, of
this user alone, where their bells hang (`store/postgres/relay.py`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import tempfile
from functools import cache
from pathlib import Path

from logline.errors import LogError
from logline.names import LogId
from logline.store.boot import boot_id
from logline.store.descriptors import disown, own


@cache
def host_id() -> str:
    """What this host is called: its name and its boot. LOGLINE_HOST says otherwise, for tests that play several."""
    return os.environ.get("LOGLINE_HOST") or f"{socket.gethostname()}/{boot_id()[:8]}"


def meeting_folder(log_id: LogId) -> Path:
    """The folder of this host for a log. Nobody but this user may use it."""
    above = Path(tempfile.gettempdir()) / f"logline-{os.getuid()}"
    folder = above / f"{log_id}-{host_id().replace('/', '-')}"
    try:
        for path in (above, folder):
            path.mkdir(mode=0o700, exist_ok=True)
            known = path.lstat()
            if known.st_uid != os.getuid() or known.st_mode & 0o077 or path.is_symlink():
                raise LogError(
                    f"{path} belongs to somebody else, or others may use it: remove it, or set TMPDIR to a folder of "
                    "your own"
                )
    except OSError as error:
        raise LogError(
            f"{folder} can't be made ({error.strerror}): set TMPDIR to a folder that this process may write"
        ) from error
    return folder


class MeetingPlace:
    """The folder of a log for as long as a process uses it. The last one that leaves removes it. Each holds a shared
    lock on the folder meanwhile, which goes with a process that is killed."""

    def __init__(self, log_id: LogId) -> None:
        while True:
            self.folder = meeting_folder(log_id)
            try:
                self._fd = own(os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            except FileNotFoundError:
                continue
            fcntl.flock(self._fd, fcntl.LOCK_SH)
            if self._is_there():
                return
            self._let_go()  # somebody removed it in between

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(os.stat(self.folder), os.fstat(self._fd))
        except FileNotFoundError:
            return False

    def _let_go(self) -> None:
        disown(self._fd)
        os.close(self._fd)

    def leave(self) -> None:
        """Removes the folder, if nobody else uses it."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._is_there():
                shutil.rmtree(self.folder, ignore_errors=True)
        except OSError:
            pass  # others are there
        finally:
            self._let_go()
