"""sinks.sqlite, as far as it is not like other tables (`test_tables.py`)."""

from __future__ import annotations

import datetime as dt
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from decimal import Decimal

import cloudpickle
import pyarrow as pa
import pytest

import logline as ll
from logline.connectors import sinks
from logline.errors import ConnectorError, OptionError, PermanentError, PipelineFailed, SchemaError

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
    with pytest.raises(OptionError, match="can't be the table"):
        sinks.sqlite(path, "sqlite_rows")
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


@pytest.mark.parametrize(
    "key",
    [
        pa.array([1.0, float("nan")]),
        pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["a", None])),
    ],
)
def test_a_key_that_becomes_null_is_refused(opened, key):
    """SQLite keeps NaN as null: two rows with such a key would not take each other's place."""
    sink = opened(mode="upsert", key="k")
    with pytest.raises(PermanentError, match="column 'k' is part of the key and has a null"):
        sink.write(batch(1, 2, k=key), 1, "w1")
