"""RemoteControl from another process, by mail: every engine obeys them, and old ones count for nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tests.numbers import Endless
from tests.waiting import PATIENCE, until

import logline as ll
from logline.runtime.control.remote_control import DRIVER
from logline.store.lmdb.folder import LmdbStore

ENGINES = ("inline", "processes")


def endless() -> ll.Pipeline:
    p = ll.Pipeline("endless")
    p.source("numbers", Endless()).sink("store", ll.sinks.collect())
    return p


def send(log: Path, message: str) -> None:
    """From a process of its own, as `logline stop` does."""
    code = f"from logline.store.address import find_store\nfind_store('lmdb:{log}').mail('{DRIVER}').send({message})"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("what", ["stop", "drain"])
def test_stop_and_drain(engine: str, what: str, tmp_path: Path) -> None:
    with endless().start(f"lmdb:{tmp_path / 'log'}", engine=engine, durability="process") as run:
        send(tmp_path / "log", f"{{'do': '{what}'}}")
        assert run.wait(PATIENCE).phase == "stopped"


@pytest.mark.parametrize("engine", ENGINES)
def test_restart_of_one_operator(engine: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with endless().start(f"lmdb:{tmp_path / 'log'}", engine=engine, durability="process") as run:
        until(lambda: run.pid("store") is not None and run.status().operators["store"].taken)
        send(tmp_path / "log", "{'do': 'restart', 'operator': 'nobody'}")
        send(tmp_path / "log", "{'do': 'restart', 'operator': 'store'}")
        until(lambda: run.status().operators["store"].restarts)
        assert run.status().operators["numbers"].restarts == 0
    assert "does not know: {'do': 'restart', 'operator': 'nobody'}" in caplog.text


def test_an_order_to_a_run_that_is_over_counts_for_nothing(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "log", durability="process")
    store.mail(DRIVER).send({"do": "stop"})
    store.close()
    p = ll.Pipeline("short")
    p.source("numbers", ll.sources.batches([pa.record_batch({"n": [1, 2]})])).sink("store", ll.sinks.collect())
    run = p.run(f"lmdb:{tmp_path / 'log'}", engine="inline", durability="process")
    assert run.status().phase == "finished"
    assert run.result("store")["n"].to_pylist() == [1, 2]
