"""A DataFrame as a source: each partition is read by a Spark task, through mapInArrow (R9).

On Spark, a life of the source *is* the task that reads a partition: `feed` hands it the batches that Spark computes,
and when the partition has ended the next life is the task of the next one (`InstanceSpec.here`). The offset is the
number of rows read; a life that begins in the midst of a partition has Spark compute it again, and skips them. That
needs a plan which gives the same rows in the same order (`plans.py`). Any other DataFrame is not replayable: it is
read whole, as one partition, and staged before any of it is shown.

Elsewhere (`preview`, an engine without tasks) the driver runs the job of a partition and reads what comes of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from logline.errors import DefinitionError
from logline.graph.connector import Source
from logline.spark.held import Held

if TYPE_CHECKING:  # a task needs nothing of PySpark's, and has no time to import it
    from pyspark.sql import DataFrame

    from logline.spark.plans import Plan

Batches = Iterator[pa.RecordBatch]
_WHOLE = "all"
_fed: Batches | None = None
"""In a task: the batches of its partition."""


class FrameSource(Source):
    """The rows of a DataFrame; see `sources.spark`."""

    reuses_memory = False
    grows = False

    in_turn = True
    apart = True
    on_driver = True

    def __init__(self, frame: DataFrame) -> None:
        from pyspark.sql import DataFrame

        from logline.spark.plans import plan_of
        from logline.spark.types import arrow_schema

        given: Any = frame
        if not isinstance(given, DataFrame) or not hasattr(given, "_jdf"):
            raise DefinitionError(f"spark() takes a DataFrame of Spark in this process, not a {type(given).__name__}")
        self.schema = arrow_schema(frame, "the DataFrame")
        plan = plan_of(frame)
        self.replayable = not plan.obstacle
        self._held = Held(Frame(frame, plan), "the DataFrame")

    @property
    def frame(self) -> Frame:
        """The DataFrame with its plan; only the driver has it."""
        return self._held.value

    def partitions(self) -> Sequence[str]:
        """Named after everything that makes them what they are: a resume with other files is noticed (R14)."""
        plan = self.frame.plan
        if not self.replayable:
            return (_WHOLE,)
        return [f"{k}of{plan.partitions}-{plan.digest}" for k in range(plan.partitions)]

    def index(self, partition: str) -> int:
        """Which partition of the job it is."""
        return 0 if partition == _WHOLE else int(partition.partition("of")[0])

    def read(self, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Goes on after the first `offset` rows."""
        skip = done = offset or 0
        batches = _from_task(_fed) if _fed is not None else self.frame.batches(self.index(partition))
        for batch in batches:
            if skip >= batch.num_rows:
                skip -= batch.num_rows
                continue
            fresh = batch.slice(skip)
            skip = 0
            done += fresh.num_rows
            yield fresh, done

    def sample(self, rows: int) -> Source:
        """Spark need not compute more than is looked at."""
        return FrameSource(self.frame.given.limit(rows))

    def describe(self, partition: str) -> str:
        """The text of the read action."""
        frame = self.frame
        if not self.replayable:
            return f"{frame}, whole: {frame.plan.obstacle}"
        return f"{frame}, partition {self.index(partition)} of {frame.plan.partitions} (plan {frame.plan.digest})"


class Frame:
    """The DataFrame, in the driver, and the jobs that read it."""

    def __init__(self, given: DataFrame, plan: Plan) -> None:
        self.given = given
        self.plan = plan
        # In one task, so that all rows are of one evaluation: what shuffles is computed in parallel before that.
        self._read = given.coalesce(1) if plan.obstacle else given

    def __str__(self) -> str:
        text = str(self.given)
        return text if len(text) <= 80 else f"{text[:76]}...]"

    def tasks(self, fn: Callable[[Batches], Batches], schema: str) -> DataFrame:
        """What `fn` makes of each partition."""
        return self._read.mapInArrow(fn, schema)

    def batches(self, index: int) -> Batches:
        """The batches of one partition, brought here."""
        packed = self.tasks(_packed, "batch binary").rdd
        for (raw,) in packed.context.runJob(packed, iter, [index]):
            with pa.ipc.open_stream(raw) as stream:
                yield from stream


def _packed(batches: Batches) -> Batches:
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.record_batch({"batch": pa.array([sink.getvalue().to_pybytes()], pa.binary())})


@contextmanager
def feed(batches: Batches) -> Iterator[None]:
    """In a Spark task: what the source that lives here reads."""
    global _fed  # noqa: PLW0603  # a task has a process to itself
    _fed = batches
    try:
        yield
    finally:
        _fed = None


def _from_task(batches: Batches) -> Batches:
    while True:
        try:
            batch = next(batches, None)
        except Exception:
            # Spark ended the stream since its own side of the task failed, and knows why; there is no way to go on
            # here. The process goes, Spark tries again, and says what was wrong if that does not help.
            os._exit(1)
        if batch is None:
            return
        yield batch
