"""States of keys: what a try of `generate` sees and changes, how keys are told apart, what is forgotten."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logline.engine import actions as do
from logline.engine.events import Output
from logline.engine.intake import EventIntake
from logline.engine.keyed import SWEPT, KeyChanges, KeyedStates, decode_key, encode_key
from logline.engine.moments import Moment, Monotonic, Wall
from logline.engine.spec import InstanceSpec
from logline.errors import CodecError, StateError, TryOver
from logline.graph.instances import Channel
from logline.graph.key_states import KeyCodec
from logline.names import IN, OUT, InstanceName, Serial, Ssn

ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=4).filter(lambda text: text.isprintable()),
    st.binary(max_size=4),
    st.dates(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.datetimes(timezones=st.just(UTC)),
)


def states(kind: type = int, ttl: int | None = None) -> KeyedStates:
    return KeyedStates(KeyCodec("op", kind), ttl=ttl)


def put(known: KeyedStates, now: int | None = None, **values: int) -> KeyChanges:
    view = known.view(now)
    for key, value in values.items():
        view.set((key,), value)
    changes = view.take()
    known.apply(changes)
    return changes


def keys_of(changes: KeyChanges) -> set[object]:
    return {decode_key(raw)[0] for raw in changes.states}


@given(st.lists(ATOMS, min_size=1, max_size=3).map(tuple))
def test_a_key_comes_back_as_it_was(key: tuple[object, ...]) -> None:
    back = decode_key(encode_key(key))  # type: ignore[arg-type]
    assert encode_key(back) == encode_key(key)  # type: ignore[arg-type]
    assert [type(a) for a in back] == [type(a) for a in key]


def test_what_is_equal_in_sql_is_one_key() -> None:
    here = datetime(2024, 7, 1, 14, tzinfo=ZoneInfo("Europe/Berlin"))
    assert encode_key((here,)) == encode_key((here.astimezone(UTC),))
    assert encode_key((-0.0,)) == encode_key((0.0,))
    assert encode_key((float("nan"),)) == encode_key((-float("nan"),))


def test_what_python_takes_for_equal_may_be_two_keys() -> None:
    assert len({encode_key((atom,)) for atom in (1, True, 1.0, "1", b"1", Decimal(1))}) == 6
    assert encode_key((None, 1)) != encode_key((1, None))


@pytest.mark.parametrize("key", ["a", (), ["a"], (["a"],), (object(),), (("a",),), ("\ud800",)])
def test_what_can_not_be_a_key_is_refused(key: object) -> None:
    with pytest.raises(CodecError, match="can't be"):
        encode_key(key)  # type: ignore[arg-type]


def test_a_try_that_is_dropped_changes_nothing() -> None:
    known = states()
    put(known, a=1, b=2)
    view = known.view()
    view.set(("a",), 10)
    view.delete(("b",))
    assert (view.get(("a",)), view.get(("b",))) == (10, None)
    assert known.view().get_all([("a",), ("b",), ("c",)]) == [1, 2, None]


def test_the_next_set_sees_what_the_last_one_changed() -> None:
    known = states()
    put(known, a=1, b=2)
    view = known.view()
    view.delete(("a",))
    view.set(("c",), 3)
    known.apply(view.take())
    assert known.view().get_all([("a",), ("b",), ("c",)]) == [None, 2, 3]


def test_only_what_changed_is_logged() -> None:
    known = states()
    put(known, a=1, b=2)
    assert keys_of(put(known, a=1, b=3, c=4)) == {"b", "c"}


def test_a_key_that_is_changed_and_changed_back_is_as_it_was() -> None:
    known = states()
    put(known, a=1)
    view = known.view()
    view.set(("a",), 2)
    view.set(("a",), 1)
    assert view.get(("a",)) == 1
    known.apply(view.take())
    assert known.view().get(("a",)) == 1


def test_a_state_is_a_copy() -> None:
    known = states(list)
    view = known.view()
    given = [1]
    view.set(("a",), given)
    given.append(2)
    view.get(("a",)).append(3)
    assert view.get(("a",)) == [1]


def test_a_part_counts_when_it_is_kept() -> None:
    known = states()
    view = known.view()
    view.set(("a",), 1)
    kept, dropped = view.part(), view.part()
    kept.set(("b",), 2)
    dropped.set(("c",), 3)
    dropped.delete(("a",))
    assert (kept.get(("a",)), dropped.get(("a",))) == (1, None)
    kept.keep()
    assert keys_of(view.take()) == {"a", "b"}
    with pytest.raises(TryOver):
        dropped.keep()


def test_after_its_set_a_view_changes_nothing() -> None:
    view = states().view()
    changes = view.take()
    with pytest.raises(TryOver):
        view.set(("a",), 1)
    assert not changes.states


@dataclass
class Card:
    spent: int = 0
    limit: int = 100


@dataclass
class Old:
    spent: int = 0


@dataclass
class Renamed:
    total: int = 0


def test_a_wrong_type_is_the_authors_error_at_once() -> None:
    view = states(Card).view()
    with pytest.raises(StateError, match="can't be logged as Card"):
        view.set(("a",), Card(spent="much"))  # type: ignore[arg-type]
    assert view.get(("a",)) is None


def test_added_fields_have_their_defaults() -> None:
    assert KeyCodec("op", Card).decode(KeyCodec("op", Old).encode(Old(7))) == Card(7, 100)


def test_migrate_gets_the_states_of_an_earlier_type_and_no_others() -> None:
    asked: list[object] = []

    def migrate(old: dict[str, int]) -> Renamed:
        asked.append(old)
        return Renamed(old["spent"])

    codec = KeyCodec("op", Renamed, migrate)
    assert codec.decode(KeyCodec("op", Old).encode(Old(7))) == Renamed(7)
    assert codec.decode(codec.encode(Renamed(8))) == Renamed(8)
    assert asked == [{"spent": 7}]


def test_a_state_that_can_not_be_read_says_what_to_do() -> None:
    with pytest.raises(StateError, match="migrate="):
        KeyCodec("op", Card).decode(KeyCodec("op", str).encode("text"))


# ---- time to live -------------------------------------------------------------------------------------------------


def test_a_state_whose_time_is_over_is_not_seen() -> None:
    known = states(ttl=10)
    put(known, now=0, a=1)
    assert known.view(9).get(("a",)) == 1
    assert known.view(10).get(("a",)) is None
    assert known.view(10).get_all([("a",)], stale=True) == [1]


def test_to_set_a_state_begins_its_time_anew_even_if_it_is_the_same() -> None:
    known = states(ttl=10)
    put(known, now=0, a=1)
    assert keys_of(put(known, now=9, a=1)) == {"a"}
    assert known.view(18).get(("a",)) == 1


def test_what_is_over_is_removed_a_bounded_number_at_a_time() -> None:
    known = states(ttl=10)
    put(known, now=0, **{f"k{at}": at for at in range(3 * SWEPT)})
    put(known, now=5, young=1)
    changes = put(known, now=12, new=1)
    assert sum(state is None for state in changes.states.values()) == SWEPT
    assert len(known) == 2 * SWEPT + 2
    for _ in range(3):
        put(known, now=12, new=2)
    assert known.view(12).get_all([("young",), ("new",)]) == [1, 2]
    assert len(known) == 2


def test_a_key_that_is_set_again_as_it_is_swept_stays() -> None:
    known = states(ttl=10)
    put(known, now=0, a=1)
    put(known, now=20, a=2)
    assert known.view(20).get(("a",)) == 2


def test_without_an_event_time_nothing_is_forgotten() -> None:
    known = states(ttl=10)
    put(known, now=None, a=1)
    assert known.view(10**9).get(("a",)) == 1


def test_the_order_of_forgetting_is_restored() -> None:
    known, later = states(ttl=10), states(ttl=10)
    put(known, now=0, a=1)
    put(known, now=5, b=1)
    put(known, now=8, a=2)
    later.restore(dict(reversed(known.states.items())))
    assert keys_of(put(later, now=16, c=1)) == {"b", "c"}


def test_one_event_is_taken_in_at_a_time_however_fast_they_are() -> None:
    """Timers of keys that an event reaches come before the next event."""
    channel = Channel.between(InstanceName("orders"), OUT, InstanceName("cards"), IN)
    asked: list[do.Action] = []
    intake = EventIntake(
        InstanceSpec(InstanceName("cards"), inputs=(channel,), stateless=True, keyed=True), asked.append
    )
    events = [Output(OUT, Ssn(at), None, 1, 8, 8 * at, Serial(0)) for at in range(1, 9)]
    intake.inbox.fetched(channel.name, Ssn(0), events)
    for _ in range(4):
        intake.begin(Moment(Monotonic(0), Wall(0)))
        intake.taken()
        intake.adapt(Monotonic(1))
    assert [len(action.events) for action in asked if isinstance(action, do.TakeIn)] == [1, 1, 1, 1]


def test_dates_and_nulls_are_keys() -> None:
    known = states()
    view = known.view()
    view.set((date(2024, 2, 29), None), 1)
    known.apply(view.take())
    assert known.view().get((date(2024, 2, 29), None)) == 1
