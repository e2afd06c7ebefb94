"""The demo: one operator is killed midway, the result equals plain Spark SQL's, and nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.jvms import cache_in

ROOT = Path(__file__).parents[2]


def test_the_demo_kills_an_operator_and_gets_it_right(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    child = subprocess.run(
        [sys.executable, "examples/figure1.py", "150000"],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "TMPDIR": str(tmp_path / "tmp"),
            "XDG_CACHE_HOME": cache_in(tmp_path / "cache"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stdout + child.stderr
    assert "killed the process of 'hourly'" in child.stdout
    assert child.stdout.index("comparing with plain Spark SQL") < child.stdout.index("equal to plain Spark SQL's")
    assert list((tmp_path / "tmp").iterdir()) == []
