"""Folders for the caches of drivers that tests start, all with one archive of Spark's classes (`spark/archive.py`).

With the archive a JVM takes a third less CPU time to start; to make it takes as much as three starts. So the tests
make it once, in a JVM that does nothing else, and keep it in pytest's cache folder for later runs. A session with a
fresh cache would go without it, and a second one there would make it anew when it ends.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

from logline.spark.archive import Archive

ROOT = Path(__file__).parents[1]
KEPT = ROOT / ".pytest_cache" / "spark"
"""A cache folder (`XDG_CACHE_HOME`) as sessions know it: what is in it is in the folder `logline`."""

TRAINING = """
import logline as ll
spark = ll.session(slots=2, **{"spark.ui.enabled": False})
spark.range(4).selectExpr("id % 2 k", "id v").groupBy("k").sum("v").toArrow()
spark.sparkContext.parallelize([0], 1).mapPartitions(lambda records: records).count()
jvm = spark.sparkContext._gateway.proc
spark.stop()
jvm.stdin.close()
jvm.wait()  # it writes the archive when it ends
"""
"""What every driver of a test does, more or less: the JVM notes the classes that this needs."""


@cache
def _archive() -> list[Path]:
    """The files of the archive. The first process that wants it makes it, others wait for that."""
    folder = KEPT / "logline"
    folder.mkdir(parents=True, exist_ok=True)
    with open(KEPT / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        archive = Archive(folder)
        archive.options()  # finds one that was made, or leaves the note that makes the next session make it
        if not archive.usable():
            where = {"XDG_CACHE_HOME": str(KEPT), "PYTHONPATH": str(ROOT / "src")}
            subprocess.run([sys.executable, "-c", TRAINING], env={**os.environ, **where}, check=True)
            archive.options()
    return [*folder.glob("*.jsa"), *folder.glob("*.size")] if archive.usable() else []


def cache_in(folder: Path) -> str:
    """A cache of its own for the sessions of a test, as XDG_CACHE_HOME. Their log goes there."""
    own = folder / "logline"
    own.mkdir(parents=True)
    for path in _archive():
        (own / path.name).symlink_to(path)
    return str(folder)


def options() -> str:
    """The same for sessions that Logline does not make, as SPARK_SUBMIT_OPTS."""
    ours = os.environ.get("SPARK_SUBMIT_OPTS", "")
    return f"{ours} {Archive(KEPT / 'logline').options()}" if _archive() else ours
