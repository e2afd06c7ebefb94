"""The log as a data source: what Spark reads is what the log holds."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.waiting import until

import logline as ll
from logline.errors import BadName, DefinitionError, OptionError, SchemaError
from logline.spark import datasource, register

UTC = dt.UTC
SALES = [pa.table({"item": ["tea", "jam"], "amount": [k, k + 1]}) for k in range(6)]


def sales(log: str) -> ll.Run:
    p = ll.Pipeline("sales")
    orders = p.source("orders", ll.sources.batches(SALES))
    orders.window("pairs", ll.events(2), by=["item"], agg={"total": ("amount", "sum")}).sink(
        "store", ll.sinks.collect()
    )
    p.lineage()
    return p.run(log, engine="inline")


@pytest.fixture(scope="module")
def log(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ll.Log:
    register(spark)
    return sales(f"lmdb:{tmp_path_factory.mktemp('frames')}/sales.log").log


def load(spark: SparkSession, **options: str) -> DataFrame:
    return spark.read.format("logline").options(**options).load()


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return sorted((row.asDict(recursive=True) for row in frame.collect()), key=str)


@pytest.mark.parametrize("table", ["event_log", "event_data", "read_action", "state", "event_lineage"])
def test_tables_are_those_of_the_log(spark: SparkSession, log: ll.Log, table: str) -> None:
    found = load(spark, log=log.url, table=table)
    wanted = log.table(table)
    assert found.columns == wanted.schema.names
    assert rows(found) == sorted(wanted.to_pylist(), key=str)


def test_a_table_is_read_by_a_task_per_operator(spark: SparkSession, log: ll.Log) -> None:
    assert load(spark, log=log.url, table="event_log").rdd.getNumPartitions() == 3


def test_the_records_of_a_port(spark: SparkSession, log: ll.Log) -> None:
    frame = log.frame(spark, "pairs.out")
    assert frame.columns == ["item", "total"]
    assert rows(frame.groupBy("item").sum("total")) == [
        {"item": "jam", "sum(total)": 21},
        {"item": "tea", "sum(total)": 15},
    ]
    assert log.frame(spark, "pairs").schema == frame.schema  # `.out` may be left out


def test_names_join_records_with_the_tables(spark: SparkSession, log: ll.Log) -> None:
    named = log.frame(spark, "orders", names=True)
    assert named.columns == ["event_id", "ssn", "item", "amount"]
    taken = load(spark, log=log.url, table="event_log").where("rec_op = 'pairs'")
    found = named.join(taken, "event_id").groupBy("inset_id").sum("amount")
    assert rows(found) == [
        {"inset_id": "1#1", "sum(amount)": 4},
        {"inset_id": "2#2", "sum(amount)": 12},
        {"inset_id": "3#3", "sum(amount)": 20},
    ]


def test_a_large_port_is_read_by_several_tasks(
    spark: SparkSession, log: ll.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = datasource.Wanted.of({"log": log.url, "port": "orders"})
    reader = datasource.LogReader(wanted)
    (whole,) = reader.partitions()
    monkeypatch.setattr(datasource, "TASK_BYTES", 500)
    pieces = reader.partitions()
    assert 1 < len(pieces) <= 7
    amounts = [b["amount"].to_pylist() for piece in pieces for b in reader.read(piece)]
    assert amounts == [b["amount"].to_pylist() for b in reader.read(whole)] == [[k, k + 1] for k in range(6)]


def test_a_port_without_events_has_its_schema(spark: SparkSession, log: ll.Log) -> None:
    frame = log.frame(spark, "pairs.errors")
    assert frame.count() == 0
    assert "traceback" in frame.columns


def test_a_log_in_memory(spark: SparkSession) -> None:
    log = sales("memory:frames").log
    assert rows(log.frame(spark, "pairs", names=True)) == [
        {"event_id": f"pairs:{k}", "ssn": k, "item": item, "total": total}
        for k, item, total in sorted(
            ((k, item, 4 * k - 3 + 2 * (item == "jam")) for k in (1, 2, 3) for item in ("jam", "tea")), key=str
        )
    ]


def test_while_the_pipeline_runs(spark: SparkSession, tmp_path: Path) -> None:
    class Endless(ll.Source):
        schema = pa.schema({"id": pa.int64()})

        def read(self, partition: str, offset: Any) -> Iterator[Any]:
            yield pa.record_batch({"id": [1, 2, 3]}), 1
            while True:
                yield None

    p = ll.Pipeline("endless")
    p.source("ids", Endless()).sink("store", ll.sinks.collect())
    with p.start(f"lmdb:{tmp_path}/log", engine="processes") as run:
        frame = run.log.frame(spark, "store.errors")
        assert frame.count() == 0
        until(lambda: run.result("store").num_rows == 3)
        found = load(spark, log=run.log.url, table="event_data").where("send_port is null")
        assert found.select("rows").collect()[0][0] == 3
        assert run.pid("ids") is not None  # nobody was disturbed


EXACT = pa.schema(
    {
        "flag": pa.bool_(),
        "small": pa.uint8(),
        "large": pa.uint64(),
        "half": pa.float16(),
        "text": pa.large_string(),
        "label": pa.dictionary(pa.int8(), pa.string()),
        "raw": pa.binary(2),
        "price": pa.decimal128(10, 2),
        "day": pa.date64(),
        "at": pa.timestamp("ns", "Europe/Rome"),
        "local": pa.timestamp("ms"),
        "tags": pa.large_list(pa.string()),
        "sizes": pa.map_(pa.string(), pa.uint16()),
        "place": pa.struct({"x": pa.float32(), "names": pa.list_(pa.string())}),
    }
)
EXACT_ROW = {
    "flag": True,
    "small": 255,
    "large": 2**64 - 1,
    "half": 0.5,
    "text": "é",
    "label": "a",
    "raw": b"ab",
    "price": Decimal("1.25"),
    "day": dt.date(2026, 3, 29),
    "at": dt.datetime(2026, 3, 29, 1, 30, 0, 7, tzinfo=UTC),
    "local": dt.datetime(2026, 3, 29, 2, 30),
    "tags": ["x", None],
    "sizes": [("a", 1)],
    "place": {"x": 1.5, "names": []},
}


def test_types_nulls_and_zones(spark: SparkSession, tmp_path: Path) -> None:
    nothing = dict.fromkeys(EXACT.names)
    table = pa.Table.from_pylist([EXACT_ROW, nothing], schema=EXACT)
    p = ll.Pipeline("types")
    p.source("all", ll.sources.batches([table])).sink("store", ll.sinks.collect())
    p.lineage()
    frame = p.run(f"lmdb:{tmp_path}/log", engine="inline").log.frame(spark, "all")
    assert frame.schema.simpleString() == (
        "struct<flag:boolean,small:smallint,large:decimal(20,0),half:float,text:string,label:string,raw:binary,"
        "price:decimal(10,2),day:date,at:timestamp,local:timestamp_ntz,tags:array<string>,sizes:map<string,int>,"
        "place:struct<x:float,names:array<string>>>"
    )
    first, second = frame.toArrow().to_pylist()
    assert second == nothing
    assert first["at"] == EXACT_ROW["at"]
    assert first == {**EXACT_ROW, "large": Decimal(2**64 - 1), "at": first["at"]}


def test_a_type_that_spark_lacks_is_refused_by_name(spark: SparkSession) -> None:
    p = ll.Pipeline("times")
    table = pa.table({"at": pa.array([1], pa.time32("s"))})
    p.source("ticks", ll.sources.batches([table])).sink("store", ll.sinks.collect())
    with pytest.raises(SchemaError, match=r"ticks\.out: column 'at' has type time32\[s\]"):
        p.run(engine="inline").log.frame(spark, "ticks")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"table": "event_log"}, "option 'log' is missing"),
        ({"log": "lmdb:x"}, "give one of the options 'table'"),
        ({"log": "lmdb:x", "table": "state", "port": "a.out"}, "give one of the options 'table'"),
        ({"log": "lmdb:x", "table": "events"}, "option 'table': there is no table 'events'; there are event_log"),
        ({"log": "lmdb:x", "port": "a.out", "names": "perhaps"}, "option 'names': 'perhaps' is neither"),
        ({"log": "lmdb:x", "table": "state", "names": "true"}, "option 'names' goes with 'port'"),
        ({"log": "memory:x", "table": "state"}, "option 'log': a log in memory can't be seen"),
        ({"log": "lmdb:x", "tabel": "state"}, "option 'tabel': the format 'logline' has the options"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        datasource.LogSource(options).schema()


def test_spark_shows_what_is_wrong(spark: SparkSession, log: ll.Log, tmp_path: Path) -> None:
    with pytest.raises(
        Exception, match="option 'port': there is no operator 'orderz'; there are orders, pairs, store"
    ):
        load(spark, log=log.url, port="orderz.out")
    with pytest.raises(Exception, match="option 'port': 'orders' has no port 'late'; it has out"):
        load(spark, log=log.url, port="orders.late")
    with pytest.raises(Exception, match="option 'log': there is no log at"):
        load(spark, log=f"lmdb:{tmp_path}/nothing", table="state")


def test_frame_wants_a_session_and_a_port(spark: SparkSession, log: ll.Log) -> None:
    with pytest.raises(DefinitionError, match=r"log\.frame\(spark, port\)"):
        log.frame("orders", "out")  # type: ignore[arg-type]
    with pytest.raises(BadName, match="'orders' has no port 'late'"):
        log.frame(spark, "orders.late")


def test_a_column_of_the_same_name_is_not_hidden(spark: SparkSession) -> None:
    p = ll.Pipeline("clash")
    p.source("ids", ll.sources.batches([pa.table({"ssn": [1]})])).sink("store", ll.sinks.collect())
    log = p.run(engine="inline").log
    with pytest.raises(OptionError, match=r"option 'names': ids\.out has a column 'ssn' of its own"):
        log.frame(spark, "ids", names=True)


def test_nothing_can_be_written(spark: SparkSession, log: ll.Log) -> None:
    for options in ({}, {"log": log.url, "port": "orders"}):
        with pytest.raises(PySparkException, match="the format 'logline' only reads"):
            spark.range(1).write.format("logline").options(**options).mode("append").save()
