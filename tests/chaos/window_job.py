"""A job with one window that stays open: python -m tests.chaos.window_job FOLDER. It ends when FOLDER/go is there."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import logline as ll
from logline.operators import WindowAggregate
from logline.operators.whole import WholeAggregate

EVENTS = 12_000
ROWS = pa.schema([("n", pa.int64()), ("x", pa.float64())])


class Numbers(ll.Source):
    """So many events of a row each; then nothing, until it may end."""

    schema = ROWS
    gather = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, int] | None]:
        for n in range(offset or 0, EVENTS):
            yield pa.record_batch([pa.array([n]), pa.array([n / 7])], schema=ROWS), n + 1
        while not (self.folder / "go").exists():
            yield None


class Counted(WholeAggregate):
    """Says how many events its life has taken in, those of the recovery among them."""

    folder = Path()
    taken = 0

    def update(self, inset: Any, acc: Any, event: ll.Event) -> Any:
        self.taken += 1
        return super().update(inset, acc, event)

    def generate(self, inset: Any, acc: Any, ctx: Any) -> Any:
        (row,) = self.aggregates.result(acc.parts).to_pylist()
        (self.folder / "result").write_text(json.dumps({**row, "taken": self.taken}))
        yield from super().generate(inset, acc, ctx)


def pipeline(folder: Path) -> ll.Pipeline:
    whole = WindowAggregate(ll.whole(), [], {"total": ("n", "sum"), "xs": ("x", "sum"), "many": ("n", "count")})
    assert isinstance(whole, WholeAggregate)
    op = Counted(whole.aggregates)
    op.folder = folder
    p = ll.Pipeline("window")
    often = ll.Eventual(replay="100 events", every="10ms", budget=0.5)
    p.source("numbers", Numbers(folder)).apply("all", op, policy="eventual", eventual=often)
    return p


if __name__ == "__main__":
    where = Path(sys.argv[1])
    pipeline(where).run(f"lmdb:{where / 'log'}", engine="inline", durability="process")
