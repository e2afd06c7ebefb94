"""Blocks of n events: LOG.io Examples 2 and 3."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest
from tests.unit.operators.harness import Harness

from logline.errors import OptionError
from logline.operators import WindowAggregate, events

SCHEMA = pa.schema({"item_ID": pa.string(), "state": pa.string(), "amount": pa.int64()})


@pytest.fixture(params=[False, True], ids=["calm", "crashes"])
def crashes(request):
    return request.param


def sale(amount, item="BZ234"):
    return pa.RecordBatch.from_pylist([{"item_ID": item, "state": "CA", "amount": amount}], schema=SCHEMA)


def blocks(n, crashes, by=("item_ID", "state"), **more):
    op = WindowAggregate(events(n, **more), by, {"total": ("amount", "sum")})
    return Harness(op, SCHEMA, crashes=crashes)


def totals(harness):
    return [[row["total"] for row in rows] for rows in harness.out()]


def test_example_3_each_hundred_events_are_a_set(crashes):
    op2 = blocks(100, crashes)
    for amount in range(250):
        op2.send(sale(amount))
    assert op2.generated == [1, 2]
    assert op2.out()[0] == [{"item_ID": "BZ234", "state": "CA", "total": sum(range(100))}]
    assert op2.end().generated == [1, 2, 3]
    assert totals(op2) == [[sum(range(a, b))] for a, b in ((0, 100), (100, 200), (200, 250))]


def test_a_block_of_one(crashes):
    op2 = blocks(1, crashes, within="1s").send(sale(1)).send(sale(2))
    assert totals(op2) == [[1], [2]]
    assert op2.timers == {}


def test_a_block_closes_within_its_time(crashes):
    op2 = blocks(3, crashes, within="10s").send(sale(1))
    op2.advance(timedelta(seconds=9)).send(sale(2))
    assert op2.generated == []
    op2.advance(timedelta(seconds=1))
    assert totals(op2) == [[3]]
    op2.send(sale(4))
    assert list(op2.sets) == [2]
    op2.advance(timedelta(seconds=9)).send(sale(5)).send(sale(6))
    assert totals(op2) == [[3], [15]]
    assert op2.generated == [1, 2]


def test_an_event_that_comes_before_the_timer_rang_begins_the_next_block(crashes):
    op2 = blocks(3, crashes, within="10s").send(sale(1))
    op2.ctx.clock += timedelta(seconds=10)  # the timer is due and nobody has looked yet
    op2.send(sale(2))
    assert op2.generated == [1] and list(op2.sets) == [2]


def test_a_clock_that_went_back_leaves_no_set_without_a_timer(crashes):
    op2 = blocks(3, crashes, within="10s").send(sale(1)).advance(timedelta(seconds=10))
    op2.ctx.clock -= timedelta(seconds=5)
    op2.send(sale(2))
    assert set(op2.sets) == set(op2.timers)
    assert totals(op2.advance(timedelta(seconds=10))) == [[1], [2]]


def test_empty_events_count_and_make_no_groups(crashes):
    empty = SCHEMA.empty_table().to_batches() or [pa.RecordBatch.from_pylist([], schema=SCHEMA)]
    op2 = blocks(2, crashes).send(empty[0]).send(empty[0]).send(empty[0]).send(sale(1))
    assert op2.generated == [1, 2]
    assert totals(op2) == [[1]]


def test_no_bounds_and_no_late_port():
    op = WindowAggregate(events(2), ["state"], {"n": ("amount", "count")})
    assert op.schemas({"in": SCHEMA}) == {"out": pa.schema({"state": pa.string(), "n": pa.int64()})}
    assert op.time == {}


@pytest.mark.parametrize(("n", "within"), [(0, None), (True, None), ("3", None), (1, "0s")])
def test_blocks_that_make_no_sense(n, within):
    with pytest.raises(OptionError):
        events(n, within=within)
