"""How long the neighbours of one event take to find, on embedded logs of 1,000 to 1,000,000 events.

The log of orders -> sold -> hourly (a hundred events make one) is written by commits as the engine makes them. Events
are asked for at random, each with a view of its own, as a query has it.
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable

import pyarrow as pa

import logline as ll
from benchmarks.measure import write
from logline.engine.events import Output, Position
from logline.engine.history import Finished, Lone, Segment
from logline.engine.sets import Member
from logline.engine.step import Step
from logline.graph.record import record_of
from logline.names import OUT, ChannelName, InstanceName, Serial, Ssn
from logline.store.address import open_store
from logline.store.seam import Meta, Store

SIZES = [10**k for k in range(3, int(os.environ.get("LINEAGE_QUERY_POWER", "6")) + 1)]
ASKED = 200
CHUNK = 500
SET = 100
_BATCH = pa.record_batch({"n": pa.array([1], pa.int64())})


def pipeline() -> ll.Pipeline:
    """What the log says it is of."""
    p = ll.Pipeline("sales")
    orders = p.source("orders", ll.sources.batches([_BATCH]))
    hourly = orders.map_batches("sold", lambda batch: batch).window("hourly", ll.events(SET), agg={"n": ("n", "sum")})
    hourly.sink("store", ll.sinks.collect())
    p.lineage(orders, hourly)
    return p


def fill(store: Store, count: int) -> None:
    """So many events of orders and of sold, a hundredth of it of hourly."""
    store.set_meta(Meta("sales", record_of(pipeline().graph())))
    writers = {name: store.claim(InstanceName(name)) for name in ("orders", "sold", "hourly")}
    into, on = ChannelName("orders.out>sold.in"), ChannelName("sold.out>hourly.in")
    for number, first in enumerate(range(1, count + 1, CHUNK), 1):
        ssns = range(first, first + CHUNK)
        last = ssns[-1]
        segment = Segment(1, 0, 0, {OUT: (Ssn(last), last)}, {into: Ssn(1)})
        made = [Output(OUT, Ssn(s), _BATCH, 1, 1, s, Serial(s)) for s in ssns]
        writers["orders"].commit(Step(number=number, outputs=[o._replace(serial=Serial(0)) for o in made]))
        taken = Position(Ssn(last), last)
        writers["sold"].commit(
            Step(
                number=number,
                outputs=made,
                positions={into: taken},
                lone=[Lone(Serial(first), into, Ssn(first), CHUNK)],
                serial=Serial(last),
                segment=segment,
            )
        )
        sets = range((first - 1) // SET + 1, last // SET + 1)
        finished = [Finished(Serial(k), k, _members(on, k)) for k in sets]
        writers["hourly"].commit(
            Step(
                number=number,
                outputs=[Output(OUT, Ssn(k), _BATCH, 1, 1, k, Serial(k)) for k in sets],
                positions={on: taken},
                finished=finished,
                kept=[Serial(k) for k in sets],
                serial=Serial(sets[-1]),
                segment=segment._replace(lows={on: Ssn(1)}),
            )
        )
    for writer in writers.values():
        writer.close()


def _members(channel: ChannelName, number: int) -> tuple[Member, ...]:
    return tuple(Member(channel, Ssn((number - 1) * SET + at)) for at in range(1, SET + 1))


def milliseconds(ask: Callable[[int], object], among: int) -> dict[str, float]:
    """Median and 99th percentile over random events."""
    chance, found = random.Random(7), []
    for _ in range(ASKED):
        ssn = chance.randint(1, among)
        began = time.perf_counter()
        ask(ssn)
        found.append(1000 * (time.perf_counter() - began))
    found.sort()
    return {"p50": statistics.median(found), "p99": found[int(0.99 * ASKED)]}


def main() -> None:
    """Prints a table and keeps the figures."""
    result = {}
    heads = ("backward, 1 step", "forward, 2 steps", "backward, 201 events")
    print(f"{'events':>9}  " + "  ".join(f"{head:>22}" for head in heads) + "   (ms: p50 / p99)")
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            store = open_store(f"lmdb:{folder}/log", durability="process")
            fill(store, size)
            log = ll.open_log(f"lmdb:{folder}/log")
            found = {
                "backward, 1 step": milliseconds(lambda s, log=log: log.backward(f"sold:{s}"), size),
                "forward, 2 steps": milliseconds(lambda s, log=log: log.forward(f"orders:{s}"), size),
                "backward, 201 events": milliseconds(lambda s, log=log: log.backward(f"hourly:{s}"), size // SET),
            }
            result[str(size)] = found
            store.close()
        cells = [f"{one['p50']:.2f} / {one['p99']:.2f}" for one in found.values()]
        print(f"{size:>9,}  " + "  ".join(f"{cell:>22}" for cell in cells), flush=True)
    print(write("lineage_query", {"asked": ASKED, "results": result}))
