"""File systems for one process and its children: a small one, or one that is mounted read-only.

Each is made in a mount namespace of its own, so that nothing of it is left, however the process ends.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from tests.cli.harness import environment
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[1]


@cache
def _may_mount() -> bool:
    tried = subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False
    )
    return tried.returncode == 0


def _run(mount: str, code: str, args: tuple[object, ...]) -> subprocess.CompletedProcess[str]:
    if not _may_mount():
        pytest.skip("this machine does not allow to mount a file system")
    python = shlex.join([sys.executable, "-c", code, *map(str, args)])
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", f"{mount} && exec {python}"],
        env=environment() | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def run_on_small_disk(folder: Path, size: str, code: str, *args: object) -> subprocess.CompletedProcess[str]:
    """Runs Python code where `folder` is a file system of that size."""
    return _run(f"mount -t tmpfs -o size={size} none {folder}", code, args)


def run_read_only(folder: Path, code: str, *args: object) -> subprocess.CompletedProcess[str]:
    """Runs Python code where nothing under `folder` can be written, by nobody."""
    return _run(f"mount --bind {folder} {folder} && mount -o remount,bind,ro {folder}", code, args)
