"""`--help` teaches, and is there at once."""

from __future__ import annotations

import subprocess
import sys

from tests.cli.harness import environment, logline

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


def test_without_a_command_it_helps() -> None:
    ran = logline()
    assert ran.returncode == 2
    assert "Commands:" in ran.stdout + ran.stderr
