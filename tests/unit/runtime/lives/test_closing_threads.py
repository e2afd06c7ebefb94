"""Operators, sources and sinks are closed on the thread that opened them: a connection may belong to its thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.waiting import PATIENCE, until

import logline as ll

used: dict[str, list[threading.Thread]] = {}


def note(what: str) -> None:
    used.setdefault(what, []).append(threading.current_thread())


class Numbers(ll.Source):
    schema = pa.schema([("n", pa.int64())])

    def __init__(self, count: int) -> None:
        self.count = count

    def read(self, partition: str, offset: Any) -> Iterator[Any]:
        note("source")
        try:
            for n in range(offset or 0, self.count):
                yield pa.record_batch({"n": [n]}), n + 1
            while self.count > 3:
                yield None
        finally:
            note("source")

    def close(self) -> None:
        note("source")


class Passes(ll.Operator[Any, Any]):
    outputs = {"out": "n long"}  # noqa: RUF012

    def open(self, ctx: Any) -> None:
        note("operator")

    def generate(self, inset: Any, acc: Any, ctx: Any) -> Iterator[Any]:
        yield acc

    def close(self) -> None:
        note("operator")


class Target(ll.Sink):
    guarantee = "named"

    def open(self, scope: str) -> None:
        note("sink")

    def write(self, batch: Any, number: int, write_id: str) -> None:
        note("sink")

    def close(self) -> None:
        note("sink")
        used["sink closed"] = []


@pytest.mark.parametrize("count", [3, 4])
def test_each_is_closed_where_it_was_opened(count: int) -> None:
    """At its end, and at a stop."""
    used.clear()
    p = ll.Pipeline("p")
    p.source("s", Numbers(count), rows=1).apply("m", Passes()).sink("store", Target())
    run = p.start(f"memory:closing {count}", engine="inline")
    if count == 3:
        assert run.wait(PATIENCE).phase == "finished"
    else:
        until(lambda: len(used.get("sink", ())) == 1 + count)
        assert run.stop(timeout=PATIENCE).phase == "stopped"
    assert "sink closed" in used
    assert {what: len(set(threads)) for what, threads in used.items() if threads} == {
        "source": 1,
        "operator": 1,
        "sink": 1,
    }
