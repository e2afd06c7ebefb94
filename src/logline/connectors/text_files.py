"""Files of text as a source: read in blocks, so that a file may be larger than the memory; maybe compressed.

Unlike a Parquet file, a text can grow while it is read, and any line of it can be wrong. So each block is checked
against the stamp of the file before its rows are handed out, and a wrong line is looked for and named.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, NamedTuple, NoReturn

import pyarrow as pa

from logline.connectors.files import ROWS, FileSource, stamp_of

BLOCK = 1 << 20
"""Bytes of text that become rows at once, about."""
PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""How the name of a compressed file ends."""


class Fault(NamedTuple):
    """A line that can't be read."""

    line: int
    what: str


class TextSource(FileSource):
    """The files of a path, as blocks of rows. A subclass turns the text into blocks."""

    @abstractmethod
    def _blocks(self, name: str, raw: BinaryIO) -> Iterator[pa.RecordBatch]:
        """All rows, in blocks. The same file gives the same rows in the same order."""

    def _rows_after(self, name: str, raw: BinaryIO, done: int) -> Iterator[pa.RecordBatch]:
        stamp, seen = stamp_of(raw), 0
        for block in self._blocks(name, raw):
            if stamp_of(raw) != stamp:  # somebody writes to it: the last row may be half a row
                self._changed(name, max(seen, done))
            for at in range(max(done - seen, 0), block.num_rows, ROWS):
                yield block.slice(at, ROWS)
            seen += block.num_rows
        if done > seen:
            self._changed(name, done)

    def _bad(self, name: str, seen: int, fault: Fault) -> NoReturn:
        """A row that can't be read; the `seen` rows of the blocks before it were."""
        told = "" if self._declared else "; the types were told from the first rows: if they are wrong, give schema="
        then = "start again on the same log" if not seen else "begin with a fresh log, for rows before it were read"
        self._fail(name, f"line {fault.line}: {fault.what}{told}. Correct the line and {then}")


def unpacked(name: str, raw: BinaryIO) -> BinaryIO | pa.NativeFile:
    """The text of a file, whose name says whether it is compressed."""
    for suffix, codec in PACKED.items():
        if name.endswith(suffix):
            return pa.CompressedInputStream(raw, codec)
    return raw


def with_packed(*suffixes: str) -> tuple[str, ...]:
    """The suffixes, alone and with those of compressed files.

    >>> with_packed(".csv")
    ('.csv', '.csv.gz', '.csv.bz2', '.csv.zst')
    """
    return tuple(suffix + packed for suffix in suffixes for packed in ("", *PACKED))


def first_bad(lines: Sequence[bytes], parse: Callable[[bytes], object]) -> tuple[int, str] | None:
    """The index of the first line that can't be parsed, and what was said of it; None if all can.

    >>> first_bad([b"1", b"2", b"x", b"y"], lambda text: [int(part) for part in text.split()])
    (2, "invalid literal for int() with base 10: b'x'")
    """

    def fault(some: Sequence[bytes]) -> str | None:
        try:
            parse(b"\n".join(some))
        except ValueError as error:  # pa.ArrowInvalid is one
            return str(error)
        return None

    good, bad = 0, len(lines)
    if fault(lines) is None:
        return None
    while bad - good > 1:  # the first `good` lines can be parsed, the first `bad` can't
        middle = (good + bad) // 2
        if fault(lines[good:middle]) is None:
            good = middle
        else:
            bad = middle
    return good, fault(lines[good:bad]) or "can't be read"
