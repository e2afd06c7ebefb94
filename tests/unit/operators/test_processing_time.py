"""Windows of processing time: which one a row is in, when it closes, crashes, and a wall clock that is set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logline as ll
from logline.errors import OptionError
from logline.operators import Sliding, WindowAggregate, session_window, sliding, tumbling
from logline.testing.driving import NOON

COUNT = {"rows": ("n", "count"), "total": ("n", "sum")}


def rows(*numbers, user="ann"):
    return pa.record_batch({"user": pa.array([user] * len(numbers), pa.string()), "n": pa.array(numbers, pa.int64())})


def users(*names):
    return pa.record_batch({"user": pa.array(names, pa.string()), "n": pa.array(range(len(names)), pa.int64())})


def driven(window, by=(), crashes=True):
    """It has had an event without rows, so that its schema is known and time may pass."""
    return ll.testing.drive(WindowAggregate(window, by, COUNT), crashes=crashes).send(rows())


def set_wall(op, **by):
    for twin in op._twins:
        twin.set_up().set_wall(timedelta(**by) // timedelta(microseconds=1))


def found(op):
    """(start, end) in seconds after noon, and the total, of each window that is out."""
    made = []
    for row in op.out().to_pylist():
        bounds = [(row[name] - NOON) / timedelta(seconds=1) for name in ("window_start", "window_end")]
        made.append((*bounds, row["total"]))
    return made


# ---- which window, and when it closes -----------------------------------------------------------------------------


def test_a_window_has_the_rows_that_came_in_its_time_and_closes_at_its_end():
    with driven(tumbling("10s")) as op:
        op.advance("3s").send(rows(1)).advance("6s").send(rows(2, 3))
        assert found(op) == []
        op.advance("1s")
        assert found(op) == [(0, 10, 6)]
        op.send(rows(4)).advance("10s").send(rows(5))
        assert found(op) == [(0, 10, 6), (10, 20, 4)]
        assert found(op.end()) == [(0, 10, 6), (10, 20, 4), (20, 30, 5)]


def test_the_bounds_are_instants_in_utc():
    with driven(tumbling("10s"), by=["user"]) as op:
        op.send(rows(1)).end()
        assert op.out().schema.field("window_start").type == pa.timestamp("us", "UTC")
        assert op.out().column_names == ["window_start", "window_end", "user", "rows", "total"]


def test_windows_may_overlap():
    with driven(sliding("10s", "5s")) as op:
        op.advance("1s").send(rows(1)).advance("6s").send(rows(2)).advance("20s")
        assert found(op) == [(-5, 5, 1), (0, 10, 3), (5, 15, 2)]


def test_overlapping_windows_in_order_of_arrival():
    op = ll.testing.drive(WindowAggregate(sliding("10s", "5s"), (), {"all": ("n", "collect_list")}))
    with op:
        op.send(rows(3, 1)).advance("6s").send(rows(2)).advance("10s")
        assert op.out()["all"].to_pylist() == [[3, 1], [3, 1, 2], [2]]


def test_days_of_a_zone():
    with driven(tumbling("1d", zone="America/New_York")) as op:  # noon in UTC is 7 in the morning there
        assert found(op.send(rows(1)).end()) == [(-7 * 3600, 17 * 3600, 1)]


def test_an_offset():
    with driven(tumbling("10s", offset="4s")) as op:
        assert found(op.advance("2s").send(rows(1)).advance("2s")) == [(-6, 4, 1)]


def test_early_results_have_a_version():
    with driven(tumbling("10s", early="2s")) as op:
        op.send(rows(1)).advance("3s").send(rows(2)).advance("7s")
        made = [(row["window_version"], row["total"]) for row in op.out().to_pylist()]
        assert made == [(1, 1), (2, 3)]


def test_an_event_without_rows_is_in_no_window():
    with driven(tumbling("10s")) as op:
        assert op.send(rows()).advance("10s").out().num_rows == 0


def test_a_session_ends_when_nothing_has_come_for_a_gap():
    with driven(session_window("10s"), by=["user"]) as op:
        op.send(users("ann", "bob", "ann")).advance("9s").send(users("ann")).advance("1s")
        assert [(row["user"], row["rows"]) for row in op.out().to_pylist()] == [("bob", 1)]
        op.advance("9s")
        assert [(row["user"], row["rows"]) for row in op.out().to_pylist()] == [("bob", 1), ("ann", 3)]
        assert found(op) == [(0, 10, 1), (0, 19, 2)]
        assert found(op.send(users("ann")).end()) == [(0, 10, 1), (0, 19, 2), (19, 29, 0)]


# ---- the wall clock is set ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("crashes", [False, True], ids=["calm", "crashes"])
@pytest.mark.parametrize("window", [tumbling("10s"), sliding("10s", "10s"), session_window("10s")])
def test_a_window_closes_though_the_clock_was_set_back_and_nothing_comes(window, crashes):
    with driven(window, crashes=crashes) as op:
        op.send(rows(1))
        set_wall(op, days=-30)
        assert found(op.advance("12s")) == [(0, 10, 1)]


def test_a_window_closes_in_the_life_after_the_clock_was_set_back():
    with driven(tumbling("10s"), crashes=False) as op:
        op.send(rows(1))
        set_wall(op, days=-30)
        assert found(op.crash().advance("12s")) == [(0, 10, 1)]


def test_a_clock_that_is_set_forward_closes_at_once():
    with driven(tumbling("10s")) as op:
        op.send(rows(1))
        set_wall(op, hours=1)
        assert found(op.send(rows(2)).end()) == [(0, 10, 1), (3600, 3610, 2)]


def test_a_window_that_is_out_does_not_come_again_for_a_clock_a_little_behind():
    with driven(tumbling("10s")) as op:
        op.advance("9s").send(rows(1)).advance("1s")
        set_wall(op, seconds=-2)
        assert found(op.send(rows(2)).advance("13s")) == [(0, 10, 1), (10, 20, 2)]


def test_rows_stay_in_the_window_that_is_open():
    with driven(tumbling("10s")) as op:
        op.advance("9s").send(rows(1)).advance("2s").send(rows(2))
        set_wall(op, seconds=-3)
        assert found(op.send(rows(4)).advance("13s")) == [(0, 10, 1), (10, 20, 6)]


def test_overlapping_windows_that_are_out_do_not_come_again():
    with driven(sliding("10s", "5s")) as op:
        op.advance("9s").send(rows(1)).advance("2s")
        assert found(op) == [(0, 10, 1)]
        set_wall(op, seconds=-3)
        op.send(rows(2))
        assert found(op.advance("20s")) == [(0, 10, 1), (5, 15, 3)]


def test_a_clock_that_is_far_behind_counts():
    with driven(tumbling("10s")) as op:
        op.send(rows(1)).advance("10s")
        set_wall(op, hours=-1)
        assert found(op.send(rows(2)).advance("10s")) == [(0, 10, 1), (-3590, -3580, 2)]


def test_a_session_goes_on_though_the_clock_was_set_back():
    with driven(session_window("10s")) as op:
        op.send(rows(1)).advance("5s")
        set_wall(op, hours=-1)
        op.send(rows(2)).advance("9s").send(rows(4)).advance("9s")
        assert found(op) == []
        assert op.advance("2s").out()["total"].to_pylist() == [7]


MOVES = st.lists(
    st.one_of(
        st.sampled_from(["send", "crash"]),
        st.integers(0, 12),
        st.sampled_from([-3600, -12, -5, -1, 3, 40, 7200]).map(float),
    ),
    max_size=20,
)


@settings(max_examples=40)
@given(MOVES, st.sampled_from([tumbling("10s"), sliding("10s", "5s"), session_window("10s")]))
def test_no_row_is_lost_and_no_window_stays_open_whatever_the_clock_does(moves, window):
    """An integer lets time pass, a float sets the clock. A twin would differ: a crash forgets how long a window has
    waited for a clock that was set back."""
    sent = 0
    with driven(window, crashes=False) as op:
        for move in moves:
            if move == "send":
                op.send(rows(2**sent))
                sent += 1
            elif move == "crash":
                op.crash()
            elif isinstance(move, float):
                set_wall(op, seconds=move)
            else:
                op.advance(timedelta(seconds=move))
        made = op.advance("60s").out()["total"].to_pylist()
        assert reduce(or_, made, 0) == 2**sent - 1
        if not isinstance(window, Sliding):
            assert sum(made) == 2**sent - 1  # each row once
        assert op.end().out().num_rows == len(made)


# ---- in a pipeline ------------------------------------------------------------------------------------------------


def test_the_end_of_the_input_puts_it_out():
    p = ll.Pipeline("busy")
    clicks = p.source("clicks", ll.sources.batches([rows(1, 2), rows(3)]))
    clicks.window("busy", ll.tumbling("1d"), agg=COUNT).sink("store", ll.sinks.collect())
    before = datetime.now(UTC)
    run = p.run(engine="inline")
    made = run.result("store")
    assert sum(made["total"].to_pylist()) == 6
    assert all(start <= datetime.now(UTC) for start in made["window_start"].to_pylist())
    assert all(end > before for end in made["window_end"].to_pylist())


def test_a_run_until_now_leaves_it_open_and_close_puts_it_out(tmp_path):
    def run(**settings):
        p = ll.Pipeline("busy")
        clicks = p.source("clicks", ll.sources.parquet(tmp_path / "in", schema=rows().schema))
        clicks.window("busy", ll.tumbling("36500d"), agg=COUNT).sink("store", ll.sinks.collect())
        return p.run(f"lmdb:{tmp_path}/log", engine="inline", until="now", **settings)

    def add(name, *numbers):
        pq.write_table(pa.Table.from_batches([rows(*numbers)]), tmp_path / "in" / f"{name}.parquet")

    (tmp_path / "in").mkdir()
    add("a", 1, 2)
    run()
    add("b", 4)
    assert run().status().operators["busy"].open_sets == 1
    assert run(close=True).result("store")["total"].to_pylist() == [7]


def test_event_time_ends_at_such_a_window():
    """A window behind it goes by the bounds, not by what the source says of its own column."""
    p = ll.Pipeline("busy")
    data = pa.record_batch(
        {"n": [1], "date": pa.array([datetime(2020, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))}
    )
    busy = p.source("clicks", ll.sources.batches([data]), time="date").window("busy", ll.tumbling("1d"), agg=COUNT)
    days = busy.window("days", ll.tumbling("2d", on="window_start"), agg={"all": ("total", "sum")})
    days.sink("store", ll.sinks.collect())
    assert p.run(engine="inline").result("store")["all"].to_pylist() == [1]


# ---- what makes no sense ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["lateness", "idle", "updates"])
@pytest.mark.parametrize("make", [lambda **o: tumbling("1h", **o), lambda **o: sliding("1h", "10m", **o)])
def test_options_of_event_time_are_refused(make, option):
    with pytest.raises(OptionError, match=f"{option}= is for event time.*on='date', or leave {option} out"):
        make(**{option: "1m"})


def test_options_of_event_time_are_refused_for_sessions():
    with pytest.raises(OptionError, match="session_window: lateness= is for event time"):
        session_window("1h", lateness="1m")


def test_a_join_goes_by_event_time():
    p = ll.Pipeline("busy")
    left, right = (p.source(name, ll.sources.batches([rows(1)])) for name in ("left", "right"))
    with pytest.raises(OptionError, match=r"operator 'both': within: a join goes by event time.*on='date'"):
        left.join("both", right, on=["user"], within=ll.tumbling("1h"))


@pytest.mark.parametrize("window", [tumbling("10s"), sliding("10s", "5s"), session_window("10s")])
def test_an_event_state_is_written_and_read_back(window):
    with ll.testing.drive(WindowAggregate(window, ["user"], COUNT), policy="eventual") as op:
        op.send(rows(1, 2)).send(rows(3)).advance("20s")
        assert set(op.out()["total"].to_pylist()) == {6}
