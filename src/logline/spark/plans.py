"""What Spark will do for a DataFrame: whether reading a partition again gives the same rows in the same order.

A row's place in its partition is the offset of a replayable read (R9), so the answer must be certain. It is yes for
files, ranges and rows of the driver's own, and for what passes rows on one by one (a filter, a projection); anything
else counts as no: a shuffle, a sample, Python code, a cache, an RDD, a source that Spark asks over a network.

For a resume in another process the same is asked across runs: `digest` names the plan, the files with their sizes and
times of change, and how they are packed into partitions.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

_LEAVES = {"FileSourceScanExec", "LocalTableScanExec", "RangeExec"}
_NARROW = {
    "CoalesceExec",
    "ColumnarToRowExec",
    "ExpandExec",
    "FilterExec",
    "GenerateExec",
    "InputAdapter",
    "ProjectExec",
    "UnionExec",
    "WholeStageCodegenExec",
}
_HOST = "MapInArrowExec"
_SHUFFLES = "AdaptiveSparkPlanExec"
_IDS = re.compile(r"#\d+L?|\(\d+\)$")
"""Numbers that Spark gives out anew each time: of attributes, of stages of generated code."""
_STATUS = re.compile(r"path=(?P<path>[^;]*);.*?length=(?P<length>\d+);.*?modification_time=(?P<time>\d+);")
_ALL = 2**31 - 1


@dataclass(frozen=True)
class Plan:
    """How a DataFrame is read."""

    obstacle: str
    """What keeps it from being replayable; empty if nothing does."""
    partitions: int = 1
    digest: str = ""


def plan_of(frame: DataFrame) -> Plan:
    """Asks Spark for the plan; runs nothing."""
    # As it will run: a limit, say, is planned in another way below mapInArrow than at the top.
    execution = frame.mapInArrow(_nothing, frame.schema)._jdf.queryExecution()
    top, nodes = execution.executedPlan(), list(_walk(execution.executedPlan()))
    obstacle = _obstacle(frame, execution, nodes)
    if obstacle:
        return Plan(obstacle)
    jvm: Any = frame.sparkSession._jvm
    texts = [text for node in nodes for text in _identity(jvm, node)]
    texts += [f"rows {rows}" for rows in _local_rows(execution.optimizedPlan())]
    digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:8]
    return Plan("", top.children().apply(0).execute().getNumPartitions(), digest)


def _nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Stands for the code of a host; it is only planned."""
    return batches


def _obstacle(frame: DataFrame, execution: Any, nodes: list[Any]) -> str:
    jvm: Any = frame.sparkSession._jvm
    patterns = jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    if execution.analyzed().containsPattern(patterns.CURRENT_LIKE()):
        return "it uses the current time"
    if not execution.optimizedPlan().deterministic():
        return "it is not deterministic"
    for place, node in enumerate(nodes):
        kind = node.getClass().getSimpleName()
        if kind == _HOST and place > 0:
            return "it runs Python code"  # the first one stands for the code of a host
        if kind == _SHUFFLES:
            return "it shuffles, joins or has a subquery"
        if kind not in _LEAVES | _NARROW | {_HOST}:
            return f"{str(node.nodeName()).strip()!r} may give its rows in another order"
    return ""


def _walk(node: Any) -> Iterator[Any]:
    yield node
    children = node.children()
    for index in range(children.size()):
        yield from _walk(children.apply(index))


def _identity(jvm: Any, node: Any) -> Iterator[str]:
    """What must be the same for the partitions to be the same."""
    kind = node.getClass().getSimpleName()
    yield _IDS.sub("", node.simpleString(_ALL)) if kind != _HOST else kind
    if kind == "CoalesceExec":
        yield from (str(list(part.parentsIndices())) for part in node.execute().partitions())
    elif kind == "FileSourceScanExec":
        for part in node.inputRDDs().head().partitions():
            yield jvm.scala.runtime.ScalaRunTime.stringOf(part.files())
        files = node.relation().location()
        # Other indexes are of table formats, whose files never change.
        if files.getClass().getSimpleName() == "InMemoryFileIndex":
            listed = (match.groups() for match in _STATUS.finditer(files.allFiles().mkString("\n")))
            yield from (" ".join(file) for file in sorted(listed))


def _local_rows(plan: Any) -> Iterator[int]:
    """A number for the rows of each DataFrame that was made of the driver's own data."""
    for node in _walk(plan):
        if node.getClass().getSimpleName() == "LocalRelation":
            yield node.data().hashCode()
