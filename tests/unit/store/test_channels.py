"""A chain of places answers for a channel: what was just committed in this process, then the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest

from logline.engine.events import Collection, Output
from logline.engine.step import Step
from logline.graph.instances import Channel as Joined
from logline.names import IN, OUT, Incarnation, InstanceName, PortName, Serial, Ssn
from logline.store.channels import Channel, Gone, HandOver, open_channel
from logline.store.lmdb.folder import LmdbStore
from logline.store.memory import MemoryStore

ORDERS, STORE = InstanceName("orders"), InstanceName("store")
CHANNEL = Joined.between(ORDERS, OUT, STORE, IN)
FIRST, SECOND = Incarnation(1), Incarnation(2)
MANY = 1 << 30


def event(ssn: int, port: PortName = OUT, nbytes: int = 100) -> Output:
    batch = pa.record_batch({"n": [ssn]})
    return Output(port, Ssn(ssn), batch, 1, nbytes, ssn * nbytes, Serial(ssn))


def events(*ssns: int) -> Step:
    return Step(outputs=[event(ssn) for ssn in ssns])


def ssns(found: Sequence[Output] | Gone | None) -> list[int]:
    assert found is not None and not isinstance(found, Gone)
    return [event.ssn for event in found]


# ---- the hand-over ----------------------------------------------------------------------------------------


def test_a_receiver_gets_what_was_committed_after_it_asked_first() -> None:
    fresh = HandOver()
    fresh.committed(ORDERS, FIRST, events(1))  # nobody here reads it: it is not kept
    place = fresh.place(ORDERS, OUT)
    fresh.committed(ORDERS, FIRST, events(2, 3, 4))
    assert ssns(place.after(Ssn(0), limit=10, max_bytes=MANY)) == []
    assert ssns(place.after(Ssn(1), limit=10, max_bytes=MANY)) == [2, 3, 4]
    assert ssns(place.after(Ssn(1), limit=2, max_bytes=MANY)) == [2, 3]
    assert ssns(place.after(Ssn(1), limit=10, max_bytes=150)) == [2, 3]
    assert ssns(place.after(Ssn(4), limit=10, max_bytes=MANY)) == []
    assert set(place.pick([Ssn(1), Ssn(4)])) == {4}


def test_ports_that_nobody_here_reads_are_not_kept() -> None:
    fresh = HandOver()
    place, late = fresh.place(ORDERS, OUT), PortName("late")
    fresh.committed(ORDERS, FIRST, Step(outputs=[event(1, late), event(1)]))
    assert ssns(place.after(Ssn(0), limit=10, max_bytes=MANY)) == [1]
    assert ssns(fresh.place(ORDERS, late).after(Ssn(0), limit=10, max_bytes=MANY)) == []


def test_it_is_bounded_in_bytes_and_the_oldest_go() -> None:
    fresh = HandOver(most=1000)
    place = fresh.place(ORDERS, OUT)
    for first in range(1, 100, 5):
        fresh.committed(ORDERS, FIRST, events(*range(first, first + 5)))
    assert ssns(place.after(Ssn(89), limit=100, max_bytes=MANY)) == []
    assert ssns(place.after(Ssn(90), limit=100, max_bytes=MANY)) == list(range(91, 101))


def test_what_is_collected_is_not_handed_over_pinned_or_not() -> None:
    """A long-open window pins its members; they would be in memory for as long."""
    fresh = HandOver()
    place = fresh.place(ORDERS, OUT)
    fresh.committed(ORDERS, FIRST, events(*range(1, 101)))
    fresh.committed(ORDERS, FIRST, Step(collected={OUT: Collection(Ssn(91), frozenset({Ssn(7)}))}))
    assert place.pick([Ssn(7), Ssn(90)]) == {}
    assert ssns(place.after(Ssn(90), limit=100, max_bytes=MANY)) == list(range(91, 101))


def test_another_incarnation_begins_with_nothing_and_an_older_one_adds_nothing() -> None:
    fresh = HandOver()
    place = fresh.place(ORDERS, OUT)
    fresh.committed(ORDERS, FIRST, events(1))
    fresh.claimed(ORDERS, SECOND)
    assert ssns(place.after(Ssn(0), limit=10, max_bytes=MANY)) == []
    fresh.committed(ORDERS, FIRST, events(2))  # durable before the claim, told after it
    assert ssns(place.after(Ssn(1), limit=10, max_bytes=MANY)) == []
    fresh.committed(ORDERS, SECOND, events(2))
    assert ssns(place.after(Ssn(1), limit=10, max_bytes=MANY)) == [2]


# ---- the chain --------------------------------------------------------------------------------------------


class Known:
    """A place with some events; None for those that it knows to be gone."""

    def __init__(self, *there: int, gone: bool = False) -> None:
        self.there = {Ssn(ssn): event(ssn) for ssn in there}
        self.gone = gone
        self.asked: list[tuple[int, ...]] = []

    def after(self, ssn: Ssn, *, limit: int, max_bytes: int) -> Sequence[Output] | None:
        self.asked.append((ssn,))
        found = [self.there[Ssn(ssn + 1)]] if ssn + 1 in self.there else []
        return found or (None if self.gone else [])

    def pick(self, ssns: Sequence[Ssn]) -> Mapping[Ssn, Output]:
        self.asked.append(tuple(ssns))
        return {ssn: self.there[ssn] for ssn in ssns if ssn in self.there}


def test_the_first_place_that_has_something_answers() -> None:
    near, far = Known(2), Known(1, 2)
    channel = Channel([near, far])
    assert ssns(channel.events(Ssn(1), limit=9, max_bytes=9)) == [2]
    assert far.asked == []
    assert ssns(channel.events(Ssn(0), limit=9, max_bytes=9)) == [1]
    assert ssns(channel.events(Ssn(2), limit=9, max_bytes=9)) == []


def test_exact_members_come_from_several_places_in_the_order_asked() -> None:
    near, far = Known(2), Known(1, 2, 3)
    assert ssns(Channel([near, far]).pick([Ssn(3), Ssn(2), Ssn(1)])) == [3, 2, 1]
    assert far.asked == [(3, 1)]


def test_what_no_place_has_is_said_and_not_raised() -> None:
    assert Channel([Known(), Known(2, gone=True)]).events(Ssn(4), limit=9, max_bytes=9) == Gone((Ssn(5),))
    assert Channel([Known(1), Known(2)]).pick([Ssn(1), Ssn(2), Ssn(3), Ssn(4)]) == Gone((Ssn(3), Ssn(4)))


@pytest.mark.parametrize("kind", ["memory", "lmdb"])
def test_the_journal_is_the_last_place(kind: str, store: LmdbStore) -> None:
    used = MemoryStore() if kind == "memory" else store
    journal = used.claim(ORDERS)
    journal.commit(Step(number=1, outputs=[event(ssn) for ssn in range(1, 6)]))
    channel = open_channel(used, CHANNEL)
    assert ssns(channel.events(Ssn(0), limit=10, max_bytes=MANY)) == [1, 2, 3, 4, 5]
    journal.commit(Step(number=2, collected={OUT: Collection(Ssn(5), frozenset({Ssn(2)}))}))
    assert channel.events(Ssn(0), limit=10, max_bytes=MANY) == Gone((Ssn(1),))
    assert ssns(channel.pick([Ssn(2), Ssn(5)])) == [2, 5]
    assert channel.pick([Ssn(1), Ssn(2), Ssn(3), Ssn(5)]) == Gone((Ssn(1), Ssn(3)))
    journal.close()


def test_only_a_store_that_wants_it_hands_over(store: LmdbStore) -> None:
    assert MemoryStore().fresh is None
    assert store.fresh is not None
    assert (store.traits.reach, store.traits.blocking) == ("host", frozenset())
    journal = store.claim(ORDERS)
    channel = open_channel(store, CHANNEL)
    made = event(1)
    journal.commit(Step(number=1, outputs=[made]))
    store.fresh.committed(ORDERS, journal.incarnation, Step(outputs=[made]))
    found = channel.events(Ssn(0), limit=10, max_bytes=MANY)
    assert not isinstance(found, Gone)
    assert found[0].payload is made.payload  # as it is, not read from bytes
    journal.close()
