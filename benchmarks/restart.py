"""Kill -9 of an operator on Spark until it works again: until the sink writes something that its new process made.

- `warm`: a session of `ll.session()`; the process of the task forks the next life
- `nest`: the same session, and the process of the task is killed: Spark runs the task again
- `cold`: a session without our settings (`local[N]`, PySpark's own daemon)

The pipeline runs at 200 events/s, so that an event is never further away than 5 ms.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

import logline as ll
from benchmarks.measure import write
from benchmarks.steady import finish, kill, spread, steady, wait_for_writes, writes

KILLS = int(os.environ.get("RESTART_KILLS", "15"))


def measure(spark: SparkSession, *, nest: bool = False) -> dict[str, float]:
    """Seconds from the kill to the first write of what the new life made; `nest`: the task's process is killed."""
    found = []
    with tempfile.TemporaryDirectory(prefix="logline-bench-") as name:
        folder = Path(name)
        with steady(folder).start(f"lmdb:{folder}/log", spark=spark, durability="process") as run:
            wait_for_writes(folder, 0.0, 100)
            for _ in range(KILLS):
                at, pid = kill(run, "map", parent=nest)
                while not (new := [t for t, by in writes(folder) if t > at and by != pid]):
                    time.sleep(0.01)
                found.append(new[0] - at)
                time.sleep(6)  # deaths that come sooner count as a crash loop, with its pauses
            finish(folder)
            run.wait(60)
    return spread(found)


def main() -> None:
    """One after the other."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = ll.session("restart", **{"spark.ui.enabled": False})
    result = {"warm": measure(spark), "nest": measure(spark, nest=True)}
    spark.stop()
    spark = SparkSession.builder.master("local[8]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    result["cold"] = measure(spark)
    spark.stop()
    for kind, known in result.items():
        print(
            f"{kind:5} p50 {known['p50']:.3f} s   p90 {known['p90']:.3f} s   {known['min']:.3f} - {known['max']:.3f}"
        )
    print(write("restart", {"unit": "s", **result}))


if __name__ == "__main__":
    main()
