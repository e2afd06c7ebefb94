"""The operator behind `Stream.sink`: each event is one write action on target `out` (R8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from logline.graph.operator import Batch, BatchOperator, Dependency, SchemaLike, Write
from logline.operators.tables import same_columns


class SinkOperator(BatchOperator):
    """Writes each event to its one target."""

    reuses_memory = False

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        return {}

    def dependencies(self, inputs: Mapping[str, pa.Schema]) -> Iterable[Dependency]:
        return same_columns(inputs["in"])

    def each(self, batch: Batch) -> Iterable[Write]:
        return (Write(batch, to="out"),)
