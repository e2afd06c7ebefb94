"""Small pipelines with lineage, for the tests of queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from logline.connectors import sinks
from logline.graph.connector import Source
from logline.graph.operator import Batch, Context, Emit, Event, Operator
from logline.names import InsetId
from logline.operators import tumbling
from logline.pipeline import Pipeline
from logline.runtime.control.run import Run

HOUR_10 = datetime(2025, 2, 23, 10, tzinfo=UTC)


class Each(Source):
    """Each batch is an event of its own."""

    gather = False

    def __init__(self, *batches: pa.RecordBatch) -> None:
        self.batches = batches
        self.schema = batches[0].schema

    def partitions(self) -> Sequence[str]:
        return ["all"]

    def read(self, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, int]]:
        for at, batch in enumerate(self.batches[offset or 0 :], (offset or 0) + 1):
            yield batch, at


Sale = tuple[str, str, int, int]
"""item, state, minutes after ten, amount."""


def sales(*rows: Sale) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "item_id": pa.array([r[0] for r in rows], pa.string()),
            "state": pa.array([r[1] for r in rows], pa.string()),
            "date": pa.array([HOUR_10 + timedelta(minutes=r[2]) for r in rows], pa.timestamp("us", "UTC")),
            "amount": pa.array([r[3] for r in rows], pa.int64()),
        }
    )


A1 = sales(("BZ234", "Ohio", 1, 5), ("CX100", "Ohio", 2, 7), ("BZ234", "Texas", 3, 1))
A2 = sales(("BZ234", "Ohio", 50, 1), ("BZ234", "Ohio", 65, 100))
A3 = sales(("CX100", "Ohio", 130, 1))


def hourly_sales(*batches: pa.RecordBatch, keep: Any = "7d", scope: bool = True) -> Pipeline:
    """orders -> sold -> hourly -> store."""
    p = Pipeline("sales")
    orders = p.source("orders", Each(*batches))
    sold = orders.filter("sold", pc.field("amount") > 0)
    hourly = sold.window(
        "hourly", tumbling("1h", on="date"), by=["item_id", "state"], agg={"total": ("amount", "sum")}
    )
    hourly.sink("store", sinks.collect())
    if scope:
        p.lineage(orders, hourly, keep=keep)
    return p


def run(p: Pipeline, url: str) -> Run:
    return p.run(url, engine="inline")


class Split(Operator[Batch, None]):
    """OP1 of Figure 2: one event to each of two ports."""

    outputs = {"out1": "n long", "out2": "n long"}  # noqa: RUF012

    def generate(self, inset: InsetId, acc: Batch, ctx: Context[None]) -> Iterator[Emit]:
        yield Emit(acc, "out1")
        yield Emit(acc, "out2")


class Pass(Operator[Batch, None]):
    """Two input ports, each event by itself: several generative functions (OP2 and OP3 of Figure 2)."""

    inputs = ("in1", "in2")
    outputs = {"out": "n long"}  # noqa: RUF012

    def generate(self, inset: InsetId, acc: Batch, ctx: Context[None]) -> Iterator[Emit]:
        yield Emit(acc)


class Pair(Operator[list[str], None]):
    """Two events of any port make one; it tells which ones it was given."""

    inputs = ("in1", "in2")
    outputs = {"out": "names string"}  # noqa: RUF012

    def assign(self, event: Event, ctx: Context[None]) -> list[InsetId]:
        return ["pair"]

    def update(self, inset: InsetId, acc: list[str] | None, event: Event) -> list[str]:
        return [*(acc or ()), event.name]

    def ready(self, inset: InsetId, acc: list[str], ctx: Context[None]) -> bool:
        return len(acc) == 2

    def generate(self, inset: InsetId, acc: list[str], ctx: Context[None]) -> Iterator[Emit]:
        yield Emit(pa.record_batch({"names": [",".join(acc)]}))


def numbers(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(values, pa.int64())})


def figure_2(start: str, target: str) -> Pipeline:
    """Example 5's pipeline."""
    p = Pipeline("figure-2")
    r1 = p.source("R1", Each(numbers(1), numbers(2)))
    r2 = p.source("R2", Each(numbers(10), numbers(20)))
    op1 = r2.apply("OP1", Split())
    op2 = p.operator("OP2", Pass(), {"in1": r1, "in2": op1})
    op3 = p.operator("OP3", Pass(), {"in1": op2, "in2": op1["out2"]})
    op3.sink("W", sinks.collect())
    p.lineage(start, target)
    return p
