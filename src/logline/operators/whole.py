"""Aggregates over all events: one input set, which is generated at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from logline.graph.operator import Context, Dependency, Emit, Event, Operator, SchemaLike
from logline.names import InsetId
from logline.operators.aggregates import Reduction, grouped

ALL = "all"
"""The id of the set."""


class WholeAggregate(Operator[Any, None]):
    """One output event: the group's columns and the aggregates."""

    reuses_memory = False

    def __init__(self, aggregates: Reduction[Any]) -> None:
        self.aggregates = aggregates

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        return {"out": self.aggregates.output(inputs["in"])}

    def dependencies(self, inputs: Mapping[str, pa.Schema]) -> Iterable[Dependency]:
        return grouped(self.aggregates)

    def assign(self, event: Event, ctx: Context[None]) -> Sequence[InsetId]:
        return [ALL]

    def update(self, inset: InsetId, acc: Any, event: Event) -> Any:
        return self.aggregates.add(acc, event.batch)

    def generate(self, inset: InsetId, acc: Any, ctx: Context[None]) -> Iterator[Emit]:
        made = self.aggregates.result(acc)
        if made.num_rows:  # empty events have no groups
            yield Emit(made)
