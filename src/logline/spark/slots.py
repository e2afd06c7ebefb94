"""Counts how many tasks Spark can run at once. A group needs one of these slots for as long as it lives."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from logline.spark.refusals import is_true, one_host

logger = logging.getLogger("logline")
ARRIVAL = 120.0
"""Seconds that the first executor has to come."""
SPEAK = 5.0
"""Seconds after which a wait is spoken of."""
STEADY, MISSING = 1.0, 30.0
"""Seconds without a new executor after which no more are waited for; longer if not all have come that were asked
for."""


def slots(spark: SparkSession) -> int | None:
    """Tasks that can run at the same time; None if Spark gets as many executors as it needs, without a known bound.

    Waits for executors that have not come yet: a session is ready before they are."""
    context = spark.sparkContext
    if _dynamic(context):
        return _most(context)
    found = _now(context)
    if one_host(context.master) and not _in_cluster(context):
        return found
    wanted = _wanted(context)
    began = since = time.monotonic()
    spoken = False
    while not wanted or found < wanted:
        now = time.monotonic()
        if now - since >= (ARRIVAL if not found else MISSING if wanted else STEADY):
            break
        if now - began > SPEAK and not spoken:
            spoken = True
            logger.warning("Spark has %d slots so far: waiting for more executors", found)
        time.sleep(0.1)
        if (there := _now(context)) != found:
            found, since = there, now
    return found


def slots_now(spark: SparkSession) -> int:
    """Those of the executors that are there."""
    return _now(spark.sparkContext)


def cpus(spark: SparkSession) -> int:
    """Cores that each task takes."""
    return int(spark.sparkContext.getConf().get("spark.task.cpus") or 1)


class Use(NamedTuple):
    """Tasks that run now."""

    own: int
    others: int


def use(spark: SparkSession, own: Sequence[str]) -> Use:
    """Tasks of jobs whose group begins with one of these texts, and those of other jobs. Only jobs that run count: an
    executor counts tasks of jobs that were cancelled long ago."""
    context: Any = spark.sparkContext
    store = context._jsc.sc().statusStore()
    counts = Counter[bool]()
    for number in context.statusTracker().getActiveJobsIds():
        job = store.job(number)
        group = str(job.jobGroup().get()) if job.jobGroup().isDefined() else ""
        counts[group.startswith(tuple(own))] += job.numActiveTasks()
    return Use(counts[True], counts[False])


def _dynamic(context: Any) -> bool:
    """Whether Spark makes executors as they are needed. A `local[N]` has none to make, and ignores the setting."""
    local = context.master == "local" or context.master.startswith("local[")
    return not local and is_true(context.getConf().get, "spark.dynamicAllocation.enabled")


def _most(context: Any) -> int | None:
    """Slots that dynamic allocation can bring at most, where that is known."""
    settings = context.getConf()
    each, local = int(settings.get("spark.task.cpus", "1")), _in_cluster(context)
    most = settings.get("spark.dynamicAllocation.maxExecutors")
    cores = settings.get("spark.executor.cores") or (local[2] if local else None)
    bounds = [int(local[1]) * (int(local[2]) // each)] if local else []
    if most and cores:
        bounds.append(int(most) * (int(cores) // each))
    return min(bounds, default=None)


def _in_cluster(context: Any) -> re.Match[str] | None:
    return re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,.*", str(context.master))


def _wanted(context: Any) -> int | None:
    """Slots of all executors that were asked for, where that is known."""
    settings = context.getConf()
    each = int(settings.get("spark.task.cpus", "1"))
    if local := _in_cluster(context):
        return int(local[1]) * (int(local[2]) // each)
    executors, cores = settings.get("spark.executor.instances"), settings.get("spark.executor.cores")
    return int(executors) * (int(cores) // each) if executors and cores else None


def _now(context: Any) -> int:
    scala = context._jsc.sc()
    return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))
