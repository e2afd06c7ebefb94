"""A month of daily runs: the pipeline as it is on each day, and a script that runs some of the days.

    python -m tests.chaos.month HOME FIRST LAST ENGINE

`HOME/in` has a file a day, `HOME/disk` the log and the database, `HOME/paid.txt` a line for every call that was paid.
Whoever asks for a row that a file `HOME/hold-ID` names, waits until it is gone: then the test strikes.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import logline as ll

ROWS, LAST = 10, 30
FIXED, INSERTED, DOUBLED, RENAMED, TRIPLED = 10, 12, 16, 20, 24
"""The days on which the code changes."""
_LONG = pa.int64()
SCHEMA = pa.schema({"id": _LONG, "item": _LONG, "amount": _LONG, "at": pa.timestamp("us", "UTC")})
Row = dict[str, Any]


def rows_of(day: int) -> list[Row]:
    """What comes on a day. Now and then the amount of a row is missing; from the 12th on, one is negative."""
    begin = datetime(2026, 6, day, tzinfo=UTC)
    return [
        {
            "id": 100 * day + k,
            "item": k % 3,
            "amount": None if is_odd(day, k) else -1 if day >= INSERTED and k == 9 else k + 1,
            "at": begin + timedelta(hours=k),
        }
        for k in range(ROWS)
    ]


def is_odd(day: int, k: int) -> bool:
    """Whether a row has no amount, which the code of the first days does not expect."""
    return k == 7 and day < FIXED and day % 4 == 0


def factor(day: int) -> int:
    """What the code of a day makes of an amount."""
    return 3 if day >= TRIPLED else 2 if day >= DOUBLED else 1


def pipeline(home: Path, day: int) -> ll.Pipeline:
    """The pipeline as it is on that day."""
    p = ll.Pipeline("month")
    database = home / "disk" / "store.db"
    orders = p.source("orders", ll.sources.parquet(home / "in", schema=SCHEMA))
    if day >= INSERTED:
        orders = orders.filter("sane", pc.field("amount") >= 0)
    times = factor(day)

    def enrich(row: Row, ctx: Any) -> Row:
        amount = row["amount"]
        if amount is None:
            if day < FIXED:
                raise ValueError("a row without an amount")
            amount = 0
        ctx.call(pay, str(home), row["id"])
        return {"id": row["id"], "item": row["item"], "score": times * amount, "at": row["at"]}

    schema = "id long, item long, score long, at timestamp"
    scored = orders.map_rows("enrich", enrich, schema=schema, on_error="divert")
    scored.sink("rows", ll.sinks.sqlite(database, "rows"))
    was: Any
    name, was = ("per_day", {"was": "daily"}) if day >= RENAMED else ("daily", {})
    daily = scored.window(name, ll.tumbling("1d", on="at"), by=["item"], agg={"total": ("score", "sum")}, **was)
    daily.sink("totals", ll.sinks.sqlite(database, "totals", mode="upsert", key=["window_start", "item"]))
    daily["late"].sink("late", ll.sinks.sqlite(database, "late"))
    return p


def pay(home: str, id_: int) -> int:
    """Every call costs something: it is noted outside, once it is made."""
    with open(f"{home}/paid.txt", "a") as paid:
        paid.write(f"{id_} {os.getpid()}\n")
    while os.path.exists(f"{home}/hold-{id_}"):
        time.sleep(0.005)
    return id_


def play(home: Path, day: int, engine: Any) -> None:
    """One day: a file has come, and the pipeline runs. When the code is about to be mended, somebody asks for a retry
    of what has failed: the next run does it."""
    file = home / "in" / f"{day:02}.parquet"
    if not file.exists():
        pq.write_table(pa.Table.from_pylist(rows_of(day), SCHEMA), home / "came.parquet")
        os.replace(home / "came.parquet", file)
    settings: Any = {"engine": engine, "until": "now", "close": day == LAST}
    with pipeline(home, day).start(f"lmdb:{home / 'disk' / 'log'}", **settings) as run:
        run.wait()
    if day == FIXED - 1:
        for error in run.log.errors("enrich")["event"].to_pylist():
            run.retry(error)


if __name__ == "__main__":
    for today in range(int(sys.argv[2]), int(sys.argv[3]) + 1):
        play(Path(sys.argv[1]), today, sys.argv[4])
