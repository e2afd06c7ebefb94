"""Parquet files as a source: one partition per file, replayable (R9).

The offset is (rows read, size of the file, its mtime): a later life goes on after these rows, and notices a file
that is not the one it has begun to read. Files are read one after the other, sorted by name.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from logline.errors import ConnectorError, DefinitionError, SchemaError
from logline.graph.connector import Source
from logline.graph.operator import SchemaLike
from logline.graph.schemas import schema as read_schema
from logline.graph.schemas import to_batches

ROWS = 1 << 16
"""Records that are in memory at once, about; the size of events is the pipeline's affair."""
_BUFFER = 1 << 20
"""Bytes of a column that are read at once: a row group may be larger than the memory."""
_HIDDEN = (".", "_")
"""Names that begin so are no data: what a writer has put aside, as for Spark and pyarrow.dataset."""

Stamp = tuple[int, int]
"""Size and mtime in nanoseconds: which state of a file was read."""


class ParquetSource(Source):
    """The files of a path; see `sources.parquet`."""

    reuses_memory = False
    grows = False
    in_turn = True  # an hour after the other, where the files are hours: interleaved, half of them would be late

    def __init__(self, path: str | os.PathLike[str], schema: SchemaLike | None = None) -> None:
        self._path = Path(os.path.abspath(path))  # a worker may have another working directory
        self._declared = schema is not None
        names = self._list()
        self.schema = self._schema_of(names[0]) if schema is None else read_schema(schema)
        self._check_all(names)

    def partitions(self) -> tuple[str, ...]:
        """The files that are there now, named from the folder that they share."""
        names = self._list()
        self._check_all(names)
        return tuple(names)

    def read(self, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, tuple[int, int, int]]]:
        """Goes on after the rows that `offset` counts, if the file is still the one they came from."""
        done, *before = (0,) if offset is None else offset
        with self._open(partition) as (file, stamp):
            if before and (tuple(before) != stamp or done > file.metadata.num_rows):
                self._fail(
                    partition,
                    f"has changed since its first {done} rows were read: bring the file back as it was, "
                    "or begin with a fresh log",
                )
            self._check(partition, file.schema_arrow)
            for batch in _rows_after(file, done):
                done += batch.num_rows
                plain = batch.select(self.schema.names).replace_schema_metadata(None)
                yield to_batches(plain, self.schema, str(self._file(partition)))[0], (done, *stamp)

    def describe(self, partition: str) -> str:
        """The text of the read action."""
        return f"parquet({self._file(partition)})"

    def dataset(self) -> tuple[str, str]:
        """The file, the folder or the pattern."""
        return "file", str(self._path)

    # ---- which files ----------------------------------------------------------------------------------

    def _list(self) -> list[str]:
        """The names of the files, sorted."""
        path = self._path
        if path.is_dir():
            found = list(path.glob("*.parquet"))
        elif path.exists():
            return [path.name]
        elif glob.has_magic(str(path)):
            found = [Path(name) for name in glob.glob(str(path), recursive=True)]
        else:
            raise DefinitionError(
                f"parquet(): there is no {path}; give a file, a folder or a pattern like data/*.parquet"
            )
        names = sorted(
            str(file.relative_to(self._root))
            for file in found
            if file.is_file() and not file.name.startswith(_HIDDEN)
        )
        if not names and not self._declared:
            raise SchemaError(
                f"parquet(): there is no Parquet file in {path} (names that begin with . or _ do not count): "
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
    def _open(self, name: str) -> Iterator[tuple[pq.ParquetFile, Stamp]]:
        """The file, with the stamp of exactly what was opened, whatever takes its place meanwhile."""
        try:
            with self._file(name).open("rb") as raw:
                found = os.fstat(raw.fileno())
                with pq.ParquetFile(raw, buffer_size=_BUFFER, page_checksum_verification=True) as file:
                    yield file, (found.st_size, found.st_mtime_ns)
        except FileNotFoundError:
            self._fail(name, "is gone: bring it back and start again on the same log")
        except PermissionError:
            self._fail(name, "may not be read by this user")
        except (pa.ArrowException, OSError) as error:
            self._fail(name, f"can't be read as a Parquet file, it may be damaged: {error}")

    def _schema_of(self, name: str) -> pa.Schema:
        with self._open(name) as (file, _):
            try:
                return read_schema(file.schema_arrow)
            except SchemaError as error:
                raise SchemaError(f"parquet(): {self._file(name)}: {error}") from error

    def _check_all(self, names: list[str]) -> None:
        for name in names:
            with self._open(name) as (file, _):
                self._check(name, file.schema_arrow)

    def _check(self, name: str, got: pa.Schema) -> None:
        """Whether the file has the columns of the schema, in whatever order."""
        faults = [
            f"has the column {n!r}, which is not in the schema" for n in got.names if n not in self.schema.names
        ]
        for field in self.schema:
            at = got.get_field_index(field.name)
            if at < 0:
                faults.insert(0, f"has no column {field.name!r} ({field.type})")
            elif got.field(at).type != field.type:
                faults.insert(0, f"has {got.field(at).type} in column {field.name!r}, not {field.type}")
        if faults:
            whose = "the one that was given" if self._declared else "that of the first file"
            raise SchemaError(
                f"parquet(): {self._file(name)} {faults[0]}; all files must have the same schema, {whose}"
            )

    def _fail(self, name: str, what: str) -> NoReturn:
        raise ConnectorError(f"parquet(): {self._file(name)} {what}")


def _rows_after(file: pq.ParquetFile, done: int) -> Iterator[pa.RecordBatch]:
    """All rows but the first `done`; row groups that lie before them are not touched."""
    for group in range(file.num_row_groups):
        rows = file.metadata.row_group(group).num_rows
        if done >= rows:
            done -= rows
            continue
        for batch in file.iter_batches(batch_size=ROWS, row_groups=[group]):
            if done < batch.num_rows:
                yield batch.slice(done)
            done = max(done - batch.num_rows, 0)
