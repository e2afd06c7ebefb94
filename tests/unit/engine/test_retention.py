"""What a lineage scope keeps of one instance, without a pipeline around it (R12)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from logline.engine.events import Output, Position
from logline.engine.history import Segment
from logline.engine.image import Image, Needs
from logline.engine.moments import Moment, Monotonic, Wall
from logline.engine.retention import PARTS, Retention
from logline.engine.sets import Member
from logline.engine.spec import FOREVER, InstanceSpec, Retain, again_channel
from logline.engine.step import Step
from logline.graph.instances import Channel
from logline.names import ERRORS, IN, OUT, ChannelName, InstanceName, PortName, Serial, Ssn
from logline.testing.conformance.model import step_of

INTO = ChannelName("orders.out>hourly.in")
ON = ChannelName("hourly.out>store.in")
HOUR = PARTS * 1000
YEAR = 365 * 24 * HOUR


def spec(keep: Retain) -> InstanceSpec:
    hourly, store, orders = InstanceName("hourly"), InstanceName("store"), InstanceName("orders")
    return InstanceSpec(
        name=hourly,
        inputs=(Channel(INTO, orders, OUT, hourly, IN),),
        ports={OUT: (Channel(ON, hourly, OUT, store, IN),)},
        retain={OUT: keep},
        traced_in=frozenset({INTO}),
        traced_out=frozenset({OUT}),
    )


def put_out(kept: Retention, ssn: int, now: int, low: int, nbytes: int = 10) -> Segment:
    """A set that began with event `low` is done and makes event `ssn`."""
    step = step_of(outputs=[Output(OUT, Ssn(ssn), None, 1, nbytes, ssn * nbytes, Serial(ssn))], kept=[Serial(ssn)])
    step.reach_down({INTO: Ssn(low)})
    kept.record(step, Wall(now))
    assert step.lineage.segment is not None
    return step.lineage.segment


def needs(position: int, *members: int, low: int | None = None) -> Mapping[ChannelName, Needs]:
    at = Position(Ssn(position), 10 * position)
    return {ON: Needs(at, [Ssn(m) for m in members], None if low is None else Ssn(low))}


def at(now: int, passed: int | None = None) -> Moment:
    """The wall clock says `now`; so much time has passed in this life."""
    return Moment(Monotonic(now if passed is None else passed), Wall(now))


def floor(kept: Retention, needs: Mapping[ChannelName, Needs], durable: int, now: int) -> int:
    return kept.floors(needs, {OUT: Ssn(durable)}, at(now))[OUT]


def test_an_event_of_the_target_is_kept_for_the_scopes_time() -> None:
    kept = Retention(spec(Retain(HOUR)))
    for ssn in range(1, 4):
        put_out(kept, ssn, now=ssn * HOUR, low=ssn * 10)
    taken = needs(3)
    assert floor(kept, taken, 3, now=2 * HOUR - 1) == 1
    assert floor(kept, taken, 3, now=2 * HOUR) == 2
    assert kept.low(INTO) == 10
    assert kept.expire(kept.floors(taken, {OUT: Ssn(3)}, at(2 * HOUR)), at(2 * HOUR)) == 1
    assert kept.low(INTO) == 20
    assert kept.expire(kept.floors(taken, {OUT: Ssn(3)}, at(9 * HOUR)), at(9 * HOUR)) == 3
    assert kept.low(INTO) is None
    # Without any history nothing is kept for it: what could not go before (an error, say) goes now.
    assert floor(kept, taken, 3, now=9 * HOUR) == 4


def test_a_segment_is_kept_for_its_last_output() -> None:
    kept = Retention(spec(Retain(HOUR)))
    assert put_out(kept, 1, now=0, low=1).number == put_out(kept, 2, now=HOUR // PARTS, low=2).number
    assert floor(kept, needs(2), 2, now=HOUR) == 1
    assert floor(kept, needs(2), 2, now=HOUR + HOUR // PARTS) == 3


def test_on_the_way_to_the_target_an_event_is_kept_for_what_is_made_of_it() -> None:
    """Counted from the target's output: however old it is itself."""
    kept = Retention(spec(Retain(HOUR)))
    for ssn in range(1, 6):
        put_out(kept, ssn, now=ssn * HOUR, low=ssn)
    late = 100 * HOUR
    assert floor(kept, needs(5, low=2), 5, late) == 2  # a kept output of the receiver was made of it
    assert floor(kept, needs(5, 3), 5, late) == 3  # it is in an open set, whose output is yet to come
    assert floor(kept, needs(3), 5, late) == 4  # it is not taken
    assert floor(kept, needs(5), 5, late) == 6
    assert floor(kept, needs(5, low=4), 5, late) == 4  # lineage is needed of one that has taken everything, too
    assert floor(kept, {}, 5, late) == 1  # nothing is known of the receiver


def test_an_event_of_which_nothing_was_made_is_kept_for_the_scopes_time() -> None:
    """Its receiver has taken it and needs nothing of it: why nothing came of it can still be asked."""
    kept = Retention(spec(Retain(HOUR)))
    put_out(kept, 1, now=HOUR, low=1)
    assert floor(kept, needs(1), 1, now=2 * HOUR - 1) == 1
    assert floor(kept, needs(1), 1, now=2 * HOUR) == 2


def test_what_a_set_asked_that_made_nothing_is_kept_for_the_scopes_time() -> None:
    kept = Retention(spec(Retain(HOUR)))
    step = step_of(done=[Serial(1)], kept=[Serial(1)])
    step.reach_down({INTO: Ssn(7)})
    kept.record(step, Wall(HOUR))
    for now, expired in ((2 * HOUR - 1, 0), (2 * HOUR, 1)):
        assert kept.expire(kept.floors(needs(0), {OUT: Ssn(0)}, at(now)), at(now)) == expired
    sized = Retention(spec(Retain(FOREVER, nbytes=100)))
    sized.record(step_of(done=[Serial(1)], kept=[Serial(1)]), Wall(0))
    assert sized.expire(sized.floors(needs(0), {OUT: Ssn(0)}, at(0)), at(0)) == 1  # nothing else would end it


def test_a_port_holds_no_more_than_the_scopes_size() -> None:
    kept = Retention(spec(Retain(FOREVER, nbytes=100)))
    for ssn in range(1, 31):
        put_out(kept, ssn, now=0, low=ssn)
    assert floor(kept, needs(30), 30, now=0) == 21
    assert floor(kept, needs(30, low=3), 30, now=0) == 21  # even if something is left that was made of it


def test_without_a_time_nothing_is_too_old() -> None:
    kept = Retention(spec(Retain(FOREVER, nbytes=10**9)))
    put_out(kept, 1, now=0, low=1)
    assert floor(kept, needs(1), 1, now=10**15) == 1


def test_segments_stay_few_whatever_holds_them_back() -> None:
    kept = Retention(spec(Retain(HOUR)))
    for ssn in range(1, 20_000):
        put_out(kept, ssn, now=ssn * HOUR, low=ssn)
    assert len(kept.segments) <= 6 * PARTS


def test_what_a_slow_receiver_held_back_goes_when_it_has_taken_it() -> None:
    """A hundred times the size is there; no segment is so large that it keeps what is beyond the size."""
    kept = Retention(spec(Retain(FOREVER, nbytes=PARTS * 10)))
    most = 100 * PARTS
    for ssn in range(1, most + 1):
        put_out(kept, ssn, now=0, low=ssn)
    assert most - 2.5 * PARTS <= floor(kept, needs(most), most, now=0) <= 1 + most - PARTS


def test_a_set_that_lasted_for_long_keeps_its_first_member() -> None:
    kept = Retention(spec(Retain(HOUR)))
    one, two = Serial(1), Serial(2)
    kept.joined([(one, Member(INTO, Ssn(5))), (two, Member(INTO, Ssn(90))), (one, Member(INTO, Ssn(99)))])
    step = Step()
    assert kept.close(two, step, made=True)
    assert step.lineage.lows == {INTO: 90}
    assert kept.close(one, step, made=True)
    assert step.lineage.lows == {INTO: 5}


def test_an_error_is_kept_for_what_came_of_its_retry_and_no_longer() -> None:
    """errors:1 and errors:2 are put out in the first hour. errors:1 is retried in the second and makes event 1."""
    retain = {OUT: Retain(HOUR), ERRORS: Retain(HOUR)}
    made = spec(Retain(HOUR))
    kept = Retention(replace(made, retain=retain, ports={**made.ports, ERRORS: ()}))
    again, durable = again_channel(InstanceName("hourly")), {OUT: Ssn(1), ERRORS: Ssn(2)}
    rejected = step_of(outputs=[Output(ERRORS, Ssn(n), None, 1, 10, 10 * n, Serial(n)) for n in (1, 2)])
    rejected.reach_down({INTO: Ssn(5)})
    kept.record(rejected, Wall(HOUR))
    retried = step_of(outputs=[Output(OUT, Ssn(1), None, 1, 10, 10, Serial(3))], kept=[Serial(3)])
    retried.reach_down({again: Ssn(1)})
    kept.record(retried, Wall(2 * HOUR))
    soon = kept.floors(needs(1), durable, at(3 * HOUR - 1))
    assert soon[ERRORS] == 1
    assert kept.expire(soon, at(3 * HOUR - 1)) == 0
    assert kept.low(INTO) == 5
    later = kept.floors(needs(1), durable, at(3 * HOUR))
    assert later == {OUT: 2, ERRORS: 3}
    assert kept.expire(later, at(3 * HOUR)) == 2
    assert kept.low(INTO) is None


def test_an_error_is_kept_while_its_rows_are_on_their_way() -> None:
    made = spec(Retain(HOUR))
    again = again_channel(made.name)
    errors = Retain(HOUR)
    traced = made.traced_in | {again}
    kept = Retention(
        replace(made, retain={OUT: Retain(HOUR), ERRORS: errors}, ports={**made.ports, ERRORS: ()}, traced_in=traced)
    )
    kept.joined([(Serial(7), Member(again, Ssn(2)))])
    assert kept.floors({}, {OUT: Ssn(0), ERRORS: Ssn(4)}, at(9 * HOUR))[ERRORS] == 2


def test_only_what_was_made_of_enabled_channels_is_kept() -> None:
    """Example 5: c_1 is made of events of in1 alone, and has no lineage."""
    kept = Retention(spec(Retain(HOUR)))
    kept.joined([(Serial(1), Member(ChannelName("R1.out>hourly.in1"), Ssn(1))), (Serial(2), Member(INTO, Ssn(1)))])
    assert not kept.close(Serial(1), Step(), made=True)
    assert not kept.close(Serial(2), Step(), made=False)  # it put out nothing on an enabled port


def test_a_later_life_goes_on_with_the_history() -> None:
    kept = Retention(spec(Retain(HOUR)))
    image = Image()
    for ssn in range(1, 4):
        segment = put_out(kept, ssn, now=ssn * HOUR, low=ssn)
        image.segments[segment.number] = segment
    again = Retention(spec(Retain(HOUR)))
    again.restore(image)
    assert again.segments == kept.segments
    assert floor(again, needs(3), 3, now=2 * HOUR) == 2


# ---- a wall clock that is set -----------------------------------------------------------------------------------


def first_kept(kept: Retention, durable: int, moment: Moment) -> int:
    return kept.floors(needs(durable), {OUT: Ssn(durable)}, moment)[OUT]


def test_what_was_put_out_before_the_clock_was_set_back_goes_when_its_time_has_passed() -> None:
    """Its own time comes in a year. Nothing behind it would be collected before."""
    kept = Retention(spec(Retain(HOUR)))
    put_out(kept, 1, now=YEAR, low=1)
    put_out(kept, 2, now=HOUR, low=2)
    assert first_kept(kept, 2, at(HOUR, passed=5)) == 1
    assert first_kept(kept, 2, at(2 * HOUR - 1, passed=5 + HOUR - 1)) == 1
    assert first_kept(kept, 2, at(2 * HOUR, passed=5 + HOUR)) == 3


def test_a_clock_that_is_set_back_and_right_again_drops_nothing_early() -> None:
    kept = Retention(spec(Retain(HOUR)))
    put_out(kept, 1, now=YEAR, low=1)
    assert first_kept(kept, 1, at(0, passed=1)) == 1
    put_out(kept, 2, now=0, low=2)
    assert first_kept(kept, 2, at(YEAR + 2, passed=2)) == 1
    assert first_kept(kept, 2, at(YEAR + HOUR, passed=HOUR)) == 3


def test_a_step_after_the_clock_was_set_back_is_in_a_segment_of_its_own() -> None:
    kept = Retention(spec(Retain(HOUR)))
    first = put_out(kept, 1, now=YEAR, low=1)
    second = put_out(kept, 2, now=0, low=2)
    assert (second.number, second.at) == (first.number + 1, 0)


def test_a_segment_keeps_its_latest_time() -> None:
    """Set back by less than a segment takes: both steps are in it, and each has its whole time."""
    kept = Retention(spec(Retain(HOUR)))
    put_out(kept, 1, now=0, low=1)
    put_out(kept, 2, now=HOUR // PARTS, low=2)
    assert put_out(kept, 3, now=1, low=3).at == HOUR // PARTS


def test_a_scope_that_is_gone_keeps_nothing() -> None:
    kept = Retention(spec(Retain(HOUR)))
    image = Image(segments={4: put_out(kept, 1, now=0, low=1)._replace(number=4)})
    without = Retention(InstanceSpec(name=InstanceName("hourly"), ports={PortName("out"): ()}))
    without.restore(image)
    assert without.expire(without.floors({}, {OUT: Ssn(1)}, at(0)), at(0)) == 4
