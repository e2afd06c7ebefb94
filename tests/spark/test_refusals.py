"""Settings of a session that a pipeline can't live with are refused before anything runs; others do no harm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.spark.test_drivers import ROOT, START

REFUSED: list[tuple[dict[str, str], str]] = [
    (
        {"spark.speculation": "TRUE", "spark.speculation.task.duration.threshold": "10s"},
        "starts second copies of long tasks",
    ),
    ({"spark.executor.pyspark.memory": "512m"}, "spark.executor.pyspark.memory=512m limits the address space"),
    (
        {"spark.python.worker.killOnIdleTimeout": "True", "spark.python.worker.idleTimeoutSeconds": "2"},
        "spark.python.worker.killOnIdleTimeout with spark.python.worker.idleTimeoutSeconds=2 kills Python workers",
    ),
    (
        {
            "spark.sql.execution.pyspark.udf.killOnIdleTimeout": "true",
            "spark.sql.execution.pyspark.udf.idleTimeoutSeconds": "2s",
        },
        "spark.sql.execution.pyspark.udf.killOnIdleTimeout with spark.sql.execution.pyspark.udf.idleTimeoutSeconds",
    ),
]
HARMLESS = {
    "spark.speculation": "TRUE",
    "spark.dynamicAllocation.enabled": "True",
    "spark.executor.pyspark.memory": "0",
    "spark.python.worker.killOnIdleTimeout": "true",
    "spark.python.worker.reuse": "false",
    "spark.python.worker.faulthandler.enabled": "false",
    "spark.python.worker.tracebackDumpIntervalSeconds": "1",
    "spark.task.cpus": "2",
    "spark.task.maxFailures": "1",
    "spark.scheduler.mode": "FAIR",
    "spark.excludeOnFailure.enabled": "false",
}
"""On a master local[6]: no executors to make, three slots, one of them kept free."""

SCRIPT = """
import json, os, sys
import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession
import logline as ll

def numbers():
    yield from (pa.record_batch({"n": [k]}) for k in range(5))

p = ll.Pipeline("settings")
stream = p.source("numbers", ll.sources.batches(numbers), rows=1)
for k in range(4):
    stream = stream.map_batches(f"op{k}", lambda batch: batch)
stream.sink("store", ll.sinks.collect())
SparkContext._ensure_initialized()  # else the settings of the first session are those of the JVM, and of all others
master, *settings = json.loads(sys.argv[1])
found = []
for k, conf in enumerate(settings):
    spark = SparkSession.builder.master(master).config("spark.ui.enabled", "false").config(map=conf).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        run = p.start(f"lmdb:log{k}", spark=spark, durability="process")
        said = run.wait(SECONDS).phase, len(p.check().groups), run.result("store")["n"].to_pylist()
    except ll.LoglineError as error:
        said = str(error)
    found.append((said, os.path.exists(f"log{k}")))
    spark.stop()
print(json.dumps(found))
"""


def run(folder: Path, master: str, *settings: Mapping[str, str]) -> list[list[object]]:
    """What becomes of a pipeline in each session, and whether it has touched its log."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.replace("SECONDS", str(START)), json.dumps([master, *settings])],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=START,
    )
    found: list[list[object]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_on_a_master_in_one_process(tmp_path: Path) -> None:
    *refused, harmless = run(tmp_path, "local[6]", *(settings for settings, _ in REFUSED), HARMLESS)
    for (said, touched), (_, wanted) in zip(refused, REFUSED, strict=True):
        assert wanted in str(said)
        assert not touched
    assert harmless == [["finished", 2, [0, 1, 2, 3, 4]], True]


def test_executors_that_come_as_they_are_needed(tmp_path: Path) -> None:
    """One can come, with three slots."""
    settings = {"spark.dynamicAllocation.enabled": "TRUE", "spark.dynamicAllocation.maxExecutors": "1"}
    (found,) = run(tmp_path, "local-cluster[2,3,1024]", settings)
    assert found == [["finished", 2, [0, 1, 2, 3, 4]], True]
