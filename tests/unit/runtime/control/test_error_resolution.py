"""Errors that are retried or dropped: while the pipeline runs, and when it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.numbers import Pairs, Waiting
from tests.waiting import PATIENCE, until

import logline as ll
from logline.errors import BadName, LogError
from logline.names import ERRORS, InstanceName


class Gather(Pairs):
    """Sets of two; an odd block fails until there is a file `fixed`."""

    outputs = {"out": "total long"}  # noqa: RUF012

    def generate(self, inset: Any, acc: list[int], ctx: Any) -> Iterator[Any]:
        if inset % 2 and not (self.folder / "fixed").exists():
            raise ValueError(f"{acc} is not right")
        yield pa.table({"total": [sum(acc)]})


def gather(folder: Path) -> ll.Pipeline:
    p = ll.Pipeline("gather")
    events = p.source("events", Waiting(folder, 10), rows=1)
    events.apply("sums", Gather(folder), on_error="divert").sink("store", ll.sinks.collect())
    return p


def choose(folder: Path) -> ll.Pipeline:
    """Rows that are rejected by a stateless operator, until there is a file `fixed`."""

    async def ask(row: dict[str, Any], ctx: Any) -> dict[str, Any]:
        if row["n"] % 3 == 0 and not (folder / "fixed").exists():
            raise ValueError(f"no answer for {row['n']}")
        return {"total": row["n"]}

    p = ll.Pipeline("choose")
    events = p.source("events", Waiting(folder, 10), rows=1)
    asked = events.map_rows("sums", ask, schema="total long", on_error="divert")
    asked.sink("store", ll.sinks.collect())
    return p


CASES = [(gather, 2, [1, 5, 9, 13, 17]), (choose, 4, list(range(10)))]


def start(make: Callable[[Path], ll.Pipeline], folder: Path, *, memory: bool) -> ll.Run:
    return make(folder).start(f"memory:{folder}" if memory else f"lmdb:{folder / 'log'}", engine="inline")


def totals(run: ll.Run) -> list[int]:
    return sorted(run.result("store")["total"].to_pylist())


def counted(run: ll.Run) -> tuple[int, int]:
    """Errors that are open, and all that there were."""
    found = run.status().operators["sums"]
    return found.errors, found.errors_ever


@pytest.mark.parametrize(("make", "errors", "wanted"), CASES)
@pytest.mark.parametrize("memory", [True, False])
def test_retried_while_it_runs(make: Any, errors: int, wanted: list[int], memory: bool, tmp_path: Path) -> None:
    with start(make, tmp_path, memory=memory) as run:
        until(lambda: run.status().operators["sums"].taken == 10 and run.log.errors().num_rows == errors)
        names = run.log.errors()["event"].to_pylist()
        assert counted(run) == (errors, errors)
        assert run.retry(names[0])  # it is not fixed: a new error, and the old one is gone
        until(lambda: f"sums.errors:{errors + 1}" in run.log.errors()["event"].to_pylist())
        until(lambda: counted(run) == (errors, errors + 1))
        assert names[0] not in run.log.errors()["event"].to_pylist()
        (tmp_path / "fixed").touch()
        for name in run.log.errors()["event"].to_pylist():
            assert run.retry(name)
            assert not run.retry(name)
        until(lambda: run.log.errors().num_rows == 0)
        until(lambda: counted(run) == (0, errors + 1))
        (tmp_path / "go").touch()
        assert run.wait(PATIENCE).phase == "finished"
        assert counted(run) == (0, errors + 1)
        assert totals(run) == wanted
        stored = run.log.store.read(InstanceName("sums")).stored(ERRORS)
        assert len(stored) == 1  # the end of the stream: what was retried is collected


@pytest.mark.parametrize(("make", "errors", "wanted"), CASES)
def test_retried_and_dropped_while_it_does_not_run(make: Any, errors: int, wanted: list[int], tmp_path: Path) -> None:
    with start(make, tmp_path, memory=False) as run:
        until(lambda: run.status().operators["sums"].taken == 10 and run.log.errors().num_rows == errors)
    names = run.log.errors()["event"].to_pylist()
    lost = run.log.errors()["events"].to_pylist()[0]
    for error in run.log.errors().to_pylist():  # alike, whoever set it aside
        assert error["reason"].startswith("ValueError: ") and "\n" not in error["reason"]
        assert error["traceback"].startswith("Traceback") and error["reason"] in error["traceback"]
    (tmp_path / "fixed").touch()
    (tmp_path / "go").touch()
    assert counted(run) == (errors, errors)
    assert run.drop(names[0])
    assert counted(run) == (errors - 1, errors)
    for name in names[1:]:
        assert run.retry(name)
    with start(make, tmp_path, memory=False) as run:
        assert run.wait(PATIENCE).phase == "finished"
        gone = sum(int(event.partition(":")[2]) - 1 for event in lost)
        assert sum(wanted) - sum(totals(run)) == gone
        assert len(totals(run)) == len(wanted) - 1


def test_what_can_not_be_retried_says_so(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    run = gather(tmp_path).start(f"lmdb:{tmp_path / 'log'}", engine="inline")
    run.wait(PATIENCE)
    with pytest.raises(LogError, match=r"has put out 1\.\.3"):
        run.retry("sums.errors:9")
    with pytest.raises(BadName, match=r"there is no port events\.errors"):
        run.retry("events.errors:1")
    for name in ("sums:1", "sums.out:1", "sums.errors:1..2"):  # the first two are one and the same
        for resolve in (run.retry, run.drop):
            with pytest.raises(
                BadName, match=rf"'{name}' is not one event on a port 'errors': they are named as sums\.errors:1"
            ):
                resolve(name)
    assert run.log.errors().num_rows == 2
    assert run.drop("sums.errors:1") and run.drop("sums.errors:2") and not run.drop("sums.errors:1")
    assert run.log.errors().num_rows == 0
