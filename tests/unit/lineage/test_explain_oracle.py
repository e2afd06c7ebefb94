"""What `explain` says, against an oracle: pipelines drawn of ready-made operators, whose every row has an id of its
own that all of them pass on. The oracle computes each row's way from the drawn conditions alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.lineage.pipelines import Each
from tests.unit.lineage.verdict_rows import verdicts

import logline as ll
from logline.runtime.control.error_resolution import Request, resolve_at_rest


class Row(NamedTuple):
    """Equal but for the id, which decides what becomes of it."""

    id: int

    def meets(self, stage: Stage) -> bool:
        return self.id % stage.modulus != stage.rest


class Stage(NamedTuple):
    """An operator that something becomes of rows with `id % modulus == rest`."""

    kind: str
    modulus: int
    rest: int


KINDS = ("filter", "map_batches", "map_rows", "diverting", "dropping", "drops_events", "rebatch")
stages = st.lists(
    st.builds(Stage, st.sampled_from(KINDS), st.integers(2, 5), st.integers(0, 4)), min_size=1, max_size=3
)
events = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def batches(sizes: list[int]) -> list[pa.RecordBatch]:
    found, first = [], 0
    for size in sizes:
        found.append(pa.record_batch({"id": pa.array(range(first, first + size), pa.int64())}))
        first += size
    return found


def add(stream: ll.Stream, name: str, stage: Stage) -> ll.Stream:
    def kept(batch: pa.RecordBatch) -> Any:
        return batch.filter(pa.array([Row(n).meets(stage) for n in batch["id"].to_pylist()], pa.bool_()))

    def one(row: dict[str, Any], ctx: Any) -> dict[str, Any] | None:
        if Row(row["id"]).meets(stage):
            return row
        if stage.kind == "map_rows":
            return None
        raise ValueError("refused")

    def all_or_none(batch: pa.RecordBatch) -> Any:
        if not all(Row(n).meets(stage) for n in batch["id"].to_pylist()):
            raise ValueError("refused")
        return batch

    match stage.kind:
        case "filter":
            return stream.filter(name, lambda b: [Row(n).meets(stage) for n in b["id"].to_pylist()])
        case "map_batches":
            return stream.map_batches(name, kept, schema="id long", depends={"id": "id"})
        case "map_rows":
            return stream.map_rows(name, one, schema="id long")
        case "diverting":
            return stream.map_rows(name, one, schema="id long", on_error="divert")
        case "dropping":
            return stream.map_rows(name, one, schema="id long", on_error="drop")
        case "drops_events":
            return stream.map_batches(name, all_or_none, schema="id long", on_error="drop", depends={"id": "id"})
    return stream.rebatch(name, rows=2, within="1h")


WORDS = {"filter": "filtered", "map_batches": "filtered", "map_rows": "filtered", "diverting": "diverted",
         "dropping": "dropped", "drops_events": "dropped"}  # fmt: skip


def expected(sizes: list[int], drawn: list[Stage]) -> list[tuple[int, str, str]]:
    """(id, what, operator) of every row, in order."""
    ends: dict[int, tuple[str, str]] = {}
    there = [[Row(n) for n in batch["id"].to_pylist()] for batch in batches(sizes)]
    for at, stage in enumerate(drawn):
        passed = []
        for event in there:
            whole = stage.kind != "drops_events" or all(row.meets(stage) for row in event)
            left = [row for row in event if stage.kind not in WORDS or (row.meets(stage) and whole)]
            ends |= {row.id: (WORDS[stage.kind], f"s{at}") for row in event if row not in left}
            passed.append(left)
        there = [event for event in passed if event]
        if stage.kind == "rebatch":
            rows = [row for event in there for row in event]
            there = [rows[first : first + 2] for first in range(0, len(rows), 2)]
    last = f"s{len(drawn) - 1}"
    return [(n, *ends.get(n, ("arrived", last))) for n in range(sum(sizes))]


@settings(max_examples=12)
@given(events, stages, st.booleans())
def test_every_row_as_the_oracle_says(sizes: list[int], drawn: list[Stage], settle: bool) -> None:
    p = ll.Pipeline("drawn")
    stream = rows = p.source("rows", Each(*batches(sizes)))
    for at, stage in enumerate(drawn):
        stream = add(stream, f"s{at}", stage)
    stream.sink("store", ll.sinks.collect())
    p.lineage(rows, stream)
    log = p.run(engine="inline").log
    want = expected(sizes, drawn)
    errors = log.errors()["event"].to_pylist()
    if settle and errors:
        for error in errors:
            resolve_at_rest(log.store, [Request("drop", error)])
        want = [(n, "dropped" if what == "diverted" else what, where) for n, what, where in want]
    found = log.explain(f"s{len(drawn) - 1}", "true")
    assert set(found["level"].to_pylist()) == {"row"}
    assert [(int(r[0].split(":")[1][:-1]), r[1], r[2]) for r in verdicts(found, "record", "what", "operator")] == want
