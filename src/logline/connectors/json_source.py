"""Files of JSON lines as a source; see `files` for which files, offsets and changes, and `text_files` for blocks.

Each line is an object. A key that is missing is null, a key that is not in the schema is an error: nothing is left
out silently.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.types as pt

from logline.connectors import text_files
from logline.connectors.text_files import Fault, TextSource, first_bad, unpacked, with_packed
from logline.errors import SchemaError
from logline.graph.operator import SchemaLike

_LINE = 1 << 26
"""Bytes of the longest line."""
_BOM = b"\xef\xbb\xbf"


class JsonSource(TextSource):
    """The files of a path; see `sources.json`."""

    function = "json"
    kind = "file of JSON lines"
    suffixes = with_packed(".jsonl", ".ndjson", ".json")

    def __init__(self, path: str | os.PathLike[str], schema: SchemaLike | None = None) -> None:
        super().__init__(path, schema)
        for field in self.schema:
            try:
                self._parse(b"{}\n", pa.schema([field]))
            except pa.ArrowNotImplementedError as error:
                raise SchemaError(
                    f"json(): {field.type} can't be read from JSON (column {field.name!r}): declare another type"
                ) from error

    def _look(self, name: str, raw: BinaryIO) -> pa.Schema | None:
        for block in self._blocks(name, raw, whole=False):
            return block.schema
        return None

    def _check_file(self, name: str, raw: BinaryIO) -> None:
        """A file without an error shows its columns only line by line."""

    def _blocks(self, name: str, raw: BinaryIO, *, whole: bool = True) -> Iterator[pa.RecordBatch]:
        """`whole`: with the columns of the schema; else with those that the block has."""
        schema = self.schema if whole else None
        seen = 0
        for line, text in self._texts(name, raw):
            if not text.strip():
                continue
            try:
                block = self._parse(text, schema)
            except ValueError as error:  # pa.ArrowInvalid, UnicodeDecodeError
                self._bad(name, seen, self._fault(line, text, schema) or Fault(line, f"or one after it: {error}"))
            yield block
            seen += block.num_rows

    def _texts(self, name: str, raw: BinaryIO) -> Iterator[tuple[int, bytes]]:
        """Whole lines, a block at a time, with the number of the first one."""
        stream, line, parts = unpacked(name, raw), 1, list[bytes]()
        while chunk := stream.read(text_files.BLOCK):
            head, newline, tail = chunk.rpartition(b"\n")
            if newline:
                text = b"".join((*parts, head, newline))
                yield line, text.removeprefix(_BOM) if line == 1 else text
                line += text.count(b"\n")
                parts.clear()
            parts.append(tail)
            if sum(map(len, parts)) > _LINE:
                self._fail(name, f"line {line}: it has more than {_LINE >> 20} MiB; write one JSON object a line")
        text = b"".join(parts)
        yield line, text.removeprefix(_BOM) if line == 1 else text

    def _parse(self, text: bytes, schema: pa.Schema | None) -> pa.RecordBatch:
        """The rows of whole lines, each of which must be one object."""
        text.decode()  # pyarrow would take any bytes for a string
        lines = [line for line in map(bytes.strip, text.split(b"\n")) if line]
        if b"null" in lines:  # pyarrow makes a row of it, and crashes if there is nothing else
            raise ValueError("a line must be one JSON object")
        table = pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(block_size=len(text) + 1, use_threads=False),
            parse_options=pj.ParseOptions(
                explicit_schema=None if schema is None else pa.schema(map(_as_read, schema)),
                unexpected_field_behavior="infer" if schema is None else "error",
            ),
        )
        if table.num_rows != len(lines):
            raise ValueError("a line must be one JSON object")
        if schema is not None:
            table = table.select(schema.names).cast(pa.schema(field.with_nullable(True) for field in schema))
        (batch,) = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
        return batch

    def _fault(self, begin: int, text: bytes, schema: pa.Schema | None) -> Fault | None:
        lines = [(begin + at, line) for at, line in enumerate(text.split(b"\n")) if line.strip()]
        found = first_bad([line for _, line in lines], lambda some: self._parse(some, schema))
        if found is None:
            return None
        at, what = found
        line, wrong = lines[at]
        try:
            value = json.loads(wrong)
        except ValueError as error:
            return Fault(line, f"it is no JSON ({error})")
        if not isinstance(value, dict):
            return Fault(line, "it is no JSON object; write one object a line, with the columns as keys")
        more = [key for key in value if schema is not None and key not in schema.names]
        return Fault(line, f"it has the key {more[0]!r}, which is not in the schema" if more else what)


def _as_read(field: pa.Field) -> pa.Field:
    """The field as pyarrow reads it from JSON: it takes dates and times for numbers, and people write text."""
    text = pt.is_date(field.type) or pt.is_time(field.type)
    return field.with_nullable(True).with_type(pa.string() if text else field.type)
