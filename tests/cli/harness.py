"""Real command lines in real processes: a pipeline in a file, and what `python -m logline` does with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]

SALES = '''
"""A pipeline with a class of its own and a module beside it. Its source waits until there is a file `go`."""

from pathlib import Path

import pyarrow as pa
from prices import price

import logline as ll

HERE = Path(__file__).parent


class Orders(ll.Source):
    schema = pa.schema([("n", pa.int64())])

    def partitions(self):
        return ["all"]

    def read(self, partition, offset):
        for n in range(offset or 0, 40):
            while n >= 25 and not (HERE / "go").exists():
                yield None
            yield pa.record_batch({"n": [n]}), n + 1


def priced(batch):
    return batch.append_column("price", pa.array([price(n) for n in batch["n"].to_pylist()], pa.int64()))


sales = ll.Pipeline("sales")
orders = sales.source("orders", Orders(), rows=1)
blocks = orders.map_batches("priced", priced).window("blocks", ll.events(10), agg={"total": ("price", "sum")})
blocks.sink("store", ll.sinks.parquet(str(HERE / "out")))

if __name__ == "__main__":
    import sys

    sales.run(sys.argv[1], engine="inline")
'''
TOTALS = [sum(2 * n for n in range(first, first + 10)) for first in range(0, 40, 10)]


def write_sales(folder: Path, *, go: bool = True) -> Path:
    """The file above and the module beside it."""
    (folder / "prices.py").write_text("def price(n):\n    return 2 * n\n")
    path = folder / "sales.py"
    path.write_text(SALES)
    if go:
        (folder / "go").touch()
    return path


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "dumb", **more}


def logline(*args: object, cwd: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    """One command, to its end; `more` is added to its environment."""
    command = [sys.executable, "-m", "logline", *map(str, args)]
    return subprocess.run(
        command, cwd=cwd, env=environment(**more), capture_output=True, text=True, check=False, timeout=PATIENCE
    )


def started(*args: object, cwd: Path | None = None) -> subprocess.Popen[str]:
    """One command, on its way."""
    command = [sys.executable, "-m", "logline", *map(str, args)]
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_hear_ctrl_c,  # noqa: PLW1509 - nothing else can undo what is inherited
    )


def _hear_ctrl_c() -> None:
    """A test run in the background of a shell inherits "ignored", and so would the command."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
