"""How many tasks Spark can run at once. A group needs a slot for as long as it lives."""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql import SparkSession

from logline.spark.session import one_host
from logline.spark.types import session

ARRIVAL = 15.0
"""Seconds that executors have to come, where there are none yet."""
STEADY = 1.0
"""Seconds without a new executor after which no more are waited for."""


def slots(spark: SparkSession) -> int | None:
    """Tasks that can run at the same time; None if Spark gets as many executors as it needs."""
    context = spark.sparkContext
    if context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true":
        return None
    found = _now(context)
    if one_host(context.master) and not str(context.master).startswith("local-cluster"):
        return found
    give_up = time.monotonic() + ARRIVAL
    since = time.monotonic()
    while time.monotonic() < give_up and (found == 0 or time.monotonic() - since < STEADY):
        time.sleep(0.1)
        if (now := _now(context)) != found:
            found, since = now, time.monotonic()
    return found


def active_slots() -> int | None:
    """Those of the session of this process; None if it has none."""
    found = session()
    return None if found is None else slots(found)


def busy(spark: SparkSession) -> int:
    """Tasks that run now, of whatever job."""
    executors = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    return sum(executors.apply(i).activeTasks() for i in range(executors.size()))


def _now(context: Any) -> int:
    scala = context._jsc.sc()
    return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))
