"""sinks.sqlite: rows and position are one transaction, so each write is there once, whoever dies when."""

from __future__ import annotations

import datetime as dt
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from decimal import Decimal
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

import logline as ll
from logline.connectors import sinks
from logline.errors import ConnectorError, OptionError, PipelineFailed, SchemaError

SCOPE = "log/store/out"


def batch(*ids, **more):
    return pa.record_batch({"id": pa.array(ids, pa.int64()), **more})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "shop.db"


@pytest.fixture
def opened(path):
    """Opens sinks as a life does, and closes them at the end."""
    made = []

    def make(scope=SCOPE, table="rows", **options):
        sink = cloudpickle.loads(cloudpickle.dumps(sinks.sqlite(path, table, **options)))
        sink.open(scope)
        made.append(sink)
        return sink

    yield make
    for sink in made:
        sink.close()


def write(sink, number, *ids, **more):
    sink.write(batch(*ids, **more), number, f"{SCOPE}/{number}")


def asked(path, text, *values):
    with closing(sqlite3.connect(path)) as db:
        found = db.execute(text, values).fetchall()
        db.commit()
        return found


def ids(path):
    return [n for (n,) in asked(path, "select id from rows order by rowid")]


# ---- append -----------------------------------------------------------------------------------------------


def test_each_number_is_applied_once(opened, path):
    sink = opened()
    assert sink.guarantee == "positioned"
    assert sink.position() == 0
    for number in (1, 1, 2, 1, 2):
        write(sink, number, number, 10 * number)
    assert ids(path) == [1, 10, 2, 20]
    assert sink.position() == 2
    heir = opened()
    assert heir.position() == 2
    write(heir, 2, 666)
    write(heir, 3, 3)
    write(sink, 3, 666)  # the life before, late
    assert ids(path) == [1, 10, 2, 20, 3]
    assert asked(path, "select * from _logline_positions") == [(SCOPE, 3)]


def test_another_log_has_a_position_of_its_own(opened, path):
    write(opened("one"), 1, 1)
    other = opened("another")
    assert other.position() == 0
    write(other, 1, 2)
    assert ids(path) == [1, 2]


def test_a_gap_is_refused(opened, path):
    sink = opened()
    write(sink, 1, 1)
    with pytest.raises(ConnectorError, match="write 3 comes, and the table has 1 writes of this log only"):
        write(sink, 3, 3)
    assert ids(path) == [1]
    write(sink, 2, 2)
    assert ids(path) == [1, 2]


def test_lives_that_write_at_once(opened, path):
    lives = [opened() for _ in range(4)]
    failures = []

    def work(life):
        try:
            for number in range(1, 21):
                write(life, number, number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(life,)) for life in lives]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert ids(path) == list(range(1, 21))


KILLED = """
import os, signal, sys
import pyarrow as pa
from logline.connectors import sinks
sink = sinks.sqlite(sys.argv[1], "rows")
sink.open("log/store/out")
sink.write(pa.record_batch({"id": [1]}), 1, "1")
def die(statement):
    if statement.lower().startswith(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
sink._db.set_trace_callback(die)
sink.write(pa.record_batch({"id": [2, 3]}), 2, "2")
"""


@pytest.mark.parametrize(
    "before", ["begin", "insert into", "insert or replace", "commit"], ids=["begin", "rows", "position", "commit"]
)
def test_a_process_that_dies_within_a_write_leaves_nothing_of_it(opened, path, before):
    died = subprocess.run([sys.executable, "-c", KILLED, str(path), before], check=False)
    assert died.returncode == -9
    heir = opened()
    assert heir.position() == 1
    write(heir, 2, 2, 3)
    assert ids(path) == [1, 2, 3]
    assert heir.position() == 2


# ---- the table --------------------------------------------------------------------------------------------


def test_types_of_a_table_that_it_makes(opened, path):
    values = {
        "n": pa.array([1, None], pa.int32()),
        "x": pa.array([0.5, None]),
        "yes": pa.array([True, None]),
        "s": pa.array(["é", None]),
        "b": pa.array([b"\0\1", None]),
        "d": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
        "at": pa.array([dt.datetime(2026, 3, 1, 10, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
        "day": pa.array([dt.date(2026, 3, 1), None]),
        "c": pa.array(["red", None]).dictionary_encode(),
    }
    opened().write(pa.record_batch(values), 1, "1")
    assert asked(path, "select * from rows") == [
        (1, 0.5, 1, "é", b"\0\1", "1.50", "2026-03-01 10:00:00.000000Z", "2026-03-01", "red"),
        (None,) * 9,
    ]
    assert asked(path, "select strftime('%H', at), date(day) from rows limit 1") == [("10", "2026-03-01")]
    kinds = [kind for _, _, kind, *_ in asked(path, "pragma table_info(rows)")]
    assert kinds == ["INTEGER", "REAL", "INTEGER", "TEXT", "BLOB", "TEXT", "TEXT", "TEXT", "TEXT"]


def test_types_that_sqlite_has_not(opened, path):
    with pytest.raises(SchemaError, match=r"no type for list<.*column 'xs'\): make a text of it"):
        write(opened(), 1, 1, xs=[[1]])
    with pytest.raises(ConnectorError, match="too large"):
        opened().write(pa.record_batch({"id": pa.array([1 << 63], pa.uint64())}), 1, "1")
    assert asked(path, "select * from sqlite_master") == []


def test_names_are_quoted(opened, path):
    table, column = 'my "table"; drop', "select, 'x' \"y\""
    opened(table=table).write(pa.record_batch({column: [1]}), 1, "1")
    opened("upserts", table + "2", mode="upsert", key=column).write(pa.record_batch({column: [1, 1]}), 1, "1")
    assert {name for (name,) in asked(path, "select name from sqlite_master where type = 'table'")} == {
        table, table + "2", "_logline_positions",
    }  # fmt: skip


def test_a_table_that_is_there(opened, path):
    asked(path, "create table rows (row integer primary key autoincrement, ID integer, note text default 'new')")
    write(opened(), 1, 7, 8)
    assert asked(path, "select * from rows") == [(1, 7, "new"), (2, 8, "new")]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("key integer, name text", r"the table is there and has no column 'id' \(it has key, name\): add the column"),
        ("id integer, name text not null", r"its column 'name' \(TEXT\) is NOT NULL and not in the rows"),
    ],
)
def test_a_table_with_other_columns_is_refused(opened, path, columns, said):
    asked(path, f"create table rows ({columns})")
    sink = opened()
    for _ in range(2):
        with pytest.raises(ConnectorError, match=said):
            write(sink, 1, 1)
    assert asked(path, "select * from rows") == []
    asked(path, "drop table rows")
    write(sink, 1, 1)
    assert ids(path) == [1]


def test_columns_that_come_later(opened, path):
    sink = opened()
    write(sink, 1, 1)
    with pytest.raises(ConnectorError, match="has no column 'name'"):
        write(sink, 2, 2, name=["b"])
    asked(path, "alter table rows add column name text")
    write(sink, 2, 2, name=["b"])
    assert asked(path, "select * from rows") == [(1, None), (2, "b")]


def test_an_event_without_rows_makes_the_table(opened, path):
    sink = opened()
    write(sink, 1)
    assert ids(path) == []
    assert sink.position() == 1


# ---- upsert -----------------------------------------------------------------------------------------------


def test_a_row_takes_the_place_of_the_one_with_its_key(opened, path):
    sink = opened(mode="upsert", key="id")
    write(sink, 1, 1, 2, name=["a", "b"])
    write(sink, 2, 2, 3, 3, name=["B", "c", "C"])
    late = opened(mode="upsert", key="id")
    write(late, 1, 1, 2, name=["a", "b"])  # an older one never takes the place of a newer one
    assert asked(path, "select * from rows order by id") == [(1, "a"), (2, "B"), (3, "C")]


def test_keys_of_several_columns_and_of_all(opened, path):
    sink = opened(mode="upsert", key=["id", "name"])
    for number in (1, 2):
        write(sink, number, 1, 1, name=["a", "b"])
    assert asked(path, "select * from rows order by name") == [(1, "a"), (1, "b")]


def test_what_is_wrong_with_a_key(opened, path):
    with pytest.raises(SchemaError, match="the rows have no column 'key', which key= names"):
        write(opened(mode="upsert", key="key"), 1, 1)
    with pytest.raises(ConnectorError, match="column 'id' is part of the key and has a null"):
        write(opened(mode="upsert", key="id"), 1, 1, None)
    asked(path, "create table rows (id integer)")
    sink = opened(mode="upsert", key="id")
    with pytest.raises(ConnectorError, match="nothing in it makes id unique: create a unique index"):
        write(sink, 1, 1)
    asked(path, "create unique index by_id on rows (id)")
    write(sink, 1, 1, 1)
    assert ids(path) == [1]


def test_what_can_never_fit_is_refused_when_the_pipeline_is_defined(path):
    p = ll.Pipeline("unfit")
    lists = p.source("lists", ll.sources.batches([pa.table({"id": [1], "xs": [[1]], "ID": [1]})]))
    with pytest.raises(SchemaError, match=r"operator 'store': sqlite\(.*SQLite has no type for list"):
        lists.sink("store", sinks.sqlite(path, "rows"))
    twice = lists.map_batches("twice", lambda batch: batch.select(["id", "ID"]))
    with pytest.raises(SchemaError, match="several columns 'ID': rename one"):
        twice.sink("store", sinks.sqlite(path, "rows"))
    ids = lists.map_batches("ids", lambda batch: batch.select(["id"]))
    with pytest.raises(SchemaError, match=r"operator 'store': .*no column 'name', which key= names"):
        ids.sink("store", sinks.sqlite(path, "rows", mode="upsert", key="name"))
    ids.sink("store", sinks.sqlite(path, "rows"))
    assert not path.exists()
    p.run(engine="inline")
    assert asked(path, "select id from rows") == [(1,)]


# ---- what can be wrong ------------------------------------------------------------------------------------


def test_wrong_options(path):
    wrong: list[tuple[str, Any, str]] = [
        ("rows", {"mode": "replace"}, "mode='replace': take one of append, upsert"),
        ("rows", {"mode": "upsert"}, "needs key="),
        ("rows", {"key": "id"}, "key= is for mode='upsert'"),
        ("_logline_positions", {}, "can't be the table"),
        ("sqlite_rows", {}, "can't be the table"),
        ("", {}, "can't be the table"),
    ]
    for table, options, said in wrong:
        with pytest.raises(OptionError, match=said):
            sinks.sqlite(path, table, **options)
    with pytest.raises(OptionError, match="in memory"):
        sinks.sqlite(":memory:", "rows")


def test_a_file_that_can_t_be_used(opened, path, tmp_path):
    path.write_text("this is no database, whoever looks at it, and it is long enough to see that" * 20)
    with pytest.raises(ConnectorError, match="not a database; give the path of an SQLite database"):
        opened().position()
    with pytest.raises(ConnectorError, match="unable to open database file; the folder must be there"):
        sinks.sqlite(tmp_path / "none" / "x.db", "rows").open(SCOPE)
    with pytest.raises(ConnectorError, match="is not open"):
        sinks.sqlite(path, "rows").position()


def test_a_database_that_is_locked_is_tried_again(path, tmp_path):
    """The lock goes with the second try; the engine's retries bring it."""
    tries = []

    class Locked(type(sinks.sqlite(path, "rows"))):  # type: ignore[misc]
        def __reduce__(self):
            return Locked, (path, "rows")

        def write(self, batch, number, write_id):
            self._db.execute("pragma busy_timeout = 1")
            tries.append(number)
            if tries == [1]:
                with closing(sqlite3.connect(path, isolation_level=None)) as other:
                    other.execute("begin exclusive")
                    super().write(batch, number, write_id)
            super().write(batch, number, write_id)

    def run(retry):
        p = ll.Pipeline("locked")
        source = p.source("ids", ll.sources.batches([batch(1), batch(2)]))
        source.sink("store", Locked(path, "rows"), retry=retry)
        return p.run(f"lmdb:{tmp_path}/log", engine="inline")

    with pytest.raises(PipelineFailed, match="database is locked; another program holds the database"):
        run(ll.Retry(attempts=1))
    tries.clear()
    assert run(ll.Retry(attempts=3, wait="1ms")).status().phase == "finished"
    assert tries == [1, 1, 2]
    assert ids(path) == [1, 2]


def test_a_closed_sink_opens_again(path):
    sink = sinks.sqlite(path, "rows")
    for number in (1, 2):
        sink.open(SCOPE)
        write(sink, number, number)
        thread = threading.Thread(target=sink.close)  # on whatever thread
        thread.start()
        thread.join()
    assert ids(path) == [1, 2]
    assert sink.dataset() == ("sqlite", f"{path}:rows")
