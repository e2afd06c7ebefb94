"""The Python daemon of our sessions (`spark.python.daemon.module`): PySpark's own, which forks a process for each
task, with everything a Logline task needs imported before the first fork.

A task begins in a tenth of a second that way, instead of the second or more that the imports take. No log is opened
here: LMDB must not be carried over a fork.
"""

from __future__ import annotations

import gc
import zipimport
from typing import Any

from pyspark.daemon import manager

import logline.spark.task
import logline.spark.warm  # noqa: F401

_reread = zipimport.zipimporter.invalidate_caches


def _keep(self: Any) -> None:
    """Spark's own archives do not change, and PySpark has them read again at the start of every task."""
    if not self.archive.endswith(("/pyspark.zip", "-src.zip")):
        _reread(self)


if __name__ == "__main__":
    zipimport.zipimporter.invalidate_caches = _keep  # type: ignore[method-assign]
    gc.collect()
    gc.freeze()  # the children share these pages as long as nobody touches them
    manager()
