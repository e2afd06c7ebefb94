"""SQL on a log: find, sql, conditions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.lineage.pipelines import A1, A2, A3, Each, hourly_sales, run

import logline as ll
from logline.errors import BadName, LogError, OptionError
from logline.runtime.log.log import Log


@pytest.fixture
def log(url: str) -> Log:
    return run(hourly_sales(A1, A2, A3), url).log


def test_find_by_what_records_say(log: Log) -> None:
    assert log.find("orders", "item_id = 'BZ234'") == ["orders:2", "orders:1"]
    assert log.find("orders", "amount > 50") == ["orders:2"]
    assert log.find("orders", "date >= timestamptz '2025-02-23 12:00:00+00'") == ["orders:3"]
    assert log.find("orders", "true", limit=1) == ["orders:3"]
    assert log.find("orders", "item_id is null") == []
    assert log.find("hourly.late", "true") == []


def test_find_says_what_is_wrong(log: Log) -> None:
    with pytest.raises(LogError, match=r"can't be answered: .*itemid"):
        log.find("orders", "itemid = 'BZ234'")
    with pytest.raises(BadName, match="there is no operator 'order'"):
        log.find("order", "true")
    with pytest.raises(OptionError, match="at least one event"):
        log.find("orders", "true", limit=0)


def test_lineage_of_what_a_condition_finds(log: Log) -> None:
    found = log.backward("hourly", where="item_id = 'CX100' and total = 1", to="orders")
    assert found["event"].to_pylist() == ["orders:3"]
    found = log.backward("hourly:1..2", where="total = 100")
    assert found["event"].to_pylist()[0] == "hourly:2"


def test_the_tables_and_the_ports_are_tables(log: Log) -> None:
    assert log.sql("select count(*) as n from event_log").to_pylist() == [{"n": log.table("event_log").num_rows}]
    edges = log.sql("select event, input from lineage_edges where operator = 'hourly' order by all").to_pylist()
    assert [tuple(row.values()) for row in edges] == [
        ("hourly:1", "sold:1"),
        ("hourly:1", "sold:2"),
        ("hourly:2", "sold:2"),
        ("hourly:3", "sold:3"),
    ]
    assert log.table("lineage_edges").num_rows == 7
    joined = log.sql(
        "select o.item_id, sum(o.amount) as total from lineage_edges e join sold o on o._event = e.input "
        "where e.event = 'hourly:1' group by all order by all"
    )
    assert joined.to_pylist() == [{"item_id": "BZ234", "total": 107}, {"item_id": "CX100", "total": 7}]
    assert log.sql('select * from "hourly.late"').num_rows == 0


def test_a_query_reads_nothing_but_the_log(log: Log) -> None:
    secret = [1]  # noqa: F841
    for query in (
        "select * from '/etc/passwd'",
        "select * from read_csv('/etc/passwd')",
        "copy (select 1) to '/tmp/x.csv'",
        "select * from secret",
        "select * from nothing",
    ):
        with pytest.raises(LogError, match="can't be answered"):
            log.sql(query)


def read(url: str, **sources: dict[str, list[Any]]) -> Log:
    """Sources alone, with these columns."""
    p = ll.Pipeline("names")
    for name, columns in sources.items():
        p.source(name, Each(pa.record_batch(columns)))
    p.lineage()
    return run(p, url).log


def test_names_that_differ_in_case_alone_are_not_mistaken_for_each_other(url: str) -> None:
    log = read(url, orders={"x": [1]}, Orders={"x": [2]}, cols={"id": [1], "ID": [2], "v": [3]})
    for query in ("select * from orders", 'select * from "Orders"', "select * from ORDERS"):
        with pytest.raises(LogError, match="tables 'orders' and 'Orders' of the log differ in case alone"):
            log.sql(query)
    assert (log.find("orders", "x = 1"), log.find("orders", "x = 2")) == (["orders:1"], [])
    assert (log.find("Orders", "x = 1"), log.find("Orders", "x = 2")) == ([], ["Orders:1"])
    for where in ("ID = 2", "id = 2", '"ID" = 1'):
        with pytest.raises(LogError, match="columns 'id' and 'ID' of cols differ in case alone"):
            log.find("cols", where)
        with pytest.raises(LogError, match="columns 'id' and 'ID' of cols"):
            log.backward("cols", where=where)
    assert log.find("cols", "v = 3") == ["cols:1"]
    with pytest.raises(LogError, match="columns 'id' and 'ID' of cols"):
        log.sql("select v from cols")


def test_records_of_columns_that_differ_in_case_alone(url: str) -> None:
    p = ll.Pipeline("names")
    source = p.source("cols", Each(pa.record_batch({"id": [1, 2], "ID": [2, 1]})))
    source.filter("kept", lambda batch: [value == 1 for value in batch["ID"].to_pylist()])
    p.lineage()
    found = run(p, url).log.backward("kept:1", to="cols", records=True)
    assert found["record"].to_pylist() == ['{"id": 2, "ID": 1}']


def test_columns_of_the_user_stay_theirs(url: str) -> None:
    log = read(url, mine={"_ssn": [77], "_row": [5], "_event": ["a"], "_Event_": ["b"]})
    for where in ("_ssn = 77", "_row = 5", "_event = 'a'"):
        assert log.find("mine", where) == ["mine:1"]
    assert log.find("mine", "_ssn = 1") == []
    (row,) = log.sql("select * from mine").to_pylist()
    assert row == {"_ssn": 77, "_row": 5, "_event": "a", "_Event_": "b", "__event": "mine:1"}
    found = log.backward("mine:1", where="_row = 5", records=True).to_pylist()
    assert json.loads(found[0]["record"]) == {"_ssn": 77, "_row": 5, "_event": "a", "_Event_": "b"}


def test_an_operator_that_is_called_like_a_table_is_written_in_full(url: str) -> None:
    log = read(url, State={"x": [1]})
    assert "state_id" in log.sql("select * from state").column_names
    assert log.sql('select x from "State.out"').to_pylist() == [{"x": 1}]


DAILY = """
import json, sys
from datetime import date
import pyarrow as pa
import logline as ll
days = pa.table({"day": [date(2024, 1, 1), date(2024, 1, 2), date(2024, 1, 2), date(2024, 1, 3)], "v": [1, 2, 3, 4]})
p = ll.Pipeline("dates")
p.source("days", ll.sources.batches([days])).window("daily", ll.tumbling("1d", on="day"), agg={"n": ("v", "sum")})
p.lineage()
log = p.run("memory:dates", engine="inline").log
found = [log.backward(f"daily:{n}", to="days", records=True)["record"].to_pylist() for n in (1, 2, 3)]
print(json.dumps([[json.loads(record)["v"] for record in records] for records in found]))
"""


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Lima"])
def test_records_of_windows_over_dates_in_any_zone(zone: str) -> None:
    """A process takes its zone when it begins."""
    zoned = {**os.environ, "TZ": zone}
    told = subprocess.run([sys.executable, "-c", DAILY], env=zoned, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout.splitlines()[-1]) == [[1], [2, 3], [4]]
