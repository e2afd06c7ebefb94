"""The Spark job of a group: one run of it is one life of the group. The thread that runs it waits for its end.

A job is prepared once and run again for every life: to plan it anew would cost a restart a tenth of a second.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Protocol

from pyspark import SparkContext
from pyspark.sql import DataFrame
from pyspark.util import _load_from_socket

from logline.runtime.hosts.seam import Group
from logline.runtime.lives.instances import Instance, next_partition
from logline.spark.source import FrameSource
from logline.spark.task import PARTITION, Order, outcome_of
from logline.store.seam import Store


class Job(Protocol):
    """What a group's life is to Spark."""

    def run(self) -> str:
        """Runs it, and returns the one value that its task gives."""


class GroupJob:
    """One task, over one record that means nothing. No DataFrame: the first one of a session takes seconds."""

    def __init__(self, context: SparkContext, order: Order) -> None:
        self._context = context
        self._rdd = context.parallelize([0], 1).mapPartitions(outcome_of(order))
        _ = self._rdd._jrdd  # it is here that PySpark makes a task of it

    def run(self) -> str:
        """Runs the job, until the group's life is over."""
        return str(_run_partition(self._context, self._rdd, 0))


class PartitionJob:
    """One task, over the partition of the DataFrame that its source is to read next; what that is, the log knows."""

    def __init__(self, frame: DataFrame, source: Instance, store: Store, rest: GroupJob) -> None:
        """`rest` is for what is to be done when everything is read."""
        self._frame = frame
        self._source = source
        self._store = store
        self._rest = rest
        self._rdd: Any = None

    def run(self) -> str:
        """Runs the job, until the partition has ended or the life ends for another reason."""
        source = self._source.source
        assert isinstance(source, FrameSource)
        partition = next_partition(self._source, self._store)
        context = self._frame.sparkSession.sparkContext
        context.setLocalProperty(PARTITION, partition or "")
        if partition is None:
            return self._rest.run()
        if self._rdd is None:
            self._rdd = self._frame.rdd  # not before: a plan that shuffles does so here
        return str(_run_partition(context, self._rdd, source.index(partition))[0])


def frame_source(group: Group) -> Instance | None:
    """The source of a group that reads a DataFrame; it is alone there."""
    return next((p for p in group.instances.values() if isinstance(p.source, FrameSource)), None)


def _run_partition(context: SparkContext, rdd: Any, index: int) -> Any:
    """`SparkContext.runJob` without the Python process that it adds to apply a function to the result."""
    jvm: Any = context._jvm
    wanted = jvm.java.util.ArrayList()
    wanted.add(index)
    found: Any = _load_from_socket(jvm.PythonRDD.runJob(context._jsc.sc(), rdd._jrdd, wanted), rdd._jrdd_deserializer)
    with found if hasattr(found, "__enter__") else nullcontext(found) as rows:  # PySpark before 4.3 gives an iterator
        (value,) = rows
    return value
