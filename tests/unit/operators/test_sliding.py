"""Windows that overlap, against plain Python: shared panes, late records, what depends on the order of arrival."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.operators.harness import Harness

import logline as ll
from logline.errors import OptionError
from logline.graph.digest import code_digest
from logline.operators import SlidingAggregate, WindowAggregate, sliding
from logline.operators.aggregates import Aggregates

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TYPE = pa.timestamp("s", "UTC")
AGG = {"total": ("n", "sum"), "most": ("n", "max")}


@pytest.fixture(params=[False, True], ids=["calm", "crashes"])
def crashes(request):
    return request.param


def at(second):
    return EPOCH + timedelta(seconds=second)


def rows(*pairs):
    times, numbers = zip(*pairs, strict=True) if pairs else ((), ())
    return pa.record_batch({"at": pa.array(times, pa.int64()).cast(TYPE), "n": pa.array(numbers, pa.int64())})


def windows(size, step, crashes=False, agg=AGG, **more):
    op = WindowAggregate(sliding(timedelta(seconds=size), timedelta(seconds=step), on="at", **more), (), agg)
    return Harness(op, rows().schema, crashes=crashes)


def totals(op):
    return [((r["window_start"] - EPOCH).seconds, r["total"]) for event in op.out() for r in event]


def test_a_record_is_in_every_window_that_covers_it(crashes):
    op = windows(10, 5, crashes).send(rows((12, 1), (17, 2))).send(rows((21, 4))).end()
    assert totals(op) == [(5, 1), (10, 3), (15, 6), (20, 4)]
    assert op.out()[0][0]["window_end"] == at(15)


def test_a_step_that_does_not_divide_the_size(crashes):
    op = windows(10, 4, crashes).send(rows((8, 1), (9, 2), (10, 4), (11, 8))).end()
    assert totals(op) == [(0, 3), (4, 15), (8, 15)]


def test_what_is_late_for_all_windows_leaves_and_what_is_late_for_some_is_counted(crashes):
    op = windows(10, 5, crashes).send(rows((12, 1))).send(rows((22, 2)))  # closes 5..15 and 10..20
    op.send(rows((13, 4), (17, 8), (23, 16)))
    assert op.out("late") == [[{"at": at(13), "n": 4}]]
    op.end()
    assert totals(op) == [(5, 1), (10, 1), (15, 26), (20, 18)]
    assert op.ctx.counts == {"late": 1, "late_in_part": 1}


def test_no_time(crashes):
    op = windows(10, 5, crashes).send(rows((None, 1), (12, 2))).end()
    assert op.out("late") == [[{"at": None, "n": 1}]]
    assert totals(op) == [(5, 2), (10, 2)]


@settings(max_examples=40)
@given(
    st.lists(st.lists(st.tuples(st.integers(-40, 60), st.integers(-9, 9)), max_size=5), max_size=30),
    st.integers(1, 12),
    st.integers(1, 12),
    st.booleans(),
    st.data(),
)
def test_any_windows_are_what_plain_python_makes_of_them(events, one, other, crashes, data):
    size, step = max(one, other), min(one, other)
    offset = data.draw(st.integers(0, step - 1))
    agg = {"total": ("n", "sum"), "all": ("n", "collect_list")} if data.draw(st.booleans()) else AGG
    op = windows(size, step, crashes, agg, lateness="200s", offset=timedelta(seconds=offset))
    for pairs in events:
        op.send(rows(*pairs))
    op.end()
    flat = [pair for pairs in events for pair in pairs]
    expected = []
    for start in range(-60, 80):
        if inside := [n for time, n in flat if start <= time < start + size and (start - offset) % step == 0]:
            more = {"all": inside} if "all" in agg else {"most": max(inside)}
            bounds = {"window_start": at(start), "window_end": at(start + size)}
            expected.append([{**bounds, "total": sum(inside), **more}])
    assert sorted(op.out(), key=lambda event: event[0]["window_start"]) == expected


def test_windows_share_the_panes_that_they_have_in_common():
    op = windows(60, 10)
    for second in range(100, 160, 3):
        op.send(rows((second, 1)))
    first, second = (op.accs[at(start)].parts for start in (100, 110))
    assert set(first) & set(second)
    assert all(first[pane] is second[pane] for pane in set(first) & set(second))


def test_order_of_arrival_is_kept_where_it_counts(crashes):
    agg = {"first": ("n", "first"), "all": ("n", "collect_list")}
    op = windows(10, 5, crashes, agg, lateness="10s").send(rows((7, 1))).send(rows((3, 2), (8, 3))).end()
    assert [(event[0]["first"], event[0]["all"]) for event in op.out()] == [(1, [1, 2, 3]), (1, [1, 3]), (2, [2])]


def test_it_says_what_gives_open_sets_their_meaning():
    op = windows(10, 5).op
    assert op.parameters() == {"size": timedelta(seconds=10), "step": timedelta(seconds=5), "on": "at"}
    used = windows(10, 5).send(rows((12, 1))).op
    assert code_digest(used) == code_digest(op)
    assert len(pickle.dumps(used)) == len(pickle.dumps(op))


def test_it_runs_under_drive_with_crashes():
    op = ll.testing.drive(SlidingAggregate(sliding("10s", "5s", on="at"), Aggregates([], AGG)), crashes=True)
    op.send(rows((12, 1), (17, 2))).send(rows((21, 4))).end()
    assert op.out()["total"].to_pylist() == [1, 3, 6, 4]


def test_the_year_1_has_its_windows():
    early = pa.array([datetime(1, 1, 1)], pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    batch = pa.record_batch({"at": early, "n": [1]})
    op = Harness(WindowAggregate(sliding("1d", "6h", on="at"), (), AGG), batch.schema).send(batch).end()
    assert len(op.out()) == 1


def test_whole_is_one_window_for_everything(crashes):
    op = Harness(WindowAggregate(ll.whole(), ["at"], AGG), rows().schema, crashes=crashes)
    op.send(rows((2, 1), (1, 2))).send(rows((2, 4))).send(rows())
    assert op.out() == []
    assert op.end().out() == [[{"at": at(1), "total": 2, "most": 2}, {"at": at(2), "total": 5, "most": 4}]]


@pytest.mark.parametrize(
    ("args", "more", "message"),
    [
        (("1h", "2h"), {}, "leaves gaps between windows"),
        (("1h", "0s"), {}, "step must be positive"),
        (("0s", "1s"), {}, "size must be positive"),
        (("1h", "10m"), {"offset": "10m"}, "the offset 0:10:00 must be less than 0:10:00"),
        (("2d", "12h"), {"zone": "Europe/Paris"}, "zone= is for whole days, not for 12:00:00"),
        (("2d", "1d"), {"zone": "Europe/Pari"}, "not a time zone that this machine knows"),
        (("2d", "1d"), {"zone": 3}, "not the name of a time zone"),
    ],
)
def test_windows_that_make_no_sense(args, more, message):
    with pytest.raises(OptionError, match=message):
        sliding(*args, on="at", **more)
