from dataclasses import replace
from typing import Any

import pytest
from tests.unit.engine.machines import at

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.events import Collection, Head, Output, Position
from logline.engine.image import Claim, Image, Needs, Taken
from logline.engine.outbox import Outbox
from logline.engine.results import Produced
from logline.engine.spec import FOREVER, InstanceSpec, Limits, Retain
from logline.engine.step import Step
from logline.graph.instances import Channel
from logline.names import (
    OUT,
    ChannelName,
    Incarnation,
    InstanceName,
    PortName,
    Serial,
    Ssn,
    TargetName,
)
from logline.recovery.machines import machine_for, needed
from logline.testing.conformance.model import step_of

ORDERS = InstanceName("orders")
LATE, UNUSED = PortName("late"), PortName("unused")
STORE = TargetName("store")


def to(receiver: str, out: PortName = OUT) -> Channel:
    name, port = InstanceName(receiver), PortName("in")
    return Channel.between(ORDERS, out, name, port)


FAST, SLOW, LATE_ONE = to("fast"), to("slow"), to("fast", LATE)


def outbox(image: Image | None = None, *, port_bytes: int = 100, keep: tuple[PortName, ...] = ()) -> Outbox:
    spec = InstanceSpec(
        ORDERS,
        ports={OUT: (FAST, SLOW), LATE: (LATE_ONE,), UNUSED: ()},
        targets={STORE: "positioned"},
        keep=frozenset(keep),
        limits=Limits(port_bytes=port_bytes, collect_events=4),
    )
    found = Outbox(spec, needed)
    found.restore(image or Image())
    return found


def put(box: Outbox, count: int = 1, port: PortName = OUT, nbytes: int = 10) -> list[Output]:
    return [box.put(Produced(port, None, 1, nbytes), Serial(0)) for _ in range(count)]


def committed(box: Outbox, outputs: list[Output]) -> list[PortName]:
    return list(box.committed(Step(outputs=outputs)))


def need(ssn: int, *members: int) -> Needs:
    return Needs(Position(Ssn(ssn), 10 * ssn), [Ssn(m) for m in members])


def needs(fast: Needs, slow: Needs, late: Needs | None = None) -> dict[ChannelName, Needs]:
    return {FAST.name: fast, SLOW.name: slow, LATE_ONE.name: late or need(0)}


def gone(base: int, *pinned: int) -> Collection:
    return Collection(Ssn(base), frozenset(map(Ssn, pinned)))


# ---- numbers ----------------------------------------------------------------------------------------------------


def test_ssns_are_without_gaps_on_each_port() -> None:
    box = outbox()
    outputs = [*put(box, 2), *put(box, 1, LATE, 5), *put(box)]
    assert [(o.port, o.ssn, o.total) for o in outputs] == [(OUT, 1, 10), (OUT, 2, 20), (LATE, 1, 5), (OUT, 3, 30)]
    end, late, _ = box.end()
    assert (late.port, late.ssn) == (LATE, 2)
    assert (end.ssn, end.end, end.payload, end.nbytes, end.total) == (4, True, None, 0, 30)


def test_they_go_on_where_the_image_is() -> None:
    image = Image(heads={OUT: Head(Ssn(7), 70, Ssn(5), {Ssn(2)})})
    box = outbox(image)
    assert put(box)[0][1:2] == (8,)
    box.heads[OUT].pinned.clear()
    assert image.heads[OUT] == Head(Ssn(7), 70, Ssn(5), {Ssn(2)})  # the image is left alone


def test_which_ports_grow_with_a_commit() -> None:
    box = outbox()
    assert committed(box, put(box, 2)) == [OUT]
    assert committed(box, [*put(box, 1, LATE), *put(box, 1, UNUSED)]) == [LATE, UNUSED]
    assert committed(box, put(box, 1, PortName("@store"))) == ["@store"]
    assert list(box.committed(step_of(reveal={LATE: (Ssn(9), 90)}))) == [LATE]
    assert box.durable == {OUT: 2, LATE: 9, UNUSED: 1, "@store": 1}


# ---- back-pressure (R13) ----------------------------------------------------------------------------------------


def test_the_slowest_receiver_counts() -> None:
    box = outbox()
    put(box, 8)
    box.observe(needs(need(8), need(3)))
    assert box.lag(OUT) == 50
    assert not box.blocked()
    assert box.half_full()
    box.observe(needs(need(8), need(4)))
    assert (box.lag(OUT), box.half_full()) == (40, False)
    box.observe(needs(need(2), need(3)))
    assert (box.lag(OUT), box.blocked()) == (60, False)  # not the sum: nobody is stalled before the bound


def test_the_bound_blocks_on_any_port() -> None:
    box = outbox()
    put(box, 1, LATE, 99)
    assert not box.blocked()
    put(box, 1, LATE, 1)
    assert box.blocked()
    box.observe(needs(need(0), need(0), Needs(Position(Ssn(2), 100), [])))
    assert (box.lag(LATE), box.blocked()) == (0, False)


def test_a_port_without_receivers_never_blocks() -> None:
    box = outbox()
    put(box, 100, UNUSED)
    assert (box.lag(UNUSED), box.blocked()) == (0, False)


def test_a_receiver_nobody_has_looked_at_counts_as_far_behind() -> None:
    box = outbox(Image(heads={OUT: Head(Ssn(30), 300)}))
    assert box.blocked()
    box.observe({FAST.name: need(30)})
    assert box.blocked()
    box.observe({SLOW.name: need(30)})
    assert not box.blocked()


# ---- collection (R12) -------------------------------------------------------------------------------------------


def collect(box: Outbox, found: dict[ChannelName, Needs], written: int = 0) -> dict[PortName, Collection]:
    return box.collect(found, {STORE: written})


def test_nothing_goes_above_the_position_of_the_slowest() -> None:
    box = outbox()
    committed(box, put(box, 10))
    assert collect(box, needs(need(10), need(3))) == {OUT: gone(4)}
    assert collect(box, needs(need(10), need(3))) == {}  # nothing new
    assert collect(box, needs(need(10), need(10))) == {OUT: gone(11)}


def test_nothing_goes_that_is_not_durable() -> None:
    box = outbox()
    committed(box, put(box, 2))
    put(box, 3)
    assert collect(box, needs(need(5), need(5))) == {OUT: gone(3)}


def test_members_of_open_sets_stay_and_the_holes_between_them_go() -> None:
    box = outbox()
    committed(box, put(box, 10))
    assert collect(box, needs(need(10, 2, 9), need(8, 5, 2))) == {OUT: gone(9, 2, 5)}
    assert box.heads[OUT] == Head(Ssn(10), 100, Ssn(9), {Ssn(2), Ssn(5)})
    assert collect(box, needs(need(10, 9), need(8, 5))) == {OUT: gone(9, 5)}  # the base stays, a pin goes
    assert collect(box, needs(need(10), need(10))) == {OUT: gone(11)}


def test_a_member_that_is_gone_is_not_pinned_again() -> None:
    """A journal may be looked at late: what it asks for then, another look has let go already."""
    box = outbox()
    committed(box, put(box, 10))
    collect(box, needs(need(10, 2), need(10)))
    assert collect(box, needs(need(10, 2, 3), need(10))) == {}


def test_an_older_look_does_not_take_the_base_back() -> None:
    box = outbox()
    committed(box, put(box, 10))
    collect(box, needs(need(8), need(8)))
    assert collect(box, needs(need(3), need(3))) == {}


def test_without_the_word_of_every_receiver_nothing_goes() -> None:
    box = outbox()
    committed(box, [*put(box, 10), *put(box, 2, LATE)])
    assert box.collect({FAST.name: need(10), LATE_ONE.name: need(1)}, {}) == {LATE: gone(2)}


def test_what_is_kept_is_kept() -> None:
    box = outbox(keep=(OUT, PortName("@store")))
    committed(box, [*put(box, 3), *put(box, 3, PortName("@store"))])
    assert collect(box, needs(need(3), need(3)), written=3) == {}


def test_a_port_without_receivers_is_collected_at_once() -> None:
    box = outbox()
    committed(box, put(box, 5, UNUSED))
    assert collect(box, needs(need(0), need(0))) == {UNUSED: gone(6)}


def test_write_actions_go_when_they_are_done() -> None:
    box = outbox()
    committed(box, put(box, 5, PortName("@store")))
    assert collect(box, needs(need(0), need(0)), written=3) == {"@store": gone(4)}
    assert collect(box, needs(need(0), need(0)), written=3) == {}


@pytest.mark.parametrize("port", [OUT, UNUSED, PortName("@store")])
def test_a_look_is_worth_it_when_enough_has_been_put_out(port: PortName) -> None:
    box = outbox()
    committed(box, put(box, 3, port))
    assert not box.grown()
    outputs = put(box, 1, port)
    assert not box.grown()  # not durable yet
    committed(box, outputs)
    assert box.grown()
    collect(box, needs(need(0), need(0)))
    assert not box.grown()


def test_a_look_at_many_members_waits_for_as_many_events() -> None:
    """Each look goes through all members of open sets: at every fourth event it would cost more and more."""
    box = outbox(port_bytes=1000)
    committed(box, put(box, 20))
    box.collect(needs(need(20), need(20, *range(1, 11))), {})
    for _ in range(9):
        committed(box, put(box))
        assert not box.grown()
    committed(box, put(box))
    assert box.grown()
    box.collect(needs(need(30), need(30)), {})
    committed(box, put(box, 4))
    assert box.grown()


def test_large_events_are_not_waited_for_so_long() -> None:
    box = outbox()
    committed(box, put(box, 1, nbytes=49))
    assert not box.grown()
    committed(box, put(box, 1, nbytes=1))
    assert box.grown()  # half a bound
    box.collect(needs(need(0), need(0)), {})
    assert not box.grown()


def sized(nbytes: int, **limits: Any) -> Outbox:
    """Port `out` is in a scope that is bounded by size."""
    spec = outbox().spec
    spec = replace(spec, retain={OUT: Retain(FOREVER, nbytes=nbytes)}, limits=replace(spec.limits, **limits))
    box = Outbox(spec, needed)
    box.restore(Image())
    return box


def test_a_port_with_a_size_is_looked_at_before_it_holds_much_more() -> None:
    box = sized(800, port_bytes=100_000, collect_events=1000, commit_bytes=160)
    committed(box, put(box, 9))
    assert not box.grown()
    committed(box, put(box))
    assert box.grown()  # an eighth
    box.collect(needs(need(10), need(10, *range(1, 6))), {})
    committed(box, put(box, 1, nbytes=500))
    assert not box.grown()  # a look goes through what is pinned: five events
    committed(box, put(box, 4))
    assert box.grown()


def test_a_port_with_a_size_waits_for_its_receivers_sooner() -> None:
    box = sized(800, port_bytes=100_000, commit_bytes=160)
    committed(box, put(box, 79))
    assert not box.blocked()
    committed(box, put(box))
    assert box.blocked()
    assert sized(1, port_bytes=100_000, commit_bytes=160).spec.port_bytes(OUT) == 320  # two commits at least
    assert sized(200_000, port_bytes=100_000).spec.port_bytes(OUT) == 100_000


def test_while_a_receiver_is_behind_only_how_far_it_is_is_looked_at() -> None:
    """What it needs is as much as its open sets have members; to read that at each bell would cost more and more."""
    machine = machine_for(outbox().spec)
    machine.handle(on.Started(), at(0))
    image = Image(heads={OUT: Head(Ssn(30), 300)})
    first = machine.handle(on.Claimed(Claim(Incarnation(1), image)), at(0))
    channels = (FAST.name, SLOW.name, LATE_ONE.name)
    assert [action for action in first if isinstance(action, do.Observe)] == [do.Observe(channels)]
    machine.handle(on.Observed(needs(need(30), need(20, 1, 2))), at(0))
    assert machine.outbox.blocked()
    assert machine.handle(on.Bell(), at(1)) == [do.ObserveTaken(channels)]
    assert machine.handle(on.Bell(), at(2)) == []  # one look at a time
    taken = {FAST.name: Taken(Position(Ssn(30), 300)), SLOW.name: Taken(Position(Ssn(21), 210))}
    assert machine.handle(on.TakenObserved(taken), at(3)) == [do.ObserveTaken(channels)]  # for the bell that rang
    taken[SLOW.name] = Taken(Position(Ssn(29), 290))
    machine.handle(on.TakenObserved(taken), at(4))
    assert not machine.outbox.half_full()
    assert machine.outbox.heads[OUT].pinned == {1, 2}  # nothing was collected by what was not asked
    assert machine.handle(on.Bell(), at(5)) == []
