"""User code that does anything: an operator does with each event what a drawn script says.

The simulator has user code that raises everything and returns what names no set. Its payloads are no Arrow batches,
its states are always of their type and its memory is nobody's; this is the level for those. Hypothesis prints the
script that fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import logline as ll

PATIENCE = 60.0
"""Seconds after which a run counts as hanging."""
ROWS = 3


class Panic(BaseException):
    """As libraries in Rust raise it."""


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise SystemExit(4)


RAISED: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        ValueError,
        SystemExit,
        KeyboardInterrupt,
        GeneratorExit,
        StopIteration,
        StopAsyncIteration,
        asyncio.CancelledError,
        MemoryError,
        RecursionError,
        Panic,
        Unspeakable,
    )
}
PHASES = ("assign", "update", "ready", "generate", "generate after an output")
MADE: dict[str, Any] = {
    "None": None,
    "a number": 7,
    "an object": object(),
    "another schema": pa.record_batch({"y": ["text"]}),
    "another type": pa.record_batch({"x": ["text"] * ROWS, "seen": ["text"] * ROWS}),
    "another port": ll.Emit(pa.record_batch({"x": [1], "seen": [1]}), "nowhere"),
    "another target": ll.Write(pa.record_batch({"x": [1], "seen": [1]}), "nowhere"),
}
"""What `generate` may not yield."""
SETS: dict[str, Any] = {
    "a number": 7,
    "a text": "text",
    "an object": [object()],
    "a list in a list": [["text"]],
    "a note": {"a": object()},
    "a note of half a character": {"a": "\udc80"},
}
"""What `assign` may not return."""
Deed = tuple[str, str]
"""What user code does wrong, and where; ("", "") for nothing."""
DEEDS: list[Deed] = [
    *((phase, kind) for phase in PHASES for kind in RAISED),
    *(("makes", what) for what in MADE),
    *(("sets", what) for what in SETS),
]


@dataclass
class Seen:
    events: int = 0


class Scripted(ll.Operator[Any, Any]):
    """Does with each event what its script says. All that it puts out is in one array, which it fills again."""

    outputs = {"out": "x long, seen long"}  # noqa: RUF012
    State = Seen

    def __init__(self, script: list[Deed], state: Any = None) -> None:
        self.script, self.state = script, state

    def open(self, ctx: Any) -> None:
        self.array = np.zeros(ROWS, dtype="int64")

    def at(self, phase: str, batch: pa.RecordBatch) -> None:
        where, kind = self.script[batch["x"][0].as_py()]
        if where == phase:
            raise RAISED[kind]

    def assign(self, event: ll.Event, ctx: Any) -> Any:
        ctx.state.events += 1
        seen = ctx.state.events
        self.at("assign", event.batch)
        if self.state is not None and event.ssn == len(self.script):
            ctx.state.events = self.state
        where, kind = self.script[event.batch["x"][0].as_py()]
        return SETS[kind] if where == "sets" else {event.name: seen}

    def update(self, inset: Any, acc: Any, event: ll.Event) -> Any:
        self.at("update", event.batch)
        return event.batch, event.note

    def ready(self, inset: Any, acc: Any, ctx: Any) -> bool:
        self.at("ready", acc[0])
        return True

    def make(self, acc: Any) -> Iterator[Any]:
        batch, seen = acc
        self.at("generate", batch)
        self.array[:] = batch["x"].to_numpy()
        yield pa.record_batch({"x": self.array, "seen": [seen] * ROWS})
        self.at("generate after an output", batch)
        where, kind = self.script[batch["x"][0].as_py()]
        if where == "makes":
            yield MADE[kind]
        self.array += 1000
        yield pa.record_batch({"x": self.array, "seen": [seen] * ROWS})

    def generate(self, inset: Any, acc: Any, ctx: Any) -> Iterator[Any]:
        yield from self.make(acc)


class ScriptedAsync(Scripted):
    async def generate(self, inset: Any, acc: Any, ctx: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        for made in self.make(acc):
            yield made
            await asyncio.sleep(0)


def pipeline(op: Scripted, on_error: Any, concurrency: int) -> ll.Pipeline:
    p = ll.Pipeline("anything")
    tables = [pa.table({"x": [n] * ROWS}) for n in range(len(op.script))]
    made = p.source("numbers", ll.sources.batches(tables)).apply("op", op, on_error=on_error, concurrency=concurrency)
    made.sink("store", ll.sinks.collect())
    return p


OnError = Literal["stop", "divert", "drop"]
scripts = st.lists(st.sampled_from([("", ""), *DEEDS]), min_size=1, max_size=8)
ways = st.sampled_from([(Scripted, 1), (Scripted, 3), (ScriptedAsync, 3)])
drawn = settings(
    max_examples=120, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, print_blob=True
)


def good(script: list[Deed]) -> list[int]:
    """The values that come out, whatever the others do."""
    return [x for n, deed in enumerate(script) if deed == ("", "") for x in [n] * ROWS + [n + 1000] * ROWS]


@drawn
@given(script=scripts, way=ways, on_error=st.sampled_from(["stop", "divert", "drop"]))
def test_every_failure_is_a_result(script: list[Deed], way: tuple[Any, int], on_error: OnError) -> None:
    """Diverted or dropped with its own event alone, or the run fails with the operator's name. Half of an output set
    is never seen, and every event keeps the values that it had."""
    kind, concurrency = way
    bad = sum(deed != ("", "") for deed in script)
    with pipeline(kind(script), on_error, concurrency).start(engine="inline") as run:
        if on_error == "stop" and bad:
            with pytest.raises(ll.PipelineFailed) as failed:
                run.wait(PATIENCE)
            assert failed.value.operator == "op"
            return
        assert run.wait(PATIENCE).phase == "finished"
        assert run.log.errors().num_rows == (bad if on_error == "divert" else 0)
        rows = run.result("store")
        assert sorted(rows["x"].to_pylist() if rows.num_rows else []) == sorted(good(script))
        seen = dict(zip(rows["x"].to_pylist(), rows["seen"].to_pylist(), strict=True)) if rows.num_rows else {}
        assert all(count <= x % 1000 + 1 for x, count in seen.items())
        assert len(set(seen.values())) == len(seen) // 2, "two events have counted as one"


@settings(parent=drawn, max_examples=20)
@given(
    before=st.integers(0, 3),
    state=st.sampled_from(["text", 1.5, object(), [1], np.float64(0.5)]),
    way=ways,
    on_error=st.sampled_from(["stop", "divert"]),
)
def test_a_state_of_another_type_is_the_authors_error_at_once(
    before: int, state: Any, way: tuple[Any, int], on_error: OnError
) -> None:
    """Before it is committed, and whatever becomes of errors of single events: a state belongs to no event."""
    kind, concurrency = way
    op = kind([("", "")] * (before + 1), state)
    with pipeline(op, on_error, concurrency).start(engine="inline") as run:
        with pytest.raises(ll.PipelineFailed, match="StateError") as failed:
            run.wait(PATIENCE)
        assert failed.value.operator == "op"


def test_worker_processes_say_the_same(tmp_path: Any) -> None:
    """One long script, in a process per operator."""
    script = [("", ""), *DEEDS[::6], ("", "")]
    with pipeline(Scripted(script), "divert", 1).start(f"lmdb:{tmp_path}/log", engine="processes") as run:
        assert run.wait(PATIENCE).phase == "finished"
        assert run.log.errors().num_rows == len(script) - 2
        assert sorted(run.result("store")["x"].to_pylist()) == sorted(good(script))
