"""Runs the queries of Nexmark, compares each result with SQL over the same data, and says how fast it was.

    python -m examples.nexmark [--records 100000] [--rows 5000] [--engine inline|processes|spark] [q0 q5 ...]

An event is a batch of up to `--rows` records. Records a second count all that the sources of the query give, by the
wall clock; records a CPU second by the processor time of this process and of the children that it has waited for, so
not that of a JVM. Both are medians of `--repeats` runs, the start of processes included. The log is a temporary one:
in memory for the engine `inline`, LMDB for the others.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from statistics import median
from typing import Literal

from examples.nexmark.generator import Data, generate
from examples.nexmark.suite import QUERIES, agrees, pipeline
from rich.console import Console
from rich.table import Table

Engine = Literal["inline", "processes", "spark"]


def cpu() -> float:
    """Seconds of processor time so far."""
    children = os.times()
    return time.process_time() + children.children_user + children.children_system


def measure(name: str, data: Data, rows: int, engine: Engine) -> tuple[float, float, int, bool]:
    """Runs a query: seconds by the wall clock and of processor time, rows of the result, and whether it is right."""
    with tempfile.TemporaryDirectory(prefix="logline-nexmark-") as folder:
        log = None if engine == "inline" else f"lmdb:{folder}/log"
        job = pipeline(name, data, rows=rows)
        spent, began = cpu(), time.monotonic()
        run = job.run(log, engine=engine)
        seconds, spent = time.monotonic() - began, cpu() - spent
        found = run.result("store")
        return seconds, spent, found.num_rows, agrees(name, found, data)


def line(name: str, data: Data, rows: int, engine: Engine, repeats: int) -> tuple[list[str], bool]:
    """The line of a query, and whether all its results are right."""
    pipeline(name, generate(200)).run(engine="inline")  # what is imported and planned once is not measured
    seconds, spent, results, right = zip(*(measure(name, data, rows, engine) for _ in range(repeats)), strict=True)
    records = sum(data[kind].num_rows for kind in QUERIES[name].inputs)
    numbers = (records, results[0], records / median(seconds), records / median(spent))
    return [name, *(f"{number:,.0f}" for number in numbers), "equal" if all(right) else "DIFFERENT"], all(right)


def main() -> int:
    """The command line."""
    options = argparse.ArgumentParser(prog="python -m examples.nexmark", description=__doc__.splitlines()[0])
    options.add_argument("queries", nargs="*", metavar="QUERY", help=f"of {', '.join(QUERIES)}; all by default")
    options.add_argument("--records", type=int, default=100_000)
    options.add_argument("--rows", type=int, default=5_000, help="records of an event")
    options.add_argument("--rate", type=int, default=1_000, help="records in a second of event time")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--repeats", type=int, default=3, help="runs of each query; the median counts")
    options.add_argument("--engine", choices=["inline", "processes", "spark"], default="inline")
    given = options.parse_args()
    unknown = [name for name in given.queries if name not in QUERIES]
    if unknown:
        options.error(f"there is no query {', '.join(unknown)}; there are {', '.join(QUERIES)}")
    logging.basicConfig(level=logging.ERROR, format="%(message)s")
    data = generate(given.records, seed=given.seed, rate=given.rate)
    shown = Table("query", title=f"Nexmark, engine {given.engine}")
    for title in ("records", "result rows", "records/s", "records/CPU s"):
        shown.add_column(title, justify="right")
    shown.add_column("against SQL")
    wrong = 0
    for name in given.queries or QUERIES:
        cells, right = line(name, data, given.rows, given.engine, given.repeats)
        shown.add_row(*cells)
        wrong += not right
    Console().print(shown)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
