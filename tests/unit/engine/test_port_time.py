"""What ports say of event time (R30)."""

import pytest
from tests.unit.engine.machines import INPUT, at, events, generated, jobs, one, only, running

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.clock import SHOWN, EventClock, of_inputs, port_marks_key
from logline.engine.events import Head, Output
from logline.engine.moments import Monotonic
from logline.engine.outbox import Outbox
from logline.engine.port_time import PortTime
from logline.engine.results import Produced
from logline.engine.sets import Member
from logline.engine.source_time import SourceTime
from logline.engine.spec import InstanceSpec, Limits
from logline.engine.step import Step
from logline.names import ChannelName, InsetId, InstanceName, PartitionName, PortName, Serial, Ssn

OUT, OTHER = PortName("out"), PortName("other")
A, B = ChannelName("a.out>w.in"), ChannelName("b.out>w.in")
NOW = Monotonic(0)


class Said:
    """The ports of an instance, and what they have said."""

    def __init__(self, *ports: PortName) -> None:
        spec = InstanceSpec(InstanceName("w"), ports=dict.fromkeys(ports, ()), timed_out=frozenset(ports))
        self.outbox = Outbox(spec, lambda channel, needs: None)  # type: ignore[arg-type, return-value]
        for port in ports:
            self.outbox.heads[port] = Head()
        self.time = PortTime(ports)
        self.step = Step()

    def commit(self, *events: PortName, waits: bool = False) -> list[Output]:
        step = Step()
        step.outputs += [self.outbox.put(Produced(port, "rows", 1, 10), Serial(1)) for port in events]
        self.time.seal(waits=waits)
        self.time.show(step, self.outbox)
        self.step = step
        return step.outputs


def headers(outputs: list[Output]) -> list[tuple[str, str, object]]:
    return [(o.port, o.kind, None if o.headers is None else dict(o.headers)) for o in outputs]


def test_the_last_event_of_a_step_says_how_far_time_is() -> None:
    said = Said(OUT)
    said.time.passes(50, rests=False)
    assert headers(said.commit(OUT, OUT)) == [("out", "event", None), ("out", "event", {"watermark": 50})]
    assert said.step.clock == {SHOWN: 50}
    assert headers(said.commit(OUT)) == [("out", "event", None)]  # nothing new


def test_a_port_without_an_event_has_a_mark() -> None:
    said = Said(OUT, OTHER)
    said.time.passes(50, rests=False)
    made = said.commit(OUT)
    assert headers(made) == [("out", "event", {"watermark": 50}), ("other", "watermark", {"watermark": 50})]
    assert said.step.clock == {SHOWN: 50, port_marks_key(OTHER): 1}
    assert made[1].mark and not made[1].end
    assert said.commit() == []


def test_a_set_that_waits_holds_time_back_until_it_is_logged() -> None:
    said = Said(OUT)
    said.time.hold(Serial(1), 20)
    said.time.hold(Serial(2), 30)
    said.time.passes(50, rests=False)
    assert headers(said.commit()) == [("out", "watermark", {"watermark": 20})]
    said.time.let_go(Serial(2))
    assert said.commit() == []
    said.time.let_go(Serial(1))
    assert headers(said.commit(OUT)) == [("out", "event", {"watermark": 50})]


@pytest.mark.parametrize(("into", "gone"), [(20, 30), (30, 20)])
def test_a_set_that_takes_in_another_one_holds_time_back_for_both(into: int, gone: int) -> None:
    said = Said(OUT)
    said.time.hold(Serial(1), into)
    said.time.hold(Serial(2), gone)
    said.time.inherit(Serial(1), Serial(2))
    said.time.let_go(Serial(2))
    said.time.passes(50, rests=False)
    assert headers(said.commit()) == [("out", "watermark", {"watermark": 20})]
    said.time.let_go(Serial(1))
    assert headers(said.commit(OUT)) == [("out", "event", {"watermark": 50})]


def test_a_set_that_goes_on_holds_time_back_as_the_one_it_follows() -> None:
    said = Said(OUT)
    said.time.hold(Serial(1), 20)
    said.time.passes(50, rests=False)
    said.time.hold(Serial(2), 50)  # opened now, with members that came at 20
    said.time.inherit(Serial(2), Serial(1))
    said.time.let_go(Serial(1))
    assert headers(said.commit(OUT)) == [("out", "event", {"watermark": 20})]


def test_nobody_knows_what_comes_of_a_set_from_before_the_first_time() -> None:
    said = Said(OUT)
    said.time.hold(Serial(1), None)
    said.time.passes(50, rests=False)
    assert said.commit() == []


def test_it_never_goes_back() -> None:
    said = Said(OUT)
    said.time.restore({SHOWN: 40})
    said.time.passes(30, rests=False)
    assert said.commit() == []
    said.time.passes(60, rests=False)
    said.time.passes(45, rests=False)
    assert headers(said.commit()) == [("out", "watermark", {"watermark": 60})]


def test_a_port_is_idle_until_it_says_otherwise() -> None:
    said = Said(OUT)
    said.time.passes(None, rests=True)
    assert said.commit(waits=True) == []  # a set is still to be generated
    assert headers(said.commit()) == [("out", "watermark", {"idle": True})]
    assert said.commit() == []
    assert headers(said.commit(OUT)) == [("out", "event", {"idle": True})]  # an event alone would wake its receivers
    said.time.passes(7, rests=False)
    assert headers(said.commit()) == [("out", "watermark", {"watermark": 7})]


def test_a_new_life_knows_what_was_said() -> None:
    said = Said(OUT)
    said.time.passes(None, rests=True)
    said.commit()
    again = Said(OUT)
    again.time.restore(said.step.clock)
    again.time.passes(None, rests=True)
    assert again.commit() == []


def test_a_mark_never_goes_before_an_output_that_has_a_lower_number() -> None:
    """R2: positions alone are committed while what came of a set waits for the rest of its step."""
    limits = Limits(run_events=1, ack_after=100)
    machine = running(timed_out=frozenset({OUT}), limits=limits)
    two: list[tuple[Serial, InsetId]] = [(Serial(n), f"set {n}") for n in (1, 2)]
    joined = [(Serial(n), Member(INPUT.name, Ssn(1))) for n in (1, 2)]
    machine.handle(on.Fetched(INPUT.name, Ssn(0), events(1)), at(1))
    took = on.Intake(opened=two, members=joined, holds=[(Serial(1), 20), (Serial(2), 20)], passed=20)
    assert not only(machine.handle(on.TakenIn(took), at(1)), do.Commit)  # nobody waits for it
    machine.handle(on.Fetched(INPUT.name, Ssn(1), events(2)), at(90))
    asked = machine.handle(on.TakenIn(on.Intake(due=[(Serial(1), "fired"), (Serial(2), "fired")], passed=20)), at(90))
    assert jobs(asked) == [1]
    commit = one(machine.handle(generated(1), at(101)), do.Commit)  # the second one is yet to be generated
    assert [(output.ssn, output.kind) for output in commit.step.outputs] == [(1, "event")]
    assert headers(commit.step.outputs) == [("out", "event", {"watermark": 20})]


# ---- the receiver's side ------------------------------------------------------------------------------------------


def clock(*channels: ChannelName) -> EventClock:
    found = EventClock(channels, lateness=0, idle=None)
    found.restore({}, (), NOW)
    return found


def test_what_senders_say_counts_and_the_slowest_decides() -> None:
    w = clock(A, B)
    w.told(A, {"watermark": 30}, NOW, mark=False)
    assert w.advance(NOW) is None
    w.told(B, {"watermark": 10}, NOW, mark=True)
    assert w.advance(NOW) == 10


def test_an_idle_channel_is_not_waited_for_until_something_comes() -> None:
    w = clock(A, B)
    w.told(A, {"watermark": 30}, NOW, mark=False)
    w.told(B, {"watermark": 10, "idle": True}, NOW, mark=True)
    assert w.advance(NOW) == 30
    w.saw(B, None, NOW)  # an event
    w.told(A, {"watermark": 50}, NOW, mark=False)
    assert w.advance(NOW) == 30
    assert not w.rests(NOW)


def test_when_all_are_idle_so_is_the_operator() -> None:
    w = clock(A, B)
    w.told(A, {"watermark": 30, "idle": True}, NOW, mark=True)
    assert not w.rests(NOW)
    w.ended.add(B)
    assert w.rests(NOW)
    w.ended.add(A)
    assert not w.rests(NOW)  # that is an end, and no silence


def test_a_new_life_knows_who_is_idle_and_how_many_marks_it_took() -> None:
    w = clock(A, B)
    w.told(A, {"watermark": 30}, NOW, mark=False)
    w.told(B, {"idle": True}, NOW, mark=True)
    w.advance(NOW)
    again = EventClock((A, B), lateness=0, idle=None)
    again.restore(w.image(), (), NOW)
    assert again.image() == w.image() == of_inputs({**w.image(), SHOWN: 5})
    assert again.advance(NOW) == 30


def test_a_port_that_is_no_longer_idle_says_so_also_if_nobody_knows_the_time() -> None:
    said = Said(OUT)
    said.time.passes(None, rests=True)
    assert headers(said.commit()) == [("out", "watermark", {"idle": True})]
    said.time.passes(None, rests=False)
    assert headers(said.commit()) == [("out", "watermark", {"idle": False})]
    clock = EventClock([A], lateness=0, idle=None)
    clock.told(A, {"idle": True}, NOW, mark=True)
    clock.told(A, {"idle": False}, NOW, mark=True)
    assert not clock.rests(NOW)


def test_a_source_waits_for_the_silence_of_those_alone_that_it_reads() -> None:
    """A partition that has caught up is not read in this run: nothing about it changes by waiting."""
    names = (PartitionName("a"), PartitionName("b"))
    spec = InstanceSpec(InstanceName("s"), partitions=names, timed_out=frozenset({OUT}), idle=100)
    time = SourceTime(spec, PortTime((OUT,)))
    for name in names:
        time.read(name, 5, NOW)
    assert time.advance([], [], Step(), Monotonic(70)) is None
    assert time.advance([], names[:1], Step(), Monotonic(70)) == 170
    assert time.advance([], names[:1], Step(), Monotonic(170)) is None  # it is silent, and nobody waits for it
