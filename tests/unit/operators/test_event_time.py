"""Which windows times fall in: worked out in plain Python for a few of them, by Arrow for many."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from logline.operators.event_time import TimeAxis

AXIS = TimeAxis.of(pa.timestamp("s"), timedelta(minutes=1))


@given(st.lists(st.integers(-1_000, 1_000) | st.none(), max_size=8))
def test_few_times_and_many_fall_in_the_same_windows(times):
    few, many = pa.array(times, pa.int64()), pa.array(times * 20 or [None] * 100, pa.int64())
    wanted = sorted({AXIS.floor(few)[at].as_py() for at, time in enumerate(times) if time is not None})
    assert AXIS.panes(few) == AXIS.panes(many) == wanted


def test_ticks_are_the_columns_own():
    column = pa.array([1, None], pa.timestamp("s"))
    assert AXIS.ticks(column).to_pylist() == [1, None]
    dates = TimeAxis.of(pa.date32(), timedelta(days=1))
    assert dates.ticks(pa.array([1, None], pa.date32())).to_pylist() == [86_400_000_000, None]
