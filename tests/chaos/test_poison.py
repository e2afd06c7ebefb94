"""An event that kills the process of whoever works on it, each time: with `on_error="divert"` it is set aside, and
the others come through, each once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.numbers import Pairs, Waiting
from tests.waiting import PATIENCE, until

import logline as ll
from logline.errors import PipelineFailed
from logline.runtime.control.supervisor import Supervisor

EVENTS = 30
POISON = 17
FIRST = 20
"""Events that come before there is a file `go`."""


class Meals(Pairs):
    """Two at a time."""

    outputs = {"out": "n long"}  # noqa: RUF012

    def generate(self, inset: Any, acc: list[int], ctx: Any) -> Iterator[Any]:
        for n in acc:
            taste(self.folder, n)
        yield pa.table({"n": acc})


def taste(folder: Path, n: int) -> None:
    if n == POISON and not (folder / "fixed").exists():
        with (folder / "deaths").open("a") as file:
            file.write("x")
        os.kill(os.getpid(), signal.SIGKILL)


def deaths(folder: Path) -> int:
    return len((folder / "deaths").read_text())


def plain(events: ll.Stream, folder: Path, **options: Any) -> ll.Stream:
    def eat(batch: pa.RecordBatch) -> pa.RecordBatch:
        taste(folder, batch["n"][0].as_py())
        return batch

    return events.map_batches("eat", eat, schema="n long", **options)


def pairs(events: ll.Stream, folder: Path, **options: Any) -> ll.Stream:
    return events.apply("eat", Meals(folder), **options)


def rows(events: ll.Stream, folder: Path, **options: Any) -> ll.Stream:
    async def eat(row: dict[str, Any], ctx: Any) -> dict[str, Any]:
        taste(folder, row["n"])
        return row

    return events.map_rows("eat", eat, schema="n long", **options)


Make = Callable[..., ll.Stream]


def pipeline(make: Make, folder: Path, **options: Any) -> ll.Pipeline:
    p = ll.Pipeline("poison")
    make(p.source("events", Waiting(folder, FIRST, EVENTS - FIRST), rows=1), folder, **options).sink(
        "store", ll.sinks.collect()
    )
    return p


def start(make: Make, folder: Path, **options: Any) -> ll.Run:
    return pipeline(make, folder, **options).start(f"lmdb:{folder / 'log'}", engine="processes", durability="process")


def notes(folder: Path) -> list[Path]:
    return list((folder / "log" / "notes").iterdir())


@pytest.mark.parametrize(
    ("make", "concurrency", "lost"), [(plain, 1, {17}), (plain, 4, {17}), (pairs, 1, {16, 17}), (rows, 4, {17})]
)
def test_it_is_set_aside_and_retried_when_its_code_is_mended(
    make: Make, concurrency: int, lost: set[int], tmp_path: Path
) -> None:
    options = {"on_error": "divert", "concurrency": concurrency, "retry": ll.Retry(attempts=5, wait="1h")}
    with start(make, tmp_path, **options) as run:
        until(lambda: run.log.errors().num_rows)
        (error,) = run.log.errors().to_pylist()
        assert error["operator"] == "eat"
        assert error["events"] == [f"events:{n + 1}" for n in sorted(lost)]
        assert error["reason"].startswith("KilledItsProcess: input set ")
        assert "of operator 'eat' killed its process 3 times: it is set aside" in error["reason"]
        assert 4 <= deaths(tmp_path) <= 5  # several at once: one more, to find out which
        until(lambda: run.status().operators["eat"].errors == 1)
        (tmp_path / "fixed").touch()
        before = deaths(tmp_path)
        assert run.retry(error["event"])
        until(lambda: run.log.errors().num_rows == 0)
        (tmp_path / "go").touch()
        assert run.wait(PATIENCE).phase == "finished"
        assert sorted(run.result("store")["n"].to_pylist()) == list(range(EVENTS))
        assert deaths(tmp_path) == before
    assert notes(tmp_path) == []


def together(events: ll.Stream, folder: Path, **options: Any) -> ll.Stream:
    """Two events that come after `go` are at work at the same time, or neither gets to its end."""

    def eat(batch: pa.RecordBatch) -> pa.RecordBatch:
        n = batch["n"][0].as_py() if batch.num_rows else 0
        taste(folder, n)
        if n in (FIRST, FIRST + 1):
            (folder / str(n)).touch()
            until((folder / str(2 * FIRST + 1 - n)).exists)
        return batch

    return events.map_batches("eat", eat, schema="n long", **options)


def test_when_it_is_set_aside_several_are_at_work_again(tmp_path: Path) -> None:
    with start(together, tmp_path, on_error="divert", concurrency=4) as run:
        until(lambda: run.log.errors().num_rows)
        (tmp_path / "go").touch()
        assert run.wait(PATIENCE).phase == "finished"
        assert sorted(run.result("store")["n"].to_pylist()) == [n for n in range(EVENTS) if n != POISON]


def test_it_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    with start(plain, tmp_path, on_error="drop") as run:
        status = run.wait(PATIENCE)
        assert status.phase == "finished"
        assert status.operators["eat"].restarts == deaths(tmp_path) == 4
        wanted = [n for n in range(EVENTS) if n != POISON]
        assert sorted(run.result("store")["n"].to_pylist()) == wanted
    assert notes(tmp_path) == []


def test_it_is_retried_by_the_next_run(tmp_path: Path) -> None:
    """The code is not mended at first: it is set aside again, after as many deaths as the first time."""
    with start(plain, tmp_path, on_error="divert") as run:
        until(lambda: run.log.errors().num_rows)
        run.stop(timeout=PATIENCE)
        assert run.retry("eat.errors:1")
    with start(plain, tmp_path, on_error="divert") as run:
        until(lambda: run.log.errors()["event"].to_pylist() == ["eat.errors:2"])
        run.stop(timeout=PATIENCE)
        assert deaths(tmp_path) == 8
        assert run.retry("eat.errors:2")
    for mark in ("fixed", "go"):
        (tmp_path / mark).touch()
    with start(plain, tmp_path, on_error="divert") as run:
        assert run.wait(PATIENCE).phase == "finished"
        assert sorted(run.result("store")["n"].to_pylist()) == list(range(EVENTS))


def test_with_stop_the_pipeline_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Supervisor, "crashes", 5)  # it tries more often, and waits longer each time
    with start(plain, tmp_path, on_error="stop") as run:
        with pytest.raises(PipelineFailed, match=r"the process of eat was killed by signal 9, 5 times in a row"):
            run.wait(PATIENCE)
        assert run.log.errors().num_rows == 0
    assert not (tmp_path / "log" / "notes").exists()
