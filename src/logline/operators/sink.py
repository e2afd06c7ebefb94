"""The operator behind `Stream.sink`: each event is one write action on target `out` (R8)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from logline.graph.operator import Batch, Context, Dependency, Operator, SchemaLike, Write
from logline.names import InsetId
from logline.operators.tables import same_columns


class SinkOperator(Operator[Batch, None]):
    """Writes each event to its one target."""

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        return {}

    def dependencies(self, inputs: Mapping[str, pa.Schema]) -> Iterable[Dependency]:
        return same_columns(inputs["in"])

    def generate(self, inset: InsetId, acc: Batch, ctx: Context[None]) -> Iterator[Write]:
        yield Write(acc, to="out")
