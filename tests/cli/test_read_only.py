"""A log that may be read and not written: on a file system that is mounted read-only, or somebody else's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from itertools import takewhile
from pathlib import Path

import pyarrow as pa
import pytest
from tests.cli.harness import environment
from tests.mounts import ROOT, run_read_only

import logline as ll

READ = """
import contextlib, io, json, os, sys
import logline as ll
from logline.cli.app import app
from logline.errors import LogError

log, user = sys.argv[1], int(sys.argv[2])


def commands(log):
    for command in (["status", log], ["show", log, "doubled:2"], ["sql", log, "select sum(n) as total from doubled"],
                    ["lineage", log, "doubled:2"], ["errors", log]):
        app(command, prog_name="logline", standalone_mode=False)


if user:
    with contextlib.redirect_stdout(io.StringIO()):
        commands(log + "-copy")  # imports what this user may not read
    os.setuid(user)
commands(log)
opened = ll.open_log(f"lmdb:{log}")
print(json.dumps([opened.read("doubled:1..3")["n"].to_pylist(), opened.table("event_log").num_rows]))
for write in (lambda: opened.store.claim("doubled"), lambda: opened.store.lease("run")):
    try:
        write()
    except LogError as error:
        print(error)
"""


def _double(batch: pa.RecordBatch) -> pa.Table:
    return pa.table({"n": [2 * n for n in batch["n"].to_pylist()]})


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log whose files anybody may read, under a folder that anybody may enter."""
    p = ll.Pipeline("sales")
    orders = p.source("orders", ll.sources.batches([pa.table({"n": [n]}) for n in (1, 2, 3)]), rows=1)
    doubled = orders.map_batches("doubled", _double, schema="n long")
    doubled.sink("store", ll.sinks.collect())
    p.lineage()
    p.run(f"lmdb:{tmp_path / 'log'}", engine="inline")
    for path in (tmp_path / "log").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    above = takewhile(lambda folder: folder != Path(tempfile.gettempdir()), tmp_path.parents)
    for folder in (tmp_path / "log", tmp_path, *above):
        folder.chmod(0o755)
    return tmp_path / "log"


def check(ran: subprocess.CompletedProcess[str]) -> None:
    assert ran.returncode == 0, ran.stderr
    said, claimed, leased = ran.stdout.splitlines()[-3:]
    assert json.loads(said) == [[2, 4, 6], 9]
    assert "sales: finished" in ran.stdout and "damaged" not in ran.stdout + ran.stderr
    assert "this process may only read it. Run the pipeline as a user who may write the log's folder" in claimed
    assert "give it a folder that this process may make, read and write" in leased


def test_on_a_file_system_that_is_mounted_read_only(log: Path) -> None:
    check(run_read_only(log.parent, READ, log, 0))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_of_somebody_else(log: Path) -> None:
    shutil.copytree(log, log.with_name("log-copy"))
    ran = subprocess.run(
        [sys.executable, "-c", READ, str(log), "65534"],
        env=environment() | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    check(ran)
