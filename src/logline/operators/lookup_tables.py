"""Where the rows of a lookup's table come from: a table that is given, files, or a function. They are read in the
worker, at the first event, and again when they are older than `refresh`.

    >>> found = table_of(pa.table({"item": ["tea"], "price": [3]}))
    >>> found.schema.names, found.read(["price"]).to_pylist()
    (['item', 'price'], [{'price': 3}])
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq

from logline.errors import OptionError, SchemaError, a_kind
from logline.graph.functions import check_takes, is_async_function
from logline.graph.operator import Batch, SchemaLike, Tabular, is_tabular
from logline.graph.schemas import schema as read_schema
from logline.graph.schemas import to_batches, to_table

T = TypeVar("T")
TableFn = Callable[[], Tabular]
"""A function that returns the table as it is now."""
LookupTable = Tabular | str | os.PathLike[str] | TableFn
_KINDS = "a table (pyarrow, pandas, polars), the path of a Parquet or CSV file, a function, or ll.table(stream, key=)"


class ReadTable(ABC):
    """A table that can be read."""

    schema: pa.Schema
    changes: bool
    """Whether a later read may give other rows."""

    def read(self, columns: Sequence[str]) -> Batch:
        """These columns of all its rows, with the types that they had when the pipeline was defined."""
        table = self._rows(columns)
        there = [name for name in columns if name in table.schema.names]  # what is new does not matter
        wanted = pa.schema([self.schema.field(name) for name in columns])
        return to_batches(table.select(there).replace_schema_metadata(None), wanted, f"the table of {self}")[0]

    @abstractmethod
    def _rows(self, columns: Sequence[str]) -> pa.Table: ...


class GivenTable(ReadTable):
    """A table that travels with the operator."""

    changes = False

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.schema = read_schema(table.schema)

    def __str__(self) -> str:
        return "the lookup"

    def _rows(self, columns: Sequence[str]) -> pa.Table:
        return self.table


class TableFile(ReadTable):
    """A Parquet or CSV file, or the Parquet files of a folder."""

    changes = True

    def __init__(self, path: str | os.PathLike[str], schema: pa.Schema | None) -> None:
        if "://" in (text := os.fspath(path)):
            raise OptionError(
                f"{text}: a lookup reads local files; for others give a function that returns the table"
            )
        self.path = Path(os.path.abspath(path))  # a worker may have another working directory
        self._declared = schema
        self.schema = self._look() if schema is None else schema

    def __str__(self) -> str:
        return str(self.path)

    def _files(self) -> list[Path]:
        if not self.path.is_dir():
            return [self.path]
        found = sorted(file for file in self.path.glob("*.parquet") if not file.name.startswith((".", "_")))
        if not found:
            raise FileNotFoundError(f"there is no Parquet file in {self.path}")
        return found

    def _is_csv(self) -> bool:
        return ".csv" in self.path.suffixes

    def _look(self) -> pa.Schema:
        try:
            found = _read_csv(self.path).schema if self._is_csv() else pq.read_schema(self._files()[0])
        except (OSError, pa.ArrowException) as error:
            raise OptionError(
                f"the table {self.path} can't be read: {error}; give a Parquet or CSV file, a folder of Parquet "
                "files, or schema= if it will be there later"
            ) from error
        return read_schema(found)

    def _rows(self, columns: Sequence[str]) -> pa.Table:
        if self._is_csv():
            return _read_csv(self.path, self.schema)
        tables = []
        for path in self._files():
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                there = [name for name in columns if name in file.schema_arrow.names]
                tables.append(file.read(columns=there, use_threads=False))
        return pa.concat_tables(tables, promote_options="default")


class CalledTable(ReadTable):
    """What a function returns."""

    changes = True

    def __init__(self, fn: TableFn, schema: pa.Schema | None) -> None:
        check_takes(fn, "lookup")
        if is_async_function(fn):
            raise OptionError("the function of a lookup is a plain `def` that returns the table, no `async def`")
        self.fn = fn
        self.schema = self._look() if schema is None else schema

    def __str__(self) -> str:
        return f"{getattr(self.fn, '__name__', 'the function')}()"

    def _look(self) -> pa.Schema:
        try:
            found = self._rows(())
        except OptionError:
            raise
        except Exception as error:
            raise SchemaError(
                f"the columns of the table are not known, since {self} failed ({type(error).__name__}: {error}): "
                "correct it, or, if it can only run in a worker, pass schema='item string, price double'"
            ) from error
        return read_schema(found.schema)

    def _rows(self, columns: Sequence[str]) -> pa.Table:
        made: object = self.fn()
        _refuse_spark(made)
        if not is_tabular(made):
            raise TypeError(f"{self} gave {a_kind(made)}; it must return a table (pyarrow, pandas, polars)")
        return to_table(made, str(self))  # type: ignore[arg-type]


def table_of(given: object, schema: SchemaLike | None = None) -> ReadTable:
    """The table that an author gives; OptionError for what is none."""
    _refuse_spark(given)
    declared = None if schema is None else read_schema(schema)
    if isinstance(given, str | os.PathLike):
        return TableFile(given, declared)
    if is_tabular(given):
        if declared is not None:
            raise OptionError("schema= is for a path or a function: a table that is given has its own")
        return GivenTable(to_table(given, "the table of the lookup"))  # type: ignore[arg-type]
    if callable(given):
        return CalledTable(given, declared)
    raise OptionError(f"a lookup takes {_KINDS}, not {a_kind(given)}")


def _refuse_spark(given: object) -> None:
    """It has Arrow's interface, too; but a worker could not read it again, and would collect it whole at any time."""
    if type(given).__module__.startswith("pyspark."):
        raise OptionError(
            f"a lookup can't read a Spark {type(given).__name__}: it lives in the driver, the lookup in a worker. "
            "Collect it once, as df.toArrow(); or write it as Parquet and give the folder, with refresh= if it is "
            "written again, each time into a new folder that a link points to"
        )


def _read_csv(path: Path, schema: pa.Schema | None = None) -> pa.Table:
    kinds = None if schema is None else {field.name: field.type for field in schema}
    convert = pv.ConvertOptions(column_types=kinds, strings_can_be_null=True, quoted_strings_can_be_null=False)
    return pv.read_csv(path, read_options=pv.ReadOptions(use_threads=False), convert_options=convert)


class Refreshed(Generic[T]):
    """Something that is made when it is first asked for, and again when it is older than `refresh`.

    Only the one who asks makes it: several threads may ask, and the others wait. If that fails, the error is theirs
    who asked, and the next one tries again.
    """

    def __init__(
        self, make: Callable[[], T], refresh: timedelta | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._make = make
        self._refresh = None if refresh is None else refresh.total_seconds()
        self._clock = clock
        self._made: tuple[T, float] | None = None
        self._lock = threading.Lock()

    def get(self) -> T:
        """What there is now."""
        with self._lock:
            now = self._clock()
            if self._made is None or (self._refresh is not None and now - self._made[1] >= self._refresh):
                self._made = self._make(), now  # its age counts from before the read
            return self._made[0]

    def __reduce__(self) -> Any:
        raise TypeError("made in open(): it does not travel")
