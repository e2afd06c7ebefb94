"""Two inputs joined, hour by hour, by an operator of one's own. An event is a batch of records.

Orders and payments come on two ports. An hour is joined once both clocks have passed its end. Midway the process of
`joined` is killed with kill -9: its half-filled hours are rebuilt from exactly the events that are in them. At the
end the result is compared with a plain Arrow join of the same data.

    python examples/join.py [--orders 20000] [--engine processes|spark]
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import logline as ll

PER_EVENT = 50
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
COLUMNS = ["hour", "order_id", "item", "paid"]


def orders(count: int) -> Iterator[pa.RecordBatch]:
    """An order every ten seconds."""
    for first in range(0, count, PER_EVENT):
        ids = range(first, min(first + PER_EVENT, count))
        yield pa.record_batch(
            {
                "order_id": pa.array(ids, pa.int64()),
                "at": pa.array([BEGIN + timedelta(seconds=10 * n) for n in ids], pa.timestamp("us", "UTC")),
                "item": [f"item{n % 7}" for n in ids],
            }
        )


def payments(count: int) -> Iterator[pa.RecordBatch]:
    """Four of five orders are paid, three minutes later: some of them in the next hour."""
    ids = [n for n in range(count) if n % 5]
    for first in range(0, len(ids), PER_EVENT):
        some = ids[first : first + PER_EVENT]
        at = [BEGIN + timedelta(seconds=10 * n + 180) for n in some]
        yield pa.record_batch(
            {
                "order_id": pa.array(some, pa.int64()),
                "at": pa.array(at, pa.timestamp("us", "UTC")),
                "paid": pa.array([n * 13 % 100 for n in some], pa.int64()),
            }
        )


def held(batches: Iterator[pa.RecordBatch], late: int, mark: Path) -> Iterator[pa.RecordBatch]:
    """Batches from number `late` on come once there is a file: so there is a midway, however fast the machine is."""
    for n, batch in enumerate(batches):
        while n == late and not mark.exists():
            time.sleep(0.01)
        yield batch


class HourlyJoin(ll.Operator[dict[str, list[pa.RecordBatch]], None]):
    """Orders with the payments of the same hour. An input set is an hour; its id is the hour's beginning."""

    inputs = ("orders", "payments")
    outputs = {"out": "hour timestamp, order_id long, item string, paid long"}  # noqa: RUF012
    time = {"orders": "at", "payments": "at"}  # noqa: RUF012  (gives it an event clock: the slower of the two)

    def assign(self, event: ll.Event, ctx: ll.Context) -> list[datetime]:
        hours = pc.unique(pc.floor_temporal(event.batch["at"], unit="hour")).to_pylist()
        for hour in hours:
            ctx.fire(hour, at=hour + HOUR)
        return hours

    def update(self, inset: Any, acc: dict[str, list[pa.RecordBatch]] | None, event: ll.Event) -> Any:
        acc = acc or {"orders": [], "payments": []}
        in_hour = pc.equal(
            pc.floor_temporal(event.batch["at"], unit="hour"), pa.scalar(inset, event.batch["at"].type)
        )
        return {**acc, event.port: [*acc[event.port], event.batch.filter(in_hour)]}

    def generate(self, inset: Any, acc: dict[str, list[pa.RecordBatch]], ctx: ll.Context) -> Iterator[pa.Table]:
        if acc["orders"] and acc["payments"]:
            left, right = (pa.Table.from_batches(acc[port]).drop_columns(["at"]) for port in self.inputs)
            found = left.join(right, "order_id", join_type="inner")
            hour = pa.array([inset] * found.num_rows, pa.timestamp("us", "UTC"))
            yield found.append_column("hour", hour).select(COLUMNS).sort_by("order_id")


def pipeline(count: int, killed: Path) -> ll.Pipeline:
    """orders, payments -> joined -> store. The last events come once there is a file `killed`."""
    p = ll.Pipeline("join")
    late = count // PER_EVENT // 2
    left = p.source("orders", ll.sources.batches(lambda: held(orders(count), late, killed)), rows=PER_EVENT)
    right = p.source("payments", ll.sources.batches(lambda: held(payments(count), late, killed)), rows=PER_EVENT)
    joined = p.operator("joined", HourlyJoin(), {"orders": left, "payments": right})
    joined.sink("store", ll.sinks.collect())
    return p


def plain_join(count: int) -> pa.Table:
    """The same, of whole tables and without any pipeline."""
    tables = []
    for batches in (orders(count), payments(count)):
        table = pa.Table.from_batches(batches)
        tables.append(table.append_column("hour", pc.floor_temporal(table["at"], unit="hour")).drop_columns(["at"]))
    return tables[0].join(tables[1], ["hour", "order_id"], join_type="inner").select(COLUMNS).sort_by("order_id")


def kill_joined(run: ll.Run, after: int, mark: Path) -> bool:
    """kill -9 of the process of `joined`, once it has taken in so many events, and a file that says so."""
    while run.status().phase == "running":
        if run.status().operators["joined"].taken >= after and (pid := run.pid("joined")) is not None:
            os.kill(pid, signal.SIGKILL)
            print(f"killed the process of 'joined' ({pid}) after {after} or more of its events", flush=True)
            mark.touch()
            return True
        time.sleep(0.005)
    return False


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--orders", type=int, default=20_000)
    options.add_argument("--engine", choices=["processes", "spark"], default="processes")
    given = options.parse_args()
    logging.basicConfig(level=logging.ERROR, format="%(message)s")
    with tempfile.TemporaryDirectory(prefix="logline-join-") as folder:
        mark = Path(folder) / "killed"
        with pipeline(given.orders, mark).start(f"lmdb:{folder}/log", engine=given.engine) as run:
            killed = kill_joined(run, given.orders // PER_EVENT // 2, mark)
            run.wait()
        found = run.result("store").sort_by("order_id")
    wanted = plain_join(given.orders)
    same = found.cast(wanted.schema).equals(wanted)
    print(f"{found.num_rows} of {given.orders} orders were paid within their hour: ", end="")
    print("equal to a plain join" if same else "DIFFERENT FROM a plain join")
    return 0 if same and killed else 1


if __name__ == "__main__":
    sys.exit(main())
