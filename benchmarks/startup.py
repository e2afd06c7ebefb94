"""How long it takes to begin: importing, the Spark session, and from `start` to the first write at the sink.

The first pipeline of a session starts the Python daemon and warms the JVM; the second one shows what is left. Beside
them, the same pipeline in processes and inline.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import logline as ll
from benchmarks.measure import write
from benchmarks.steady import finish, steady, wait_for_writes


def first_write(**settings: Any) -> float:
    """Seconds from `start` to the first write."""
    with tempfile.TemporaryDirectory(prefix="logline-bench-") as name:
        folder = Path(name)
        began = time.monotonic()
        with steady(folder).start(f"lmdb:{folder}/log", durability="process", **settings) as run:
            wait_for_writes(folder, 0.0)
            took = time.monotonic() - began
            finish(folder)
            run.wait(60)
    return took


def imported(what: str) -> float:
    """Seconds that a fresh interpreter takes for it."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", what], check=True)
    return time.monotonic() - began


def main() -> None:
    """Once each; a JVM is not started often enough for a spread."""
    result = {"import logline": imported("import logline"), "python": imported("pass")}
    began = time.monotonic()
    spark = ll.session("startup", **{"spark.ui.enabled": False})
    result["session"] = time.monotonic() - began
    result["first pipeline"] = first_write(spark=spark)
    result["second pipeline"] = first_write(spark=spark)
    spark.stop()
    result["processes"] = first_write(engine="processes")
    result["inline"] = first_write(engine="inline")
    for what, seconds in result.items():
        print(f"{what:16} {seconds:6.2f} s")
    print(write("startup", {"unit": "s", **result}))


if __name__ == "__main__":
    main()
