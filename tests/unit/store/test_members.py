"""Memberships and pins are rows for runs of events, not for each. Counted where they lie, in the embedded log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.store.looking import rows_of

from logline.engine.events import Collection, Output, Position
from logline.engine.history import Finished
from logline.engine.sets import Member, OpenSet
from logline.engine.step import Step
from logline.names import OUT, ChannelName, InstanceName, Serial, Ssn
from logline.store.lmdb.folder import LmdbStore
from logline.store.lmdb.journal import LmdbJournal
from logline.store.members import BLOCK, Joined
from logline.testing.conformance.model import step_of

HOURLY = InstanceName("hourly")
ORDERS, OTHERS = ChannelName("orders.out>hourly.in"), ChannelName("others.out>hourly.in")
ONE, TWO = Serial(1), Serial(2)
MANY = 10_000


@pytest.fixture
def journal(store: LmdbStore) -> Iterator[LmdbJournal]:
    claimed = store.claim(HOURLY)
    yield claimed
    claimed.close()


def taken(first: int, last: int) -> list[Member]:
    return [Member(ORDERS, Ssn(ssn)) for ssn in range(first, last + 1)]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([ORDERS, OTHERS]), st.integers(1, 200).map(Ssn), st.none() | st.integers() | st.text()
        )
    )
)
def test_runs_are_the_members_in_their_order(members: list[tuple[ChannelName, Ssn, object]]) -> None:
    given_members = [Member(*member) for member in members]
    assert Joined.of(given_members).members() == given_members


def test_what_joins_a_set_in_a_commit_is_one_row(store: LmdbStore, journal: LmdbJournal) -> None:
    journal.commit(step_of(number=1, opened={ONE: OpenSet("H", taken(1, 1000))}, serial=ONE))
    for number in range(2, 11):
        first = (number - 1) * 1000 + 1
        position = Position(Ssn(first + 999), 0)
        journal.commit(step_of(number=number, members={ONE: taken(first, first + 999)}, positions={ORDERS: position}))
    assert rows_of(store, HOURLY, "members") == 10
    reader = store.read(HOURLY)
    assert sorted(reader.needs(ORDERS).members) == list(range(1, MANY + 1))
    assert reader.image().sets[ONE].members == taken(1, MANY)
    journal.commit(step_of(number=11, done=[ONE]))
    assert rows_of(store, HOURLY, "members") == 0
    assert rows_of(store, HOURLY, "done") == MANY // BLOCK + 1
    assert list(reader.history()) == [Finished(ONE, "H", tuple(taken(1, MANY)))]
    journal.commit(Step(number=12, forget={ORDERS: Ssn(MANY + 1)}))
    assert rows_of(store, HOURLY, "done") == 0


def test_forgetting_cuts_a_block(store: LmdbStore, journal: LmdbJournal) -> None:
    here = [Member(ORDERS, Ssn(ssn), f"note {ssn}" if ssn % 2 else None) for ssn in range(1, 200)]
    others = [Member(OTHERS, Ssn(1))]
    done = [Finished(ONE, "H", (*here, *others)), Finished(TWO, "I", (here[99],))]
    journal.commit(step_of(number=1, finished=done, serial=TWO))
    journal.commit(Step(number=2, forget={ORDERS: Ssn(100)}))
    reader = store.read(HOURLY)
    found = {finished.serial: finished for finished in reader.history()}
    assert sorted(found[ONE].members) == sorted([*here[99:], *others])
    assert found[TWO].members == (here[99],)
    assert [reader.insets_of(ORDERS, Ssn(ssn)) for ssn in (99, 100, 101)] == [[], [ONE, TWO], [ONE]]
    journal.commit(Step(number=3, forget={ORDERS: Ssn(101)}))
    assert [finished.serial for finished in reader.history()] == [ONE]


def test_events_that_stay_share_rows(store: LmdbStore, journal: LmdbJournal) -> None:
    outputs = [Output(OUT, Ssn(ssn), None, 0, 0, 0, Serial(0)) for ssn in range(1, 1001)]
    journal.commit(Step(number=1, outputs=outputs))
    pinned = frozenset(Ssn(ssn) for ssn in range(1, 900) if ssn != 70)
    journal.commit(Step(number=2, collected={OUT: Collection(Ssn(1000), pinned)}))
    assert rows_of(store, HOURLY, "pins") == 900 // BLOCK + 1
    reader = store.read(HOURLY)
    assert reader.head(OUT).pinned == pinned
    assert list(reader.stored(OUT)) == [*sorted(pinned), 1000]
    journal.commit(Step(number=3, collected={OUT: Collection(Ssn(1000), frozenset({Ssn(64), Ssn(500)}))}))
    assert rows_of(store, HOURLY, "pins") == 2
    assert [event.ssn for event in reader.pick(OUT, [Ssn(64), Ssn(500), Ssn(1000)])] == [64, 500, 1000]
