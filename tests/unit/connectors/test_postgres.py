"""sinks.postgres, on a real server, as far as it is not like other tables (`test_tables.py`)."""

from __future__ import annotations

import datetime as dt
import json
import logging
import subprocess
import sys
import threading
import uuid
from contextlib import ExitStack
from decimal import Decimal
from math import inf, isnan, nan
from typing import Any

import cloudpickle
import psycopg
import pyarrow as pa
import pytest
from tests.postgres import server

import logline as ll
from logline.connectors import sinks
from logline.connectors.sql_table import quoted
from logline.errors import ConnectorError, OptionError, PermanentError, PipelineFailed, SchemaError

SCOPE = "log/store/out"


def batch(*ids, **more):
    return pa.record_batch({"id": pa.array(ids, pa.int64()), **more})


@pytest.fixture
def opened(postgres):
    """Opens sinks as a life does, and closes them at the end."""
    made = []

    def make(scope=SCOPE, table="rows", **options):
        sink = cloudpickle.loads(cloudpickle.dumps(sinks.postgres(postgres.dsn, table, **options)))
        sink.open(scope)
        made.append(sink)
        return sink

    yield make
    for sink in made:
        sink.close()


def write(sink, number, *ids, **more):
    sink.write(batch(*ids, **more), number, f"{SCOPE}/{number}")


def ids(postgres, table="rows"):
    return [n for (n,) in postgres.ask(f"select id from {table} order by id")]


# ---- the position -----------------------------------------------------------------------------------------


def test_a_position_that_was_removed_is_not_taken_for_a_beginning(opened, postgres):
    sink = opened()
    write(sink, 1, 1)
    write(sink, 2, 2)
    postgres.ask("delete from _logline_positions")
    with pytest.raises(ConnectorError, match="somebody else changed the position"):
        write(sink, 3, 3)
    with pytest.raises(PermanentError, match="write 3 comes, and the table has 0 writes"):
        write(sink, 3, 3)
    assert ids(postgres) == [1, 2]


KILLED = """
import os, signal, sys
import psycopg, pyarrow as pa
from logline.connectors import postgres_sink, sinks

def deadly(method, before):
    def call(self, statement, *more):
        if before in statement:
            os.kill(os.getpid(), signal.SIGKILL)
        return method(self, statement, *more)
    return call

for n, before in enumerate(sys.argv[2:]):
    if (child := os.fork()) == 0:
        sink = sinks.postgres(sys.argv[1], f"rows{n}")
        sink.open(f"scope{n}")
        sink.write(pa.record_batch({"id": [1]}), 1, "1")
        psycopg.RawCursor.execute = deadly(psycopg.RawCursor.execute, before)
        psycopg.RawCursor.copy = deadly(psycopg.RawCursor.copy, before)
        sink.write(pa.record_batch({"id": [2, 3]}), 2, "2")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9
"""


def test_a_process_that_dies_within_a_write_leaves_nothing_of_it(opened, postgres):
    """Before the position, the rows, or the commit."""
    points = ("update", "copy", "commit")
    subprocess.run([sys.executable, "-c", KILLED, postgres.dsn, *points], check=True)
    for n, point in enumerate(points):
        heir = opened(f"scope{n}", f"rows{n}")
        assert heir.position() == 1, point
        write(heir, 2, 2, 3)
        assert ids(postgres, f"rows{n}") == [1, 2, 3]
        assert heir.position() == 2


@pytest.mark.parametrize("within_copy", [False, True])
def test_a_write_that_stands_still_is_ended(opened, postgres, within_copy):
    """A process that was stopped in its transaction holds the position, and nobody would ever take it from it."""
    heir = opened(lock_timeout="50ms")
    write(heir, 1, 1)
    with ExitStack() as stopped:
        stopped.enter_context(pytest.raises(psycopg.OperationalError))
        db = stopped.enter_context(psycopg.connect(postgres.dsn))
        db.execute("update _logline_positions set number = 2")
        if within_copy:
            stopped.enter_context(db.cursor().copy("copy rows from stdin")).write("666\n")
        with pytest.raises(ConnectorError, match=r"another connection holds the position of this log; .*\(1 found\)"):
            write(heir, 2, 2)
        write(heir, 2, 2)
    assert ids(postgres) == [1, 2]


# ---- connections ------------------------------------------------------------------------------------------


def end_connections(postgres):
    """All but this one's, as a server does that restarts."""
    postgres.ask(
        "select pg_terminate_backend(pid, 10000) from pg_stat_activity "
        "where backend_type = 'client backend' and pid <> pg_backend_pid()"
    )


def test_a_connection_that_is_lost_is_made_again(opened, postgres):
    sink = opened()
    write(sink, 1, 1)
    end_connections(postgres)
    with pytest.raises(ConnectorError, match="terminating connection") as raised:
        write(sink, 2, 2)
    assert not isinstance(raised.value, PermanentError)
    write(sink, 2, 2)
    assert ids(postgres) == [1, 2]


def test_a_commit_whose_answer_is_lost_is_recognised(opened, postgres, monkeypatch):
    sink = opened()
    write(sink, 1, 1)
    execute = psycopg.RawCursor.execute

    def lose_answer(self, query, *more, **options):
        done = execute(self, query, *more, **options)
        if query == "commit":
            monkeypatch.undo()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return done

    monkeypatch.setattr(psycopg.RawCursor, "execute", lose_answer)
    with pytest.raises(ConnectorError, match="closed the connection"):
        write(sink, 2, 2)
    assert ids(postgres) == [1, 2]
    write(sink, 2, 2)
    write(sink, 3, 3)
    assert ids(postgres) == [1, 2, 3]


def test_a_session_has_no_state(opened, postgres):
    """A pooler may give each transaction to another process of the server."""
    for sink in (opened(), opened("upserts", "ups", mode="upsert", key="id")):
        for number in range(1, 9):
            write(sink, number, number)
        db = sink._db
        assert db.execute("select count(*) from pg_prepared_statements").fetchone() == (0,)
        assert db.execute("select count(*) from pg_class where relpersistence = 't'").fetchone() == (0,)
        assert db.execute("select name from pg_settings where source = 'session'").fetchall() == []
        locks = "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"
        assert db.execute(locks).fetchone() == (0,)


def test_a_server_that_is_away_for_a_while(postgres, tmp_path):
    """It stops before the third write, and is back after two tries."""
    tries: list[ConnectorError] = []

    class Away(type(sinks.postgres(postgres.dsn, "rows"))):  # type: ignore[misc]
        def __reduce__(self):
            return Away, (postgres.dsn, "rows")

        def write(self, batch, number, write_id):
            if number == 3 and not tries:
                server().stop()
            try:
                super().write(batch, number, write_id)
            except ConnectorError as error:
                tries.append(error)
                if len(tries) == 2:
                    server().start()
                raise

    p = ll.Pipeline("away")
    source = p.source("ids", ll.sources.batches([batch(n) for n in range(1, 6)]))
    source.sink("store", Away(postgres.dsn, "rows"), retry=ll.Retry(attempts=4, wait="1ms"))
    try:
        assert p.run(f"lmdb:{tmp_path}/log", engine="inline").status().phase == "finished"
    finally:
        server().start()
    assert len(tries) == 2
    assert ids(postgres) == [1, 2, 3, 4, 5]


def test_a_lock_on_the_table_is_waited_for_and_then_told(opened, postgres):
    sink = opened(lock_timeout="50ms")
    write(sink, 1, 1)
    with psycopg.connect(postgres.dsn) as other:
        other.execute("lock table rows")
        with pytest.raises(ConnectorError, match=r"lock timeout; .*end it, or raise lock_timeout=") as raised:
            write(sink, 2, 2)
        assert not isinstance(raised.value, PermanentError)
    write(sink, 2, 2)
    assert ids(postgres) == [1, 2]


def test_a_statement_that_takes_too_long_is_told(opened, postgres):
    postgres.ask("create table rows (id bigint)")
    postgres.ask(
        "create function slow() returns trigger as 'begin perform pg_sleep(10); return new; end' language plpgsql"
    )
    postgres.ask("create trigger slow before insert on rows for each row execute function slow()")
    with pytest.raises(
        ConnectorError, match=r"statement timeout; .*longer than statement_timeout=: raise it"
    ) as raised:
        write(opened(statement_timeout="50ms"), 1, 1)
    assert not isinstance(raised.value, PermanentError)
    assert ids(postgres) == []


# ---- the table --------------------------------------------------------------------------------------------

NOON = dt.datetime(2026, 3, 1, 12, 0, 0, 123456)
VALUES = {
    "n": (pa.array([1, None], pa.int32()), "integer", 1),
    "small": (pa.array([255, None], pa.uint8()), "smallint", 255),
    "big": (pa.array([1 << 32, None], pa.int64()), "bigint", 1 << 32),
    "u4": (pa.array([(1 << 32) - 1, None], pa.uint32()), "bigint", (1 << 32) - 1),
    "u8": (pa.array([(1 << 64) - 1, None], pa.uint64()), "numeric", Decimal((1 << 64) - 1)),
    "x": (pa.array([0.1, None]), "double precision", 0.1),
    "x2": (pa.array([0.5, None], pa.float16()), "real", 0.5),
    "infinite": (pa.array([-inf, None]), "double precision", -inf),
    "yes": (pa.array([True, None]), "boolean", True),
    "s": (pa.array(["é\\N\t\n\r\"'{},", None]), "text", "é\\N\t\n\r\"'{},"),
    "empty": (pa.array(["", None], pa.large_string()), "text", ""),
    "view": (pa.array(["v", None], pa.string_view()), "text", "v"),
    "c": (pa.array(["red", None]).dictionary_encode(), "text", "red"),
    "b": (pa.array([b"\0\\\n\xff", None]), "bytea", b"\0\\\n\xff"),
    "b2": (pa.array([b"ab", None], pa.binary(2)), "bytea", b"ab"),
    "d": (pa.array([Decimal("-1.50"), None], pa.decimal128(10, 2)), "numeric(10,2)", Decimal("-1.50")),
    "d0": (pa.array([Decimal("1500"), None], pa.decimal128(10, -2)), "numeric", Decimal("1500")),
    "d256": (pa.array([Decimal("1e-9"), None], pa.decimal256(50, 9)), "numeric(50,9)", Decimal("1e-9")),
    "at": (
        pa.array([NOON.replace(tzinfo=dt.UTC), None], pa.timestamp("us", "Asia/Tokyo")),
        "timestamp with time zone",
        NOON.replace(tzinfo=dt.UTC),
    ),
    "at_ns": (pa.array([NOON, None], pa.timestamp("ns")), "timestamp without time zone", NOON),
    "at_s": (
        pa.array([dt.datetime(1969, 1, 2), None], pa.timestamp("s")),
        "timestamp without time zone",
        dt.datetime(1969, 1, 2),
    ),
    "day": (pa.array([dt.date(2026, 3, 1), None]), "date", dt.date(2026, 3, 1)),
    "day64": (pa.array([dt.date(2026, 3, 1), None], pa.date64()), "date", dt.date(2026, 3, 1)),
    "clock": (pa.array([dt.time(1, 2, 3, 4), None], pa.time64("ns")), "time without time zone", dt.time(1, 2, 3, 4)),
    "took": (pa.array([dt.timedelta(days=-2, microseconds=1), None]), "interval", dt.timedelta(-2, 0, 1)),
    "xs": (pa.array([["a", None, '"'], None]), "jsonb", ["a", None, '"']),
    "struct": (
        pa.array([{"n": 1, "d": Decimal("1.50"), "day": dt.date(2026, 3, 1)}, None]),
        "jsonb",
        {"n": 1, "d": "1.50", "day": "2026-03-01"},
    ),
    "map": (pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())), "jsonb", {"k": 1}),
    "id": (pa.array([uuid.UUID(int=5).bytes, None], pa.uuid()), "uuid", uuid.UUID(int=5)),
    "nothing": (pa.array([None, None], pa.null()), "text", None),
}


@pytest.mark.parametrize("options", [{}, {"mode": "upsert", "key": "key"}], ids=["append", "upsert"])
def test_types_of_a_table_that_it_makes(opened, postgres, options):
    columns = {name: column for name, (column, _, _) in VALUES.items()}
    sink = opened(**options)
    for number in (1, 2):  # the second time into a table that is there
        sink.write(pa.record_batch({**columns, "key": pa.array([2 * number, 2 * number + 1])}), number, "")
    names = ", ".join(VALUES)
    expected = tuple(value for _, _, value in VALUES.values())
    nulls = (None,) * len(VALUES)
    assert postgres.ask(f"select {names} from rows order by key") == [expected, nulls, expected, nulls]
    kinds = postgres.ask(
        "select attname, format_type(atttypid, atttypmod) from pg_attribute where attrelid = 'rows'::regclass "
        "and attnum > 0 and attname <> 'key'"
    )
    assert dict(kinds) == {name: kind for name, (_, kind, _) in VALUES.items()}


def test_values_that_it_can_t_hold_are_named(opened, postgres):
    sink = opened()
    refused = [
        (["a", "b\0c"], r"column 'x' has a NUL character \(row 1 of the event.*remove it before the sink"),
        (pa.array([1, 1001]).cast(pa.timestamp("ns")), "column 'x': .*would lose data.*cast it before the sink"),
        (pa.array([0, 10**18]).cast(pa.timestamp("us")), "invalid input syntax for type timestamp"),
        ([["a\0"], []], "unsupported Unicode escape sequence"),
    ]
    for values, said in refused:
        with pytest.raises(PermanentError, match=said):
            write(sink, 1, 1, 2, x=values)
    assert postgres.ask("select to_regclass('rows')") == [(None,)]
    write(sink, 1, 1, x=[nan])
    assert isnan(postgres.ask("select x from rows")[0][0])
    union = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])
    with pytest.raises(SchemaError, match=r"PostgreSQL has no type for sparse_union.*column 'x'"):
        write(sink, 2, 1, x=union)


def test_names_are_quoted(opened, postgres):
    table, column = 'my "table"; drop %s', "select, 'x' \"y\" %s $1"
    named = quoted(table)
    opened(table=named).write(pa.record_batch({column: [1]}), 1, "1")
    upserts = opened("upserts", named.replace("drop", "upsert"), mode="upsert", key=[column, "n"])
    upserts.write(pa.record_batch({column: [1, 1], "n": [1, 1], "nn": [1, 2]}), 1, "1")
    assert postgres.ask(f"select * from {named.replace('drop', 'upsert')}") == [(1, 1, 2)]
    found = postgres.ask("select tablename from pg_tables where schemaname = $1", postgres.schema)
    assert {name for (name,) in found} == {table, table.replace("drop", "upsert"), "_logline_positions"}


def test_a_schema_that_is_named(opened, postgres):
    """The positions are beside the table, whatever the search path of the next life is."""
    sink = opened(table=f"{postgres.schema}.rows")
    write(sink, 1, 1)
    elsewhere = sinks.postgres(postgres.dsn.partition("&options")[0], f"{postgres.schema}.rows")
    elsewhere.open(SCOPE)
    assert elsewhere.position() == 1
    write(elsewhere, 2, 2)
    elsewhere.close()
    assert ids(postgres) == [1, 2]
    with pytest.raises(PermanentError, match=r'schema "nowhere" does not exist; .*create the schema'):
        write(opened(table="nowhere.rows"), 1, 1)


def test_a_table_that_is_there(opened, postgres):
    postgres.ask("create domain amount as numeric(6, 2)")
    postgres.ask("create type mood as enum ('happy', 'sad')")
    postgres.ask(
        "create table rows (row int generated always as identity, id int, note text default 'new', price amount, "
        "mood mood, short char(3), doc json)"
    )
    more = {"price": [Decimal("1.50")], "mood": ["sad"], "short": ["abc"], "doc": ['{"a": 1}']}
    write(opened(), 1, 7, **more)
    upsert = opened("upserts", mode="upsert", key="id")
    with pytest.raises(PermanentError, match="nothing in it makes id unique: create a unique index on the key"):
        write(upsert, 1, 8, **more)
    postgres.ask("create unique index by_half on rows (id) where id > 5")
    with pytest.raises(PermanentError, match="nothing in it makes id unique"):
        write(upsert, 1, 8, **more)
    postgres.ask("create unique index by_id on rows (id) include (note)")
    write(upsert, 1, 8, **more)
    found = postgres.ask("select row, id, note, price, mood::text, short, doc from rows order by id")
    assert found == [(n, 6 + n, "new", Decimal("1.50"), "sad", "abc", {"a": 1}) for n in (1, 2)]


def test_a_text_that_is_too_long_is_not_cut_off(opened, postgres):
    postgres.ask("create table rows (id int primary key, name varchar(3), price numeric(4, 2))")
    for sink in (opened(), opened("upserts", mode="upsert", key="id")):
        with pytest.raises(
            PermanentError, match=r"value too long for type character varying\(3\).*make the column wider"
        ):
            write(sink, 1, 1, name=["abcd"])
        with pytest.raises(PermanentError, match=r"numeric field overflow.*make the column larger"):
            write(sink, 1, 1, price=[Decimal("100.00")])
        with pytest.raises(PermanentError, match=r"'price' has the type numeric\(4,2\), which does not take decimal"):
            write(sink, 1, 1, price=[Decimal("1.005")])
    assert ids(postgres) == []


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("id text", "its column 'id' has the type text, which does not take int64 as it is: cast the column"),
        ("id timestamptz", "its column 'id' has the type timestamp with time zone"),
        ("id real", "its column 'id' has the type real"),
    ],
)
def test_a_table_with_other_types_is_refused(opened, postgres, columns, said):
    postgres.ask(f"create table rows ({columns})")
    sink = opened()
    for _ in range(2):
        with pytest.raises(PermanentError, match=said):
            write(sink, 1, 1)
    assert postgres.ask("select * from rows") == []
    postgres.ask("drop table rows")
    write(sink, 1, 1)
    assert ids(postgres) == [1]


def test_times_without_a_zone_are_not_taken_for_others(opened, postgres):
    postgres.ask("create table rows (id int, at timestamptz)")
    with pytest.raises(
        PermanentError, match=r"'at' has the type timestamp with time zone, .*not take timestamp\[us\]"
    ):
        write(opened(), 1, 1, at=pa.array([NOON], pa.timestamp("us")))


# ---- secrets ----------------------------------------------------------------------------------------------


def test_a_reference_is_resolved_in_the_worker(postgres, monkeypatch):
    monkeypatch.delenv("PG", raising=False)
    sink = sinks.postgres(ll.env("PG"), "rows")
    assert sink.dataset() is None
    assert repr(sink) == "postgres(env('PG'), 'rows')"
    with pytest.raises(OptionError, match="'PG' is not set"):
        sink.open(SCOPE)
    shipped = cloudpickle.dumps(sink)
    monkeypatch.setenv("PG", postgres.dsn)
    assert postgres.schema.encode() not in cloudpickle.dumps(sink)
    arrived = cloudpickle.loads(shipped)
    arrived.open(SCOPE)
    write(arrived, 1, 1)
    arrived.close()
    assert ids(postgres) == [1]


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://ada:hunter2@localhost:1/shop",
        "host=localhost port=1 user=ada password=hunter2 dbname=shop",
        "postgresql://localhost:1/shop?user=ada&password=hunter2",
    ],
)
def test_a_password_is_told_to_nobody(dsn, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("PG", dsn)
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    for given in (dsn, ll.env("PG")):
        sink = sinks.postgres(given, "rows")
        p = ll.Pipeline("hidden")
        source = p.source("ids", ll.sources.batches([batch(1)]))
        source.sink("store", sink, retry=ll.Retry(attempts=2, wait="1ms"))
        log = tmp_path / f"log{len(said)}"
        with pytest.raises(PipelineFailed, match=r"postgres\(.* 'rows'\): .*onnection") as failed:
            p.run(f"lmdb:{log}", engine="inline")
        said += [
            str(failed.value),
            failed.value.traceback,
            repr(sink),
            str(sink.dataset()),
            str(p.check(f"lmdb:{log}")),
        ]
        said += [
            json.dumps(str(ll.open_log(f"lmdb:{log}").table(name).to_pylist())) for name in ("event_log", "state")
        ]
        said += [file.read_bytes().decode(errors="replace") for file in log.rglob("*") if file.is_file()]
    assert "hunter2" not in "\n".join([*said, caplog.text])
    assert "localhost" in said[0]


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://ada:hunt@er2@localhost/shop",
        "postgresql://ada:hunt/er2@localhost/shop",
        "postgresql://ada:hunt%er2@localhost/shop",
        "postgresql//ada:hunter2@localhost/shop",
        "password='hunter2",
        "hunter2",
        "",
    ],
)
def test_a_dsn_that_can_t_be_read_is_not_repeated(dsn, monkeypatch):
    with pytest.raises(OptionError, match=r"the DSN can't be read: write it as .*%40") as raised:
        sinks.postgres(dsn, "rows")
    monkeypatch.setenv("PG", dsn)
    with pytest.raises(OptionError, match=r"env\('PG'\) can't be read") as worker:
        sinks.postgres(ll.env("PG"), "rows").open(SCOPE)
    for error in (raised.value, worker.value):
        assert "er2" not in str(error)
        assert error.__cause__ is None and (error.__context__ is None or "er2" not in str(error.__context__))


# ---- what can be wrong ------------------------------------------------------------------------------------


def test_wrong_options(postgres):
    wrong: list[tuple[Any, Any, str]] = [
        ("rows", {"lock_timeout": "0s"}, "lock_timeout='0s': a millisecond at least"),
        ("rows", {"statement_timeout": 5}, "is not a duration"),
        ("a.b.c", {}, "can't be the table"),
        ("x" * 64, {}, "can't be the table"),
    ]
    for table, options, said in wrong:
        with pytest.raises(OptionError, match=said):
            sinks.postgres(postgres.dsn, table, **options)
    with pytest.raises(OptionError, match="the DSN is an int: give a text"):
        sinks.postgres(5, "rows")  # type: ignore[arg-type]


def test_what_can_never_fit_is_refused_when_the_pipeline_is_defined(postgres):
    p = ll.Pipeline("unfit")
    rows = p.source("rows", ll.sources.batches([pa.table({"id": [1], "é" * 32: [1]})]))
    with pytest.raises(SchemaError, match=r"operator 'store': .*can't be called 'éé.*names of 1 to 63 bytes"):
        rows.sink("store", sinks.postgres(postgres.dsn, "rows"))


def test_an_extra_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(OptionError, match=r"needs psycopg.*pip install 'logline\[postgres\]'"):
        sinks.postgres("postgresql://localhost/shop", "rows")


def test_a_role_that_may_not(opened, postgres):
    role = f"r{postgres.schema}"
    postgres.ask(f"create role {role} login")
    postgres.ask(f"grant usage on schema {postgres.schema} to {role}")
    dsn = postgres.dsn.replace("postgres:@", f"{role}:@")
    sink = sinks.postgres(dsn, "rows")
    sink.open(SCOPE)
    try:
        with pytest.raises(PermanentError, match=r"permission denied for schema .*the role needs INSERT"):
            write(sink, 1, 1)
        write(opened(), 1, 1)
        postgres.ask(f"grant insert on rows to {role}; ")
        postgres.ask(f"grant select, insert, update on _logline_positions to {role}")
        write(sink, 2, 2)
        assert ids(postgres) == [1, 2]
    finally:
        sink.close()
        postgres.ask(f"drop owned by {role}")
        postgres.ask(f"drop role {role}")


def test_a_sink_that_is_not_open(postgres):
    sink = sinks.postgres(postgres.dsn, "rows")
    for _ in range(2):
        with pytest.raises(ConnectorError, match="is not open"):
            sink.position()
        sink.open(SCOPE)
        assert sink.position() == 0
        thread = threading.Thread(target=sink.close)  # on whatever thread
        thread.start()
        thread.join()


def test_a_view_is_no_table(opened, postgres):
    postgres.ask("create view rows as select 1 as id")
    with pytest.raises(PermanentError, match="this is no table"):
        write(opened(), 1, 1)
