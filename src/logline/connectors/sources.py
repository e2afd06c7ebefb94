"""Sources: batches at hand, files (Parquet, CSV, JSON lines), a query of PostgreSQL, a Spark DataFrame.

>>> source = batches([pa.table({"id": [1, 2]}), pa.table({"id": [3]})])
>>> [(batch.num_rows, offset) for batch, offset in source.read("0", None)]
[(2, 1), (1, 2)]
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from logline.errors import ConnectorError, DefinitionError, SchemaError, a_kind
from logline.graph.connector import Source
from logline.graph.functions import check_takes
from logline.graph.operator import Duration, SchemaLike, Tabular, is_tabular
from logline.graph.schemas import schema as read_schema
from logline.graph.schemas import to_batches, to_table
from logline.graph.secrets import Secret
from logline.planned import missing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from logline.connectors.csv_source import CsvSource
    from logline.connectors.json_source import JsonSource
    from logline.connectors.parquet_source import ParquetSource
    from logline.connectors.postgres_settling import Settle
    from logline.connectors.postgres_source import PostgresSource
    from logline.spark.source import FrameSource

Data = Tabular | Sequence[Tabular] | Callable[[], Iterable[Tabular]]


class Batches(Source):
    """Tables in a list, or in an iterable that a function makes anew for each read.

    Replayable: the offset is the number of tables already read. A function must give the same ones again.
    """

    reuses_memory = False

    gather = False  # who gives the batches has chosen the events

    def __init__(self, data: Data, schema: SchemaLike | None = None) -> None:
        if is_tabular(data):
            data = [cast(Tabular, data)]
        elif not callable(data) and not isinstance(data, Sequence):
            # A generator, say: a life after a crash could not read it again.
            raise DefinitionError(
                f"batches() takes a list of tables or a function that returns them, not a {type(data).__name__}"
            )
        elif callable(data):
            check_takes(data, "batches()")
        self._data = data
        self.schema = self._first() if schema is None else read_schema(schema)
        if not callable(data):
            self._data = [self._batch(table) for table in data]  # what is wrong with a list shows at once

    def __deepcopy__(self, memo: object) -> Batches:
        """Itself: nothing in it changes, and its tables may be large."""
        return self

    def read(self, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Goes on after the first `offset` tables."""
        done = 0 if offset is None else int(offset)
        tables = iter(self._tables())
        there = sum(1 for _ in islice(tables, done))
        if there < done:  # else this would be taken for the end, and nobody would know
            raise ConnectorError(
                f"{self.describe(partition)}: {done} tables were read before, and now there are {there}: give the "
                "same ones again, with new ones after them at most, or begin with a fresh log"
            )
        for number, table in enumerate(tables, start=done + 1):
            yield self._batch(table), number

    def describe(self, partition: str) -> str:
        """The text of the read action."""
        if callable(self._data):
            return f"batches({getattr(self._data, '__name__', type(self._data).__name__)})"
        return f"batches({len(self._data)} in a list)"

    def _tables(self) -> Iterable[Tabular]:
        if not callable(self._data):
            return self._data
        made: object = self._data()
        table = is_tabular(made) and not isinstance(made, pa.RecordBatchReader)  # which is one of batches
        if table or not isinstance(made, Iterable):
            raise DefinitionError(
                f"the function of batches() gave {a_kind(made)}; it must return an iterable of tables, a list say"
            )
        return made

    def _batch(self, table: Tabular) -> pa.RecordBatch:
        (batch,) = to_batches(table, self.schema, "batches()")
        return batch

    def _first(self) -> pa.Schema:
        for table in self._tables():
            return read_schema(to_table(table, "batches()").schema)
        raise SchemaError("batches() without any table needs schema=, for example schema='id long'")


def batches(data: Data, *, schema: SchemaLike | None = None) -> Batches:
    """A source of tables (pyarrow, pandas, polars): a list, or a function that returns an iterable of them.

    The function must return the same tables each time: after a crash it is called again.
    """
    return Batches(data, schema)


def parquet(path: str | os.PathLike[str], *, schema: SchemaLike | None = None) -> ParquetSource:
    """A source of Parquet files: one file, the `*.parquet` files of a folder, or those of a pattern.

    It reads them in the order of their names, as they are when the pipeline starts. All must have the same columns;
    `schema` is needed only where there may be no file. A file must not change until it has been read.
    """
    from logline.connectors.parquet_source import ParquetSource

    return ParquetSource(path, schema)


def csv(
    path: str | os.PathLike[str],
    *,
    schema: SchemaLike | None = None,
    names: Sequence[str] | None = None,
    delimiter: str = ",",
    quote: str | None = '"',
    nulls: Sequence[str] = ("",),
    encoding: str = "utf-8",
) -> CsvSource:
    """A source of CSV files: one file, the `*.csv` files of a folder (also `.gz`, `.bz2`, `.zst`), or a pattern.

    It reads them as `parquet` does. The first line of a file has the names of its columns, unless `names` gives
    them. Without `schema` the first rows of the first file tell the types. A field of `nulls` is null, unless it is
    quoted. `quote=None`: nothing is quoted. A row that can't be read fails the run with its file and line.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "a.csv").write_text("id;name\\n1;tea\\n2;\\n")
    ...     source = csv(folder, schema="id long, name string", delimiter=";")
    ...     [batch.to_pylist() for name in source.partitions() for batch, _ in source.read(name, None)]
    [[{'id': 1, 'name': 'tea'}, {'id': 2, 'name': None}]]
    """
    from logline.connectors.csv_source import CsvSource

    return CsvSource(path, schema, names=names, delimiter=delimiter, quote=quote, nulls=nulls, encoding=encoding)


def json(path: str | os.PathLike[str], *, schema: SchemaLike | None = None) -> JsonSource:
    """A source of JSON lines: one file, the `*.jsonl`, `*.ndjson` and `*.json` files of a folder (also `.gz`, `.bz2`,
    `.zst`), or a pattern.

    It reads them as `parquet` does. Each line is an object. A key that is missing is null; one that is not in the
    schema fails the run, with its file and line. Without `schema` the first rows of the first file tell it.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "a.jsonl").write_text('{"id": 1, "name": "tea"}\\n{"id": 2}\\n')
    ...     source = json(folder)
    ...     [batch.to_pylist() for name in source.partitions() for batch, _ in source.read(name, None)]
    [[{'id': 1, 'name': 'tea'}, {'id': 2, 'name': None}]]
    """
    from logline.connectors.json_source import JsonSource

    return JsonSource(path, schema)


def postgres(
    dsn: str | Secret,
    query: str,
    *,
    cursor: str | Sequence[str] | None = None,
    poll: Duration | None = None,
    listen: str | None = None,
    settle: Settle | Duration = "transactions",
    page: int = 10_000,
    schema: SchemaLike | None = None,
) -> PostgresSource:
    """A source of the rows of a query of PostgreSQL, or of a table. It needs the extra `postgres`.

    `dsn` is a connection string, or `ll.env("NAME")`. `cursor` names the column that orders the rows, or several: no
    two rows are equal in it, none has a null there, and a new row comes after those that are there. Then a later life
    goes on after the last row that was logged. Without a cursor the whole result is logged before any of it is shown,
    and it is read once.

    It ends when it has read what is there. With `poll` it looks for new rows again and again; with `listen` it also
    looks when somebody notifies this channel. `settle` says whom it waits for before it reads a row, so that one with
    a lower cursor that is committed later is not missed: every transaction that runs, only those that write to the
    tables of the query (`"writers"`), or so long (`"10s"`). `page` is how many rows it asks for at a time. `schema`
    names the columns that are read, and their types; without it the server is asked when the pipeline is defined.

    >>> from logline.graph.secrets import env
    >>> postgres(env("PG"), "sales.orders", cursor="id", poll="1s", schema="id long, item string")
    postgres(env('PG'), 'sales.orders')
    """
    from logline.connectors.postgres_source import PostgresSource

    return PostgresSource(dsn, query, cursor, poll, listen, settle, page, schema)


def spark(frame: DataFrame) -> FrameSource:
    """A source of the rows of a DataFrame. Spark's executors read its partitions one after the other.

    If Spark's plan gives the same rows in the same order each time, the rows are logged as they come. Any other
    DataFrame, one that shuffles say, is computed and logged whole before the first of its events is shown.
    """
    from logline.spark.source import FrameSource  # Spark is an extra

    return FrameSource(frame)


if not TYPE_CHECKING:  # a type checker and an editor see what there is

    def __getattr__(name):
        raise missing("ll.sources", name, f"module {__name__!r} has no attribute {name!r}")
