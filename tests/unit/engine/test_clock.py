import pytest
from hypothesis import given
from hypothesis import strategies as st

from logline.engine.clock import WATERMARK, EventClock, Timers
from logline.engine.moments import Moment, Monotonic, Wall
from logline.engine.sets import Timer
from logline.names import ChannelName, InsetId

A, B, C = (ChannelName(name) for name in ("a.out>w.in", "b.out>w.in", "c.out>w.in"))


def at(now: int) -> Moment:
    """Both clocks say so."""
    return Moment(Monotonic(now), Wall(now))


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


def timers(**times: int) -> Timers:
    found = Timers()
    for name, when in times.items():
        found.set(name, Timer(when, "event"), at(0))
    return found


def ids(come: list[tuple[InsetId, Timer]]) -> list[InsetId]:
    return [inset for inset, _ in come]


def test_timers_come_in_the_order_of_their_times() -> None:
    t = timers(c=30, a=10, b=20, z=10)
    assert t.first_event() == 10
    assert ids(t.take_event(9)) == []
    assert ids(t.take_event(20)) == ["a", "z", "b"]
    assert t.by_id == {"c": Timer(30, "event")}
    assert ids(t.take_event(100)) == ["c"]
    assert t.first_event() is None


@pytest.mark.parametrize("later", [5, 50])
def test_the_latest_call_wins(later: int) -> None:
    t = timers(a=10)
    t.set("a", Timer(later, "event"), at(0))
    assert t.first_event() == later
    assert ids(t.take_event(100)) == ["a"]
    assert ids(t.take_event(100)) == []


def test_the_latest_call_wins_across_clocks() -> None:
    t = timers(a=10)
    t.set("a", Timer(10, "wall"), at(0))
    assert t.first_event() is None
    assert ids(t.take_event(100)) == []
    assert ids(t.take(at(10))) == ["a"]


def test_clear() -> None:
    t = timers(a=10, b=20)
    assert t.clear("a")
    assert not t.clear("a")
    assert t.first_event() == 20
    t.set("a", Timer(10, "event"), at(0))  # again, at the same time
    assert ids(t.take_event(100)) == ["a", "b"]
    assert t.first_event() is None


def test_the_clocks_are_apart() -> None:
    t = timers(a=10)
    t.set("b", Timer(5, "wall"), at(0))
    assert (t.first_event(), t.first_wall()) == (10, 5)
    assert ids(t.take(at(100))) == ["b"]
    assert ids(t.take_event(100)) == ["a"]


@pytest.mark.parametrize("ahead", [-1000, 0, 1000])
def test_a_span_is_over_when_so_much_time_has_passed(ahead: int) -> None:
    """Whoever sets the wall clock meanwhile."""
    t = Timers()
    t.set("a", Timer(100 + 30, "wall", 30), at(100))
    assert (t.first_span(), t.first_wall()) == (130, None)
    assert ids(t.take(Moment(Monotonic(129), Wall(129 + ahead)))) == []
    assert ids(t.take(Moment(Monotonic(130), Wall(130 + ahead)))) == ["a"]
    assert t.by_id == {} and t.first_span() is None


@pytest.mark.parametrize(("wall", "left"), [(110, 20), (90, 30), (5, 30), (130, 0), (9999, 0)])
def test_a_new_life_waits_for_what_is_left_of_a_span(wall: int, left: int) -> None:
    """Its monotonic clock is another one. If the wall clock was set back, it waits for the whole span."""
    t = Timers()
    t.set("a", Timer(130, "wall", 30), Moment(Monotonic(7000), Wall(wall)))
    assert t.first_span() == 7000 + left


def test_times_and_spans_that_have_come_are_in_the_order_of_their_times() -> None:
    t = Timers()
    t.set("late", Timer(9, "wall"), at(0))
    t.set("span", Timer(7, "wall", 7), at(0))
    t.set("early", Timer(5, "wall"), at(0))
    assert ids(t.take(at(10))) == ["early", "span", "late"]


@pytest.mark.parametrize(("ahead", "comes"), [(0, 130), (50, 80), (-1000, 140)])
def test_a_time_of_the_wall_clock_is_waited_for_no_longer_than_said(ahead: int, comes: int) -> None:
    """30 by the wall clock, 40 at most: somebody sets it at once."""
    t = Timers()
    t.set("a", Timer(130, "wall", -40), at(100))
    assert (t.first_span(), t.first_wall()) == (140, 130)
    assert ids(t.take(Moment(Monotonic(comes - 1), Wall(comes - 1 + ahead)))) == []
    assert ids(t.take(Moment(Monotonic(comes), Wall(comes + ahead)))) == ["a"]
    assert t.by_id == {} and (t.first_span(), t.first_wall()) == (None, None)


def test_a_time_of_the_wall_clock_is_no_span_that_the_end_of_a_run_cuts_off() -> None:
    t = Timers()
    t.set("time", Timer(130, "wall", -40), at(100))
    t.set("span", Timer(130, "wall", 30), at(100))
    assert ids(t.take_spans(lambda inset: True)) == ["span"]


def test_ids_of_different_kinds_at_the_same_time() -> None:
    t = Timers()
    for inset in ("a", 1, ("a", 1), ()):
        t.set(inset, Timer(10, "event"), at(0))  # ids are not compared with one another
    assert ids(t.take_event(10)) == ["a", 1, ("a", 1), ()]


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
