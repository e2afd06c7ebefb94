"""Spark SQL over whole input sets: a function on DataFrames, which runs as a Spark job for each set.

Only the driver can start a Spark job, so these operators live in the driver's process (`on_driver`), and so does the
function, which is never shipped. What a job gives is logged like any other output: it may differ from one try to the
next (R2), and it is never made again once it is logged.

The input set is an event, or the events of a window: `Query` takes the place of aggregates there.
"""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from logline.errors import LoglineError, OptionError, SchemaError, SessionGone
from logline.graph.operator import Batch, Context, Emit, Operator, SchemaLike
from logline.names import InsetId
from logline.operators import (
    BlockAggregate,
    Events,
    Gathered,
    Session,
    Sliding,
    SlidingAggregate,
    SlidingArrivals,
    Tumbling,
    TumblingAggregate,
    TumblingArrivals,
    Whole,
    WholeAggregate,
    Window,
    batches_to_bytes,
    read_gathered,
)
from logline.spark.held import Held
from logline.spark.jvm import why_gone
from logline.spark.session import JOBS
from logline.spark.types import arrow_schema, as_spark_arrow, cast, session, to_frame

GARBAGE = 32 << 20
"""Bytes given to the JVM after which DataFrames that nobody uses are collected."""
FrameFn = Callable[[DataFrame], DataFrame]


class _Given:
    """Counts what was given to the JVM. A DataFrame is part of a cycle of Python objects, and the JVM keeps its rows
    until Python's collector finds the cycle; that one counts objects, and sees a few small ones."""

    def __init__(self) -> None:
        self._bytes = 0

    def add(self, size: int) -> None:
        """Has the collector run after every 32 MiB."""
        self._bytes += size
        if self._bytes >= GARBAGE:
            self._bytes = 0
            gc.collect()


_given = _Given()


@contextmanager
def _described(spark: SparkSession, text: str) -> Iterator[None]:
    """The jobs of this thread, as Spark's page shows them; their group says that they are Logline's."""
    spark.sparkContext.setJobGroup(f"{JOBS}sql", text)
    try:
        yield
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description"):
            spark.sparkContext.setLocalProperty(name, None)  # type: ignore[arg-type]  # None takes it away


class Query:
    """A function on DataFrames over the records of a set."""

    def __init__(self, name: str, fn: FrameFn, schema: pa.Schema | None) -> None:
        given: Any = fn
        if not callable(given) or inspect.iscoroutinefunction(given):
            raise OptionError("sql takes a plain function of a DataFrame, as in lambda df: df.where('amount > 3')")
        self.name = name
        self.schema = schema
        self.by: tuple[str, ...] = ()
        self.made_of: Mapping[str, str] = {}
        self._held = Held(fn, f"the function of {name!r}")

    def add(self, parts: Gathered | None, batch: Batch) -> Gathered:
        """Gathers the records; nothing is copied."""
        return Gathered.after(parts, batch)

    def result(self, parts: Gathered) -> pa.Table:
        """Runs the function on the set's rows as a Spark job, and returns what the job gives."""
        spark = session()
        if spark is None:
            raise SessionGone(f"operator {self.name!r}: there is no Spark session any more to run its jobs in")
        table = parts.table()
        try:
            with _described(spark, f"{self.name}: Spark SQL on an input set"):
                return self._made(self._frame(spark, table)).toArrow()
        except Exception as error:
            if why := why_gone(spark):
                raise SessionGone(why) from error
            raise
        finally:
            _given.add(table.nbytes)

    def encode(self, parts: Gathered) -> bytes:
        """The records that were gathered, for a checkpoint."""
        return batches_to_bytes(parts.batches())

    def decode(self, data: bytes) -> Gathered:
        """The records that were encoded."""
        found = read_gathered(data)
        assert found is not None, "a set has members, and each a batch"
        return found

    def layout(self) -> str:
        """The records as they came."""
        return "records"

    def output(self, schema: pa.Schema) -> pa.Schema:
        """What was declared, or what Spark says that the function makes of this schema; no job is run for it."""
        as_spark_arrow(schema, f"the input of {self.name!r}")
        if self.schema is not None:
            return self.schema
        spark = session()
        if spark is None:
            raise SchemaError(
                "its schema is not known, since there is no Spark session yet to ask: "
                "pass schema=, for example schema='id long, score double', or make a session first"
            )
        try:
            made = self._made(self._frame(spark, schema.empty_table()))
        except LoglineError:
            raise
        except Exception as error:
            raise SchemaError(
                f"its schema is not known, since the function failed on an empty DataFrame "
                f"({type(error).__name__}: {error}): correct it, or pass schema="
            ) from error
        return arrow_schema(made, "what the function makes")

    def _frame(self, spark: SparkSession, table: pa.Table) -> DataFrame:
        target = as_spark_arrow(table.schema, f"the input of {self.name!r}")
        batches = [cast(batch, target) for batch in table.to_batches()]
        return to_frame(spark, pa.Table.from_batches(batches, schema=target))

    def _made(self, frame: DataFrame) -> DataFrame:
        made: Any = self._held.value(frame)
        if not isinstance(made, DataFrame):
            raise TypeError(f"the function of sql gave a {type(made).__name__}; it must return a DataFrame")
        return made


def sql_operator(name: str, fn: FrameFn, window: Window | None, schema: pa.Schema | None) -> Operator[Any, Any]:
    """The operator for this kind of input set."""
    query = Query(name, fn, schema)
    match window:
        case None:
            return SqlEvent(query)
        case Events():
            return SqlBlock(window, query)
        case Tumbling(on=None):
            return SqlArrivals(window, query)
        case Tumbling():
            return SqlWindow(window, query)
        case Sliding(on=None):
            return SqlSlidingArrivals(window, query)
        case Sliding():
            return SqlSliding(window, query)
        case Whole():
            return SqlWhole(query, window)
        case Session():
            raise OptionError("sessions merge, and what a Spark job made can not: take window(...) with agg=")
    raise OptionError(f"{window!r} is not a window: use ll.tumbling, ll.sliding, ll.events or ll.whole")


class SqlEvent(Operator[Batch, None]):
    """A job for each event."""

    reuses_memory = False

    on_driver = True

    def __init__(self, query: Query) -> None:
        self.query = query

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        return {"out": self.query.output(inputs["in"])}

    def generate(self, inset: InsetId, acc: Batch, ctx: Context[None]) -> Iterator[Emit]:
        made = self.query.result(self.query.add(None, acc))
        if made.num_rows:
            yield Emit(made)


class SqlBlock(BlockAggregate):
    """A job for each block of events."""

    on_driver = True


class SqlWindow(TumblingAggregate):
    """A job for each window of time."""

    on_driver = True


class SqlSliding(SlidingAggregate):
    """A job for each window of time, of windows that overlap."""

    on_driver = True


class SqlArrivals(TumblingArrivals):
    """A job for each window of processing time."""

    on_driver = True


class SqlSlidingArrivals(SlidingArrivals):
    """A job for each window of processing time, of windows that overlap."""

    on_driver = True


class SqlWhole(WholeAggregate):
    """One job, for all events."""

    on_driver = True
