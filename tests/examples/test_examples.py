"""The examples do what they say, and leave nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(tmp_path: Path, *command: str) -> str:
    child = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert child.returncode == 0, child.stdout + child.stderr
    assert list(tmp_path.iterdir()) == []
    return child.stdout


def test_paid_calls_are_not_made_again_for_answers_in_the_log(tmp_path: Path) -> None:
    said = run(tmp_path, "examples/paid_calls.py", "--rows", "400")
    assert said.count("killed the process of 'score'") == 3
    assert "calls made although their answer was in the log: 0" in said
    calls = int(re.search(r"400 rows are stored, (\d+) calls", said)[1])  # type: ignore[index]
    assert calls >= 400


def test_a_join_of_two_inputs_that_is_killed_equals_a_plain_one(tmp_path: Path) -> None:
    said = run(tmp_path, "examples/join.py", "--orders", "10000")
    assert "killed the process of 'joined'" in said
    assert "equal to a plain join" in said


def test_the_demo_is_part_of_the_package(tmp_path: Path) -> None:
    said = run(tmp_path, "-m", "logline", "demo", "--records", "60000", "--engine", "processes")
    assert "killed the process of 'hourly'" in said
    assert said.index("comparing with a plain aggregate") < said.index("equal to a plain aggregate")
