"""A window with ten thousand members comes back from its checkpoint: only what that does not cover is read (R22)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.chaos.window_job import EVENTS
from tests.waiting import PATIENCE

import logline as ll
from logline.names import InstanceName
from logline.store.address import find_store

ROOT = Path(__file__).parents[2]


def job(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.window_job", str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        text=True,
    )


def covered(folder: Path) -> int:
    """How many members of the window its checkpoint covers, as the log says."""
    store = find_store(f"lmdb:{folder / 'log'}")
    if store is None:
        return 0
    try:
        saved = store.read(InstanceName("all")).checkpoints()
        return max((row.covers for row in saved.values()), default=0)
    finally:
        store.close()


def test_a_large_window_comes_back_from_its_checkpoint(tmp_path: Path) -> None:
    process, until = job(tmp_path), time.monotonic() + PATIENCE
    try:
        while covered(tmp_path) < 10_000:
            assert process.poll() is None and time.monotonic() < until, "the window was not checkpointed"
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    known = covered(tmp_path)
    log = ll.open_log(f"lmdb:{tmp_path / 'log'}")
    (row,) = log.table("checkpoints").to_pylist()
    assert (row["state"], row["covered"], row["members"]) == ("check", known, known + row["replay"])
    stored = log.store.read(InstanceName("numbers")).base("out")  # type: ignore[arg-type]
    log.store.close()
    assert stored > EVENTS // 2  # one slow window does not pin the log
    (tmp_path / "go").touch()
    assert job(tmp_path).wait(PATIENCE) == 0
    made = json.loads((tmp_path / "result").read_text())
    assert made["taken"] == EVENTS - known
    assert (made["many"], made["total"]) == (EVENTS, EVENTS * (EVENTS - 1) // 2)
