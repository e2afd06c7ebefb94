"""Two streams joined by event time: orders, and their payments within four minutes. An event is a batch of records.

An order matches a payment that comes up to four minutes after it. An order that is not paid comes out, too, once both
clocks say that no payment can come. Midway the process of `joined` is killed with kill -9: its half-filled buckets of
time are rebuilt from exactly the events that are in them. At the end the result is compared with a plain Arrow join.

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

import pyarrow as pa
import pyarrow.compute as pc

import logline as ll

PER_EVENT = 50
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = ["order_id", "at", "item", "at_right", "paid"]


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
    """Four of five orders are paid, two to five minutes later: some of them too late."""
    ids = [n for n in range(count) if n % 5]
    for first in range(0, len(ids), PER_EVENT):
        some = ids[first : first + PER_EVENT]
        at = [BEGIN + timedelta(seconds=10 * n + 120 + n % 4 * 60) for n in some]
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


def pipeline(count: int, killed: Path) -> ll.Pipeline:
    """orders, payments -> joined -> store. The last events come once there is a file `killed`."""
    p = ll.Pipeline("join")
    late = count // PER_EVENT // 2
    left = p.source("orders", ll.sources.batches(lambda: held(orders(count), late, killed)), rows=PER_EVENT)
    right = p.source("payments", ll.sources.batches(lambda: held(payments(count), late, killed)), rows=PER_EVENT)
    joined = left.join(
        "joined", right, on=["order_id"], within=("0s", "4m"), time="at", how="left", lateness="5m", every="30m"
    )
    joined.sink("store", ll.sinks.collect())
    return p


def plain_join(count: int) -> pa.Table:
    """The same, of whole tables and without any pipeline: an order has one payment at most."""
    left, right = (pa.Table.from_batches(batches) for batches in (orders(count), payments(count)))
    both = left.join(right.rename_columns(["order_id", "at_right", "paid"]), "order_id")
    in_time = pc.less_equal(both["at_right"], pc.add(both["at"], pa.scalar(timedelta(minutes=4))))
    for name in ("at_right", "paid"):
        column = pc.if_else(pc.fill_null(in_time, False), both[name], None)
        both = both.set_column(both.schema.get_field_index(name), name, column)
    return both.select(COLUMNS).sort_by("order_id")


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
    unpaid = found["paid"].null_count
    print(f"{found.num_rows - unpaid} of {given.orders} orders were paid in time, {unpaid} were not: ", end="")
    print("equal to a plain join" if same else "DIFFERENT FROM a plain join")
    return 0 if same and killed else 1


if __name__ == "__main__":
    sys.exit(main())
