"""Sinks: the log itself, a function, a folder of Parquet files, a table of SQLite or PostgreSQL.

>>> kept = collect()
>>> kept.open("log/store/out")
>>> kept.write(pa.record_batch({"id": [1]}), 1, "store:1")
>>> kept.write(pa.record_batch({"id": [1]}), 1, "store:1")     # once more, as after a crash
>>> kept.table().to_pylist()
[{'id': 1}]
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from weakref import WeakValueDictionary

import pyarrow as pa

from logline.errors import GuaranteeError, LogError, OptionError
from logline.graph.connector import Guarantee, Sink
from logline.graph.functions import check_takes
from logline.graph.operator import Duration
from logline.graph.secrets import Secret
from logline.planned import missing

if TYPE_CHECKING:
    from logline.connectors.parquet_sink import Compression, ParquetSink
    from logline.connectors.postgres_sink import PostgresSink
    from logline.connectors.sql_table import SqlMode
    from logline.connectors.sqlite_sink import SqliteSink

WriteFn = Callable[[pa.RecordBatch, int, str], object]


class _Kept:
    """What was written, and per scope the last number: both change under one lock, as R8 asks."""

    def __init__(self, *, whole: bool) -> None:
        self.lock = Lock()
        self.batches: list[pa.RecordBatch] = []
        self.last: dict[str, int] = {}
        self.whole = whole
        """Whether everything was written here; if not, only the log has it, and nothing is kept twice."""


_stores: WeakValueDictionary[str, _Kept] = WeakValueDictionary()
_stores_lock = Lock()


class Collect(Sink):
    """The result is in the log: the write actions stay there, and `Run.result` reads them, in any process.

    In the process where it was made it also has the batches at hand, for `table()`. Copies made by shipping share
    what the original has; one that arrives in another process keeps nothing.
    """

    guarantee: Guarantee = "positioned"
    kept = True

    def __init__(self, key: str | None = None) -> None:
        """`key`: of the original, if this is a copy."""
        self._key = uuid4().hex if key is None else key
        self._scope = ""
        with _stores_lock:
            found = _stores.get(self._key)
            self._here = _Kept(whole=key is None) if found is None else found
            _stores[self._key] = self._here

    def __reduce__(self) -> tuple[Any, ...]:
        return Collect, (self._key,)

    def open(self, scope: str) -> None:
        self._scope = scope

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        """Counts the write; one that was counted before changes nothing."""
        here = self._here
        with here.lock:
            last = here.last.get(self._scope, 0)
            if number <= last:
                return
            if number != last + 1:  # a life in another process has written what is between
                here.whole = False
            here.last[self._scope] = number
            if here.whole:
                here.batches.append(batch)
            else:
                here.batches.clear()

    def position(self) -> int:
        """The last number applied in this scope, as far as this process knows."""
        with self._here.lock:
            return self._here.last.get(self._scope, 0)

    def table(self) -> pa.Table:
        """All that was written, in order, if it was in this process; without columns before the first write."""
        with self._here.lock:
            written, whole = list(self._here.batches), self._here.whole
        if not whole:
            raise LogError(
                "collect(): this process has not written all of it: take run.result(NAME), which reads the log"
            )
        return pa.Table.from_batches(written) if written else pa.table({})


class Call(Sink):
    """Writes by calling a function."""

    def __init__(self, fn: WriteFn, guarantee: Guarantee) -> None:
        if inspect.iscoroutinefunction(fn) or not callable(fn):
            raise OptionError("call() takes a plain function fn(batch, number, write_id)")
        check_takes(fn, "call()", "batch", "number", "write_id")
        if guarantee not in self._GUARANTEES:
            raise OptionError(f"guarantee={guarantee!r}: use {', '.join(self._GUARANTEES)}")
        if guarantee == "positioned":
            raise GuaranteeError(
                "call(): a positioned target must also say which number it applied last; "
                "write a Sink with write() and position()"
            )
        self._fn = fn
        self.guarantee = guarantee

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        """Calls the function; the write is done when it returns."""
        self._fn(batch, number, write_id)


def collect() -> Collect:
    """A sink that keeps what it gets in the log: `run.result(NAME)` returns it, in any process.

    `.table()` returns it too, in the process that wrote all of it.
    """
    return Collect()


def call(fn: WriteFn, *, guarantee: Guarantee = "at_least_once") -> Call:
    """A sink that calls `fn(batch, number, write_id)`; `guarantee` says how `fn` tells a repeated write apart.

    >>> seen = {}
    >>> sink = call(lambda batch, number, write_id: seen.update({write_id: batch.num_rows}), guarantee="named")
    >>> sink.write(pa.record_batch({"id": [1, 2]}), 1, "log/store/out/1")
    >>> seen
    {'log/store/out/1': 2}
    """
    return Call(fn, guarantee)


def parquet(path: str | os.PathLike[str], *, compression: Compression = "zstd") -> ParquetSink:
    """A sink that writes a folder of Parquet files, one per event, each exactly once. It makes the folder if need be.

    A file appears whole, under a name that never changes. Files that begin with `.` are not finished.
    """
    from logline.connectors.parquet_sink import ParquetSink

    return ParquetSink(path, compression)


def sqlite(
    path: str | os.PathLike[str],
    table: str,
    *,
    mode: SqlMode = "append",
    key: str | Sequence[str] | None = None,
) -> SqliteSink:
    """A sink that writes the rows to a table of an SQLite database, each exactly once.

    Each event is one transaction, with its position in the table `_logline_positions`. The table is made from the
    columns of the first event if it is not there. `mode="upsert"`: a row takes the place of the one with the same
    `key`, a column or several.

    >>> import sqlite3, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sink = sqlite(f"{folder}/shop.db", "stock", mode="upsert", key="item")
    ...     sink.open("log/store/out")
    ...     sink.write(pa.record_batch({"item": ["tea", "jam"], "left": [4, 7]}), 1, "log/store/out/1")
    ...     sink.write(pa.record_batch({"item": ["tea"], "left": [3]}), 2, "log/store/out/2")
    ...     sink.write(pa.record_batch({"item": ["tea", "jam"], "left": [4, 7]}), 1, "log/store/out/1")  # once more
    ...     sink.close()
    ...     db = sqlite3.connect(f"{folder}/shop.db")
    ...     db.execute("select * from stock order by item").fetchall()
    ...     db.close()
    [('jam', 7), ('tea', 3)]
    """
    from logline.connectors.sqlite_sink import SqliteSink

    return SqliteSink(path, table, mode, key)


def postgres(
    dsn: str | Secret,
    table: str,
    *,
    mode: SqlMode = "append",
    key: str | Sequence[str] | None = None,
    statement_timeout: Duration = "1m",
    lock_timeout: Duration = "10s",
) -> PostgresSink:
    """A sink that writes the rows to a table of PostgreSQL, each exactly once. It needs the extra `postgres`.

    `dsn` is a connection string, or `ll.env("NAME")` if it is in a variable of the worker. `table` may name its
    schema, as in `"sales.hourly"`. Each event is one transaction, with its position in the table
    `_logline_positions` of the same schema. The table is made from the columns of the first event if it is not there.
    `mode="upsert"`: a row takes the place of the one with the same `key`, a column or several; of several rows of an
    event with the same key the last one counts.

    >>> from logline.graph.secrets import env
    >>> postgres(env("PG"), "sales.hourly", mode="upsert", key=["hour", "item"])
    postgres(env('PG'), 'sales.hourly')
    """
    from logline.connectors.postgres_sink import PostgresSink

    return PostgresSink(dsn, table, mode, key, statement_timeout, lock_timeout)


if not TYPE_CHECKING:  # a type checker and an editor see what there is

    def __getattr__(name):
        raise missing("ll.sinks", name, f"module {__name__!r} has no attribute {name!r}")
