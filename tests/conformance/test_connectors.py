"""Every source and sink under the same list of faults (R8, R9): a connector that is added is added here.

A life of a sink is an object of its own that was opened; one that died is left as it is while others write.
"""

from __future__ import annotations

import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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

SCOPE = "log/store/out"


def batch(*ids: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(ids, pa.int64())})


# ---- sinks --------------------------------------------------------------------------------------------------


class Place(ABC):
    """A target, and the lives that write to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lives: list[Sink] = []
        """They are closed when the test is over. A process that dies ends its connections too."""

    @abstractmethod
    def sink(self) -> Sink:
        """A sink as a new life gets it."""

    @abstractmethod
    def rows(self) -> list[int]:
        """What is in the target, in the order in which it was written."""

    def life(self, scope: str = SCOPE) -> Sink:
        sink = self.sink()
        sink.open(scope)
        self.lives.append(sink)
        return sink


class Collected(Place):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.first = ll.sinks.collect()

    def sink(self) -> Sink:
        kind, given = self.first.__reduce__()  # as a worker of this process gets it
        made: Sink = kind(*given)
        return made

    def rows(self) -> list[int]:
        table = self.first.table()
        return list(table["id"].to_pylist()) if table.num_columns else []


class Called(Place):
    """A function that upserts by the name of the write."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.written: dict[str, list[int]] = {}

    def sink(self) -> Sink:
        return ll.sinks.call(self.upsert, guarantee="named")

    def upsert(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        self.written[write_id] = batch["id"].to_pylist()

    def rows(self) -> list[int]:
        return [n for ids in self.written.values() for n in ids]


class Files(Place):
    def sink(self) -> Sink:
        return ll.sinks.parquet(self.folder / "out")

    def rows(self) -> list[int]:
        files = sorted((self.folder / "out").glob("*.parquet"))
        return [n for file in files for n in pq.read_table(file)["id"].to_pylist()]


class SqliteTable(Place):
    def sink(self) -> Sink:
        return ll.sinks.sqlite(self.folder / "rows.db", "rows")

    def rows(self) -> list[int]:
        with closing(sqlite3.connect(self.folder / "rows.db")) as db:
            return [n for (n,) in db.execute("select id from rows order by rowid")]


class PostgresTable(Place):
    database: Database

    def sink(self) -> Sink:
        return ll.sinks.postgres(self.database.dsn, "rows")

    def rows(self) -> list[int]:
        return [n for (n,) in self.database.ask("select id from rows order by ctid")]


@pytest.fixture(params=[Collected, Called, Files, SqliteTable, PostgresTable])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made: Place = request.param(tmp_path)
    if isinstance(made, PostgresTable):
        made.database = request.getfixturevalue("postgres")
    yield made
    for life in made.lives:
        life.close()


def write(sink: Sink, number: int, *ids: int) -> None:
    sink.write(batch(*ids), number, f"{SCOPE}/{number}")


def test_a_life_that_died_before_it_wrote(place: Place) -> None:
    place.life()
    write(place.life(), 1, 10)
    assert place.rows() == [10]


def test_a_life_that_died_after_it_wrote(place: Place) -> None:
    write(place.life(), 1, 10)
    second = place.life()
    write(second, 1, 10)  # the log does not know that it is done
    write(second, 2, 20)
    assert place.rows() == [10, 20]


def test_a_write_that_is_repeated_at_once(place: Place) -> None:
    life = place.life()
    for _ in range(3):
        write(life, 1, 10)
    assert place.rows() == [10]


def test_a_late_write_of_a_life_that_is_over(place: Place) -> None:
    zombie = place.life()
    write(zombie, 1, 10)
    heir = place.life()
    write(heir, 1, 10)
    write(heir, 2, 20)
    write(zombie, 2, 20)
    write(zombie, 1, 10)
    write(heir, 3, 30)
    assert place.rows() == [10, 20, 30]


def test_a_target_that_has_more_than_the_log_knows_of_says_so_if_it_can(place: Place) -> None:
    life = place.life()
    for number in (1, 2, 3):
        write(life, number, number)
    later = place.life()
    found = later.position() if later.guarantee == "positioned" else later.highest()
    assert found == (None if isinstance(place, Called) else 3)
    other = place.life("another log/store/out")  # a fresh log is not mistaken for an old one
    assert not (other.position() if other.guarantee == "positioned" else other.highest())


def test_a_batch_without_rows(place: Place) -> None:
    life = place.life()
    write(life, 1)
    write(life, 1)
    write(life, 2, 20)
    assert place.rows() == [20]


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
    assert run(source, sink, f"memory:{tmp_path}").wait(PATIENCE).phase == "finished"
    assert (sink.before, sink.after) == (set(), set())
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


@pytest.fixture(params=[Listed, Made, Stored])
def origin(request: pytest.FixtureRequest, tmp_path: Path) -> Origin:
    made: Origin = request.param(tmp_path)
    made.put(TABLES)
    return made


def reads(source: Source, offset: Any = None) -> Iterator[tuple[list[int], Any]]:
    (partition,) = source.partitions()
    for got in source.read(partition, offset):
        assert got is not None
        yield got[0]["id"].to_pylist(), got[1]


def ids(source: Source, offset: Any = None) -> list[int]:
    return [n for rows, _ in reads(source, offset) for n in rows]


def test_the_next_life_goes_on_after_any_offset(origin: Origin) -> None:
    before: list[int] = []
    for rows, offset in list(reads(origin.source())):
        before += rows
        assert before + ids(origin.source(), offset) == [1, 2, 3, 4, 5, 6]


def test_tables_without_rows_end_nothing(origin: Origin) -> None:
    origin.put([batch(), batch()])
    assert ids(origin.source()) == []
    origin.put([batch(), batch(7)])
    assert ids(origin.source()) == [7]


def test_what_has_become_shorter_than_what_was_read_is_no_end(origin: Origin) -> None:
    """Else a run would finish without a word, with rows of what was there before."""
    *_, (_, offset) = reads(origin.source())
    origin.put(TABLES[:2])
    with pytest.raises(ConnectorError, match="fresh log"):
        ids(origin.source(), offset)


def test_what_is_gone_is_named(origin: Origin) -> None:
    *_, (_, offset) = reads(origin.source())
    source = origin.source()
    origin.put([])
    if isinstance(origin, Listed):
        source = origin.source()
    partition = "in.parquet" if isinstance(origin, Stored) else "0"
    with pytest.raises(ConnectorError, match="in.parquet is gone" if isinstance(origin, Stored) else "fresh log"):
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
