"""Parquet files as a source; see `files` for which files, offsets and changes.

The schema is in each file, so that a file with another one is refused before anything is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from logline.connectors.files import ROWS, FileSource

_BUFFER = 1 << 20
"""Bytes of a column that are read at once: a row group may be larger than the memory."""


class ParquetSource(FileSource):
    """The files of a path; see `sources.parquet`."""

    function = "parquet"
    kind = "Parquet file"
    suffixes = (".parquet",)

    def _look(self, name: str, raw: BinaryIO) -> pa.Schema | None:
        with _parquet(raw) as file:
            return file.schema_arrow

    def _check_file(self, name: str, raw: BinaryIO) -> None:
        with _parquet(raw) as file:
            self._check(name, file.schema_arrow.names, file.schema_arrow)

    def _rows_after(self, name: str, raw: BinaryIO, done: int) -> Iterator[pa.RecordBatch]:
        """Row groups that lie before these rows are not touched."""
        with _parquet(raw) as file:
            if done > file.metadata.num_rows:
                self._changed(name, done)
            self._check(name, file.schema_arrow.names, file.schema_arrow)
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if done >= rows:
                    done -= rows
                    continue
                for batch in file.iter_batches(batch_size=ROWS, row_groups=[group]):
                    if done < batch.num_rows:
                        yield batch.slice(done)
                    done = max(done - batch.num_rows, 0)


@contextmanager
def _parquet(raw: BinaryIO) -> Iterator[pq.ParquetFile]:
    with pq.ParquetFile(raw, buffer_size=_BUFFER, page_checksum_verification=True) as file:
        yield file
