"""`logline run --until now`: every so often, and with open errors."""

from __future__ import annotations

import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tests.cli.harness import logline, started
from tests.waiting import PATIENCE, until

import logline as ll

DAILY = """
import logline as ll

def check(batch):
    if batch["n"][0].as_py() < 0:
        raise ValueError("below zero")
    return batch

p = ll.Pipeline("daily")
rows = p.source("rows", ll.sources.parquet("in"))
rows.map_batches("check", check, schema="n long", on_error="divert").sink("store", ll.sinks.parquet("out"))
"""


def put(folder: Path, name: str, n: int) -> None:
    pq.write_table(pa.table({"n": [n]}), folder / "new")
    (folder / "new").rename(folder / "in" / f"{name}.parquet")


def daily(folder: Path) -> None:
    (folder / "daily.py").write_text(DAILY)
    (folder / "in").mkdir()
    put(folder, "a", 1)


def test_a_run_every_so_often_takes_what_has_come(tmp_path: Path) -> None:
    daily(tmp_path)
    command = ("run", "daily.py", "--log", "lmdb:log", "--engine", "inline", "--until", "now", "--every", "50ms")
    child = started(*command, cwd=tmp_path)

    def written() -> list[int]:
        files = sorted((tmp_path / "out").glob("*.parquet"))  # a file that is being written has another name
        return pq.read_table(files)["n"].to_pylist() if files else []

    until(lambda: written() == [1])
    put(tmp_path, "b", 2)
    until(lambda: written() == [1, 2])
    child.send_signal(signal.SIGINT)
    said, wrong = child.communicate(timeout=PATIENCE)
    assert child.returncode == 130, wrong
    assert "daily caught up" in said


def test_what_every_needs(tmp_path: Path) -> None:
    daily(tmp_path)
    for more in (("--log", "lmdb:log"), ("--until", "now")):
        ran = logline("run", "daily.py", "--engine", "inline", "--every", "1h", *more, cwd=tmp_path)
        assert ran.returncode == 2
        assert "--every is for --until now and a --log" in ran.stderr


def test_open_errors_are_said_and_fail_the_command_on_request(tmp_path: Path) -> None:
    daily(tmp_path)
    put(tmp_path, "b", -2)
    command = ("run", "daily.py", "--log", "lmdb:log", "--engine", "inline", "--until", "now")
    ran = logline(*command, cwd=tmp_path)
    assert (ran.returncode, ran.stdout.split(":")[0]) == (0, "daily caught up, 1 error open"), ran.stderr
    assert logline(*command, "--fail-on-errors", cwd=tmp_path).returncode == 3
    log = ll.open_log(f"lmdb:{tmp_path / 'log'}")
    (error,) = log.errors()["event"].to_pylist()
    assert logline("errors", "log", "drop", error, cwd=tmp_path).returncode == 0
    ran = logline(*command, "--fail-on-errors", cwd=tmp_path)
    assert (ran.returncode, ran.stdout.split(":")[0]) == (0, "daily caught up"), ran.stderr


RENAMED = DAILY.replace('"rows", ', '"orders", ').replace('"in")', '"in"), was="rows"')


def test_gc_counts_events_and_calls_operators_as_the_user_does(tmp_path: Path) -> None:
    """The end of a stream is no event, and an operator keeps its journal when it is renamed (R14)."""
    daily(tmp_path)
    run = ("run", "daily.py", "--log", "lmdb:log", "--engine", "inline")
    assert logline(*run, "--until", "now", cwd=tmp_path).returncode == 0
    (tmp_path / "daily.py").write_text(RENAMED)
    put(tmp_path, "b", -2)
    ended = logline(*run, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    head, *rows, held = logline("gc", "log", cwd=tmp_path).stdout.splitlines()
    assert head.split() == ["operator", "collected", "kept"]
    assert [row.split() for row in rows] == [["orders", "0", "1"], ["check", "0", "1"], ["store", "0", "0"]]
    assert "1 open error holds" in held and "bytes of check: retry or drop" in held
