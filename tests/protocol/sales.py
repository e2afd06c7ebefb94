"""The pipeline of LOG.io's Figure 1: sales records, and the operators of its Examples 2-4."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from logline.graph.connector import Source
from logline.graph.operator import Context, Emit, Event, Operator, Write
from logline.names import InsetId
from logline.operators import WindowAggregate, events, tumbling
from logline.operators.window import TumblingAggregate

SALES = pa.schema(
    [
        ("store_ID", pa.int64()),
        ("item_ID", pa.string()),
        ("city", pa.string()),
        ("state", pa.string()),
        ("date", pa.timestamp("us", "UTC")),
        ("amount", pa.int64()),
    ]
)
H = datetime(2010, 10, 2, 5, tzinfo=UTC)
"""The hour H of Examples 7 and 8."""
HOUR = timedelta(hours=1)


def sales(*records: tuple[datetime, str, int]) -> pa.RecordBatch:
    """An event: a batch of (date, item_ID, amount), sold in the same store."""
    return pa.RecordBatch.from_pylist(
        [
            {"store_ID": 7, "item_ID": item, "city": "Nice", "state": "FR", "date": date, "amount": amount}
            for date, item, amount in records
        ],
        schema=SALES,
    )


# Examples 7 and 8: a_1 is within hour H, a_2 spans H and H + 1, a_3 is within H + 2.
A1 = sales((H, "BZ234", 10), (H + HOUR / 4, "CX100", 5))
A2 = sales((H + HOUR / 2, "BZ234", 7), (H + HOUR, "BZ234", 20), (H + 1.5 * HOUR, "CX100", 1))
A3 = sales((H + 2 * HOUR, "BZ234", 100))


class Batches(Source):
    """A replayable source with one connection, Cx; each batch is an event."""

    schema = SALES
    gather = False

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        self.batches = list(batches)

    def partitions(self) -> Sequence[str]:
        return ("Cx",)

    def read(self, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, int]]:
        for number, batch in enumerate(self.batches[offset or 0 :], start=(offset or 0) + 1):
            yield batch, number

    def describe(self, partition: str) -> str:
        return "text of action A"


class Database:
    """Table SALESORDER of an external system, which others change while it is read."""

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        self.batches = list(batches)
        self.queries = 0

    def run(self) -> Iterator[pa.RecordBatch]:
        """A query sees the table as it is when it begins."""
        self.queries += 1
        yield from list(self.batches)


class Query(Source):
    """`SELECT * FROM SALESORDER ORDER BY ORDERDATE`, or without the order: then it is not replayable."""

    schema = SALES
    gather = False

    def __init__(self, database: Database, *, replayable: bool) -> None:
        self.database = database
        self.replayable = replayable

    def partitions(self) -> Sequence[str]:
        return ("Cx",)

    def read(self, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, int]]:
        for number, batch in enumerate(self.database.run(), start=1):
            if number > (offset or 0):
                yield batch, number

    def describe(self, partition: str) -> str:
        return "text of action A"


class Take(Operator[Any, None]):
    """A stateless successor: passes events on."""

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, Any]:
        return {"out": inputs["in"]}

    def generate(self, inset: InsetId, acc: Any, ctx: Context[None]) -> Iterator[Emit]:
        yield Emit(acc)


class Store(Operator[Any, None]):
    """A sink."""

    def generate(self, inset: InsetId, acc: Any, ctx: Context[None]) -> Iterator[Write]:
        yield Write(acc, "out")


Update = tuple[InsetId, str]
"""A call of `update`: the input set and the event."""


class WindowedHours(TumblingAggregate):
    """OP3 of Example 4 with the ready-made window; notes which updates are made."""

    def __init__(self) -> None:
        made = WindowAggregate(tumbling("1h", on="date"), ("item_ID", "state"), {"total": ("amount", "sum")})
        assert isinstance(made, TumblingAggregate)
        super().__init__(made.window, made.aggregates)
        self.updates: list[Update] = []

    def update(self, inset: InsetId, acc: Any, event: Event) -> Any:
        self.updates.append((inset, event.name))
        return super().update(inset, acc, event)


class CustomHours(Operator[pa.Table, None]):
    """OP3 as the paper tells it: the first record of hour H + 1 completes the window of hour H."""

    outputs = {"out": "window_start timestamp, item_ID string, state string, total long"}  # noqa: RUF012

    def __init__(self) -> None:
        self.updates: list[Update] = []

    def assign(self, event: Event, ctx: Context[None]) -> list[InsetId]:
        hours = sorted(set(_hours(event.batch)))
        for complete in (hours[-1] - k * HOUR for k in range(1, 4)):
            ctx.fire(complete)  # where no such window is open, nothing happens
        return list(hours)

    def update(self, inset: InsetId, acc: pa.Table | None, event: Event) -> pa.Table:
        self.updates.append((inset, event.name))
        mask = pa.array([hour == inset for hour in _hours(event.batch)])
        new = pa.Table.from_batches([event.batch.filter(mask)])
        return new if acc is None else pa.concat_tables([acc, new])

    def generate(self, inset: InsetId, acc: pa.Table, ctx: Context[None]) -> Iterator[Emit]:
        made = acc.group_by(["item_ID", "state"]).aggregate([("amount", "sum")])
        hour = pa.repeat(pa.scalar(inset, pa.timestamp("us", "UTC")), made.num_rows)
        columns = [hour, made["item_ID"], made["state"], made["amount_sum"]]
        yield Emit(pa.table(columns, names=["window_start", "item_ID", "state", "total"]))


def _hours(batch: pa.RecordBatch) -> list[datetime]:
    return [date.replace(minute=0, second=0, microsecond=0) for date in batch["date"].to_pylist()]


HOURS: dict[str, Callable[[], Any]] = {"ready-made": WindowedHours, "custom": CustomHours}


def sums_of_100() -> Any:
    """OP2 of Examples 2 and 3: a sum over blocks of 100 events."""
    return WindowAggregate(events(100), ("item_ID", "state"), {"total": ("amount", "sum")})


@dataclass
class Count:
    """The global state of OP2: how many events it has received."""

    received: int = 0


class SumsAndRanges(Operator[pa.Table, Count]):
    """OP2 with two generative functions (Example 3): two input sets for each 100 events."""

    State = Count
    outputs = {  # noqa: RUF012
        "out": "item_ID string, state string, total long",
        "ranges": "item_ID string, minAmount long, maxAmount long",
    }

    def assign(self, event: Event, ctx: Context[Count]) -> list[InsetId]:
        block = ctx.state.received // 100 + 1
        ctx.state.received += 1
        sets: list[InsetId] = [("sums", block), ("ranges", block)]
        if ctx.state.received % 100 == 0:
            for inset in sets:
                ctx.fire(inset)
        return sets

    def update(self, inset: InsetId, acc: pa.Table | None, event: Event) -> pa.Table:
        new = pa.Table.from_batches([event.batch])
        return new if acc is None else pa.concat_tables([acc, new])

    def generate(self, inset: InsetId, acc: pa.Table, ctx: Context[Count]) -> Iterator[Emit]:
        assert isinstance(inset, tuple)
        if inset[0] == "sums":
            made = acc.group_by(["item_ID", "state"]).aggregate([("amount", "sum")])
            yield Emit(made.rename_columns(["item_ID", "state", "total"]))
        else:
            made = acc.group_by("item_ID").aggregate([("amount", "min"), ("amount", "max")])
            yield Emit(made.rename_columns(["item_ID", "minAmount", "maxAmount"]), "ranges")


def numbered(count: int) -> list[pa.RecordBatch]:
    """Events of one record each; the amount of the k-th is k."""
    return [sales((H, "BZ234", k)) for k in range(1, count + 1)]


def total(batches: Sequence[pa.RecordBatch]) -> int:
    """The sum of the amounts."""
    return int(pc.sum(pa.Table.from_batches(batches)["amount"]).as_py())
