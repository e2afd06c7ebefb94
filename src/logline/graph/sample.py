"""A part of a pipeline that can be looked at without a log: bounded sources, no writes.

`preview` runs it. Targets are replaced rather than removed, since an operator that writes to one names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from logline.graph.connector import Guarantee, Sink, Source, is_read_item, no_read_item
from logline.graph.model import Graph, Node
from logline.names import OperatorName

ITEMS, ROWS = 20, 10_000


def sample_of(graph: Graph, operator: OperatorName, *, items: int = ITEMS, rows: int = ROWS) -> Graph:
    """`operator` and what it receives from; each partition of a source ends after so many items or rows."""
    wanted = ancestors(graph, operator)
    return Graph(
        graph.name,
        {name: _harmless(node, items, rows) for name, node in graph.nodes.items() if name in wanted},
        tuple(c for c in graph.connections if c.receiver in wanted),
    )


def ancestors(graph: Graph, operator: OperatorName) -> set[OperatorName]:
    """The operator and everything upstream of it."""
    found, open_names = {operator}, [operator]
    while open_names:
        for c in graph.into(open_names.pop()):
            if c.sender not in found:
                found.add(c.sender)
                open_names.append(c.sender)
    return found


def _harmless(node: Node, items: int, rows: int) -> Node:
    source = None if node.source is None else Sample(node.source.sample(rows), items, rows)
    options = replace(node.options, policy="pessimistic")  # an ephemeral one has nothing to look at
    return replace(node, source=source, targets={target: Nowhere() for target in node.targets}, options=options)


class Sample(Source):
    """The beginning of another source: what is there now, up to a bound. Confirms nothing."""

    def __init__(self, source: Source, items: int, rows: int) -> None:
        self.source = source
        self.items = items
        self.rows = rows
        self.schema = source.schema
        self.replayable = source.replayable
        self.destructive = source.destructive
        self.gather = source.gather

    def partitions(self) -> Sequence[str]:
        return self.source.partitions()

    def read(self, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, Any] | None]:
        rows = 0
        for number, item in enumerate(self.source.read(partition, offset), start=1):
            if item is None:  # nothing now: waiting for more is not what a look is for
                return
            if not is_read_item(item):
                raise no_read_item(item, f"source {type(self.source).__name__}")
            batch, after = item
            batch = batch.slice(0, self.rows - rows)
            rows += batch.num_rows
            yield batch, after
            if number >= self.items or rows >= self.rows:
                return

    def describe(self, partition: str) -> str:
        return self.source.describe(partition)

    def close(self) -> None:
        self.source.close()


class Nowhere(Sink):
    """A target that takes everything and keeps nothing."""

    guarantee: Guarantee = "named"

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        """Writes nothing: a preview shows events and changes nothing outside."""
