"""What sources.postgres makes of a query's columns: types, values, and what it can't read. On a real server."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from math import inf, isnan
from typing import Any

import pyarrow as pa
import pytest

import logline as ll
from logline.connectors import sources
from logline.errors import ConnectorError, OptionError, PermanentError, SchemaError

NOON = dt.datetime(2026, 3, 1, 12, 0, 0, 123456)
VALUES: dict[str, tuple[str, str, pa.DataType, Any]] = {
    "yes": ("boolean", "true", pa.bool_(), True),
    "no": ("boolean", "false", pa.bool_(), False),
    "tiny": ("smallint", "-32768", pa.int16(), -32768),
    "n": ("integer", "2147483647", pa.int32(), 2147483647),
    "big": ("bigint", "-9223372036854775808", pa.int64(), -(1 << 63)),
    "oid": ("oid", "4294967295", pa.uint32(), (1 << 32) - 1),
    "x4": ("real", "0.1", pa.float32(), 0.10000000149011612),
    "x8": ("double precision", "0.30000000000000004", pa.float64(), 0.30000000000000004),
    "infinite": ("double precision", "'-Infinity'", pa.float64(), -inf),
    "d": ("numeric(10,2)", "-12345678.9", pa.decimal128(10, 2), Decimal("-12345678.90")),
    "d38": ("numeric(38,0)", "'1e37'", pa.decimal128(38, 0), Decimal("1e37")),
    "d76": ("numeric(76,38)", "0.5", pa.decimal256(76, 38), Decimal("0.5")),
    "s": ("text", "E'é\\\\N\\t\\n\\r\"''{},'", pa.string(), "é\\N\t\n\r\"'{},"),
    "empty": ("text", "''", pa.string(), ""),
    "null_text": ("text", "'\\N'", pa.string(), "\\N"),
    "short": ("varchar(5)", "'abc'", pa.string(), "abc"),
    "padded": ("char(5)", "'abc'", pa.string(), "abc  "),
    "b": ("bytea", "'\\x005c0aff'", pa.binary(), b"\0\\\n\xff"),
    "no_bytes": ("bytea", "''", pa.binary(), b""),
    "day": ("date", "'2026-03-01'", pa.date32(), dt.date(2026, 3, 1)),
    "clock": ("time", "'01:02:03.000004'", pa.time64("us"), dt.time(1, 2, 3, 4)),
    "at": ("timestamp", f"'{NOON}'", pa.timestamp("us"), NOON),
    "at_s": ("timestamp(0)", "'1969-12-31 23:59:59'", pa.timestamp("us"), dt.datetime(1969, 12, 31, 23, 59, 59)),
    "at_zone": (
        "timestamptz",
        f"'{NOON}+09'",
        pa.timestamp("us", "UTC"),
        (NOON - dt.timedelta(hours=9)).replace(tzinfo=dt.UTC),
    ),
    "u": ("uuid", f"'{uuid.UUID(int=5)}'", pa.string(), str(uuid.UUID(int=5))),
    "j": ("json", "'{\"a\": [1, null]}'", pa.string(), '{"a": [1, null]}'),
    "jb": ("jsonb", '\'{"b":"x\\ny"}\'', pa.string(), '{"b": "x\\ny"}'),
    "mood": ('"Mood of"', "'glad'", pa.string(), "glad"),
    "ip": ("inet", "'10.0.0.1'", pa.string(), "10.0.0.1"),
    "own": ("amount", "1.5", pa.decimal128(10, 2), Decimal("1.50")),
    "ns": ("int[]", "'{1,NULL,-3}'", pa.list_(pa.int32()), [1, None, -3]),
    "no_ns": ("int[]", "'{}'", pa.list_(pa.int32()), []),
    "ss": (
        "text[]",
        "array['a,b', null, '', '\"{}', 'NULL']",
        pa.list_(pa.string()),
        ["a,b", None, "", '"{}', "NULL"],
    ),
    "bs": ("bytea[]", "array['\\x00'::bytea]", pa.list_(pa.binary()), [b"\0"]),
    "flags": ("boolean[]", "'{t,f,NULL}'", pa.list_(pa.bool_()), [True, False, None]),
    "ds": ("numeric(10,2)[]", "'{1.5}'", pa.list_(pa.decimal128(10, 2)), [Decimal("1.50")]),
    "days": ("date[]", "'{2026-03-01}'", pa.list_(pa.date32()), [dt.date(2026, 3, 1)]),
    "moods": ('"Mood of"[]', "'{sad,glad}'", pa.list_(pa.string()), ["sad", "glad"]),
}


@pytest.fixture
def typed(postgres):
    """A table with all of them: values, then nulls."""
    postgres.ask("create type \"Mood of\" as enum ('sad', 'glad')")
    postgres.ask("create domain amount as numeric(10,2)")
    columns = ", ".join(f"{name} {kind}" for name, (kind, *_) in VALUES.items())
    postgres.ask(f"create table typed (id int primary key, {columns})")
    values = ", ".join(value for _, value, *_ in VALUES.values())
    postgres.ask(f"insert into typed values (1, {values})")
    postgres.ask("insert into typed (id) values (2)")
    return postgres


def rows(source, offset=None):
    return [row for item in source.read("0", offset) if item for row in item[0].to_pylist()]


@pytest.mark.parametrize("cursor", [None, "id"])
def test_values_of_all_types(typed, cursor):
    source = sources.postgres(typed.dsn, "typed", cursor=cursor)
    assert source.schema == pa.schema({"id": pa.int32()} | {name: type_ for name, (_, _, type_, _) in VALUES.items()})
    first, second = rows(source)
    for name, (kind, _, _, value) in VALUES.items():
        assert first[name] == value, (name, kind)
        assert second[name] is None


def test_settings_of_a_role_change_nothing(typed):
    settings = {"datestyle": "german", "timezone": "Asia/Tokyo", "bytea_output": "escape", "extra_float_digits": "-5"}
    options = "%20".join(f"-c{name}%3D{value}" for name, value in settings.items())
    hostile = typed.dsn.replace("options=", f"options={options}%20")
    assert rows(sources.postgres(hostile, "typed")) == rows(sources.postgres(typed.dsn, "typed"))


def test_one_column_with_nothing_in_it(postgres):
    postgres.ask("create table t (s text)")
    postgres.ask("insert into t values (null), (''), ('\\N'), (E'\\n')")
    assert [row["s"] for row in rows(sources.postgres(postgres.dsn, "t"))] == [None, "", "\\N", "\n"]


def test_rows_that_are_larger_than_a_batch(postgres, monkeypatch):
    monkeypatch.setattr("logline.connectors.postgres_query.BYTES", 1 << 20)
    query = "select n, repeat('x', 700000) as s from generate_series(1, 5) n"
    source = sources.postgres(postgres.dsn, query, cursor="n")
    found = [item for item in source.read("0", None) if item]
    assert [(batch["n"].to_pylist(), offset) for batch, offset in found] == [
        ([1, 2], {"n": "2"}),
        ([3, 4], {"n": "4"}),
        ([5], {"n": "5"}),
    ]
    assert found[0][0]["s"][1].as_py() == "x" * 700_000


def test_schema_says_which_columns_and_types(typed):
    wanted = pa.schema(
        {
            "x8": pa.string(),
            "n": pa.int64(),
            "u": pa.uuid(),
            "ns": pa.large_list(pa.int64()),
            "at_zone": pa.timestamp("ms", "Asia/Tokyo"),
            "jb": pa.map_(pa.string(), pa.string()),
            "d": pa.float64(),
            "padded": pa.large_string(),
            "no": pa.string(),
            "clock": pa.time32("s"),
        }
    )
    typed.ask("update typed set at_zone = '2026-03-01 12:00:00.5Z', clock = '01:02:03'")
    source = sources.postgres(typed.dsn, "typed", cursor="id", schema=wanted)
    ((batch, offset),) = [item for item in source.read("0", None) if item is not None]
    assert batch.schema == wanted
    assert offset == {"id": "2"}
    assert batch.to_pylist()[0] == {
        "x8": "0.30000000000000004",
        "n": 2147483647,
        "u": uuid.UUID(int=5),
        "ns": [1, None, -3],
        "at_zone": dt.datetime(2026, 3, 1, 12, 0, 0, 500000, tzinfo=dt.UTC),
        "jb": [("b", "x\ny")],
        "d": -12345678.9,
        "padded": "abc  ",
        "no": "f",
        "clock": dt.time(1, 2, 3),
    }


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("1.5::numeric as total", r"column 'total' has the type numeric, .*as in \"total\"::numeric\(20, 4\)"),
        ("array[1.5]::numeric[] as total", r"type numeric\[\], which .*as in \"total\"::numeric\(20, 4\)"),
        ("1::numeric(100,2) as total", r"type numeric\(100,2\)"),
        ("interval '1 day' as took", r"column 'took' has the type interval, .*as in \"took\"::text, or leave it out"),
        ("point '(1,2)' as place", "type point"),
        ("int4range(1, 2) as span", "type int4range"),
        ("row(1, 2) as pair", "type record"),
        ("time with time zone '10:00Z' as clock", "type time with time zone"),
        ("1 as n, 2 as n", "several columns 'n': name them apart, with AS"),
    ],
)
def test_what_it_can_t_read_is_named(postgres, column, said):
    with pytest.raises(SchemaError, match=said):
        sources.postgres(postgres.dsn, f"select {column}")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            "'infinity'::timestamp",
            r"column 'v' \(timestamp without time zone\) has a value .* as timestamp\[us\].*infinity",
        ),
        ("'0044-03-15 BC'::date", r"column 'v' \(date\).*0044-03-15 BC"),
        ("'NaN'::numeric(5,2)", r"column 'v' \(numeric\(5,2\)\).*Cast or filter it in the query"),
        ("'24:00'::time", r"column 'v' \(time without time zone\)"),
        ("array[[1,2],[3,4]]", "an array of several dimensions is no list"),
    ],
)
def test_a_value_that_arrow_has_not_is_told(postgres, value, said):
    with pytest.raises(PermanentError, match=said):
        rows(sources.postgres(postgres.dsn, f"select {value} as v"))


def test_values_that_a_schema_has_no_room_for_are_told(postgres):
    for type_, said in (("short", "Integer value|out of|Failed to parse"), ("date", "Failed to parse")):
        with pytest.raises(PermanentError, match=rf"column 'v' \(integer\) has a value .*({said})"):
            rows(sources.postgres(postgres.dsn, "select 100000 as v", schema=f"v {type_}"))


def test_a_table_that_changes_is_told(typed):
    source = sources.postgres(typed.dsn, "typed", cursor="id")
    typed.ask("alter table typed add column more int")
    assert len(rows(source)) == 2
    typed.ask("alter table typed drop column mood")
    with pytest.raises(PermanentError, match=r"the query has no column 'mood'.*has the table changed"):
        rows(source)


def test_nan_is_kept(postgres):
    (row,) = rows(sources.postgres(postgres.dsn, "select 'NaN'::float8 as x"))
    assert isnan(row["x"])


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "'' can't be read: give a query, .* or the name of a table"),
        (7, "7 can't be read"),
        ("a.b.c", "'a.b.c' can't be the table"),
    ],
)
def test_a_query_that_is_none(postgres, query, said):
    with pytest.raises(OptionError, match=said):
        sources.postgres(postgres.dsn, query)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("orders", 'relation "orders" does not exist; .*the name of a table as it is in the database'),
        ("delete from typed", "does not exist; .*give a query"),
        ("select", "the query has no columns"),
        ("select nothing from typed", 'column "nothing" does not exist'),
        ("select 1 as a; drop table typed", "syntax error"),
        ("select nextval('numbers') as n", "nextval.. in a read-only transaction; .*a source only reads"),
    ],
)
def test_a_query_that_the_server_refuses(typed, query, said):
    typed.ask("create sequence numbers")
    with pytest.raises((ConnectorError, SchemaError), match=said):
        rows(sources.postgres(typed.dsn, query))
    assert typed.ask("select count(*) from typed") == [(2,)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cursor": []}, "name the column that orders the rows"),
        ({"cursor": ["id", "id"]}, "name the column that orders the rows"),
        ({"cursor": ""}, "name the column that orders the rows"),
        ({"poll": "1s"}, "poll= and listen= need cursor="),
        ({"listen": "orders"}, "poll= and listen= need cursor="),
        ({"cursor": "id", "poll": "0s"}, "poll='0s': a millisecond at least"),
        ({"cursor": "id", "poll": "soon"}, "not a duration"),
        ({"cursor": "id", "listen": ""}, "name the channel that NOTIFY names"),
        ({"cursor": "id", "settle": "later"}, "take 'transactions', 'writers', or a time"),
        ({"page": 0}, "page=0: rows that are asked for at a time"),
    ],
)
def test_options_that_mean_nothing(postgres, options, said):
    with pytest.raises(OptionError, match=said):
        sources.postgres(postgres.dsn, "orders", schema="id long", **options)


def test_names_are_quoted(postgres):
    table, column = '"my ""table""; drop %s"', '"select, \'x\' ""y"" %s $1"'
    postgres.ask(f"create table {table} ({column} text primary key)")
    postgres.ask(f"insert into {table} values ('a''b\\'), ('c')")
    name = "select, 'x' \"y\" %s $1"
    source = sources.postgres(postgres.dsn, table, cursor=name, page=1)
    assert [row[name] for row in rows(source)] == ["a'b\\", "c"]
    assert [row[name] for row in rows(source, {name: "a'b\\"})] == ["c"]


def test_what_it_is_called(typed):
    settings = "postgresql://ada:hunter2@db.example:5433/shop"
    source = sources.postgres(settings, "sales.orders", cursor="id", schema="id long")
    assert repr(source) == source.describe("0") == "postgres('postgresql://ada@db.example:5433/shop', 'sales.orders')"
    assert source.dataset() == ("postgres://db.example:5433", "shop.sales.orders")
    query = sources.postgres(settings, "select id from orders", schema="id long")
    assert query.dataset() is None


def test_a_preview_waits_for_nobody(typed):
    import psycopg

    p = ll.Pipeline("seen")
    seen = p.source("typed", ll.sources.postgres(typed.dsn, "typed", cursor="id", poll="1h"))
    with psycopg.connect(typed.dsn) as other:
        other.execute("insert into typed (id) values (3)")
        assert seen.preview()["id"].to_pylist() == [1, 2]
