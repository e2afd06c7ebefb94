"""Tests without a JVM: `drive` one operator, `run` a whole pipeline, with crashes in it; `connectors.check` a source
or a sink.

`python -m logline.testing simulate` runs the protocol itself under simulated failures; `testing.conformance` has
the suite that every log store passes.
"""

from logline.testing import connectors
from logline.testing.driving import CrashDiffers, Drive, drive
from logline.testing.scripting import CRASH, run

__all__ = ["CRASH", "CrashDiffers", "Drive", "connectors", "drive", "run"]
