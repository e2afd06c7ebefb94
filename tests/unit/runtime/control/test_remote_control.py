"""Commands from another process, by mail: every engine obeys them, old ones count for nothing, and what is no command
is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.numbers import Endless
from tests.waiting import PATIENCE, until

import logline as ll
from logline.names import OperatorName
from logline.runtime.log.log_status import DRIVER, log_status
from logline.runtime.messages.commands import Drain, Restart, RunCommand, Stop
from logline.runtime.messages.notes import GroupStatus, is_cut_off
from logline.runtime.messages.wire import encode
from logline.store.lmdb.folder import LmdbStore

ENGINES = ("inline", "processes")


def endless() -> ll.Pipeline:
    p = ll.Pipeline("endless")
    p.source("numbers", Endless()).sink("store", ll.sinks.collect())
    return p


def send(log: Path, *commands: RunCommand | bytes) -> None:
    """From a process of its own, as `logline stop` does."""
    lines = [command if isinstance(command, bytes) else encode(command) for command in commands]
    code = (
        f"from logline.store.address import find_store\n"
        f"for line in {lines}: find_store('lmdb:{log}').mail('{DRIVER}').send(line)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("command", [Stop(), Drain()], ids=repr)
def test_stop_and_drain(engine: Any, command: RunCommand, tmp_path: Path) -> None:
    with endless().start(f"lmdb:{tmp_path / 'log'}", engine=engine, durability="process") as run:
        send(tmp_path / "log", command)
        assert run.wait(PATIENCE).phase == "stopped"


@pytest.mark.parametrize("engine", ENGINES)
def test_restart_of_one_operator(engine: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with endless().start(f"lmdb:{tmp_path / 'log'}", engine=engine, durability="process") as run:
        until(lambda: run.pid("store") is not None and run.status().operators["store"].taken)
        send(tmp_path / "log", Restart(OperatorName("nobody")), Restart(OperatorName("store")))
        until(lambda: run.status().operators["store"].restarts)
        assert run.status().operators["numbers"].restarts == 0
    assert "a restart of 'nobody', which this run does not have" in caplog.text


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_no_command_is_told_and_the_run_goes_on(
    engine: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An unknown command is no drain, and those after it are obeyed."""
    with endless().start(f"lmdb:{tmp_path / 'log'}", engine=engine, durability="process") as run:
        until(lambda: run.pid("store") is not None and run.status().operators["store"].taken)
        half = b'{"kind": "rest'
        strange = b'{"kind": "explode", "when": "now"}'
        send(tmp_path / "log", half, strange, b"stop, please", Restart(OperatorName("store")))
        until(lambda: run.status().operators["store"].restarts)
        before = run.status().operators["store"].taken
        until(lambda: run.status().operators["store"].taken > before)
        assert run.status().phase == "running"
        send(tmp_path / "log", Stop())
        assert run.wait(PATIENCE).phase == "stopped"
    told = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    for line, content in zip(told, (half, strange, b"stop, please"), strict=True):
        assert line.startswith("another process sent something that is not a command to a run: ")
        assert content.decode() in line


def test_a_worker_that_is_sent_what_it_does_not_know_fails_the_run(tmp_path: Path) -> None:
    with endless().start(f"lmdb:{tmp_path / 'log'}", engine="processes", durability="process") as run:
        until(lambda: run.status().operators["store"].taken)
        tenant = run._engine.workers["store"].tenant  # type: ignore[union-attr]
        tenant.tell(Restart(OperatorName("store")))
        with pytest.raises(ll.PipelineFailed, match="a worker was sent something that is not a command to a worker"):
            run.wait(PATIENCE)
        assert run.status().phase == "failed"
        assert '"kind": "restart"' in str(run._engine.error)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "content",
    [
        b'{"kind": "driver_note", "run": ',
        b"",
        b'{"run": "7f3", "phase": "running"}',
        encode(GroupStatus(1, "running", {}, False, 1.5)),
        b"\xff",
    ],
)
def test_a_note_that_cannot_be_read_counts_as_none_and_is_told_if_it_is_whole(
    content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = f"lmdb:{tmp_path / 'log'}"
    p = endless()
    with p.start(log, engine="inline", durability="process") as run:
        until(lambda: run.status().operators["store"].taken)
    opened = ll.open_log(log)
    assert log_status(opened.store).phase == "stopped"
    opened.store.put_status(DRIVER, content)
    found = log_status(opened.store)
    assert (found.phase, found.silent) == ("died", None)
    assert found.operators["store"].taken
    told = f"what is written down for {DRIVER} in the log is not the note of a driver: " in caplog.text
    assert told != is_cut_off(content)  # what a power cut may leave is nothing to speak of
    with p.start(log, engine="inline", durability="process") as run:  # it is in nobody's way
        until(lambda: log_status(opened.store).phase == "running")


def test_an_order_to_a_run_that_is_over_counts_for_nothing(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "log", durability="process")
    store.mail(DRIVER).send(encode(Stop()))
    store.close()
    p = ll.Pipeline("short")
    p.source("numbers", ll.sources.batches([pa.record_batch({"n": [1, 2]})])).sink("store", ll.sinks.collect())
    run = p.run(f"lmdb:{tmp_path / 'log'}", engine="inline", durability="process")
    assert run.status().phase == "finished"
    assert run.result("store")["n"].to_pylist() == [1, 2]
