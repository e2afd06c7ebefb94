"""Settings of a session that a pipeline can't live with are refused before anything runs; others do no harm. A Python
without our Logline is refused by the first task."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from tests.jvms import options
from tests.spark.test_drivers import ROOT, START

REFUSED: list[tuple[dict[str, str], str]] = [
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
    "spark.speculation.task.duration.threshold": "1s",
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


def script(folder: Path, code: str, argument: str, *, sessions: int) -> str:
    """What a driver prints that starts so many sessions, one after the other."""
    done = subprocess.run(
        [sys.executable, "-c", code, argument],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "SPARK_SUBMIT_OPTS": options(),
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=START * sessions,
    )
    return done.stdout


def run(folder: Path, master: str, *settings: Mapping[str, str]) -> list[list[object]]:
    """What becomes of a pipeline in each session, and whether it has touched its log."""
    code, argument = SCRIPT.replace("SECONDS", str(START)), json.dumps([master, *settings])
    said = script(folder, code, argument, sessions=len(settings))
    found: list[list[object]] = json.loads(said.splitlines()[-1])
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


LACKING = """
import json, os, sys
from pathlib import Path
from pyspark.sql import SparkSession
import logline as ll
from tests.paced import paced

for name, python in json.loads(sys.argv[1]).items():
    os.environ["PYSPARK_PYTHON"] = python  # each context looks there
    spark = SparkSession.builder.master("local[6,100]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    p = paced(Path("."))
    if name == "another":
        p = ll.Pipeline("frame")
        p.source("numbers", ll.sources.spark(spark.range(10))).sink("store", ll.sinks.collect())
    try:
        p.run(f"lmdb:{name}.log", spark=spark, durability="process")
    except ll.PipelineFailed as error:
        print(name, str(error).replace(chr(10), " "))
    spark.stop()
"""


LATER = """
import collections, sys
version = collections.namedtuple("version", "major minor micro releaselevel serial")
sys.version_info = version(3, 99, 0, "final", 0)
"""


def test_a_python_that_lacks_our_logline(tmp_path: Path) -> None:
    """It is the Python that the user has chosen for the workers: one has no Logline, one an old one, one is itself of
    another version, and one is not there."""
    (tmp_path / "no" / "logline").mkdir(parents=True)
    (tmp_path / "no" / "logline" / "__init__.py").write_text('raise ModuleNotFoundError("No module named logline")')
    (tmp_path / "another" / "logline-0.0.1.dist-info").mkdir(parents=True)
    (tmp_path / "another" / "logline-0.0.1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: logline\nVersion: 0.0.1\n"
    )
    pythons = {}
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "sitecustomize.py").write_text(LATER)
    for name in ("no", "another", "later"):
        python = tmp_path / f"python-{name}"
        python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path / name}:$PYTHONPATH exec {sys.executable} "$@"\n')
        python.chmod(0o700)
        pythons[name] = str(python)
    pythons["nowhere"] = str(tmp_path / "nowhere")
    said = script(tmp_path, LACKING, json.dumps(pythons), sessions=4)
    ours = metadata.version("logline")
    for name, why in (("no", r"\(ModuleNotFoundError: No module named logline\)"), ("another", "has 0.0.1,")):
        wanted = rf"^{name} .*a Spark task on \S+ can't host \w+: .*{why}.* the driver has {ours}. Install"
        assert re.search(wanted, said, re.MULTILINE), said
    version = "{}.{}".format(*sys.version_info)
    for name, why in (
        ("later", rf"its Python is 3\.99, the driver's {version}"),
        ("nowhere", r"it has no Python \S+nowhere"),
    ):
        # Spark does not always say on which host it could not start a Python.
        assert re.search(rf"^{name} .*a Spark task( on \S+)? can't host \w+: {why}", said, re.MULTILINE), said
