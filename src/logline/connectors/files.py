"""The files of a path as a source: one partition per file, replayable (R9). What is in a file, a subclass knows.

A path is a file, a folder or a pattern. The offset is (rows read, size of the file, its mtime): a later life goes on
after these rows, and notices a file that is not the one it has begun to read. Files are read one after the other,
sorted by name. `ParquetSource`, `CsvSource` and `JsonSource` are such sources.
"""

from __future__ import annotations

import glob
import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, NoReturn

import pyarrow as pa
import pyarrow.types as pt

from logline.errors import ConnectorError, DefinitionError, SchemaError
from logline.graph.connector import Source
from logline.graph.operator import SchemaLike
from logline.graph.schemas import schema as read_schema
from logline.graph.schemas import to_batches

ROWS = 1 << 16
"""Records that are in memory at once, about; the size of events is the pipeline's affair."""
_HIDDEN = (".", "_")
"""Names that begin so are no data: what a writer has put aside, as for Spark and pyarrow.dataset."""

Stamp = tuple[int, int]
"""Size and mtime in nanoseconds: which state of a file was read."""


class FileSource(Source):
    """The files of a path. A subclass says what a file looks like (`_look`, `_check_file`) and reads its rows."""

    schema: pa.Schema

    reuses_memory = False
    grows = False
    in_turn = True  # an hour after the other, where the files are hours: interleaved, half of them would be late

    function: ClassVar[str]
    """The function of `sources` that makes it, for messages."""
    kind: ClassVar[str]
    """What its files are called: "a Parquet file"."""
    suffixes: ClassVar[tuple[str, ...]]
    """How the names of the files end that it reads of a folder."""

    def __init__(self, path: str | os.PathLike[str], schema: SchemaLike | None = None) -> None:
        self._path = Path(os.path.abspath(path))  # a worker may have another working directory
        self._declared = schema is not None
        names = self._list()
        self.schema = self._look_at(names) if schema is None else read_schema(schema)
        self._check_all(names)

    def partitions(self) -> tuple[str, ...]:
        """The files that are there now, named from the folder that they share."""
        names = self._list()
        self._check_all(names)
        return tuple(names)

    def read(self, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, tuple[int, int, int]]]:
        """Goes on after the rows that `offset` counts, if the file is still the one they came from."""
        done, *before = (0,) if offset is None else offset
        with self._opened(partition) as (raw, stamp):
            if before and tuple(before) != stamp:
                self._changed(partition, done)
            for batch in self._rows_after(partition, raw, done):
                done += batch.num_rows
                plain = batch.select(self.schema.names).replace_schema_metadata(None)
                yield to_batches(plain, self.schema, str(self._file(partition)))[0], (done, *stamp)

    def describe(self, partition: str) -> str:
        """The text of the read action."""
        return f"{self.function}({self._file(partition)})"

    def dataset(self) -> tuple[str, str]:
        """The file, the folder or the pattern."""
        return "file", str(self._path)

    # ---- what a subclass knows ------------------------------------------------------------------------

    @abstractmethod
    def _look(self, name: str, raw: BinaryIO) -> pa.Schema | None:
        """The schema of the file by a look at it, or None if it has nothing to tell it from."""

    @abstractmethod
    def _check_file(self, name: str, raw: BinaryIO) -> None:
        """Refuses a file that has not the columns of the schema, as far as that shows before it is read."""

    @abstractmethod
    def _rows_after(self, name: str, raw: BinaryIO, done: int) -> Iterator[pa.RecordBatch]:
        """All rows but the first `done`, with the columns of the schema."""

    # ---- which files ----------------------------------------------------------------------------------

    def _list(self) -> list[str]:
        """The names of the files, sorted."""
        path = self._path
        if path.is_dir():
            found = [file for file in path.iterdir() if file.name.endswith(self.suffixes)]
        elif path.exists():
            return [path.name]
        elif glob.has_magic(str(path)):
            found = [Path(name) for name in glob.glob(str(path), recursive=True)]
        else:
            raise DefinitionError(
                f"{self.function}(): there is no {path}; "
                f"give a file, a folder or a pattern like data/*{self.suffixes[0]}"
            )
        names = sorted(
            str(file.relative_to(self._root))
            for file in found
            if file.is_file() and not file.name.startswith(_HIDDEN)
        )
        if not names and not self._declared:
            raise SchemaError(
                f"{self.function}(): there is no {self.kind} in {path} (names that begin with . or _ do not count): "
                "give schema=, for example schema='id long', if it may be empty"
            )
        return names

    @property
    def _root(self) -> Path:
        """The folder from which the files are named."""
        path = self._path
        if path.is_dir():
            return path
        while glob.has_magic(str(path)):
            path = path.parent
        return path.parent if path == self._path else path

    def _file(self, name: str) -> Path:
        return self._root / name

    # ---- what is in them ------------------------------------------------------------------------------

    @contextmanager
    def _opened(self, name: str) -> Iterator[tuple[BinaryIO, Stamp]]:
        """The file, with the stamp of exactly what was opened, whatever takes its place meanwhile."""
        try:
            with self._file(name).open("rb") as raw:
                yield raw, stamp_of(raw)
        except FileNotFoundError:
            self._fail(name, "is gone: bring it back and start again on the same log")
        except PermissionError:
            self._fail(name, "may not be read by this user")
        except (pa.ArrowException, OSError) as error:
            self._fail(name, f"can't be read as a {self.kind}, it may be damaged: {error}")

    def _look_at(self, names: Sequence[str]) -> pa.Schema:
        """The schema of the first file that has one to tell."""
        for name in names:
            with self._opened(name) as (raw, _):
                found = self._look(name, raw)
            if found is None:
                continue
            try:
                known = read_schema(found)
            except SchemaError as error:
                raise SchemaError(f"{self.function}(): {self._file(name)}: {error}") from error
            for field in known:
                if _untold(field.type):
                    raise SchemaError(
                        f"{self.function}(): the first rows of {self._file(name)} have no value in column "
                        f"{field.name!r}, which would tell its type: give schema="
                    )
            return known
        raise SchemaError(
            f"{self.function}(): no {self.kind} in {self._path} has a row yet: give schema=, for example "
            "schema='id long'"
        )

    def _check_all(self, names: Sequence[str]) -> None:
        for name in names:
            with self._opened(name) as (raw, _):
                self._check_file(name, raw)

    def _check(self, name: str, got: Sequence[str], types: pa.Schema | None = None) -> None:
        """Whether the file has the columns of the schema, in whatever order; `types`, if the file has any."""
        faults = []
        for field in self.schema:
            if field.name not in got:
                faults.append(f"has no column {field.name!r} ({field.type})")
            elif types is not None and types.field(field.name).type != field.type:
                faults.append(f"has {types.field(field.name).type} in column {field.name!r}, not {field.type}")
        faults += [f"has the column {n!r}, which is not in the schema" for n in got if n not in self.schema.names]
        faults += [f"has the column {n!r} twice" for n in got if list(got).count(n) > 1]
        if faults:
            whose = "the one that was given" if self._declared else "that of the first file"
            raise SchemaError(
                f"{self.function}(): {self._file(name)} {faults[0]}; all files must have the same schema, {whose}"
            )

    def _changed(self, name: str, done: int) -> NoReturn:
        self._fail(
            name,
            f"has changed since its first {done} rows were read: bring the file back as it was, "
            "or begin with a fresh log",
        )

    def _fail(self, name: str, what: str) -> NoReturn:
        raise ConnectorError(f"{self.function}(): {self._file(name)} {what}")


def stamp_of(raw: BinaryIO) -> Stamp:
    """The stamp of an open file."""
    found = os.fstat(raw.fileno())
    return found.st_size, found.st_mtime_ns


def _untold(type_: pa.DataType) -> bool:
    """Whether it is, or holds, the type of a column that had no value."""
    if pt.is_null(type_):
        return True
    return any(_untold(type_.field(n).type) for n in range(type_.num_fields))
