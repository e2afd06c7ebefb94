"""Arrow schemas as Spark has them.

Spark knows fewer types than Arrow: what it lacks is widened where nothing is lost (an unsigned integer, a
dictionary), times are cut to microseconds, and the rest is refused by name.

    >>> as_spark_arrow(pa.schema({"n": pa.uint16(), "at": pa.timestamp("ns", "Europe/Rome")}), "orders.out")
    n: int32
    at: timestamp[us, tz=UTC]
"""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from logline.errors import SchemaError
from logline.graph.ddl import parse_ddl
from logline.spark.refusals import refuse_connect

_THRESHOLD = "spark.sql.execution.arrow.localRelationThreshold"
_converting = threading.Lock()
"""Held while that setting of the session is another one: two threads at once would restore the wrong value."""
_UTC = pa.timestamp("us", "UTC")
_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}
_SAME = {
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.date32(),
    pa.null(),
}
_TEXTS = (pt.is_string, pt.is_large_string, pt.is_string_view)
_BYTES = (pt.is_binary, pt.is_large_binary, pt.is_binary_view, pt.is_fixed_size_binary)
_LISTS = (pt.is_list, pt.is_large_list, pt.is_fixed_size_list, pt.is_list_view, pt.is_large_list_view)


def as_spark_arrow(schema: pa.Schema, where: str) -> pa.Schema:
    """The schema with every type as Spark's own Arrow conversion has it; `where` names the port for messages."""
    return pa.schema([_field(field, f"{where}: column {field.name!r}") for field in schema])


def cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in the schema that `as_spark_arrow` gave; times lose what is finer than a microsecond."""
    if batch.schema.equals(schema):
        return batch
    columns = [column.cast(field.type, safe=False) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def to_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A DataFrame of a table whose schema `as_spark_arrow` gave.

    The JVM holds it as Arrow does, in columns. By default it would make objects of a small table, several times as
    large."""
    with _converting:
        before = spark.conf.get(_THRESHOLD)
        spark.conf.set(_THRESHOLD, "0")
        try:
            # With its schema: Spark would take a time without a zone for one in the session's zone.
            return spark.createDataFrame(table, schema=from_arrow_schema(table.schema))
        finally:
            spark.conf.set(_THRESHOLD, str(before))


def arrow_schema(frame: DataFrame, where: str) -> pa.Schema:
    """The columns of a DataFrame as Arrow has them; `where` says whose they are, for messages."""
    try:
        return parse_ddl(frame._jdf.schema().toDDL())
    except SchemaError as error:
        raise SchemaError(f"{where} has columns that Logline can't take: {error}") from error


def session() -> SparkSession | None:
    """The session of this process, whichever thread asks."""
    try:
        found = SparkSession.active()
    except PySparkRuntimeError:
        return None
    refuse_connect(found)
    return None if found.sparkContext._jsc is None else found


def _field(field: pa.Field, where: str, name: str | None = None) -> pa.Field:
    return pa.field(field.name if name is None else name, _type(field.type, where), field.nullable)


def _type(kind: Any, where: str) -> pa.DataType:
    if kind in _SAME:
        return kind
    if kind in _WIDER:
        return _WIDER[kind]
    if any(test(kind) for test in _TEXTS):
        return pa.string()
    if any(test(kind) for test in _BYTES):
        return pa.binary()
    if pt.is_dictionary(kind):
        return _type(kind.value_type, where)
    if pt.is_timestamp(kind):
        return pa.timestamp("us") if kind.tz is None else _UTC
    if pt.is_duration(kind):
        return pa.duration("us")
    if pt.is_decimal(kind) and kind.precision <= 38 and kind.scale >= 0:
        return pa.decimal128(kind.precision, kind.scale)
    if any(test(kind) for test in _LISTS):
        return pa.list_(_field(kind.value_field, where, "element"))
    if pt.is_map(kind):
        return pa.map_(_type(kind.key_type, where), _field(kind.item_field, where, "value"))
    if pt.is_struct(kind):
        return pa.struct([_field(field, where) for field in kind])
    raise SchemaError(f"{where} has type {kind}, which Spark does not have: cast it before this port")
