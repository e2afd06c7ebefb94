"""LMDB environments of this process: opened once each, never across a fork, checked before anything maps them.

A path may be spelled in many ways, and another file may take its place. So a file is known by its device and inode.
A truncated file would kill the process that reads beyond its end (SIGBUS), so a file is first made as long as it says
it is. The map is large and sparse: it costs address space, not memory or disk.

A process that may not write a journal opens it for reading: the folder is on a file system that is mounted read-only,
or belongs to somebody else. LMDB then has no lock file, so that a run which writes meanwhile does not know of its
readers; what such a reader sees torn is told as that, not as damage.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from logline.errors import LogError
from logline.store.descriptors import disown, own
from logline.store.lmdb.files import NO_ROOM, LogFull
from logline.store.processes import is_worker_process, started

_NO_ROOM = tuple(os.strerror(code) for code in (*NO_ROOM, errno.EIO))
"""How LMDB says that a write did not go through; a short write is an input/output error to it."""
READERS = 1024
_LOCKS = (READERS + 64) * 64
"""Bytes of a lock file: a cache line for each reader, and its head."""
MAP = 1 << 38
"""256 GiB of address space for each journal: several hundred of them fit into a process."""


class Environment:
    """One journal's file, as this process sees it."""

    def __init__(self, path: Path, *, sync: bool) -> None:
        self.path = path
        self.pid = os.getpid()
        self.users = 0
        self.closed = False
        self._owners = 0
        self._owner: int | None = None
        self._owning = threading.RLock()
        """Reentrant, and not `writing`: the garbage collector may close a journal in the middle of a write."""
        self.writing = threading.Lock()
        """Threads of one process wait here, not in LMDB's lock, which belongs to a process."""
        self.readonly = not _writable(path)
        """Whether this process may only read, which it then does without locks."""
        if not self.readonly:
            _allocate_locks(path / "lock.mdb")
        try:
            self._env = lmdb.open(
                str(path),
                map_size=MAP,
                subdir=True,
                max_readers=READERS,
                sync=sync,
                metasync=sync,
                readahead=False,
                create=not self.readonly,
                readonly=self.readonly,
                lock=not self.readonly,
                mode=0o600,
            )
        except lmdb.MemoryError as error:
            raise LogError(
                f"{path} can't be opened: this process has no address space left for it. Close other logs first"
            ) from error
        except lmdb.Error as error:
            if _is_full(error):
                raise LogFull.at(path, error) from error
            raise _damaged(path, error) from error
        self._fill_up()
        if not self.readonly:
            self._env.reader_check()  # slots of readers that died would pin old pages
        self.file = file_of(path)
        """Open for as long as this is, so that no other file can be this one."""

    def _fill_up(self) -> None:
        """Pages at the end that are allocated and never written leave the file shorter than the map may be read.
        In a file that was cut off they read as zeros then, which the checksums find. Never shortens or changes
        what is there, whoever writes meanwhile."""
        wanted = (self._env.info()["last_pgno"] + 1) * self._env.stat()["psize"]
        data = self.path / "data.mdb"
        if data.stat().st_size >= wanted:
            return
        if self.readonly:
            raise LogError(
                f"{data} is shorter than what is in it, and this process may not write there: open the log once "
                "where it can be written, with `logline status` say, or copy its folder and read the copy"
            )
        file = os.open(data, os.O_RDWR)
        try:
            os.posix_fallocate(file, 0, wanted)
        except OSError as error:
            raise LogFull.at(data, error.strerror) from error
        finally:
            os.close(file)

    @contextmanager
    def read(self) -> Iterator[lmdb.Transaction]:
        """A short look at what is committed."""
        try:
            with self._env.begin(buffers=True) as txn:
                yield txn
        except lmdb.Error as error:
            raise (_torn if self.readonly else _damaged)(self.path, error) from error

    @contextmanager
    def write(self) -> Iterator[lmdb.Transaction]:
        """A transaction that is committed whole when the block ends, or not at all if it raises."""
        if self.readonly:
            raise LogError(f"{self.path} can't be written: this process may only read it. {_MAY_NOT_WRITE}")
        with self.writing:
            try:
                with self._env.begin(write=True, buffers=True) as txn:
                    yield txn
            except lmdb.Error as error:
                if not _is_full(error):
                    raise _damaged(self.path, error) from error
                raise LogFull.at(self.path, error) from error

    def own(self) -> None:
        """A worker process that writes a journal holds its lock file. One that still does when another claims the
        journal is killed first: stopped inside a transaction it would block every writer for good (R10)."""
        if not is_worker_process():
            return
        with self._owning:
            self._owners += 1
            if self._owner is not None:
                return
            file = own(os.open(self.path / "owner", os.O_RDWR | os.O_CREAT, 0o600))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                _kill_holder(file)
                fcntl.flock(file, fcntl.LOCK_EX)
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()} {started(os.getpid())}".encode(), 0)
            self._owner = file

    def disown(self) -> None:
        """The journal is not written from here any more."""
        with self._owning:
            self._owners -= 1
            if self._owners == 0:
                self._let_go()

    def _let_go(self) -> None:
        if self._owner is not None:
            disown(self._owner)
            os.close(self._owner)
            self._owner = None

    def close(self) -> None:
        """Only when nobody in this process uses it."""
        self._let_go()
        self.closed = True
        self._env.close()


def _kill_holder(file: int) -> None:
    pid, _, born = os.pread(file, 64, 0).decode().partition(" ")
    if pid.isdigit() and int(pid) != os.getpid() and born and born == started(int(pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


_MAY_NOT_WRITE = "Run the pipeline as a user who may write the log's folder, on a file system that is not read-only"


def _writable(path: Path) -> bool:
    """Whether this process may write the journal at that path, or make it."""
    data, locks = path / "data.mdb", path / "lock.mdb"
    if not data.exists():
        return True  # what is wrong with making it is said when it is made
    return os.access(data, os.W_OK) and os.access(locks if locks.exists() else path, os.W_OK)


def _allocate_locks(locks: Path) -> None:
    """LMDB maps its lock file and writes to it through the map: on a full disk, where a page of it has no room, the
    kernel would kill the process (SIGBUS). So all of it has its room before. Never while this process has it open:
    closing another descriptor of it would drop LMDB's lock."""
    try:
        file = os.open(locks, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            known = os.fstat(file)
            if known.st_blocks * 512 < (known.st_size or _LOCKS):
                os.posix_fallocate(file, 0, known.st_size or _LOCKS)
        finally:
            os.close(file)
    except OSError as error:
        if error.errno in NO_ROOM:
            raise LogFull.at(locks, error.strerror) from error
        raise LogError(f"{locks} can't be opened: {error.strerror}. {_MAY_NOT_WRITE}") from error


def _is_full(error: lmdb.Error) -> bool:
    return isinstance(error, lmdb.MapFullError) or any(text in str(error) for text in _NO_ROOM)


def _torn(path: Path, error: Exception) -> LogError:
    return LogError(
        f"{path} can't be read ({type(error).__name__}: {error}). This process may only read the log, and a run that "
        "writes it meanwhile does not wait for it: try again, or read it as a user who may write its folder"
    )


def _damaged(path: Path, error: Exception) -> LogError:
    return LogError(
        f"the log is damaged: {path} can't be read ({type(error).__name__}: {error}). "
        "Restore the log's folder from a copy, or begin with a fresh log"
    )


File = tuple[int, int]
"""Device and inode."""
_open: dict[File, Environment] = {}
_lock = threading.RLock()
"""Reentrant: the garbage collector may close a store that was dropped while this very thread holds it."""


def acquire(path: Path, *, sync: bool) -> Environment:
    """The environment at that path; LMDB must not open a file twice in a process."""
    with _lock:
        while True:
            found = _open.get(file_of(path)) if (path / "data.mdb").exists() else None
            if found is not None and found.pid != os.getpid():
                raise LogError("a log can't be used across a fork: start worker processes with spawn")
            if found is None:
                try:
                    path.mkdir(exist_ok=True, mode=0o700)  # not the folder above it: a log that is gone stays gone
                except FileNotFoundError as error:
                    raise LogError(f"the log is gone: there is no folder {path.parent} any more") from error
                except OSError as error:
                    if error.errno in NO_ROOM:
                        raise LogFull.at(path, error.strerror) from error
                    raise LogError(f"{path} can't be made: {error.strerror}. {_MAY_NOT_WRITE}") from error
                found = Environment(path, sync=sync)
                _open[found.file] = found
            found.users += 1
            if _open.get(found.file) is found:
                return found  # and not closed just now, with the last store that used it


def release(env: Environment) -> None:
    """One user less; the last one closes it."""
    with _lock:
        env.users -= 1
        if env.users == 0 and _open.get(env.file) is env:
            del _open[env.file]
            env.close()


def release_if_last(env: Environment) -> bool:
    """Closes it if nobody else in this process uses it. Whether it did: else the caller goes on using it."""
    with _lock:
        if env.users > 1:
            return False
        release(env)
        return True


@contextmanager
def not_open_here(path: Path) -> Iterator[bool]:
    """Whether nothing in this process has the journal open; nothing can open it until this ends."""
    with _lock:
        yield file_of(path) not in _open


def file_of(path: Path) -> File:
    """Which file the journal at that path is."""
    try:
        found = os.stat(path / "data.mdb")
    except FileNotFoundError as error:
        raise LogError(f"the log is gone: somebody has removed {path} while it was opened") from error
    return found.st_dev, found.st_ino
