"""Lineage of what comes of errors that are retried: rejected rows, diverted sets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.numbers import Pairs, Waiting
from tests.waiting import PATIENCE, until

import logline as ll


class Choose(ll.Operator[Any, Any]):
    """Until there is a file `fixed`, 2 is rejected and 3 fails. 2 is rejected a second time until there is `done`."""

    outputs = {"out": "n long"}  # noqa: RUF012

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def generate(self, inset: Any, acc: Any, ctx: Any) -> Iterator[Any]:
        n = acc["n"][0].as_py()
        if n == 2 and not (self.folder / "done").exists():
            yield ll.Reject(acc, "not yet")
        elif n == 3 and not (self.folder / "fixed").exists():
            raise ValueError("not yet")
        else:
            yield acc


class Gather(Pairs):
    """Sums of two; the second one fails until there is a file `fixed`."""

    outputs = {"out": "total long"}  # noqa: RUF012

    def generate(self, inset: Any, acc: list[int], ctx: Any) -> Iterator[Any]:
        if inset == 1 and not (self.folder / "fixed").exists():
            raise ValueError("not yet")
        yield pa.table({"total": [sum(acc)]})


def pipeline(folder: Path, *, scope: bool) -> ll.Pipeline:
    p = ll.Pipeline("retries")
    events = p.source("events", Waiting(folder, 6), rows=1)
    chosen = events.apply("chosen", Choose(folder), on_error="divert")
    chosen.map_batches("twice", lambda batch: batch, schema="n long").sink("store", ll.sinks.collect())
    sums = events.apply("sums", Gather(folder), on_error="divert")
    sums.sink("keep", ll.sinks.collect())
    if scope:
        p.lineage(events, chosen)
        p.lineage(events, sums)
    else:
        p.lineage()
    return p


def errors(run: ll.Run) -> list[str]:
    return list(run.log.errors()["event"].to_pylist())


def finished(folder: Path, url: str, *, scope: bool = False) -> ll.Run:
    """2 comes out after two retries, 3 and the pair of both after one."""
    with pipeline(folder, scope=scope).start(url, engine="inline") as run:
        until(lambda: sorted(errors(run)) == ["chosen.errors:1", "chosen.errors:2", "sums.errors:1"])
        (folder / "fixed").touch()
        for name in errors(run):
            assert run.retry(name)
        until(lambda: errors(run) == ["chosen.errors:3"])
        (folder / "done").touch()
        assert run.retry("chosen.errors:3")
        until(lambda: not errors(run))
        (folder / "go").touch()
        assert run.wait(PATIENCE).phase == "finished"
        return run


def of_value(log: Any, port: str, column: str, value: int) -> str:
    (event,) = log.find(port, f"{column} = {value}")
    return str(event)


def found(table: pa.Table) -> list[str]:
    return list(table["event"].to_pylist())


@pytest.mark.parametrize("scope", [False, True])
def test_what_came_of_a_retry_leads_to_its_inputs_and_back(scope: bool, url: str, tmp_path: Path) -> None:
    log = finished(tmp_path, url, scope=scope).log
    late, failed = (of_value(log, "chosen", "n", n) for n in (2, 3))
    pair = of_value(log, "sums", "total", 5)
    back = log.backward(late)
    assert found(back) == [late, "chosen.errors:3", "chosen.errors:1", "events:3"]
    assert back["ends"].to_pylist() == [None, None, None, "source"]
    assert back["of"].to_pylist()[1:] == [late, "chosen.errors:3", "chosen.errors:1"]
    assert found(log.backward(late, to="events")) == ["events:3"]
    assert found(log.backward(failed)) == [failed, "events:4"]
    assert found(log.backward(pair)) == [pair, "events:3", "events:4"]
    assert {late, pair} <= set(found(log.forward("events:3")))
    assert {failed, pair} <= set(found(log.forward("events:4")))
    assert found(log.forward("events:3", to="chosen")) == [late]


def test_records_tables_and_reruns_follow_a_retry(url: str, tmp_path: Path) -> None:
    run = finished(tmp_path, url)
    log = run.log
    late = of_value(log, "chosen", "n", 2)
    records = log.backward(late, to="events", records=True)
    assert [row["record"] for row in records.to_pylist()] == ['{"n": 2}']
    edges = {(row["event"], row["input"]) for row in log.table("lineage_edges").to_pylist()}
    assert {
        (late, "chosen.errors:3"),
        ("chosen.errors:3", "chosen.errors:1"),
        ("chosen.errors:1", "events:3"),
    } <= edges
    assert (late, "chosen.errors:3") in {
        (row["event_id"], row["inset_id"]) for row in log.table("event_lineage").to_pylist()
    }
    taken = [row for row in log.table("event_log").to_pylist() if row["send_port"] == "errors"]
    assert [(row["event_id"], row["status"], row["rec_op"]) for row in taken if row["rec_op"] == "chosen"] == [
        ("chosen.errors:1", "done", "chosen"),
        ("chosen.errors:3", "done", "chosen"),
    ]
    again = pipeline(tmp_path, scope=False).rerun(url, late)
    assert again.same, again.differences()
    assert again.members == ["chosen.errors:3"]


def test_an_error_that_nobody_retried_is_an_end(url: str, tmp_path: Path) -> None:
    with pipeline(tmp_path, scope=False).start(url, engine="inline") as run:
        until(lambda: "chosen.errors:1" in errors(run))
        forward = run.log.forward("events:3", to="chosen.errors").to_pylist()
        assert [(row["event"], row["ends"]) for row in forward] == [("chosen.errors:1", "to")]
        assert run.log.forward("chosen.errors:1")["ends"].to_pylist() == ["sink"]
        (tmp_path / "go").touch()
        run.wait(PATIENCE)


def test_a_set_that_waits_among_the_errors_is_not_done(tmp_path: Path, url: str) -> None:
    """Lineage keeps what its error was made of. It is not generated for all that."""
    with pipeline(tmp_path, scope=True).start(url, engine="inline") as run:
        until(lambda: len(errors(run)) == 3)
        run.stop()
    rows = [row for row in run.log.table("event_log").to_pylist() if row["rec_op"] == "chosen"]
    assert [row["status"] for row in rows if row["event_id"] == "events:4"] == ["undone"]
