"""Parquet files as a sink: each write is a file of its own, whose name follows from the write (R8, named).

A file is written aside under a hidden name, synced, and gets its name in one step: a reader of the folder sees all
of it or nothing. A name that is taken is left alone, so that a repeated write, also a late one by a life that is
over, changes nothing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import Literal, get_args
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from logline.errors import ConnectorError, DefinitionError, OptionError
from logline.graph.connector import Guarantee, Sink

Compression = Literal["zstd", "snappy", "none"]

_HINTS = {
    errno.ENOSPC: "make room, and start the pipeline again on the same log: nothing is lost",
    errno.EDQUOT: "make room, and start the pipeline again on the same log: nothing is lost",
    errno.EACCES: "the user that runs the pipeline must be allowed to write there",
    errno.EPERM: "the user that runs the pipeline must be allowed to write there",
    errno.EROFS: "give a folder that can be written to",
    errno.EEXIST: "a file is in the place of the folder; give another path",
    errno.ENOTDIR: "a file is in the place of the folder; give another path",
}
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class ParquetSink(Sink):
    """A folder of files; see `sinks.parquet`."""

    guarantee: Guarantee = "named"

    def __init__(self, path: str | os.PathLike[str], compression: Compression = "zstd") -> None:
        if compression not in get_args(Compression):
            raise OptionError(f"compression={compression!r}: take one of {', '.join(get_args(Compression))}")
        self._folder = os.path.abspath(path)  # a worker may have another working directory
        if os.path.exists(self._folder) and not os.path.isdir(self._folder):
            raise DefinitionError(f"parquet(): {self._folder} is a file; give a folder, each write is a file in it")
        self._compression = compression
        self._tag = ""

    def dataset(self) -> tuple[str, str]:
        """The folder's path, in the namespace `file`."""
        return "file", self._folder

    def open(self, scope: str) -> None:
        """Makes the folder, and clears away what writers of this scope left when they died."""
        self._tag = blake2b(scope.encode(), digest_size=8).hexdigest()
        with self._explained("the folder can't be used"):
            os.makedirs(self._folder, exist_ok=True)
            with suppress(PermissionError):  # one may be allowed to write here and not to look around above
                _sync_folder(os.path.dirname(self._folder))
            for name in os.listdir(self._folder):
                if name.startswith(".part-") and f"-{self._tag}.parquet." in name:
                    _remove_if_dead(os.path.join(self._folder, name))

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        """Makes the file of this write, unless it is there."""
        name = f"part-{number:08d}-{self._tag}.parquet"
        final = os.path.join(self._folder, name)
        with self._explained(f"{name} can't be written"):
            if not os.path.exists(final):
                aside = os.path.join(self._folder, f".{name}.{uuid4().hex[:8]}")  # of this try: a zombie has its own
                try:
                    _write_aside(aside, self._encoded(batch, name), final)
                finally:
                    with suppress(FileNotFoundError):
                        os.unlink(aside)
            # Also for a file that was there: a life may have been killed before it came to this.
            _sync_folder(self._folder)

    def highest(self) -> int | None:
        """The number of the last file of this scope that is there."""
        form = re.compile(rf"part-([0-9]+)-{self._tag}\.parquet")
        with self._explained("the folder can't be read"):
            found = filter(None, map(form.fullmatch, os.listdir(self._folder)))
            return max((int(match[1]) for match in found), default=None)

    def _encoded(self, batch: pa.RecordBatch, name: str) -> pa.Buffer:
        written = pa.BufferOutputStream()
        try:
            table = pa.Table.from_batches([batch])
            pq.write_table(table, written, compression=self._compression, write_page_checksum=True)
        except pa.ArrowException as error:
            raise ConnectorError(f"parquet(): {name}: Parquet can't hold this batch: {error}") from error
        return written.getvalue()

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            hint = _HINTS.get(error.errno or 0)
            raise ConnectorError(
                f"parquet({self._folder}): {what}: {error.strerror or error}" + (f"; {hint}" if hint else "")
            ) from error


def _write_aside(aside: str, data: pa.Buffer, final: str) -> None:
    """Writes and syncs `aside`, then gives it its name."""
    with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb", buffering=0) as file:
        with suppress(OSError):  # a file system without locks: what is left behind by a kill stays
            # Says that the writer lives; the kernel lets go of it when it dies.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        rest = memoryview(data)
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())
        try:
            # Unlike a rename, a link never takes the place of a file: what a reader has seen stays that very file.
            os.link(aside, final)
        except FileExistsError:
            return
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            os.replace(aside, final)  # the same bytes, should one be there


def _remove_if_dead(aside: str) -> None:
    """A life that was fenced off may still write, and a late one may still be opening: only the dead are cleared."""
    with suppress(OSError), open(aside, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(aside)


def _sync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
