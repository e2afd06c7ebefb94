"""A port's events as a DataFrame; what `Log.frame` does."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from logline.errors import DefinitionError
from logline.graph.record import find_instance, schema_of
from logline.lineage.partial import announce_partial
from logline.lineage.view import LogView
from logline.names import parse_port, port_name
from logline.spark.datasource import FORMAT, frame_batches, frame_schema, register
from logline.spark.refusals import refuse_connect
from logline.spark.types import to_frame
from logline.store.seam import Store
from logline.store.tables import record_in


def frame(store: Store, url: str, spark: Any, port: str, *, names: bool = False) -> DataFrame:
    """The records of the events that `port` holds, read by Spark's executors.

    A log in memory is one that only this process sees: its events are handed over to Spark from here.
    """
    refuse_connect(spark)
    if not isinstance(spark, SparkSession):
        raise DefinitionError(f"frame(): {spark!r} is not a SparkSession: write log.frame(spark, port)")
    sender, out = parse_port(port)
    record = record_in(store)
    schema = frame_schema(schema_of(record, sender, out), port_name(sender, out), names=names)
    announce_partial(LogView(store), (sender, out))
    if store.traits.reach == "process":
        span = (1, store.read(find_instance(record, sender)).head(out).last)
        batches = frame_batches(store, sender, out, schema, names=names, span=span)
        return to_frame(spark, pa.Table.from_batches(batches, schema=schema))
    register(spark)
    reader = spark.read.format(FORMAT).option("log", url).option("port", port_name(sender, out))
    return reader.option("names", str(names).lower()).load()
