"""`--help` teaches, and is there at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
from tests.cli.harness import environment, logline

import logline as ll
from logline.cli.app import app


def test_every_command_has_help_with_an_example() -> None:
    from typer.main import get_command

    commands = get_command(app).commands  # type: ignore[attr-defined]
    assert len(commands) >= 8
    for name, command in commands.items():
        if command.hidden:
            continue
        assert f"logline {name} " in command.help, name
        assert len(command.help.splitlines()[0]) <= 62, f"{name}: the list of commands would cut it off"


def test_help_loads_nothing_heavy() -> None:
    code = """
import sys
from logline.cli.app import app
app(["--help"], standalone_mode=False)
heavy = {"pyarrow", "rich", "lmdb", "pyspark", "asyncio", "cloudpickle"} & set(sys.modules)
sys.exit(f"loaded {heavy}" if heavy else 0)
"""
    ran = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "logline run sales.py --log lmdb:sales.log" in ran.stdout


def test_a_command_on_a_log_loads_no_pandas(tmp_path: Path) -> None:
    """Arrow would import it to make an array, and a command would take twice the time."""
    p = ll.Pipeline("sales")
    p.source("orders", ll.sources.batches([pa.table({"n": [1]})])).sink("store", ll.sinks.collect())
    p.run(f"lmdb:{tmp_path / 'log'}", engine="inline")
    code = """
import sys
from logline.cli.app import app
app(["errors", sys.argv[1], "--format", "json"], standalone_mode=False)
sys.exit("pandas" in sys.modules)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "log")]
    ran = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "[]\n"), ran.stderr


def test_without_a_command_it_helps() -> None:
    ran = logline()
    assert ran.returncode == 2
    assert "Commands:" in ran.stdout + ran.stderr


def test_run_without_a_file_says_what_is_missing() -> None:
    ran = logline("run")
    assert ran.returncode == 2
    assert "Missing argument" in ran.stderr and "Traceback" not in ran.stderr
