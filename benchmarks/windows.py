"""Windows, an interval join and keyed state, beside the same in Spark Structured Streaming, in one run.

- `inline`, `processes`: Logline on the embedded log with `process`, in one process and in one for each operator
- `spark`: a query over the same Parquet files with the trigger `availableNow`, in `WINDOWS_BATCHES` micro-batches,
  with two partitions and the sink `noop`. The session is running and has run the same query before.

Both read the files, and a run is measured whole: starting the processes of Logline, or the query of Spark, counts.
`start` is the first query over next to no records, and says how much that is. A record costs the processor time of
this process and all below it, so of the JVM and of Python's workers too. Variants are interleaved and repeated.
Before that both put out their rows once, and these must be the same.

The records of a key come in bursts of five seconds, about fifty in each; a burst is a session. The last record is far
in the future, so that Spark's watermark closes all windows before it.

    WINDOWS_RECORDS=5000 WINDOWS_REPEATS=1 make bench ARGS=windows
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import logline as ll
from benchmarks.measure import write

RECORDS = int(os.environ.get("WINDOWS_RECORDS", "150000"))
REPEATS = int(os.environ.get("WINDOWS_REPEATS", "3"))
BATCHES = int(os.environ.get("WINDOWS_BATCHES", "2"))
"""Micro-batches of a query of Spark, each of one file."""
ROWS = 5000
"""Records of an event of Logline, and of a burst."""
FEW = 100
"""Records of the run that shows what starting takes."""
RATE, ACTIVE, GROUPS = 1000, 100, 10
LATENESS, SIZE, STEP, GAP, NEAR = "1 seconds", "10 seconds", "2 seconds", "4 seconds", "2 seconds"
END = -1
"""The key of the last record."""
SCHEMA = pa.schema({"key": pa.int64(), "at": pa.timestamp("us", "UTC"), "value": pa.int64()})
TOTALS: dict[str, Any] = {"n": ("value", "count"), "total": ("value", "sum")}


def generate(folder: Path, records: int) -> Path:
    """Makes the files of `records`, and of `left` and `right`, which have half as many each."""
    rnd = Random(14)
    begin = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp() * 1e6)
    pace = 1_000_000 // RATE
    rows = [
        (ACTIVE * (n // ROWS % GROUPS) + rnd.randrange(ACTIVE), begin + n * pace, rnd.randrange(1000))
        for n in range(records)
    ]
    left = [(n, begin + n * pace, rnd.randrange(1000)) for n in range(records // 2)]
    right = sorted(((n, at + rnd.randrange(4_000_000), value) for n, at, value in left), key=lambda row: row[1])
    last = (END, begin + (records + 3600 * RATE) * pace, 0)
    for name, given in {"records": rows, "left": left, "right": right}.items():
        given.append(last)
        size = -(-len(given) // BATCHES)
        (folder / name).mkdir(parents=True)
        for number, first in enumerate(range(0, len(given), size)):
            columns = zip(*given[first : first + size], strict=True)
            arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
            pq.write_table(pa.table(arrays, schema=SCHEMA), folder / name / f"{number:03}.parquet")
    return folder


@dataclass
class Total:
    """What a key has come to."""

    n: int = 0
    total: int = 0


def totals(batch: pa.RecordBatch, ctx: ll.KeyContext[Total]) -> pa.Table:
    """Adds the records of a key up and puts out what the key has come to."""
    ctx.state.n += batch.num_rows
    ctx.state.total += sum(batch["value"].to_pylist())
    return pa.table({"key": [ctx.key[0]], "n": [ctx.state.n], "total": [ctx.state.total]})


def totals_on_spark(key: Any, frames: Any, state: Any) -> Any:
    """The same for Spark."""
    import pandas as pd

    n, total = state.get if state.exists else (0, 0)
    for frame in frames:
        n, total = n + len(frame), total + int(frame["value"].sum())
    state.update((n, total))
    yield pd.DataFrame({"key": [key[0]], "n": [n], "total": [total]})


Read = Callable[[str], Any]
"""Gives the stream of a folder of files, of Logline or of Spark."""


@dataclass(frozen=True)
class Shape:
    """A query, for both."""

    ours: Callable[[Read], ll.Stream]
    theirs: Callable[[Read], DataFrame]
    columns: tuple[str, ...]
    """What is compared of the rows that come out."""
    mode: str = "append"
    newest: bool = False
    """The rows of a key take each other's place: the one with the greatest `n` counts."""


def windowed(window: Any) -> Callable[[Read], ll.Stream]:
    """Aggregates of Logline over a window."""
    return lambda read: read("records").window("window", window, by=["key"], agg=TOTALS)


def windowed_on_spark(window: Callable[[], Any]) -> Callable[[Read], DataFrame]:
    """The same of Spark, which makes a column only when there is a session."""

    def query(read: Read) -> DataFrame:
        grouped = read("records").groupBy(window().alias("w"), "key")
        found = grouped.agg(F.count("value").alias("n"), F.sum("value").alias("total"))
        return found.selectExpr("w.start as window_start", "w.end as window_end", "key", "n", "total")

    return query


def joined(read: Read) -> ll.Stream:
    """The rows of `right` up to two seconds after those of `left` with their key: about every other one."""
    return read("left").join("join", read("right"), on=["key"], within=("0s", short(NEAR)), time="at")


def joined_on_spark(read: Read) -> DataFrame:
    """The same of Spark."""
    left, right = read("left").alias("l"), read("right").alias("r")
    on = f"l.key = r.key and r.at >= l.at and r.at <= l.at + interval {NEAR}"

    return left.join(right, F.expr(on)).selectExpr("l.key", "l.at", "l.value", "r.value as value_right")


def stateful(read: Read) -> ll.Stream:
    """The totals of each key so far."""
    schema = "key long, n long, total long"
    return read("records").stateful("stateful", totals, by=["key"], state=Total, schema=schema)


def stateful_on_spark(read: Read) -> DataFrame:
    """The same of Spark."""
    made, kept = "key long, n long, total long", "n long, total long"
    grouped = read("records").groupBy("key")
    return grouped.applyInPandasWithState(totals_on_spark, made, kept, "update", "NoTimeout")


def short(span: str) -> str:
    """A span of Spark as Logline writes it."""
    return span.replace(" seconds", "s")


WINDOW = ("window_start", "window_end", "key", "n", "total")
SHAPES = {
    "tumbling": Shape(
        windowed(ll.tumbling(short(SIZE), on="at")),
        windowed_on_spark(lambda: F.window("at", SIZE)),
        WINDOW,
    ),
    "sliding": Shape(
        windowed(ll.sliding(short(SIZE), short(STEP), on="at")),
        windowed_on_spark(lambda: F.window("at", SIZE, STEP)),
        WINDOW,
    ),
    "session": Shape(
        windowed(ll.session_window(short(GAP), on="at")),
        windowed_on_spark(lambda: F.session_window("at", GAP)),
        WINDOW,
    ),
    "join": Shape(joined, joined_on_spark, ("key", "at", "value", "value_right")),
    "stateful": Shape(stateful, stateful_on_spark, ("key", "n", "total"), mode="update", newest=True),
}


class Dropped(ll.Sink):
    """Writes nothing, as the sink `noop` of Spark does."""

    guarantee = "named"

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        pass


def on_logline(shape: Shape, folder: Path, engine: Any, sink: ll.Sink) -> ll.Run:
    """One run on a fresh log."""
    p = ll.Pipeline("windows")

    def read(name: str) -> ll.Stream:
        return p.source(name, ll.sources.parquet(folder / name), rows=ROWS, time="at", lateness=short(LATENESS))

    shape.ours(read).sink("store", sink)
    with tempfile.TemporaryDirectory(dir=folder) as log:
        return p.run(f"lmdb:{log}/log", engine=engine, durability="process")


def on_spark(shape: Shape, folder: Path, spark: SparkSession, sink: str) -> None:
    """One query with a fresh checkpoint."""

    def read(name: str) -> DataFrame:
        files = spark.readStream.schema("key long, at timestamp, value long").option("maxFilesPerTrigger", 1)
        return files.parquet(str(folder / name)).withWatermark("at", LATENESS)

    with tempfile.TemporaryDirectory(dir=folder) as state:
        writer = shape.theirs(read).writeStream.format(sink).queryName("found").outputMode(shape.mode)
        query = writer.option("checkpointLocation", state).trigger(availableNow=True).start()
        query.awaitTermination()


def rows_of(shape: Shape, table: pa.Table) -> list[tuple[Any, ...]]:
    """What a query came to, without the last record."""
    rows = sorted(zip(*(table[column].to_pylist() for column in shape.columns), strict=True))
    if shape.newest:
        rows = list({row[0]: row for row in rows}.values())
    return [row for row in rows if row[shape.columns.index("key")] != END]


def compare(name: str, folder: Path, spark: SparkSession) -> int:
    """Runs both with their rows kept, which is the warm-up too. Returns how many rows came out."""
    shape, kept = SHAPES[name], ll.sinks.collect()
    on_logline(shape, folder, "inline", kept)
    on_spark(shape, folder, spark, "memory")
    ours, theirs = rows_of(shape, kept.table()), rows_of(shape, spark.table("found").toArrow())
    if ours != theirs:
        raise SystemExit(f"{name}: {len(ours)} rows of Logline and {len(theirs)} of Spark are not the same")
    return len(ours)


def spent() -> float:
    """Processor seconds of this process and all below it, those included that have ended."""
    times: dict[int, tuple[int, int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            fields = path.read_text().rpartition(")")[2].split()
            times[int(path.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    ours = {os.getpid()}
    while more := {pid for pid, (parent, _) in times.items() if parent in ours} - ours:
        ours |= more
    return sum(times[pid][1] for pid in ours) / os.sysconf("SC_CLK_TCK")


def measure(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock and of processor time."""
    before, began = spent(), time.monotonic()
    run()
    return time.monotonic() - began, spent() - before


def spread(values: list[float]) -> dict[str, float]:
    """The median, the least and the greatest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def new_session() -> SparkSession:
    """As many partitions as tasks; the rest is what Spark has by default."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
    }
    builder = SparkSession.builder.master("local[2]").appName("windows")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def side_by_side(name: str, folder: Path, spark: SparkSession) -> dict[str, Any]:
    """Compares the rows of a query, then measures it."""
    shape = SHAPES[name]
    variants: dict[str, Callable[[], object]] = {
        "inline": lambda: on_logline(shape, folder, "inline", Dropped()),
        "processes": lambda: on_logline(shape, folder, "processes", Dropped()),
        "spark": lambda: on_spark(shape, folder, spark, "noop"),
    }
    rows = compare(name, folder, spark)
    found: dict[str, list[tuple[float, float]]] = {variant: [] for variant in variants}
    for _ in range(REPEATS):
        for variant, run in variants.items():
            found[variant].append(measure(run))
    results: dict[str, Any] = {"rows": rows}
    for variant, pairs in found.items():
        seconds, used = (list(values) for values in zip(*pairs, strict=True))
        results[variant] = {
            "seconds": spread(seconds),
            "cpu seconds": spread(used),
            "records per second": spread([RECORDS / each for each in seconds]),
            "cpu microseconds per record": spread([1e6 * each / RECORDS for each in used]),
        }
    return results


def show(name: str, results: dict[str, Any], what: tuple[str, str]) -> None:
    """Prints a line for each variant."""
    for variant, found in results.items():
        if variant != "rows":
            said = (
                f"{each} {found[each]['median']:>9,.1f} ({found[each]['min']:,.1f} - {found[each]['max']:,.1f})"
                for each in what
            )
            print(f"{name:<9} {variant:<10} {'   '.join(said)}", flush=True)


def main() -> None:
    """Measures, prints and writes the JSON."""
    about = {"records": RECORDS, "repeats": REPEATS, "micro-batches": BATCHES}
    results: dict[str, Any] = {}
    spark = new_session()
    try:
        with tempfile.TemporaryDirectory(prefix="logline-bench-") as folder:
            full = generate(Path(folder, "full"), RECORDS)
            for name in SHAPES:
                results[name] = side_by_side(name, full, spark)
                show(name, results[name], ("records per second", "cpu microseconds per record"))
                write("windows", {**about, "results": results})
            found = side_by_side("tumbling", generate(Path(folder, "few"), FEW), spark)
            show("start", found, ("seconds", "cpu seconds"))
            kept = ("seconds", "cpu seconds")
            start = {name: {each: found[name][each] for each in kept} for name in found if name != "rows"}
            write("windows", {**about, "start": start, "results": results})
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
