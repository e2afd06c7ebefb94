"""A plain function per row that makes any number of rows. The loop over rows is the author's wish: the function takes
one. For slow or paid calls take `map_rows`, which logs each answer, and `explode` after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import pyarrow as pa

from logline.errors import OptionError, SchemaError, a_kind, told
from logline.graph.functions import check_takes, is_async_function
from logline.graph.model import OnError
from logline.graph.operator import Batch, Context, Emit, Operator, Reject, SchemaLike
from logline.names import InsetId
from logline.operators.row_answers import Row, plain_answer, plain_rows

FlatFn = Callable[[Row], Iterable[Row] | None]


class FlatMapRows(Operator[Batch, None]):
    """Applies a function to each row; all that comes of an event leaves as one event, in order."""

    reuses_memory = False

    def __init__(self, fn: FlatFn, schema: pa.Schema, on_error: OnError = "stop") -> None:
        check_takes(fn, "flat_map_rows", "row")
        if is_async_function(fn):
            raise OptionError("flat_map_rows takes a plain function: for async calls take map_rows, and explode")
        self.fn = fn
        self.schema = schema
        self.on_error = on_error

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        return {"out": self.schema}

    def generate(self, inset: InsetId, acc: Batch, ctx: Context[None]) -> Iterator[Emit | Reject]:
        made: list[Row] = []
        failed: list[tuple[int, Exception]] = []
        for index, row in enumerate(plain_rows(acc)):
            try:
                made += self._rows(row)
            except Exception as error:
                if self.on_error == "stop":
                    error.add_note(f"in row {index} of its event: {row!r:.500}")
                    raise
                failed.append((index, error))
        if made:
            yield Emit(pa.RecordBatch.from_pylist(made, schema=self.schema))
        if failed and self.on_error == "drop":
            ctx.count("dropped", len(failed))
        elif failed:
            for index, why in failed:
                reason = f"{type(why).__name__}: {why}"
                yield Reject(acc.slice(index, 1), reason, told(why), rows=(index,))

    def _rows(self, row: Row) -> list[Row]:
        found = self.fn(row)
        if isinstance(found, Mapping | str) or not isinstance(found, Iterable | None):
            raise SchemaError(f"the function gave {a_kind(found)}; it must return several rows, as a list of dicts")
        rows = [plain_answer(one, self.schema) for one in found or ()]
        return [one for one in rows if one is not None]
