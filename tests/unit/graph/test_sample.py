from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from tests.unit.graph.graphs import ID, Keep, Numbers, graph, middle, sink, source

from logline.graph.connector import Source
from logline.graph.sample import Nowhere, Sample, sample_of
from logline.graph.validate import validate
from logline.names import OperatorName, TargetName


def test_only_what_leads_to_the_operator_is_run_and_nothing_is_written() -> None:
    nodes = [
        source("a"),
        source("unused"),
        middle("b", targets={"audit": Keep()}),
        middle("c"),
        middle("side"),
        sink("s"),
    ]
    found = sample_of(graph(nodes, "a>b b>c b>side c>s"), OperatorName("c"))
    assert list(found.nodes) == ["a", "b", "c"]
    assert [str(c) for c in found.connections] == ["a.out>b.in", "b.out>c.in"]
    target = found.nodes[OperatorName("b")].targets[TargetName("audit")]
    assert isinstance(target, Nowhere)
    target.write(pa.record_batch({"id": [1]}), 1, "b:1")
    validate(found)


def rows(source: Source) -> list[int]:
    return [0 if item is None else item[0].num_rows for item in source.read("0", None)]


def test_a_sample_is_bounded_by_items_and_by_rows() -> None:
    assert rows(Sample(Numbers(5), items=20, rows=1000)) == [4, 4, 4, 4, 4]
    assert rows(Sample(Numbers(1_000_000), items=2, rows=1000)) == [4, 4]
    assert rows(Sample(Numbers(1_000_000), items=20, rows=6)) == [4, 2]


class Waiting(Source):
    schema = ID
    replayable = False
    gather = False

    def partitions(self) -> list[str]:
        return ["x", "y"]

    def read(self, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, int] | None]:
        yield pa.record_batch({"id": [1]}), 1
        while True:
            yield None

    def describe(self, partition: str) -> str:
        return f"queue {partition}"


def test_a_sample_does_not_wait_for_more() -> None:
    sample = Sample(Waiting(), items=20, rows=1000)
    assert rows(sample) == [1]
    assert (sample.schema, sample.replayable, sample.destructive, sample.gather) == (ID, False, False, False)
    assert (sample.partitions(), sample.describe("x")) == (["x", "y"], "queue x")


class Queue(Waiting):
    destructive = True

    def confirm(self, partition: str, ids: Any) -> None:
        raise AssertionError("a look takes nothing off the queue")


def test_a_sample_confirms_nothing() -> None:
    sample = Sample(Queue(), items=20, rows=1000)
    assert sample.destructive
    sample.confirm("x", [1])
