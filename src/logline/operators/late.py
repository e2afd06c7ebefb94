"""Records that no window takes any more, and those without a time: they leave on a port of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logline.graph.operator import Batch, Context, Emit

LATE = "late"
"""The port."""


class LateRecords:
    """Puts them out and counts them. What it remembers is no part of what the operator is: a copy, here or in a
    worker, begins without, and the digest of the operator's code does not see it."""

    __slots__ = ("_said",)

    def __init__(self) -> None:
        self._said = False

    def __reduce__(self) -> tuple[type[LateRecords], tuple[()]]:
        return LateRecords, ()

    def leave(self, batch: Batch, on: str, ctx: Context[Any]) -> Iterator[Emit]:
        """The output set of late records. A line in the log once per life: a stream may have many. The counter `late`
        of the status has them all."""
        timeless = batch[on].null_count
        if timeless:
            ctx.count("no_time", timeless)
        if rows := batch.num_rows - timeless:
            ctx.count("late", rows)
            if not self._said:
                self._said = True
                ctx.log.info("%d records are late: their windows are out. They are on port %r", rows, LATE)
        yield Emit(batch, LATE)
