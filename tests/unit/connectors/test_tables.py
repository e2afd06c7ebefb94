"""What holds for a table of any database that is a sink: sinks.sqlite and sinks.postgres."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

from logline.connectors import sinks
from logline.errors import OptionError, PermanentError, SchemaError

SCOPE = "log/store/out"
UPSERT = {"mode": "upsert", "key": "id"}


class Sqlite:
    def __init__(self, path):
        self.path = path

    def sink(self, table, **options):
        return sinks.sqlite(self.path, table, **options)

    def ask(self, text):
        with closing(sqlite3.connect(self.path)) as db:
            found = db.execute(text).fetchall()
            db.commit()
            return found


class Postgres:
    def __init__(self, database):
        self.dsn, self.ask = database.dsn, database.ask

    def sink(self, table, **options):
        return sinks.postgres(self.dsn, table, **options)


@pytest.fixture(params=["sqlite", "postgres"])
def db(request, tmp_path):
    if request.param == "sqlite":
        return Sqlite(tmp_path / "shop.db")
    return Postgres(request.getfixturevalue("postgres"))


@pytest.fixture
def opened(db):
    """Opens sinks as a life does, and closes them at the end."""
    made = []

    def make(scope=SCOPE, **options):
        sink = cloudpickle.loads(cloudpickle.dumps(db.sink("rows", **options)))
        sink.open(scope)
        made.append(sink)
        return sink

    yield make
    for sink in made:
        sink.close()


def write(sink, number, *ids, **more):
    sink.write(pa.record_batch({"id": pa.array(ids, pa.int64()), **more}), number, f"{SCOPE}/{number}")


def ids(db):
    return [n for (n,) in db.ask("select id from rows order by id")]


# ---- the position -----------------------------------------------------------------------------------------


def test_each_number_is_applied_once(opened, db):
    sink = opened()
    assert sink.guarantee == "positioned"
    assert sink.position() == 0
    for number in (1, 1, 2, 1, 2):
        write(sink, number, number, 10 * number)
    assert ids(db) == [1, 2, 10, 20]
    assert sink.position() == 2
    heir = opened()
    assert heir.position() == 2
    write(heir, 2, 666)
    write(heir, 3, 3)
    write(sink, 3, 666)  # the life before, late
    assert ids(db) == [1, 2, 3, 10, 20]
    assert db.ask("select * from _logline_positions") == [(SCOPE, 3)]


def test_another_log_has_a_position_of_its_own(opened, db):
    write(opened("one"), 1, 1)
    other = opened("it's another\\")
    assert other.position() == 0
    write(other, 1, 2)
    assert other.position() == 1
    assert ids(db) == [1, 2]


def test_a_gap_is_refused(opened, db):
    sink = opened()
    write(sink, 1, 1)
    with pytest.raises(PermanentError, match="write 3 comes, and the table has 1 writes of this log only"):
        write(sink, 3, 3)
    assert ids(db) == [1]
    write(sink, 2, 2)
    assert ids(db) == [1, 2]


@pytest.mark.parametrize("options", [{}, UPSERT], ids=["append", "upsert"])
def test_lives_that_write_at_once(opened, db, options):
    """The first to come makes the tables."""
    lives = [opened(**options) for _ in range(4)]
    failures = []

    def work(life):
        try:
            for number in range(1, 11):
                write(life, number, number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(life,)) for life in lives]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert ids(db) == list(range(1, 11))


# ---- the table --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("key integer, name text", r"the table is there and has no column 'id' \(it has key, name\): add the column"),
        ("id integer, name text not null", r"its column 'name' \((TEXT|text)\) is NOT NULL and not in the rows"),
    ],
)
def test_a_table_with_other_columns_is_refused(opened, db, columns, said):
    db.ask(f"create table rows ({columns})")
    sink = opened()
    for _ in range(2):
        with pytest.raises(PermanentError, match=said):
            write(sink, 1, 1)
    assert db.ask("select * from rows") == []
    db.ask("drop table rows")
    write(sink, 1, 1)
    assert ids(db) == [1]


def test_columns_that_come_later(opened, db):
    sink = opened()
    write(sink, 1, 1)
    with pytest.raises(PermanentError, match="has no column 'name'"):
        write(sink, 2, 2, name=["b"])
    db.ask("alter table rows add column name text")
    write(sink, 2, 2, name=["b"])
    assert db.ask("select * from rows order by id") == [(1, None), (2, "b")]


def test_an_event_without_rows_makes_the_table(opened, db):
    sink = opened()
    write(sink, 1)
    assert ids(db) == []
    assert sink.position() == 1


# ---- upsert -----------------------------------------------------------------------------------------------


def test_a_row_takes_the_place_of_the_one_with_its_key(opened, db):
    sink = opened(**UPSERT)
    write(sink, 1, 1, 2, name=["a", "b"])
    write(sink, 2, 2, 3, 3, name=["B", "c", "C"])
    late = opened(**UPSERT)
    write(late, 1, 1, 2, name=["a", "b"])  # an older one never takes the place of a newer one
    assert db.ask("select * from rows order by id") == [(1, "a"), (2, "B"), (3, "C")]


def test_keys_of_several_columns_and_of_all(opened, db):
    sink = opened(mode="upsert", key=["name", "id"])
    for number in (1, 2):
        write(sink, number, 1, 1, name=["a", "b"])
    assert db.ask("select * from rows order by name") == [(1, "a"), (1, "b")]


def test_what_is_wrong_with_a_key(opened, db):
    with pytest.raises(SchemaError, match="the rows have no column 'key', which key= names"):
        write(opened(mode="upsert", key="key"), 1, 1)
    with pytest.raises(PermanentError, match="column 'id' is part of the key and has a null"):
        write(opened(**UPSERT), 1, 1, None)
    db.ask("create table rows (id integer)")
    sink = opened(**UPSERT)
    with pytest.raises(PermanentError, match="nothing in it makes id unique: create a unique index"):
        write(sink, 1, 1)
    db.ask("create unique index by_id on rows (id)")
    write(sink, 1, 1, 1)
    assert ids(db) == [1]


def test_wrong_options(db):
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"mode": "replace"}, "mode='replace': take one of append, upsert"),
        ({"mode": "upsert"}, "needs key="),
        ({"key": "id"}, "key= is for mode='upsert'"),
        ({"mode": "upsert", "key": ["id", "id"]}, "names a column twice"),
    ]
    for options, said in wrong:
        with pytest.raises(OptionError, match=said):
            db.sink("rows", **options)
    for table in ("_logline_positions", ""):
        with pytest.raises(OptionError, match="can't be the table"):
            db.sink(table)
