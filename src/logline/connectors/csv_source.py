"""CSV files as a source; see `files` for which files, offsets and changes, and `text_files` for blocks.

The columns of a file are in its first line, unless `names` says that it has none. pyarrow reads the blocks. Python's
own reader looks at the first line and, when pyarrow refuses a block, for the line that is wrong.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.csv as pc

from logline.connectors import text_files
from logline.connectors.files import stamp_of
from logline.connectors.text_files import Fault, TextSource, first_bad, unpacked, with_packed
from logline.errors import OptionError, SchemaError
from logline.graph.operator import SchemaLike

_AT_ONCE = 1000
"""Records that are tried at once in the search for a wrong one."""
_CONVERSION = re.compile(r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error to")
_LARGEST = 1 << 26
"""Bytes of the largest block, and so of the largest record."""
_limit = Lock()


class _Unclosed(Exception):
    """A quote that is not closed, in the record that begins at this line."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


class _Record(NamedTuple):
    line: int
    """The number of its first line, from 1."""
    text: str
    fields: list[str]


class CsvSource(TextSource):
    """The files of a path; see `sources.csv`."""

    function = "csv"
    kind = "CSV file"
    suffixes = with_packed(".csv")

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: SchemaLike | None = None,
        *,
        names: Sequence[str] | None = None,
        delimiter: str = ",",
        quote: str | None = '"',
        nulls: Sequence[str] = ("",),
        encoding: str = "utf-8",
    ) -> None:
        for option, value in (("delimiter", delimiter), ("quote", quote)):
            if value is not None and (len(value.encode()) != 1 or value in "\r\n"):
                raise OptionError(f"csv(): {option}={value!r}: give one ASCII character")
        if isinstance(names, str) or isinstance(nulls, str):
            raise OptionError("csv(): names= and nulls= take a list of texts")
        try:
            codec = codecs.lookup(encoding).name
        except LookupError as error:
            raise OptionError(f"csv(): encoding={encoding!r}: Python knows none of this name") from error
        self._names = None if names is None else list(names)
        self._delimiter, self._quote, self._nulls = delimiter, quote, list(nulls)
        self._encoding = "utf-8" if codec == "utf-8-sig" else codec  # a byte order mark is skipped anyway
        super().__init__(path, schema)
        for field in self.schema:
            try:
                self._parse(b"\n", [field.name], {field.name: field.type})
            except pa.ArrowNotImplementedError as error:
                raise SchemaError(
                    f"csv(): a CSV file can't hold {field.type} (column {field.name!r}): declare a string, and parse "
                    "it in an operator"
                ) from error

    def _look(self, name: str, raw: BinaryIO) -> pa.Schema | None:
        for block in self._blocks(name, raw, {}):
            return block.schema
        return None

    def _check_file(self, name: str, raw: BinaryIO) -> None:
        columns, _ = self._begins(name, raw)
        if columns is not None:
            self._check(name, columns)

    def _blocks(
        self, name: str, raw: BinaryIO, types: dict[str, pa.DataType] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """`types`: of the columns; those of the schema if not given, and told from the first block if empty."""
        with self._again(name, raw) as same:
            columns, rows = self._begins(name, same)
        if types is None:
            types = {field.name: field.type for field in self.schema}
            if columns is not None:
                self._check(name, columns)
        if not rows:
            return  # pyarrow would refuse it
        seen, size = 0, text_files.BLOCK
        while True:
            try:
                for block in self._blocks_of(name, raw, types, size, seen):
                    yield block
                    seen += block.num_rows
                return
            except _Unclosed as error:
                self._bad(name, seen, Fault(error.line, "it has a quote that is not closed before the file ends"))
            except (pa.ArrowInvalid, UnicodeError) as error:
                if "straddl" not in str(error) or size * 8 > _LARGEST:
                    fault = self._fault(name, raw, seen, types)
                    self._bad(name, seen, fault or Fault(1, f"or one after it: {error}"))
                size *= 8  # a record that is larger than a block: once more, in larger ones

    def _blocks_of(
        self, name: str, raw: BinaryIO, types: dict[str, pa.DataType], size: int, skip: int
    ) -> Iterator[pa.RecordBatch]:
        """All rows but the first `skip`, in blocks of `size` bytes."""
        options, held = self._options(self._names, types, block_size=size), None
        with self._again(name, raw) as same:
            stream = _Open(unpacked(name, same), self._quote)
            with pc.open_csv(stream, **options) as reader:
                for block in reader:
                    if held is not None:
                        yield held
                    held = block.slice(skip) if skip < block.num_rows else None
                    skip = max(skip - block.num_rows, 0)
        # The last block only now: pyarrow takes a quote that nobody closes for one that ends with the file.
        if stream.quotes % 2 or self._encoding.startswith(("utf-16", "utf-32")):
            self._check_closed(name, raw)
        if held is not None:
            yield held

    @contextmanager
    def _again(self, name: str, raw: BinaryIO) -> Iterator[BinaryIO]:
        """The same file with a position of its own: pyarrow may read ahead in one that it was given before."""
        with self._file(name).open("rb") as same:
            if stamp_of(same) != stamp_of(raw):
                self._fail(name, "has changed since it was opened: start again on the same log")
            yield same

    def _options(self, names: list[str] | None, types: dict[str, pa.DataType], **more: Any) -> dict[str, Any]:
        return {
            "read_options": pc.ReadOptions(column_names=names, encoding=self._encoding, **more),
            "parse_options": pc.ParseOptions(
                delimiter=self._delimiter,
                quote_char=self._quote if self._quote is not None else False,
                newlines_in_values=self._quote is not None,
            ),
            "convert_options": pc.ConvertOptions(
                column_types=types,
                null_values=self._nulls,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,  # "" is the empty text, and nothing at all is null
            ),
        }

    # ---- as Python's reader sees it -------------------------------------------------------------------

    def _lines(self, name: str, raw: BinaryIO) -> Iterator[str]:
        errors = "surrogateescape" if self._encoding == "utf-8" else "replace"
        stream = io.BufferedReader(_Open(unpacked(name, raw), None))
        text = io.TextIOWrapper(stream, self._encoding, errors, newline="")
        for line in text:
            yield line.removeprefix("\ufeff")  # only the first one can begin with a byte order mark
            break
        yield from text

    def _records(self, lines: Iterator[str]) -> Iterator[_Record]:
        """The records with their lines; empty lines are none."""
        some: list[str] = []

        def each() -> Iterator[str]:
            for line in lines:
                some.append(line)
                yield line

        reader = csv.reader(
            each(),
            delimiter=self._delimiter,
            quotechar=self._quote,
            quoting=csv.QUOTE_NONE if self._quote is None else csv.QUOTE_MINIMAL,
        )
        begin = 1
        for fields in reader:
            if fields:
                yield _Record(begin, "".join(some), fields)
            begin = reader.line_num + 1
            some.clear()

    def _begins(self, name: str, raw: BinaryIO) -> tuple[list[str] | None, bool]:
        """The columns of a file, None if it is empty, and whether it has rows."""
        lines = self._lines(name, raw)
        columns = self._names
        if columns is None:
            try:
                columns = next((record.fields for record in self._records(lines)), None)
            except csv.Error as error:
                self._fail(name, f"line 1: it should have the names of the columns, and can't be read: {error}")
        return columns, any(line.strip("\r\n") for line in lines)

    def _check_closed(self, name: str, raw: BinaryIO) -> None:
        """Refuses a file whose last record has a quote that is not closed: it has swallowed what came after it."""
        with self._again(name, raw) as same, _large_fields():
            for last in deque(self._records(self._lines(name, same)), maxlen=1):
                if len(list(self._records(iter([last.text, "\n", "x"])))) == 1:
                    raise _Unclosed(last.line)

    def _fault(self, name: str, raw: BinaryIO, seen: int, types: dict[str, pa.DataType]) -> Fault | None:
        """The first line after `seen` rows that pyarrow can't read."""
        with self._again(name, raw) as same, _large_fields():
            found = self._records(self._lines(name, same))
            columns = next(found).fields if self._names is None else self._names
            some: list[_Record] = []
            for at, record in enumerate(found):
                if at < seen:
                    continue
                got, wanted = len(record.fields), len(columns)
                if got == wanted:
                    some.append(record)
                if got != wanted or len(some) == _AT_ONCE:
                    if fault := self._fault_of(some, columns, types):
                        return fault
                    some.clear()
                if got != wanted:
                    return Fault(record.line, f"it has {got} fields, and the file has {wanted} columns")
            return self._fault_of(some, columns, types)

    def _fault_of(self, some: list[_Record], columns: list[str], types: dict[str, pa.DataType]) -> Fault | None:
        texts = [record.text.rstrip("\r\n").encode("utf-8", "surrogateescape") for record in some]
        if not texts or not (found := first_bad(texts, lambda text: self._parse(text, columns, types))):
            return None
        at, what = found
        what = _CONVERSION.sub(lambda match: f"column {columns[int(match[1])]!r} takes", what)
        return Fault(some[at].line, what)

    def _parse(self, text: bytes, names: list[str], types: dict[str, pa.DataType]) -> None:
        options = self._options(names, types, use_threads=False, block_size=len(text) + 1)
        options["read_options"].encoding = "utf-8"
        pc.read_csv(pa.BufferReader(text), **options)


class _Open(io.RawIOBase):
    """A stream that stays open when the reader of its text goes away, and counts the quotes."""

    def __init__(self, stream: Any, quote: str | None) -> None:
        self._stream = stream
        self._quote = quote
        self.quotes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        got = self._stream.read(len(into))
        if self._quote is not None:
            self.quotes += got.count(self._quote.encode())
        into[: len(got)] = got
        return len(got)


@contextmanager
def _large_fields() -> Iterator[None]:
    """Has Python's reader take fields of any size: pyarrow takes them too, and they are not what is wrong."""
    with _limit:
        before = csv.field_size_limit(1 << 30)
        try:
            yield
        finally:
            csv.field_size_limit(before)
