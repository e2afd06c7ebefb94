"""Without Java or without PySpark, one line says what is missing and what runs all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.harness import environment, write_sales
from tests.waiting import PATIENCE

from logline.spark.session import _has_logline

NO_PYSPARK = """
import sys
sys.modules["pyspark"] = None  # as if it were not installed: importing it raises ImportError
from logline.cli.app import main
main()
"""


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    return ["run", str(write_sales(tmp_path)), "--log", f"lmdb:{tmp_path / 'log'}"]


def refused(command: list[str], **more: str) -> str:
    """What is said by a command that does not run."""
    env = {name: value for name, value in environment(**more).items() if name != "JAVA_HOME"}
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert ran.returncode == 1, ran.stderr
    (line,) = ran.stderr.strip().splitlines()
    return line


def test_no_java(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    said = refused([sys.executable, "-m", "logline", *arguments], PATH=str(tmp_path / "empty"))
    assert "Spark needs Java 17 or newer, and there is none: install one or set JAVA_HOME" in said
    assert "engine='processes'" in said
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize(
    ("master", "python", "has"),
    [
        ("local[4,100]", sys.executable, True),
        ("local-cluster[2,2,1024]", sys.executable, True),
        ("local[4]", "/usr/bin/env", False),
        ("spark://host:7077", sys.executable, False),
    ],
)
def test_where_workers_surely_have_logline(master: str, python: str, has: bool) -> None:
    assert _has_logline(master, python) is has


def test_no_pyspark(arguments: list[str], tmp_path: Path) -> None:
    said = refused([sys.executable, "-c", NO_PYSPARK, *arguments])
    assert "Spark needs PySpark, and it is not installed: pip install 'logline[spark]'" in said
    assert not (tmp_path / "log").exists()


def test_no_pyspark_but_another_engine(arguments: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-c", NO_PYSPARK, *arguments, "--engine", "inline"]
    subprocess.run(command, env=environment(), check=True, timeout=PATIENCE, stderr=subprocess.DEVNULL)
    assert os.listdir(tmp_path / "out")
