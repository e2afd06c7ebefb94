"""`status`, `stop`, `restart`, `show`, `errors`, `gc`: a log that runs elsewhere, and one that does not."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.cli.harness import TOTALS, logline, started, write_sales
from tests.waiting import PATIENCE, until

import logline as ll
from logline.cli.status import _text
from logline.runtime.log.log_status import LogStatus, log_status
from logline.runtime.status import OperatorStatus, TargetStatus


def status(log: Path) -> dict[str, Any]:
    said = logline("status", log, "--format", "json")
    assert said.returncode == 0, said.stderr
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def look(log: Path) -> LogStatus:
    """The same, without a process for it: to wait with."""
    return log_status(ll.open_log(f"lmdb:{log}").store)


class Job:
    """`logline run` on its way, up to where the source waits for the file `go`."""

    def __init__(self, folder: Path, engine: str) -> None:
        self.folder, self.log = folder, folder / "log"
        self.command = ("run", write_sales(folder, go=False), "--log", self.log, "--engine", engine)
        self.child = started(*self.command)
        until((self.log / "graph.json").exists)
        until(self.at_rest)

    def at_rest(self) -> bool:
        """Whether it has dealt with all that there is, and has said that it runs."""
        found = look(self.log)
        taken = found.operators["blocks"].taken, found.operators["store"].taken
        return (found.phase, taken) == ("running", (25, 2))

    def end(self) -> int:
        """Its exit code."""
        self.said = self.child.communicate(timeout=PATIENCE)
        return self.child.returncode

    def finish(self) -> list[int]:
        """Lets the source go on, in another run."""
        (self.folder / "go").touch()
        ran = logline(*self.command)
        assert ran.returncode == 0, ran.stderr
        totals: list[int] = pq.read_table(self.folder / "out")["total"].to_pylist()
        return totals


@pytest.fixture(params=["inline"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path, request.param)
    yield job
    job.child.kill()
    job.child.communicate()


@pytest.mark.parametrize("job", ["processes"], indirect=True)
def test_restart_and_stop(job: Job) -> None:
    def reported() -> Any:  # where an operator lives is known once it has reported
        found = status(job.log)
        return found if all(one["host"] for one in found["operators"].values()) else None

    found = until(reported)
    assert (found["phase"], found["pid"]) == ("running", job.child.pid)
    store = found["operators"]["store"]
    assert (store["targets"], store["host"]) == ({"out": {"written": 2, "pending": 0}}, socket.gethostname())
    assert len({one["pid"] for one in found["operators"].values()} - {None, job.child.pid}) == 4
    assert logline("restart", job.log, "blocks").returncode == 0
    until(lambda: look(job.log).operators["blocks"].restarts == 1)
    wrong = logline("restart", job.log, "nobody")
    assert wrong.returncode == 1 and "there are orders, priced, blocks, store" in wrong.stderr
    busy = logline("gc", job.log)
    assert busy.returncode == 4 and "in use by run" in busy.stderr
    assert busy.stderr.endswith(": stop that run, with `logline stop LOG` first\n")
    second = logline(*job.command)
    assert second.returncode == 4
    assert second.stderr.endswith("with `logline stop LOG`, or fence it off with --takeover\n"), second.stderr
    said = logline("stop", job.log)
    assert said.returncode == 0 and said.stdout.endswith("is over: stopped; run again to go on\n")
    assert job.end() == 0
    assert status(job.log)["run"] is None
    assert job.finish() == TOTALS


def test_a_status_in_text() -> None:
    waits = "3 writes to target 'out' are not done"
    store = OperatorStatus(taken=36, targets={"out": TargetStatus(33, 3)}, waits=waits, pid=22, host="here")
    asking = OperatorStatus(taken=9, out=8, in_flight=1, rows=100, rows_answered=37)
    found = LogStatus("sales", "draining", {"priced": asking, "store": store}, run="e97", pid=5)
    assert _text(found).splitlines() == [
        "sales: draining, run e97 in process 5",
        "operator  in  out  lag  open sets  in flight  written  pending  restarts  errors     process",
        "priced     9    8    0          0          1        0        0         0       0",
        "store     36    0    0          0          0       33        3         0       0  22 on here",
        "priced: 37 of 100 rows answered",
        f"store waits: {waits}",
    ]


def test_drain(job: Job) -> None:
    said = logline("stop", job.log, "--drain")
    assert said.returncode == 0, said.stderr
    assert job.end() == 0
    found = status(job.log)
    assert found["operators"]["blocks"]["open_sets"] == 1
    assert all(o["lag"] == 0 for o in found["operators"].values())
    assert job.finish() == TOTALS


def test_a_killed_run_is_seen_to_be_dead(job: Job) -> None:
    os.kill(job.child.pid, signal.SIGKILL)
    job.end()
    assert status(job.log)["phase"] == "died"
    assert "its process ended without a word" in logline("status", job.log).stdout
    for command in (("stop", job.log), ("restart", job.log, "blocks")):
        said = logline(*command)
        assert said.returncode == 1 and "nothing runs on" in said.stderr
    assert job.finish() == TOTALS


def test_a_watch_ends_with_the_run(job: Job) -> None:
    watch = started("status", job.log, "--watch", "--format", "json")
    assert watch.stdout is not None
    first = json.loads(watch.stdout.readline())
    assert first["phase"] == "running"
    (job.folder / "go").touch()
    assert job.end() == 0
    said, _ = watch.communicate(timeout=PATIENCE)
    assert json.loads(said.splitlines()[-1])["phase"] == "finished"
    assert watch.returncode == 0


def test_gc_leaves_what_is_needed(job: Job) -> None:
    logline("stop", job.log)
    job.end()
    said = logline("gc", job.log)
    assert said.returncode == 0, said.stderr
    rows = {line.split()[0]: line.split()[1:] for line in said.stdout.splitlines()[1:]}
    assert rows["orders"] == ["25", "0"]
    assert rows["priced"] == ["20", "5"]  # the members of the open set
    again = logline("gc", job.log, "--compact").stdout
    assert again.split().count("0") >= 4  # nothing more
    assert again.splitlines()[-1].endswith(" bytes freed on disk")
    assert job.finish() == TOTALS


def test_show(job: Job) -> None:
    said = logline("show", job.log, "priced:24", "--format", "json")
    found = json.loads(said.stdout)
    assert found["records"] == [{"n": 23, "price": 46}]
    assert found["taken"] == [{"by": "blocks.in", "status": "undone", "inset": "3#3"}]
    text = logline("show", job.log, "blocks:2").stdout
    assert "made from   2#2: priced:11, priced:12" in text
    assert "taken by    store.in: done" in text
    for event, says in [
        ("blocks:9", "has put out 1..2"),
        ("none:1", "no operator 'none'"),
        ("blocks", "name an event"),
    ]:
        wrong = logline("show", job.log, event)
        assert wrong.returncode == 1 and says in wrong.stderr
    assert "names several events" in logline("show", job.log, "blocks:1..2").stderr


@pytest.mark.parametrize("engine", ["inline", "processes"])
def test_a_life_tells_its_story_if_the_run_was_asked_to(tmp_path: Path, engine: str) -> None:
    log = tmp_path / "log"
    command = ("run", write_sales(tmp_path), "--log", log, "--engine", engine)
    wrong = logline(*command, LOGLINE_STORY="many")
    assert wrong.returncode == 1 and "LOGLINE_STORY='many' is not a number of entries" in wrong.stderr
    assert logline(*command, LOGLINE_STORY="50").returncode == 0
    said = logline("show", log, "blocks", "--story").stdout
    assert said.splitlines()[0] == "blocks, life 1, ended: left"
    assert "TakenIn(" in said and "Commit(number " in said
    found = json.loads(logline("show", log, "blocks", "--story", "--format", "json").stdout)
    assert len(found["entries"]) <= 50
    assert found["entries"][-1]["asked"] == ["Leave(left)"]
    assert "no operator 'none'" in logline("show", log, "none", "--story").stderr


def test_without_being_asked_nobody_keeps_a_story(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert logline("run", write_sales(tmp_path), "--log", log, "--engine", "inline").returncode == 0
    wrong = logline("show", log, "blocks", "--story")
    assert wrong.returncode == 1 and "set LOGLINE_STORY=200" in wrong.stderr


def test_there_is_no_log(tmp_path: Path) -> None:
    for command in ("status", "stop", "errors", "gc"):
        said = logline(command, tmp_path / "none")
        assert (said.returncode, said.stdout) == (1, "")
        assert said.stderr.startswith("logline: there is no log at lmdb:") and said.stderr.count("\n") == 1
