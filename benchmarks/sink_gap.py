"""The longest pause at the sink around a kill -9, at 200 events/s on Spark. Source -> map -> sink, each in turn."""

from __future__ import annotations

import os
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from pyspark.sql import SparkSession

import logline as ll
from benchmarks.measure import write
from benchmarks.steady import finish, kill, spread, steady, times, wait_for_writes

KILLS = int(os.environ.get("GAP_KILLS", "6"))


def measure(spark: SparkSession) -> dict[str, dict[str, float]]:
    """By operator, in seconds; `none` is the longest pause of as many stretches without a kill."""
    found: dict[str, list[float]] = {"none": [], "numbers": [], "map": [], "store": []}
    with tempfile.TemporaryDirectory(prefix="logline-bench-") as name:
        folder = Path(name)
        with steady(folder).start(f"lmdb:{folder}/log", spark=spark, durability="process") as run:
            wait_for_writes(folder, 0.0, 400)
            for _ in range(KILLS):
                for operator, gaps in found.items():
                    at = time.time() if operator == "none" else kill(run, operator)[0]
                    time.sleep(6)  # deaths that come sooner count as a crash loop, with its pauses
                    around = [t for t in times(folder) if at - 0.1 < t < at + 6]
                    gaps.append(max(b - a for a, b in pairwise(around)))
            finish(folder)
            run.wait(60)
    return {operator: spread(gaps) for operator, gaps in found.items()}


def main() -> None:
    """On a session of our own."""
    spark = ll.session("sink_gap", **{"spark.ui.enabled": False})
    result = measure(spark)
    spark.stop()
    for operator, known in result.items():
        print(f"{operator:8} p50 {known['p50']:.3f} s   p90 {known['p90']:.3f} s   greatest {known['max']:.3f} s")
    print(write("sink_gap", {"unit": "s", "rate": 200, **result}))


if __name__ == "__main__":
    main()
