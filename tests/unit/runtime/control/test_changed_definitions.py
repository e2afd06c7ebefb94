"""A definition that changed between two runs on one log (R14): drawn pipelines, drawn changes.

Whatever changes, the next run is refused with PipelineChanged, and the old definition goes on as if nothing had
happened; or it is accepted, and every row comes out exactly once. Ids are powers of two, so that the sum and the
count of an aggregate say which rows are in it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st
from tests.unit.runtime.taps import start
from tests.waiting import PATIENCE, until

import logline as ll
from logline.errors import PipelineChanged
from logline.graph.connector import Guarantee, Sink, Source

Kind = Literal["map", "rebatch", "tumbling", "blocks"]
SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
SUMS = {"id": ("id", "sum"), "n": ("id", "count")}
_keys = map(str, itertools.count())


# ---- the outside --------------------------------------------------------------------------------------------


class Outside:
    """What there is to read, and what was written, by scope."""

    def __init__(self) -> None:
        self.there: list[pa.RecordBatch] = []
        self.closed = False
        self.written: dict[str, list[int]] = {}
        self.last: Counter[str] = Counter()


_outside: dict[str, Outside] = {}


class Feed(Source):
    """Replayable; gives what there is, and ends once it is closed."""

    gather = False

    def __init__(self, key: str, *, more: bool) -> None:
        self.key = key
        self.schema = SCHEMA.append(pa.field("more", pa.int64())) if more else SCHEMA

    def read(self, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, int] | None]:
        outside, n = _outside[self.key], offset or 0
        while True:
            if n < len(outside.there):
                n += 1
                batch = outside.there[n - 1]
                more = [pa.nulls(batch.num_rows, pa.int64())] * (len(self.schema) - len(SCHEMA))
                yield pa.record_batch([*batch.columns, *more], schema=self.schema), n
            elif outside.closed:
                return
            else:
                yield None


class Target(Sink):
    """Positioned; takes rows, or aggregates apart into the rows that are in them."""

    guarantee: Guarantee = "positioned"

    def __init__(self, key: str) -> None:
        self.key = key
        self.scope = ""

    def open(self, scope: str) -> None:
        self.scope = scope

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        outside = _outside[self.key]
        if number != outside.last[self.scope] + 1:
            return
        outside.last[self.scope] = number
        written = outside.written.setdefault(self.scope, [])
        for row in batch.to_pylist():
            bits = [1 << at for at in range(row["id"].bit_length()) if row["id"] >> at & 1]
            assert row.get("n", 1) == len(bits), f"a row is in it twice: {row}"
            written += bits

    def position(self) -> int:
        return _outside[self.key].last[self.scope]


# ---- definitions, and what changes in them ------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    name: str
    kind: Kind
    size: int

    def after(self, stream: ll.Stream) -> ll.Stream:
        match self.kind:
            case "map":
                return stream.map_batches(self.name, partial(touched, by=self.size))
            case "rebatch":
                return stream.rebatch(self.name, rows=self.size, within="1h")
            case "tumbling":
                return stream.window(self.name, ll.tumbling(f"{10 * self.size}m", on="at"), agg=SUMS)
            case "blocks":
                return stream.window(self.name, ll.events(self.size), agg=SUMS)


def touched(batch: pa.RecordBatch, by: int) -> pa.RecordBatch:
    """Its code changes with `by`, and what it makes too: a moment later, in the same order."""
    moved = pc.add(batch["at"], pa.scalar(by, pa.duration("us")))
    return batch.set_column(batch.schema.get_field_index("at"), "at", moved)


@dataclass(frozen=True)
class Shape:
    """source -> stages -> store, and end branches beside them."""

    stages: tuple[Stage, ...]
    store: str = "store"
    branches: tuple[str, ...] = ()
    more: bool = False
    """Whether the source has one more column."""

    def pipeline(self, key: str) -> ll.Pipeline:
        p = ll.Pipeline("drawn")
        source = stream = p.source("feed", Feed(key, more=self.more))
        for stage in self.stages:
            stream = stage.after(stream)
            if stage.kind == "tumbling":
                stream["late"].sink(f"{self.store}-late", Target(key))
        stream.sink(self.store, Target(key))
        for name in self.branches:
            source.sink(name, Target(key))
        return p

    @property
    def way(self) -> tuple[str, ...]:
        """By which operators a row comes to the store."""
        return (*(stage.name for stage in self.stages), self.store)


SIZES = st.sampled_from([3, 2, 5, 4, 1])
GATHERING: st.SearchStrategy[Kind] = st.sampled_from(["tumbling", "blocks"])
PASSING: st.SearchStrategy[Kind] = st.sampled_from(["map", "rebatch"])


WAYS: list[list[Kind]] = [
    ["blocks"],
    ["rebatch"],
    ["tumbling"],
    ["rebatch", "blocks"],
    ["map", "rebatch"],
    ["map", "tumbling"],
    ["rebatch", "map", "tumbling"],
]


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    kinds = draw(st.sampled_from(WAYS))
    stages = tuple(Stage(f"s{at}", kind, draw(SIZES)) for at, kind in enumerate(kinds))
    return Shape(stages, branches=draw(st.sampled_from([(), ("copy",)])))


CHANGES = ["nothing", "column", "branch", "store", "insert", "name", "remove", "kind"]


@st.composite
def changed(draw: st.DrawFn, shape: Shape, what: str) -> Shape:
    """The definition of the next run."""
    stages = list(shape.stages)
    at = draw(st.sampled_from([n for n, stage in enumerate(stages) if what != "size" or stage.kind != "map"]))
    match what:
        case "column":
            return replace(shape, more=True)
        case "branch":
            return replace(shape, branches=() if shape.branches else ("copy",))
        case "store":
            return replace(shape, store="shop")
        case "insert":
            stages.insert(at, Stage("new", draw(PASSING), draw(SIZES)))
        case "size":
            stages[at] = replace(stages[at], size=draw(st.sampled_from(sorted({*range(1, 6)} - {stages[at].size}))))
        case "name":
            stages[at] = replace(stages[at], name="other")
        case "remove":
            del stages[at]
        case "kind":
            last = stages[at].kind in ("tumbling", "blocks")
            stages[at] = replace(stages[at], kind=draw(GATHERING if last else PASSING))
    return replace(shape, stages=tuple(stages))


# ---- the property -------------------------------------------------------------------------------------------


@st.composite
def events(draw: st.DrawFn) -> list[pa.RecordBatch]:
    found, minute = [], 0
    ids = (1 << at for at in range(40))
    for rows in draw(st.lists(st.sampled_from([3, 1, 2, 4, 0]), min_size=4, max_size=8)):
        steps = draw(st.lists(st.integers(0, 25), min_size=rows, max_size=rows))
        minutes = list(itertools.accumulate(steps, initial=minute))[1:]
        minute = minutes[-1] if minutes else minute
        chosen = list(itertools.islice(ids, rows))
        found.append(
            pa.record_batch(
                [pa.array(chosen, pa.int64()), pa.array([m * 60_000_000 for m in minutes], SCHEMA.field("at").type)],
                schema=SCHEMA,
            )
        )
    return found


QUICK = settings(deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
"""To make a failing example smaller takes minutes, since each try is two runs."""


def check(data: st.DataObject, what: str) -> None:
    shape = data.draw(shapes())
    other = data.draw(changed(shape, what))
    batches = data.draw(events())
    half = data.draw(st.sampled_from([*range(2, len(batches)), 0]))
    until_read, drain = data.draw(st.sampled_from([(True, True), (True, True), (True, False), (False, False)]))
    key = next(_keys)
    log, outside = f"memory:changed-{key}", _outside.setdefault(key, Outside())
    outside.there = batches[:half]
    run = start(shape.pipeline(key), log)
    if until_read:
        until(lambda: run.status().operators["feed"].out == half)
    run.stop(drain=drain)
    outside.there, outside.closed = batches, True
    try:
        run = start(other.pipeline(key), log)
        event("accepted")
    except PipelineChanged:
        event("refused")
        other = shape
        run = start(shape.pipeline(key), log)
    assert run.wait(PATIENCE).phase == "finished"
    wanted = [n for batch in batches for n in batch["id"].to_pylist()]
    written = {scope.split("/")[1]: rows for scope, rows in outside.written.items()}
    for rows in written.values():
        assert len(set(rows)) == len(rows), "a row was written twice"
    if other.way == shape.way:
        assert sorted(written.get("store", []) + written.get("store-late", [])) == wanted
        if shape.branches and other.branches:
            assert written.get("copy", []) == wanted


@given(data=st.data())
@settings(QUICK, max_examples=60)
def test_another_size_is_refused_or_every_row_comes_out_once(data: st.DataObject) -> None:
    check(data, "size")


@pytest.mark.parametrize("what", CHANGES)
@given(data=st.data())
@settings(QUICK, max_examples=6)
def test_a_change_is_refused_or_every_row_comes_out_once(what: str, data: st.DataObject) -> None:
    check(data, what)
