import pytest
from hypothesis import given
from hypothesis import strategies as st

from logline.engine.clock import WATERMARK, EventClock, Timers
from logline.engine.moments import Monotonic
from logline.engine.sets import Timer
from logline.names import ChannelName

A, B, C = (ChannelName(name) for name in ("a.out>w.in", "b.out>w.in", "c.out>w.in"))


def clock(*channels: ChannelName, lateness: int = 0, idle: int | None = None, now: int = 0) -> EventClock:
    found = EventClock(channels, lateness=lateness, idle=idle)
    found.restore({}, (), Monotonic(now))
    return found


def test_the_watermark_is_the_least_of_the_greatest_times() -> None:
    w = clock(A, B)
    w.saw(A, 30, Monotonic(0))
    w.saw(A, 20, Monotonic(0))  # late: the greatest counts
    w.saw(B, 10, Monotonic(0))
    assert w.advance(Monotonic(0)) == 10
    w.saw(B, 40, Monotonic(0))
    assert w.advance(Monotonic(0)) == 30


def test_a_channel_that_has_not_started_holds_it_back() -> None:
    w = clock(A, B)
    w.saw(A, 30, Monotonic(0))
    assert w.advance(Monotonic(0)) is None
    w.saw(B, None, Monotonic(0))  # an event without a time is no start
    assert w.advance(Monotonic(0)) is None
    w.saw(B, 5, Monotonic(0))
    assert w.advance(Monotonic(0)) == 5


def test_lateness_is_taken_off() -> None:
    w = clock(A, lateness=7)
    w.saw(A, 30, Monotonic(0))
    assert w.advance(Monotonic(0)) == 23


def test_an_ended_channel_does_not_count() -> None:
    w = clock(A, B, C)
    w.saw(A, 10, Monotonic(0))
    w.saw(B, 30, Monotonic(0))
    w.ended.add(C)  # never started
    assert w.advance(Monotonic(0)) == 10
    w.ended.add(A)
    assert w.advance(Monotonic(0)) == 30


def test_when_all_have_ended_the_furthest_speaks() -> None:
    w = clock(A, B)
    w.saw(A, 10, Monotonic(0))
    w.saw(B, 30, Monotonic(0))
    w.ended |= {A, B}
    assert w.advance(Monotonic(0)) == 30


def test_an_idle_channel_does_not_count_until_it_speaks_again() -> None:
    w = clock(A, B, idle=100)
    w.saw(A, 10, Monotonic(0))
    w.saw(B, 20, Monotonic(50))
    assert w.advance(Monotonic(99)) == 10
    assert w.next_silence(Monotonic(99)) == 100
    assert w.advance(Monotonic(100)) == 20  # A has been silent for 100
    assert w.next_silence(Monotonic(100)) == 150
    w.saw(A, 15, Monotonic(120))
    assert w.advance(Monotonic(120)) == 20  # it never goes back


def test_an_idle_channel_that_never_started_does_not_count_either() -> None:
    w = clock(A, B, idle=100)
    w.saw(A, 10, Monotonic(50))
    assert w.advance(Monotonic(99)) is None
    assert w.advance(Monotonic(100)) == 10


def test_when_all_are_silent_the_furthest_of_those_that_live_speaks() -> None:
    w = clock(A, B, C, idle=100)
    w.saw(A, 10, Monotonic(0))
    w.saw(B, 20, Monotonic(0))
    w.saw(C, 90, Monotonic(0))
    w.ended.add(C)
    assert w.advance(Monotonic(100)) == 20
    assert w.next_silence(Monotonic(100)) is None


def test_silence_of_those_that_never_spoke_says_nothing() -> None:
    assert clock(A, B, idle=100).advance(Monotonic(1000)) is None


def test_without_idle_nobody_is_silent() -> None:
    w = clock(A, B)
    w.saw(A, 10, Monotonic(0))
    assert w.advance(Monotonic(10**15)) is None
    assert w.next_silence(Monotonic(0)) is None


def test_it_comes_back_from_the_log_with_silence_counted_anew() -> None:
    w = clock(A, B, C, lateness=2, idle=100)
    w.saw(A, 10, Monotonic(0))
    w.saw(B, 30, Monotonic(0))
    w.ended.add(C)
    assert w.advance(Monotonic(0)) == 8
    logged = w.image()
    assert logged == {A: 10, B: 30, WATERMARK: 8}
    again = EventClock((A, B, C), lateness=2, idle=100)
    again.restore(logged, {C, ChannelName("untimed.out>w.in")}, Monotonic(1000))
    assert (again.watermark, again.ended) == (8, {C})
    assert again.advance(Monotonic(1099)) == 8
    assert again.next_silence(Monotonic(1099)) == 1100
    assert again.advance(Monotonic(1100)) == 28
    assert again.image() == {A: 10, B: 30, WATERMARK: 28}


def test_a_greater_lateness_after_a_restart_does_not_take_it_back() -> None:
    w = EventClock((A,), lateness=50, idle=None)
    w.restore({A: 10, WATERMARK: 8}, (), Monotonic(0))
    w.saw(A, 20, Monotonic(0))
    assert w.advance(Monotonic(0)) == 8


@given(
    st.lists(
        st.tuples(st.sampled_from([A, B]), st.none() | st.integers(-100, 100), st.integers(0, 60), st.booleans()),
        max_size=30,
    )
)
def test_it_never_goes_back(moves: list[tuple[ChannelName, int | None, int, bool]]) -> None:
    w, now, last = clock(A, B, lateness=3, idle=100), 0, None
    for channel, time, wait, ends in moves:
        now += wait
        w.saw(channel, time, Monotonic(now))
        if ends:
            w.ended.add(channel)
        found = w.advance(Monotonic(now))
        assert last is None or (found is not None and found >= last)
        last = found


# ---- timers -----------------------------------------------------------------------------------------------------


def timers(**at: int) -> Timers:
    found = Timers()
    for name, when in at.items():
        found.set(name, Timer(when, "event"))
    return found


def test_timers_come_in_the_order_of_their_times() -> None:
    t = timers(c=30, a=10, b=20, z=10)
    assert t.first("event") == 10
    assert t.take("event", 9) == []
    assert t.take("event", 20) == ["a", "z", "b"]
    assert t.by_id == {"c": (30, "event")}
    assert t.take("event", 100) == ["c"]
    assert t.first("event") is None


@pytest.mark.parametrize("later", [5, 50])
def test_the_latest_call_wins(later: int) -> None:
    t = timers(a=10)
    t.set("a", Timer(later, "event"))
    assert t.first("event") == later
    assert t.take("event", 100) == ["a"]
    assert t.take("event", 100) == []


def test_the_latest_call_wins_across_clocks() -> None:
    t = timers(a=10)
    t.set("a", Timer(10, "wall"))
    assert t.first("event") is None
    assert t.take("event", 100) == []
    assert t.take("wall", 10) == ["a"]


def test_clear() -> None:
    t = timers(a=10, b=20)
    assert t.clear("a")
    assert not t.clear("a")
    assert t.first("event") == 20
    t.set("a", Timer(10, "event"))  # again, at the same time
    assert t.take("event", 100) == ["a", "b"]
    assert t.first("event") is None


def test_the_clocks_are_apart() -> None:
    t = timers(a=10)
    t.set("b", Timer(5, "wall"))
    assert (t.first("event"), t.first("wall")) == (10, 5)
    assert t.take("wall", 100) == ["b"]
    assert t.take("event", 100) == ["a"]


def test_ids_of_different_kinds_at_the_same_time() -> None:
    t = Timers()
    for inset in ("a", 1, ("a", 1), ()):
        t.set(inset, Timer(10, "event"))  # ids are not compared with one another
    assert t.take("event", 10) == ["a", 1, ("a", 1), ()]


def test_a_channel_that_comes_holds_the_watermark_back_and_never_moves_it_back() -> None:
    """R28: channels are discovered during a life."""
    w = clock(A)
    w.saw(A, 30, Monotonic(0))
    assert w.advance(Monotonic(0)) == 30
    w.rewire([A, B], Monotonic(0))
    w.saw(A, 50, Monotonic(0))
    assert w.advance(Monotonic(0)) == 30
    w.saw(B, 10, Monotonic(0))
    assert w.advance(Monotonic(0)) == 30
    w.rewire([A], Monotonic(0))
    assert w.advance(Monotonic(0)) == 50
