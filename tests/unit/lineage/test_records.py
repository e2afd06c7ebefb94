"""LOG.io Example 11: from events to records, by column dependencies."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.unit.lineage.pipelines import A1, A2, A3, Each, hourly_sales, run

from logline.connectors import sinks, sources
from logline.errors import OptionError
from logline.pipeline import Pipeline


def records(table: pa.Table) -> list[tuple[str, dict[str, Any]]]:
    return [(row["event"], json.loads(row["record"])) for row in table.to_pylist()]


def test_example_11(url: str) -> None:
    """The record r of b_1 for BZ234 in Ohio. The window's bounds leave out the record of a_2 that belongs to the hour
    after, which attribute dependencies alone can't."""
    log = run(hourly_sales(A1, A2, A3), url).log
    where = "item_id = 'BZ234' and state = 'Ohio'"
    found = records(log.backward("hourly:1", to="orders", where=where, records=True))
    assert [(event, r["item_id"], r["state"], r["amount"]) for event, r in found] == [
        ("orders:1", "BZ234", "Ohio", 5),
        ("orders:2", "BZ234", "Ohio", 1),
    ]


def test_forward_for_records(url: str) -> None:
    log = run(hourly_sales(A1, A2, A3), url).log
    found = records(log.forward("orders:2", to="hourly", where="amount = 100", records=True))
    assert [(event, r["total"]) for event, r in found] == [("hourly:2", 100)]


def test_all_records_of_an_event(url: str) -> None:
    log = run(hourly_sales(A1, A2, A3), url).log
    found = log.backward("hourly:1", records=True).to_pylist()
    assert [(row["event"], row["row"]) for row in found] == [
        ("hourly:1", 0),
        ("hourly:1", 1),
        ("hourly:1", 2),
        ("sold:1", 0),
        ("sold:1", 1),
        ("sold:1", 2),
        ("sold:2", 0),
        ("orders:1", 0),
        ("orders:1", 1),
        ("orders:1", 2),
        ("orders:2", 0),
    ]


def doubled(batch: pa.RecordBatch) -> pa.Table:
    table = pa.table(batch)
    return pa.table({"key": table["item_id"], "twice": pc.multiply(table["amount"], 2)})


@pytest.mark.parametrize(("depends", "amounts"), [({"key": "item_id"}, [7]), (None, [5, 7, 1])])
def test_what_an_author_declares(url: str, depends: dict[str, str] | None, amounts: list[int]) -> None:
    """Without dependencies every record of an event can have made any of the other's."""
    p = Pipeline("declared")
    orders = p.source("orders", Each(A1))
    options = {} if depends is None else {"depends": depends}
    orders.map_batches("twice", doubled, **options).sink("store", sinks.collect())  # type: ignore[arg-type]
    p.lineage()
    found = run(p, url).log.backward("twice:1", to="orders", where="key = 'CX100'", records=True)
    assert [r["amount"] for _, r in records(found)] == amounts


def test_a_dependency_on_a_column_that_is_not_there_is_refused() -> None:
    p = Pipeline("declared")
    orders = p.source("orders", Each(A1))
    with pytest.raises(OptionError, match="there is no output column 'item_id'; there are key, twice"):
        orders.map_batches("twice", doubled, depends={"item_id": "item_id"})
    with pytest.raises(OptionError, match="there is no input column 'key'"):
        orders.map_batches("twice", doubled, depends={"key": "key"})
    with pytest.raises(OptionError, match="not a mapping of output columns to input columns"):
        orders.map_batches("twice", doubled, depends=["key"])  # type: ignore[arg-type]


def test_null_agrees_with_null(url: str) -> None:
    p = Pipeline("nulls")
    batch = pa.record_batch({"k": pa.array([None, "a"], pa.string()), "n": pa.array([1, 2], pa.int64())})
    p.source("source", Each(batch)).filter("all", lambda b: [True] * b.num_rows).sink("store", sinks.collect())
    p.lineage()
    found = run(p, url).log.backward("all:1", to="source", where="k is null", records=True)
    assert [r["n"] for _, r in records(found)] == [1]


def test_each_way_has_the_records_that_came_by_it(url: str) -> None:
    """Of two ways to an event, only the one that a record came by is told."""
    p = Pipeline("ways")
    rows = p.source("rows", sources.batches([pa.table({"id": [0, 1, 2]})]))
    pairs = rows.rebatch("pairs", rows=2, within="1h")
    pairs.rebatch("all", rows=3, within="1h").sink("store", sinks.collect())
    p.lineage()
    log = run(p, url).log
    forward = log.forward("rows", where="id = 2", records=True)
    for found in (forward, log.backward("all", where="id = 2", records=True)):
        first, *ways = [(row["event"], row["of"], json.loads(row["record"])["id"]) for row in found.to_pylist()]
        last = "all:1" if first[0] == "rows:1" else "rows:1"
        assert ways == [("pairs:2", first[0], 2), (last, "pairs:2", 2)]
