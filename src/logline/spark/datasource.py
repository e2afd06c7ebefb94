"""The log as a data source of Spark: its tables, and the events of a port with their records.

    logline.spark.register(spark)             # once per session
    spark.read.format("logline").option("log", "lmdb:sales.log").option("table", "event_log").load()
    spark.read.format("logline").option("log", "lmdb:sales.log").option("port", "hourly.out").load()

Options: `log`, the address of the log; either `table`, one of LOG.io's tables, or `port`; with `port` also `names`:
"true" puts the columns `event_id` (as in the tables) and `ssn` before those of the records.

The executors read: a table by operator, a port by ranges of events. What is read is what the log holds when Spark
plans the query; an event that is collected before its turn comes is left out. Nothing is written, so that a running
pipeline does not notice.

Spark makes the objects of this module in processes that are forked, so a log is opened for the length of a call and
never kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from logline.errors import BadName, LogError, OptionError
from logline.graph.record import find_instance, schema_of
from logline.names import Called, OperatorName, PortName, event_name, parse_port, port_name
from logline.spark.session import own_python
from logline.spark.types import as_spark_arrow, cast
from logline.store.address import absolute, find_store, reach_of
from logline.store.seam import Store
from logline.store.tables import SCHEMAS, TABLES, record_in, stored_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "logline"
TASK_BYTES = 64 << 20
"""What one task reads of a port, about."""
_OPTIONS = ("log", "table", "port", "names")
_TRUTHS = {"true": True, "false": False}
_NAMES = [pa.field("event_id", pa.string(), nullable=False), pa.field("ssn", pa.int64(), nullable=False)]


def register(spark: SparkSession) -> None:
    """Makes `spark.read.format("logline")` known to a session; once more does no harm."""
    with own_python(spark.sparkContext):
        spark.dataSource.register(LogSource)


@dataclass(frozen=True)
class Wanted:
    """What the options ask for."""

    log: str
    table: str | None
    port: tuple[Called, PortName] | None
    names: bool

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Wanted:
        """Reads the options; an OptionError names the one that is wrong."""
        given = {key.lower(): value for key, value in options.items()}
        for key in given:
            if key not in _OPTIONS:
                raise OptionError(f"option {key!r}: the format {FORMAT!r} has the options {', '.join(_OPTIONS)}")
        log = given.get("log")
        if not log:
            raise OptionError("option 'log' is missing: give the address of a log, as in 'lmdb:/data/sales.log'")
        table, port = given.get("table"), given.get("port")
        if (table is None) == (port is None):
            raise OptionError("give one of the options 'table' (as in 'event_log') and 'port' (as in 'hourly.out')")
        names = _TRUTHS.get(given.get("names", "false").lower())
        if names is None:
            raise OptionError(f"option 'names': {given['names']!r} is neither 'true' nor 'false'")
        if reach_of(log) == "process":
            raise OptionError(
                "option 'log': a log in memory can't be seen by the processes of Spark: use Log.frame(spark, port)"
            )
        log = absolute(log)  # as the session's own process sees it: the executors may have another working directory
        if table is not None:
            if table not in TABLES:
                raise OptionError(f"option 'table': there is no table {table!r}; there are {', '.join(TABLES)}")
            if "names" in given:
                raise OptionError("option 'names' goes with 'port': the tables have the names of events anyway")
            return cls(log, table, None, False)
        try:
            return cls(log, None, parse_port(port), names)
        except BadName as error:
            raise OptionError(f"option 'port': {error}") from None

    def open(self) -> Store:
        """The log, to be closed after the call that needs it."""
        store = find_store(self.log)
        if store is None:
            raise LogError(
                f"option 'log': there is no log at {self.log} on this machine"
                " (a log in a folder is read on the machine where it lies)"
            )
        return store

    def arrow_schema(self, store: Store) -> pa.Schema:
        """The columns, as Spark has them."""
        if self.port is None:
            return SCHEMAS[self.table or ""]
        try:
            schema = schema_of(record_in(store), *self.port)
        except BadName as error:
            raise OptionError(f"option 'port': {error}") from None
        return frame_schema(schema, port_name(*self.port), names=self.names)


def frame_schema(schema: pa.Schema, where: str, *, names: bool) -> pa.Schema:
    """The schema of a port's frame, as Spark has it."""
    found = as_spark_arrow(schema, where)
    taken = [field.name for field in _NAMES if field.name in found.names]
    if names and taken:
        raise OptionError(
            f"option 'names': {where} has a column {taken[0]!r} of its own; leave the option out or rename the column"
        )
    return pa.schema([*_NAMES, *found]) if names else found


def frame_batches(
    store: Store, sender: Called, port: PortName, schema: pa.Schema, *, names: bool, span: tuple[int, int]
) -> Iterator[pa.RecordBatch]:
    """The events of a port with SSNs in `span`, in order, each as a batch of the schema of its frame."""
    for event in stored_events(store.read(find_instance(record_in(store), sender)), port, *span):
        batch = event.payload
        if names:
            own = [pa.repeat(event_name(sender, port, event.ssn), event.rows), pa.repeat(event.ssn, event.rows)]
            fields = [*_NAMES, *batch.schema]
            batch = pa.RecordBatch.from_arrays([*own, *batch.columns], schema=pa.schema(fields))
        yield cast(batch, schema)


class LogSource(DataSource):
    """The data source behind `spark.read.format("logline")`."""

    @cached_property
    def wanted(self) -> Wanted:
        """What the options ask for; to write there is nothing to ask for."""
        return Wanted.of(self.options)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        with closing(self.wanted.open()) as store:
            return from_arrow_schema(self.wanted.arrow_schema(store))

    def reader(self, schema: StructType) -> LogReader:
        return LogReader(self.wanted)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        raise OptionError(
            f"the format {FORMAT!r} only reads: a log is written by the pipeline that runs on it. "
            "Read the DataFrame in a pipeline, with ll.sources.spark(df)"
        )


class Piece(InputPartition):
    """What one task reads: an operator's part of a table, or a run of events."""

    def __init__(self, of: OperatorName | Called, first: int = 1, last: int = 0) -> None:
        super().__init__((of, first, last))
        self.of = of
        self.first = first
        self.last = last


class LogReader(DataSourceReader):
    """Plans in the driver, reads in the executors."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted

    def partitions(self) -> Sequence[Piece]:
        wanted = self.wanted
        with closing(wanted.open()) as store:
            if wanted.port is None:
                return [Piece(name) for name in record_in(store).operators]
            sender, port = wanted.port
            head = store.read(find_instance(record_in(store), sender)).head(port)
            count = head.last - head.base + 1
            # Events that are not collected lie anywhere between base and last; the bytes of all bound theirs.
            pieces = max(1, min(count, -(-head.total // TASK_BYTES)))
            bounds = [head.base + count * k // pieces for k in range(pieces + 1)]
            return [Piece(sender, bounds[k], bounds[k + 1] - 1) for k in range(pieces)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Piece)
        wanted = self.wanted
        with closing(wanted.open()) as store:
            schema = wanted.arrow_schema(store)
            if wanted.port is None:
                table = TABLES[wanted.table or ""](store, record_in(store), only=[partition.of])
                yield from table.to_batches()
                return
            span = (partition.first, partition.last)
            yield from frame_batches(store, *wanted.port, schema, names=wanted.names, span=span)
