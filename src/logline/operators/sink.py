"""The operator behind `Stream.sink`: each event is one write action on target `out` (R8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from logline.graph.operator import Batch, Context, Operator, SchemaLike, Write
from logline.names import InsetId


class SinkOperator(Operator[Batch, None]):
    """Writes each event to its one target."""

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        return {}

    def generate(self, inset: InsetId, acc: Batch, ctx: Context[None]) -> Iterator[Write]:
        yield Write(acc, to="out")
