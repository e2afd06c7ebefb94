"""Lookups in a table: against DuckDB on random rows, nulls and duplicates; tables that change or can't be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logline as ll
from logline.errors import LoglineError
from logline.operators import Lookup, table_of
from logline.operators.lookup_tables import Refreshed

ORDERS = pa.schema({"item": pa.string(), "size": pa.float64(), "n": pa.int64()})
PRICES = pa.schema({"name": pa.string(), "size": pa.float64(), "n": pa.int64()})
KEYS = st.tuples(st.sampled_from(["a", "b", "", None]), st.sampled_from([0.0, -0.0, 1.5, float("nan"), None]))
EVENTS = st.lists(st.lists(KEYS, max_size=6), min_size=1, max_size=4)


def batch(schema: pa.Schema, keys: list[tuple[Any, ...]], first: int = 0) -> pa.RecordBatch:
    rows = [dict(zip(schema.names, (*key, first + at), strict=True)) for at, key in enumerate(keys)]
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def driven(op: Lookup, events: list[pa.RecordBatch], *, crashes: bool = True) -> pa.Table:
    with ll.testing.drive(op, crashes=crashes) as drive:
        for one in events:
            drive.send(one)
        return drive.out()


@pytest.mark.parametrize("how", ["left", "inner"])
@settings(max_examples=40, deadline=None)
@given(events=EVENTS, keys=st.lists(KEYS, max_size=8), both=st.booleans())
def test_rows_are_joined_as_by_sql(
    how: Any, events: list[list[tuple[Any, ...]]], keys: list[tuple[Any, ...]], both: bool
) -> None:
    batches = [batch(ORDERS, some, 100 * at) for at, some in enumerate(events)]
    on = {"item": "name", "size": "size"} if both else {"item": "name"}
    prices = pa.Table.from_batches([batch(PRICES, keys)])
    op = Lookup(ORDERS, table_of(prices), on=on, how=how)
    made = driven(op, batches, crashes=False)  # a NaN is no equal of itself, to a drive that compares two
    with duckdb.connect(":memory:") as db:
        db.register("o", pa.Table.from_batches(batches))
        db.register("p", prices)
        equal = " and ".join(f"o.{mine} = p.{other}" for mine, other in on.items())
        wanted = db.sql(f"select o.n, p.n from o {how} join p on {equal}").fetchall()
    found = list(zip(made["n"].to_pylist(), made["n_right"].to_pylist(), strict=True))
    assert Counter(found) == Counter(wanted)
    assert found == sorted(found, key=lambda pair: (pair[0], -1 if pair[1] is None else pair[1]))  # a fixed order


def orders(*items: str | None) -> pa.RecordBatch:
    return pa.record_batch({"item": pa.array(items, pa.string())})


ITEMS = pa.schema({"item": pa.string()})


def prices(**by_item: int) -> pa.Table:
    return pa.table({"item": pa.array(by_item, pa.string()), "price": pa.array(by_item.values(), pa.int64())})


def written(path: Path, table: pa.Table) -> str:
    """Replaces the file at once, as whoever refreshes a table should."""
    pq.write_table(table, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)
    return str(path)


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path / "prices.parquet", prices(tea=3))
    with ll.testing.drive(Lookup(ITEMS, table_of(path), on=["item"], refresh="0s")) as drive:
        drive.send(orders("tea", "jam"))
        written(Path(path), prices(tea=4, jam=7))
        drive.send(orders("tea", "jam"))
        assert drive.out()["price"].to_pylist() == [3, None, 4, 7]


def test_without_refresh_a_life_keeps_what_it_has_read(tmp_path: Path) -> None:
    path = written(tmp_path / "prices.parquet", prices(tea=3))
    with ll.testing.drive(Lookup(ITEMS, table_of(path), on=["item"]), crashes=False) as drive:
        drive.send(orders("tea"))
        written(Path(path), prices(tea=4))
        drive.send(orders("tea"))
        drive.crash()  # what was put out is what was logged; the next life reads the file anew
        drive.send(orders("tea"))
        assert drive.out()["price"].to_pylist() == [3, 3, 4]


def test_a_table_is_made_again_when_it_is_older_than_refresh() -> None:
    now, made = [100.0], iter(range(10))
    asked = Refreshed(lambda: next(made), timedelta(seconds=60), lambda: now[0])
    found = []
    for passes in (0.0, 59.9, 0.1, 0.0, 200.0):
        now[0] += passes
        found.append(asked.get())
    assert found == [0, 0, 1, 1, 2]


def test_a_read_that_fails_is_an_error_of_the_event_and_the_next_one_reads_again(tmp_path: Path) -> None:
    path = Path(written(tmp_path / "prices.parquet", prices(tea=3)))
    op = Lookup(ITEMS, table_of(path), on=["item"], refresh="0s")
    with ll.testing.drive(op, on_error="divert") as drive:
        drive.send(orders("tea"))
        path.rename(tmp_path / "gone")
        drive.send(orders("tea"))
        (tmp_path / "gone").rename(path)
        drive.send(orders("tea"))
        assert drive.out()["price"].to_pylist() == [3, 3]
        (reason,) = drive.out("errors")["reason"].to_pylist()
        assert "prices.parquet" in reason


@pytest.mark.parametrize(
    ("after", "says"),
    [
        (pa.table({"item": ["tea"], "price": pa.array([5], pa.int32()), "more": [1]}), None),
        (pa.table({"item": ["tea"]}), "the column 'price' is missing"),
        (pa.table({"item": ["tea"], "price": ["five"]}), "price"),
    ],
    ids=["narrower, with a new column", "a column is gone", "another type"],
)
def test_a_table_keeps_the_columns_that_it_had_when_the_pipeline_was_defined(
    tmp_path: Path, after: pa.Table, says: str | None
) -> None:
    path = Path(written(tmp_path / "prices.parquet", prices(tea=3)))
    op = Lookup(ITEMS, table_of(path), on=["item"], refresh="0s")
    written(path, after)
    with ll.testing.drive(op, on_error="divert") as drive:
        drive.send(orders("tea"))
        assert drive.out()["price"].to_pylist() == ([5] if says is None else [])
        assert says is None or says in drive.out("errors")["reason"][0].as_py()


def csv(folder: Path) -> str:
    pv.write_csv(prices(tea=3, jam=7), folder / "prices.csv")
    return str(folder / "prices.csv")


def parquet_folder(folder: Path) -> Path:
    (folder / "prices").mkdir()
    pq.write_table(prices(tea=3), folder / "prices" / "part-0.parquet")
    pq.write_table(prices(jam=7), folder / "prices" / "part-1.parquet")
    (folder / "prices" / "_SUCCESS").touch()
    pq.write_table(prices(jam=9), folder / "prices" / "_old.parquet")
    return folder / "prices"


TABLES: dict[str, Callable[[Path], Any]] = {
    "arrow": lambda _: prices(tea=3, jam=7),
    "batch": lambda _: prices(tea=3, jam=7).to_batches()[0],
    "pandas": lambda _: prices(tea=3, jam=7).to_pandas(),
    "csv": csv,
    "folder": parquet_folder,
    "function": lambda _: lambda: prices(tea=3, jam=7),
}


@pytest.mark.parametrize("kind", TABLES)
def test_every_kind_of_table(kind: str, tmp_path: Path) -> None:
    p = ll.Pipeline("kinds")
    items = p.source("orders", ll.sources.batches([pa.Table.from_batches([orders("jam", "oil", None, "tea")])]))
    priced = items.lookup("priced", TABLES[kind](tmp_path), on=["item"], how="inner")
    assert priced.schema.names == ["item", "price"]
    assert priced.preview().to_pylist() == [{"item": "jam", "price": 7}, {"item": "tea", "price": 3}]


def test_with_a_schema_nothing_is_read_before_the_run(tmp_path: Path) -> None:
    def later() -> pa.Table:
        if not (tmp_path / "runs").exists():
            raise AssertionError("asked too early")
        return prices(tea=3)

    items = ll.Pipeline("later").source("orders", ll.sources.batches([pa.Table.from_batches([orders("tea")])]))
    called = items.lookup("called", later, on=["item"], schema="item string, price long")
    path = tmp_path / "prices.parquet"
    read = items.lookup("read", path, on=["item"], schema="item string, price long")
    (tmp_path / "runs").touch()
    written(path, prices(tea=4))
    assert called.preview()["price"].to_pylist() == [3]
    assert read.preview()["price"].to_pylist() == [4]


def test_an_empty_table_and_an_empty_event() -> None:
    made = driven(Lookup(ITEMS, table_of(prices()), on=["item"]), [orders("tea"), orders()])
    assert made.to_pylist() == [{"item": "tea", "price": None}]
    assert not driven(Lookup(ITEMS, table_of(prices()), on=["item"], how="inner"), [orders("tea")]).num_rows


def test_an_event_of_many_matches_makes_several_events() -> None:
    many = pa.table({"item": ["tea"] * 40_000, "price": range(40_000)})
    with ll.testing.drive(Lookup(ITEMS, table_of(many), on=["item"]), crashes=False) as drive:
        out = drive.send(orders("tea", "tea")).out()
        assert out["price"].to_pylist() == [*range(40_000)] * 2
        assert [len(chunk) for chunk in out["price"].chunks] == [1 << 16, 80_000 - (1 << 16)]


def test_columns_of_any_type_come_out_as_they_are() -> None:
    table = pa.table({"item": ["tea"], "tags": [["hot", None]], "at": pa.array([7], pa.timestamp("ns"))})
    made = driven(Lookup(ITEMS, table_of(table), on=["item"]), [orders("tea", "jam")])
    assert made.schema.field("at").type == pa.timestamp("ns")
    assert made["tags"].to_pylist() == [["hot", None], None]


def failing() -> pa.Table:
    raise OSError("no such host")


async def awaited() -> pa.Table:
    return prices()


@pytest.mark.parametrize(
    ("table", "more", "says"),
    [
        (prices(), {"on": ["items"]}, "on: the left side has no column 'items'"),
        (prices(), {"on": {"item": "name"}}, "on: the right side has no column 'name'"),
        (prices(), {"on": "item"}, "on='item': write columns of both sides"),
        (prices(), {"on": {"item": "price"}}, "give both one type"),
        (prices(), {"how": "outer"}, "how='outer': a lookup takes 'left'"),
        (prices(), {"select": "price"}, "select='price': name columns"),
        (prices(), {"select": ["cost"]}, "select: the table has no column 'cost'"),
        (prices(), {"refresh": "1m"}, "a table that is given never changes"),
        (failing, {}, "OSError: no such host"),
        (prices, {"refresh": "soon"}, "soon"),
        (prices(), {"schema": "item string"}, "schema= is for a path or a function"),
        (prices(), {"as_of": "date"}, "as_of='date' is for ll.table(stream, key=[...])"),
        (prices(), {"every": "1s"}, "every= goes with as_of="),
        (awaited, {}, "no `async def`"),
        (lambda item: prices(), {}, "lookup calls its function with ()"),
        (lambda: 7, {}, "it must return a table"),
        ("nowhere.parquet", {}, "nowhere.parquet can't be read"),
        ("s3://bucket/prices.parquet", {}, "give a function that returns the table"),
        (7, {}, "a lookup takes a table"),
    ],
)
def test_what_is_wrong_is_said_when_it_is_defined(table: Any, more: dict[str, Any], says: str) -> None:
    items = ll.Pipeline("wrong").source("orders", ll.sources.batches([pa.Table.from_batches([orders("tea")])]))
    with pytest.raises(LoglineError) as info:
        items.lookup("priced", table, **{"on": ["item"], **more})
    assert says in str(info.value) and "operator 'priced'" in str(info.value)


def test_a_spark_dataframe_is_refused_with_what_to_do() -> None:
    """By its type: no session is needed to say so."""
    sql = pytest.importorskip("pyspark.sql")
    frame = (
        object.__new__(sql.classic.dataframe.DataFrame) if hasattr(sql, "classic") else object.__new__(sql.DataFrame)
    )
    items = ll.Pipeline("wrong").source("orders", ll.sources.batches([pa.Table.from_batches([orders("tea")])]))
    for table in (frame, lambda: frame):
        with pytest.raises(LoglineError, match=r"'priced'.*Spark DataFrame.*toArrow.*Parquet.*refresh="):
            items.lookup("priced", table, on=["item"])
    with pytest.raises(LoglineError, match=r"name its key: ll\.table\(stream, key=\[\.\.\.\]\)"):
        items.lookup("priced", items, on=["item"])  # type: ignore[arg-type]
