"""The batches of a set, gathered one by one.

`update` is pure, so what was gathered before stays as it is. A tuple copied for each event would cost the square of
their number; here an event costs the same however many there are, since the new state leads back to the old one.

    >>> first = Gathered.after(None, pa.record_batch({"n": [1]}))
    >>> both = Gathered.after(first, pa.record_batch({"n": [2]}))
    >>> both.table().to_pylist(), first.table().to_pylist()
    ([{'n': 1}, {'n': 2}], [{'n': 1}])
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from logline.graph.operator import Batch


class Gathered(NamedTuple):
    """The last batch, and those before it."""

    before: Gathered | None
    batch: Batch
    many: int

    @classmethod
    def after(cls, before: Gathered | None, batch: Batch) -> Gathered:
        """The batches gathered before, and this one after them."""
        return cls(before, batch, 1 if before is None else before.many + 1)

    def table(self) -> pa.Table:
        """All of them, in the order in which they came; nothing is copied."""
        return pa.Table.from_batches(self.batches())

    def batches(self) -> list[Batch]:
        """All of them, in the order in which they came."""
        found: list[Batch] = []
        at: Gathered | None = self
        while at is not None:
            found.append(at.batch)
            at = at.before
        found.reverse()
        return found
