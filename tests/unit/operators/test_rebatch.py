"""Events of another size; an event split over several sets."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operators.harness import Harness

import logline as ll
from logline.errors import OptionError
from logline.operators import Rebatch, WindowAggregate, events

SCHEMA = pa.schema({"id": pa.int64()})


@pytest.fixture(params=[False, True], ids=["calm", "crashes"])
def crashes(request):
    return request.param


def ids(*values):
    return pa.record_batch({"id": pa.array(values, pa.int64())})


def rebatch(rows, crashes=False, within="1s"):
    return Harness(Rebatch(rows, within), SCHEMA, crashes=crashes)


def blocks_of_four():
    return WindowAggregate(events(4, within="3s"), [], {"n": ("id", "count")})


def made(harness):
    return [[row["id"] for row in rows] for rows in harness.out()]


def test_small_ones_are_joined_and_large_ones_split(crashes):
    op = rebatch(4, crashes).send(ids(1, 2, 3)).send(ids(4, 5, 6, 7)).send(ids(8, 9))
    assert made(op) == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert made(op.end()) == [[1, 2, 3, 4], [5, 6, 7, 8], [9]]


def test_the_note_says_which_rows_belong_to_a_set():
    op = rebatch(4).send(ids(1, 2, 3))
    event_sets = op.sets[1]
    assert [event.note for event in event_sets] == [(0, 3)]
    op.send(ids(*range(4, 12)))
    assert [event.note for event in op.sets[3]] == [(5, 3)]


def test_one_event_fills_several_sets(crashes):
    op = rebatch(2, crashes).send(ids(1)).send(ids(2, 3, 4, 5, 6, 7))
    assert op.generated == [1, 2, 3]
    assert made(op) == [[1, 2], [3, 4], [5, 6]]
    assert made(op.end())[3:] == [[7]]


def test_what_has_waited_long_enough_leaves(crashes):
    op = rebatch(10, crashes).send(ids(1)).advance(timedelta(seconds=0.9)).send(ids(2))
    assert made(op.advance(timedelta(seconds=0.1))) == [[1, 2]]
    op.send(ids(3))
    assert made(op.advance(timedelta(seconds=1))) == [[1, 2], [3]]
    assert op.generated == [1, 2]


def test_full_sets_leave_no_timer(crashes):
    op = rebatch(2, crashes).send(ids(1)).send(ids(2))
    assert op.timers == {}


def test_empty_events_belong_to_no_set(crashes):
    op = rebatch(2, crashes).send(ids()).send(ids(1)).send(ids()).send(ids(2))
    assert made(op) == [[1, 2]]
    assert made(op.end()) == [[1, 2]]


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 7))
def test_all_rows_leave_in_order_and_all_events_but_the_last_are_full(sizes, rows):
    op = rebatch(rows, crashes=True)
    first = 0
    for size in sizes:
        op.send(ids(*range(first, first + size)))
        first += size
    events = made(op.end())
    assert [i for event in events for i in event] == list(range(first))
    assert all(len(event) == rows for event in events[:-1])


@pytest.mark.parametrize(("rows", "within"), [(0, "1s"), (True, "1s"), (2.5, "1s"), (1, "0s")])
def test_sizes_that_make_no_sense(rows, within):
    with pytest.raises(OptionError):
        Rebatch(rows, within)


# ---- a wall clock that somebody sets ------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [-3600, 0, 24 * 3600], ids=["back", "as it is", "forward"])
@pytest.mark.parametrize("make", [lambda: Rebatch(10, "3s"), blocks_of_four], ids=["rebatch", "blocks"])
def test_what_has_waited_long_enough_leaves_whatever_the_wall_clock_says(make, by):
    with ll.testing.drive(make(), crashes=False) as op:
        op.send(ids(1)).advance("1s")
        op._twins[0].set_up().set_wall(by * 1_000_000)
        op.advance("1s")
        assert op.out().num_rows == 0
        op.advance("1s")
        assert op.out().num_rows == 1


@pytest.mark.parametrize("by", [-3600, 24 * 3600], ids=["back", "forward"])
@pytest.mark.parametrize("make", [lambda: Rebatch(10, "3s"), blocks_of_four], ids=["rebatch", "blocks"])
def test_a_crash_after_the_wall_clock_was_set_waits_for_the_whole_time_at_most(make, by):
    with ll.testing.drive(make(), crashes=False) as op:
        op.send(ids(1))
        op._twins[0].set_up().set_wall(by * 1_000_000)
        op.crash().advance("3s")
        assert op.out().num_rows == 1


@pytest.mark.parametrize("make", [lambda: Rebatch(10, "3s"), blocks_of_four], ids=["rebatch", "blocks"])
def test_events_that_come_after_the_clock_was_set_back_do_not_put_it_off(make):
    with ll.testing.drive(make(), crashes=False) as op:
        op.send(ids(1))
        op._twins[0].set_up().set_wall(-3_600_000_000)
        op.send(ids(2)).advance("2s").send(ids(3) if make is not blocks_of_four else ids()).advance("1s")
        assert op.out().num_rows > 0


def test_rows_leave_in_order_when_the_clock_was_set_forward():
    """The first set is over by the wall clock, and its time has not passed."""
    with ll.testing.drive(Rebatch(2, "3s"), crashes=False) as op:
        op.send(ids(1))
        op._twins[0].set_up().set_wall(24 * 3_600_000_000)
        op.send(ids(2, 3)).advance("3s")
        assert op.out()["id"].to_pylist() == [1, 2, 3]
