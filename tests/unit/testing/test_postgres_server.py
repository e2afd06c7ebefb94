"""The server of a test process ends with it, however that ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.waiting import until

ROOT = Path(__file__).parents[3]
STARTER = """
from tests.postgres import Server
server = Server()
print(server.folder, flush=True)
input()
"""


@pytest.mark.parametrize("killed", [True, False])
def test_it_leaves_nothing_behind(killed: bool) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None and starter.stdin is not None
        folder = Path(starter.stdout.readline().strip())
        server = Path("/proc") / (folder / "postmaster.pid").read_text().split()[0]
        assert server.exists()
        if killed:
            starter.kill()
        else:
            starter.stdin.write("\n")
    until(lambda: not server.exists() and not folder.exists())
    assert starter.returncode == (-9 if killed else 0)
