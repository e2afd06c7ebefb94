"""A pipeline on the embedded log is killed with kill -9, again and again, and resumed; what it wrote into another
system's database equals what one run without failure writes."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.compute as pc
from tests.chaos.sales_job import sales

ROOT = Path(__file__).parents[2]


def expected() -> list[tuple[str, str, int]]:
    totals: dict[tuple[str, str], int] = {}
    for batch in sales():
        hours = pc.floor_temporal(batch["date"], unit="hour").to_pylist()
        for hour, item, amount in zip(hours, batch["item_id"].to_pylist(), batch["amount"].to_pylist(), strict=True):
            key = (hour.isoformat(), item)
            totals[key] = totals.get(key, 0) + amount
    return sorted((hour, item, total) for (hour, item), total in totals.items())


def job(log: Path, database: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.sales_job", str(log), str(database)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )


def test_kills_at_random_times(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    rnd = random.Random(seed)
    log, database = tmp_path / "sales.log", tmp_path / "sales.db"
    kills = 0
    for _ in range(100):
        process = job(log, database)
        assert process.stdout is not None
        if process.stdout.readline() != "running\n":
            raise AssertionError("the job did not start")
        if kills < 8:
            time.sleep(rnd.random() * 0.15)  # not to wait for anything: to strike at any moment
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills += process.returncode == -signal.SIGKILL
            if process.returncode == 0:
                break
            continue
        rest = process.communicate()[0]
        assert (process.returncode, rest) == (0, "finished\n")
        break
    with sqlite3.connect(database) as db:
        assert sorted(db.execute("select hour, item_id, total from totals")) == expected()
    assert list((log / "bells").iterdir()) == []


def test_a_finished_log_runs_nothing_twice(tmp_path: Path) -> None:
    log, database = tmp_path / "sales.log", tmp_path / "sales.db"
    for _ in range(2):
        out, _ = job(log, database).communicate()
        assert out == "running\nfinished\n"
    with sqlite3.connect(database) as db:
        assert sorted(db.execute("select hour, item_id, total from totals")) == expected()
