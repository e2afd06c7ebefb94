"""SQL on a log: find, sql, conditions."""

from __future__ import annotations

import pytest
from tests.unit.lineage.pipelines import A1, A2, A3, hourly_sales, run

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
