"""Gives the room of collected events back to the file system: a journal's file is written anew, without empty pages.

LMDB uses freed pages again and never shortens a file. So the live pages are copied to a file beside, that is synced,
and takes the old one's place by a rename. A kill before the rename leaves the old file and a copy that the next lease
clears away; a kill after it leaves the new file. A full disk ends the copy, and the old file stays.

Processes that have the old file open would go on with it and share LMDB's lock file with those that open the new one.
LMDB then reads the wrong pages. So nobody may have the journal open: everyone who does holds a lock on the first byte
of `lock.mdb`, and so does this, alone. Who opens the journal meanwhile waits in LMDB until it is done.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import lmdb

from logline.errors import LogError
from logline.store.faults import point
from logline.store.lmdb.environment import MAP, not_open_here
from logline.store.lmdb.folders import sync_folder
from logline.store.seam import Compacted, Worth


def compact(path: Path, worth: Worth) -> Compacted | None:
    """Writes the journal's file anew; None if that is not `worth` it. Only for the holder of the lease."""
    size = (path / "data.mdb").stat().st_size
    if not worth(size, size):
        return None  # whatever is in it
    with not_open_here(path) as alone:
        if not alone:
            return Compacted(size, size, "this process has it open")
        with _alone(path) as alone:
            return _compact(path, size, worth) if alone else Compacted(size, size, "another process has it open")


def _compact(path: Path, size: int, worth: Worth) -> Compacted | None:
    aside = path / f".data.mdb.{os.getpid()}.{threading.get_ident()}"
    try:
        # No lock of LMDB's own: to close it would give up the one that is held.
        with lmdb.open(str(path), map_size=MAP, readonly=True, lock=False, readahead=False) as env:
            found = env.stat()
            used = found["branch_pages"] + found["leaf_pages"] + found["overflow_pages"]
            if not worth(size, size - used * found["psize"]):
                return None
            _copy(env, aside, path.name)
        point(path.name, "compact.copied")
        aside.replace(path / "data.mdb")
        point(path.name, "compact.renamed")
        sync_folder(path)
    except (lmdb.Error, OSError) as error:
        return Compacted(size, size, f"it could not be copied ({error})")
    finally:
        aside.unlink(missing_ok=True)
    return Compacted(size, (path / "data.mdb").stat().st_size)


def _copy(env: lmdb.Environment, aside: Path, name: str) -> None:
    file = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        point(name, "compact.begun")
        env.copyfd(file, compact=True)
        point(name, "compact.written")
        os.fsync(file)
    finally:
        os.close(file)


@contextmanager
def _alone(path: Path) -> Iterator[bool]:
    """Whether no other process has the environment open; none can open it until this ends."""
    try:
        file = os.open(path / "lock.mdb", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise LogError(f"{path} can't be compacted: {error}") from error
    try:
        alone = False
        with suppress(BlockingIOError, PermissionError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            alone = True
        yield alone
    finally:
        os.close(file)
