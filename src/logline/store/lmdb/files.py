"""The small files of a log: written whole or not at all, and a full disk is said to be one."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from logline.errors import LogError
from logline.store.lmdb.folders import sync_folder

NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
"""How the system says that there is no room left."""
LITTLE = 1 << 20
"""Bytes; a commit may need more."""


class LogFull(LogError):
    """There is no room left; the log is valid and goes on when there is."""

    @classmethod
    def at(cls, path: Path, why: object) -> LogFull:
        """The error for this file, with what the system said."""
        full = "is full, or it fails" if os.strerror(errno.EIO) in str(why) and not _is_full(path) else "is full"
        return cls(
            f"the disk {full}: there is no room to write to {path} ({why}). What was committed before is safe: make "
            "room, and run the pipeline again"
        )


def _is_full(path: Path) -> bool:
    """Whether the file system has next to nothing left."""
    with contextlib.suppress(OSError):
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize < LITTLE
    return False


@contextlib.contextmanager
def room_for(path: Path) -> Iterator[None]:
    """Raises LogFull for what is written in the block, where the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise LogFull.at(path, error.strerror) from error
        raise


def write_aside(path: Path, value: Mapping[str, Any] | bytes, *, sync: bool = True) -> None:
    """Writes JSON, or bytes as they are, to a file beside and renames it: a reader sees the old file or the new one,
    never half of one."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    with room_for(path):
        try:
            with aside.open("wb") as file:
                file.write(value if isinstance(value, bytes) else json.dumps(value).encode())
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
            aside.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                aside.unlink()
            raise
        if sync:
            sync_folder(path.parent)


def write_passing(path: Path, value: bytes) -> None:
    """The same for a file that matters to living processes alone: never waits for the disk. Where that is full, the
    value goes into the room that the last one has, so that a run can still say that the disk is full."""
    try:
        write_aside(path, value, sync=False)
    except LogFull:
        if not path.exists():
            raise
        with room_for(path), path.open("r+b") as file:
            file.write(value)
            file.truncate()


def read_json(path: Path) -> dict[str, Any] | None:
    """A file's content, None if there is no such file."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (ValueError, UnicodeDecodeError) as error:
        raise LogError(f"the log is damaged: {path} is not what was written ({error})") from error
    return found


def read_passing(path: Path) -> dict[str, Any] | None:
    """The same of a file that matters to living processes alone. A power cut may leave it empty or cut off; whoever
    wrote it is gone then, and it counts as no file."""
    try:
        return read_json(path)
    except LogError:
        return None
