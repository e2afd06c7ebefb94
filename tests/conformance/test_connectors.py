"""Every source and sink under the same list of faults (R8, R9): a connector that is added is added here.

The faults are those of the connector kit, `logline.testing.connectors`, which users run on their own. What is here
beside it needs a whole pipeline, or knows what has changed outside.
"""

from __future__ import annotations

import json
import os
import sqlite3
from abc import ABC, abstractmethod
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.postgres import Database
from tests.unit.runtime.taps import start
from tests.waiting import PATIENCE

import logline as ll
from logline.errors import ConnectorError, LoglineError, PipelineFailed
from logline.graph.connector import Sink, Source
from logline.runtime.control.run import Run


def batch(*ids: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(ids, pa.int64())})


# ---- sinks --------------------------------------------------------------------------------------------------


class Place(ABC):
    """A target."""

    schema = "id long"
    key: str | tuple[()] = ()
    """What rows take each other's place by, if they do."""
    crashes = 60
    """Lines of its code that a life dies at; none where the target is in the memory of the process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def sink(self) -> Sink:
        """A sink as a new life gets it."""

    @abstractmethod
    def table(self) -> pa.Table:
        """What is in the target, in the order in which it was written."""

    def rows(self) -> list[int]:
        table = self.table()
        return list(table["id"].to_pylist()) if table.num_columns else []


class Collected(Place):
    crashes = 0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.first = ll.sinks.collect()

    def sink(self) -> Sink:
        kind, given = self.first.__reduce__()  # as a worker of this process gets it
        made: Sink = kind(*given)
        return made

    def table(self) -> pa.Table:
        return self.first.table()


class Called(Place):
    """A function that upserts by the name of the write."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.written: dict[str, pa.RecordBatch] = {}

    def sink(self) -> Sink:
        return ll.sinks.call(self.upsert, guarantee="named")

    def upsert(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        self.written[write_id] = batch

    def table(self) -> pa.Table:
        return pa.Table.from_batches(self.written.values(), batch().schema)


class Mailed(Called):
    """A function that can't tell a repeated write."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.sent: list[pa.RecordBatch] = []

    def sink(self) -> Sink:
        return ll.sinks.call(lambda batch, number, write_id: self.sent.append(batch))

    def table(self) -> pa.Table:
        return pa.Table.from_batches(self.sent, batch().schema)


class Files(Place):
    def sink(self) -> Sink:
        return ll.sinks.parquet(self.folder / "out")

    def table(self) -> pa.Table:
        files = sorted((self.folder / "out").glob("*.parquet"))
        return pa.concat_tables([batch_table(), *(pq.read_table(file) for file in files)])


class SqliteTable(Place):
    def sink(self) -> Sink:
        return ll.sinks.sqlite(self.folder / "rows.db", "rows")

    def table(self) -> pa.Table:
        with closing(sqlite3.connect(self.folder / "rows.db")) as db:
            return as_table(db.execute("select * from rows order by rowid").fetchall())


class SqliteUpserts(SqliteTable):
    schema, key = "id long, item string", "id"

    def sink(self) -> Sink:
        return ll.sinks.sqlite(self.folder / "rows.db", "rows", mode="upsert", key="id")


class PostgresTable(Place):
    database: Database

    def sink(self) -> Sink:
        return ll.sinks.postgres(self.database.dsn, "rows")

    def table(self) -> pa.Table:
        return as_table(self.database.ask("select * from rows order by ctid"))


class PostgresUpserts(PostgresTable):
    schema, key = "id long, item string", "id"

    def sink(self) -> Sink:
        return ll.sinks.postgres(self.database.dsn, "rows", mode="upsert", key="id")


def batch_table() -> pa.Table:
    return pa.Table.from_batches([batch()])


def as_table(rows: list[Any]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()]
    return pa.table(dict(zip(("id", "item"), columns, strict=False)))


PLACES = [Collected, Called, Mailed, Files, SqliteTable, SqliteUpserts, PostgresTable, PostgresUpserts]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    made: Place = request.param(tmp_path)
    if isinstance(made, PostgresTable):
        made.database = request.getfixturevalue("postgres")
    return made


def test_a_sink_keeps_its_promise(place: Place) -> None:
    options: dict[str, Any] = {"schema": place.schema, "key": place.key, "ordered": True, "crashes": place.crashes}
    found = ll.testing.connectors.check(place.sink, read_back=place.table, **options)
    assert found.promise == place.sink().guarantee
    assert found.faults > 30


def test_a_target_that_has_more_than_the_log_knows_of_says_so_if_it_can(place: Place) -> None:
    """The kit accepts one that can't tell: here it is said who can."""
    life = place.sink()
    life.open("log/store/out")
    for number in (1, 2, 3):
        rows = pa.RecordBatch.from_pylist([{"id": number, "item": "tea"}])
        life.write(rows if place.key else rows.select(["id"]), number, f"log/store/out/{number}")
    found = life.position() if life.guarantee == "positioned" else life.highest()
    life.close()
    assert found == (None if isinstance(place, Called) else 3)


@dataclass
class Faulty(Sink):
    """The target is away for a moment: before a write, and after it, when nobody knows whether it was made."""

    inner: Sink
    before: set[int] = field(default_factory=lambda: {1, 3})
    after: set[int] = field(default_factory=lambda: {2, 3})

    def __post_init__(self) -> None:
        self.guarantee = self.inner.guarantee

    def __deepcopy__(self, memo: object) -> Faulty:
        return self  # what has failed once does not fail in the next life

    def open(self, scope: str) -> None:
        self.inner.open(scope)

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        self._fail(self.before, number)
        self.inner.write(batch, number, write_id)
        self._fail(self.after, number)

    def position(self) -> int:
        return self.inner.position()

    def highest(self) -> int | None:
        return self.inner.highest()

    def close(self) -> None:
        self.inner.close()

    @staticmethod
    def _fail(when: set[int], number: int) -> None:
        if number in when:
            when.discard(number)
            raise ConnectionError("the target is away for a moment")


def run(source: Source, sink: Sink, log: str, **options: Any) -> Run:
    p = ll.Pipeline("copied")
    p.source("orders", source, rows=1).sink("store", sink, **options)
    return start(p, log)


def test_a_target_that_is_away_for_a_moment(place: Place, tmp_path: Path) -> None:
    source = ll.sources.batches([batch(n) for n in range(5)])
    sink = Faulty(place.sink())
    options = {"accept": "at_least_once"} if isinstance(place, Mailed) else {}
    assert run(source, sink, f"memory:{tmp_path}", **options).wait(PATIENCE).phase == "finished"
    assert (sink.before, sink.after) == (set(), set())
    if isinstance(place, Mailed):
        assert sorted(set(place.rows())) == list(range(5))
    else:
        assert place.rows() == list(range(5))


# ---- sources ------------------------------------------------------------------------------------------------

TABLES = [batch(1, 2), batch(), batch(3), batch(4, 5, 6)]


class Origin(ABC):
    """Something to read, which may change when nobody looks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def put(self, tables: list[pa.RecordBatch]) -> None:
        """These are there from now on, and nothing else."""

    @abstractmethod
    def source(self) -> Source:
        """As the next run makes it."""


class Listed(Origin):
    def put(self, tables: list[pa.RecordBatch]) -> None:
        self.tables = tables

    def source(self) -> Source:
        return ll.sources.batches(self.tables, schema="id long")


class Made(Listed):
    def source(self) -> Source:
        return ll.sources.batches(lambda: iter(self.tables), schema="id long")


class Stored(Origin):
    def put(self, tables: list[pa.RecordBatch]) -> None:
        path = self.folder / "in.parquet"
        path.unlink(missing_ok=True)
        if tables:
            pq.write_table(pa.Table.from_batches(tables), self.folder / "new", row_group_size=2)
            os.replace(self.folder / "new", path)

    def source(self) -> Source:
        return ll.sources.parquet(self.folder / "in.parquet", schema="id long")


class Lines(Stored):
    """A line each, in several files; what is read of one is a batch."""

    def put(self, tables: list[pa.RecordBatch]) -> None:
        for file in self.folder.glob("in*.csv"):
            file.unlink()
        for n, table in enumerate(tables):
            lines = [table.schema.names[0], *map(str, table.column(0).to_pylist()), ""]
            (self.folder / f"in{n}.csv").write_text("\n".join(lines))

    def source(self) -> Source:
        return ll.sources.csv(self.folder / "in*.csv", schema="id long")


class Objects(Stored):
    def put(self, tables: list[pa.RecordBatch]) -> None:
        for file in self.folder.glob("in*.jsonl"):
            file.unlink()
        for n, table in enumerate(tables):
            (self.folder / f"in{n}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))

    def source(self) -> Source:
        return ll.sources.json(self.folder / "in*.jsonl", schema="id long")


class Selected(Origin):
    """A table of PostgreSQL, by its cursor."""

    database: Database

    def put(self, tables: list[pa.RecordBatch]) -> None:
        names = ", ".join(f"{name} text" if name != "id" else "id bigint" for name in tables[0].schema.names)
        with psycopg.connect(self.database.dsn, autocommit=True) as db:
            db.execute(b"drop table if exists orders")
            db.execute(f"create table orders ({names})".encode())
            for name in tables[0].schema.names:
                db.execute(f"create unique index on orders ({name})".encode())
            for table in tables:
                for row in table.to_pylist():
                    db.execute("insert into orders values (%s)", list(row.values()))

    def source(self) -> Source:
        return ll.sources.postgres(self.database.dsn, "orders", cursor="id", page=2, schema="id long")


class SelectedWhole(Selected):
    """A query without a cursor: not replayable."""

    def source(self) -> Source:
        return ll.sources.postgres(self.database.dsn, "select id from orders order by id", page=2, schema="id long")


ORIGINS = [Listed, Made, Stored, Lines, Objects, Selected, SelectedWhole]


@pytest.fixture(params=ORIGINS)
def origin(request: pytest.FixtureRequest, tmp_path: Path) -> Origin:
    made: Origin = request.param(tmp_path)
    if isinstance(made, Selected):
        made.database = request.getfixturevalue("postgres")
    made.put(TABLES)
    return made


def ids(source: Source) -> list[int]:
    items = [got for name in source.partitions() for got in source.read(name, None)]
    return [n for got in items if got is not None for n in got[0]["id"].to_pylist()]


def test_the_next_life_goes_on_after_any_offset(origin: Origin) -> None:
    assert ids(origin.source()) == [1, 2, 3, 4, 5, 6]
    found = ll.testing.connectors.check(origin.source, crashes=40)
    assert found.promise == ("not replayable" if isinstance(origin, SelectedWhole) else "replayable")


def test_tables_without_rows_end_nothing(origin: Origin) -> None:
    origin.put([batch(), batch()])
    assert ids(origin.source()) == []
    origin.put([batch(), batch(7)])
    assert ids(origin.source()) == [7]


def last_offset(source: Source, partition: str) -> Any:
    *_, got = source.read(partition, None)
    assert got is not None
    return got[1]


def test_what_has_become_shorter_than_what_was_read_is_no_end(origin: Origin) -> None:
    """Else a run would finish without a word, with rows of what was there before."""
    if isinstance(origin, Selected):
        pytest.skip("rows of a table may be deleted when they are read (it warns, see test_postgres_source.py)")
    partition = origin.source().partitions()[-1]
    offset = last_offset(origin.source(), partition)
    origin.put([*TABLES[:-1], batch(4)])
    if isinstance(origin, Listed):
        origin.put(TABLES[:2])
    with pytest.raises(ConnectorError, match="fresh log"):
        list(origin.source().read(partition, offset))


def test_what_is_gone_is_named(origin: Origin) -> None:
    source = origin.source()
    partition = source.partitions()[-1]
    offset = last_offset(origin.source(), partition)
    if isinstance(origin, Selected):
        origin.put([pa.record_batch({"name": ["a"]})])
    else:
        origin.put([])
    if isinstance(origin, Listed):
        source = origin.source()
    match = "fresh log"
    if isinstance(origin, Stored | Selected):
        match = "no column|does not exist" if isinstance(origin, Selected) else f"{partition} is gone"
    with pytest.raises(ConnectorError, match=match):
        list(source.read(partition, offset))


def test_a_batch_of_another_schema_is_refused_and_named(origin: Origin, tmp_path: Path) -> None:
    origin.put([pa.record_batch({"name": ["a"]})])
    with pytest.raises((LoglineError, PipelineFailed), match=r"name|id"):
        run(origin.source(), ll.sinks.collect(), f"memory:{tmp_path}").wait(PATIENCE)


def test_a_run_that_stops_and_goes_on_reads_each_row_once(origin: Origin, tmp_path: Path) -> None:
    kept = ll.sinks.collect()
    for _ in range(3):
        run(origin.source(), kept, f"memory:{tmp_path}").stop()
    again = run(origin.source(), kept, f"memory:{tmp_path}")
    again.wait(PATIENCE)
    assert again.result("store")["id"].to_pylist() == [1, 2, 3, 4, 5, 6]
