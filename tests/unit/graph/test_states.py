from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from logline.errors import StateError
from logline.graph.states import check_state, decode_state, encode_state, state_fields


@dataclass
class Counters:
    seen: int = 0
    per_key: dict[str, int] = field(default_factory=dict)
    last: datetime | None = None
    pairs: list[tuple[int, str]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)


class Block(msgspec.Struct):
    number: int = 0
    share: float = float("nan")


def test_a_state_comes_back_from_the_log_as_it_was() -> None:
    state = Counters(3, {"a": 1}, datetime(2024, 1, 1, tzinfo=UTC), [(1, "x")], {"k"})
    assert decode_state(encode_state(state), Counters) == state


@pytest.mark.parametrize("kind", [Counters, Block, dict, int])
def test_states_that_can_be_logged(kind: type) -> None:
    check_state("hourly", kind)


@dataclass
class MayHoldATable:
    last: pa.Table | None = None


@dataclass
class HoldsAnything:
    last: object = None
    tables: Any = None


def test_what_a_field_may_hold_counts_not_what_it_holds_first() -> None:
    with pytest.raises(StateError, match="operator 'hourly': the field 'last' of its state may hold a Table, which"):
        check_state("hourly", MayHoldATable)
    check_state("hourly", HoldsAnything)  # what is in it shows when it is logged


@dataclass(eq=False)
class ByIdentity:
    n: int = 1


def test_equality_is_not_what_decides() -> None:
    check_state("hourly", ByIdentity)


@dataclass
class NeedsArgument:
    n: int


@dataclass
class Holder:
    n: int = 0
    client: object = field(default_factory=object)


@dataclass
class Untyped:
    n: int = 0
    pair: Any = (1, 2)


@dataclass
class Nested:
    inner: Untyped = field(default_factory=Untyped)


@dataclass
class Naive:
    at: Any = datetime(2024, 1, 1)


@dataclass
class WrongType:
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))


@dataclass
class NotTheHint:
    n: int = "three"  # type: ignore[assignment]


class Plain:
    def __init__(self) -> None:
        self.n = 0


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (NeedsArgument, "State() failed (TypeError"),
        (Holder, "the field 'client' of its state can't be written to the log and read back"),
        (NotTheHint, "the field 'n' of its state can't be written to the log and read back"),
        (Untyped, "the field 'pair' of its state comes back changed"),
        (Nested, "the field 'inner.pair' of its state comes back changed"),
        (Naive, "the field 'at' of its state comes back changed"),
        (WrongType, "the field 'counts' of its state comes back changed"),
        (Plain, "the state can't be written to the log and read back"),
    ],
)
def test_what_can_not_be_logged_names_operator_and_field(kind: type, says: str) -> None:
    with pytest.raises(StateError) as info:
        check_state("hourly", kind)
    assert str(info.value).startswith("operator 'hourly': ")
    assert says in str(info.value)


def test_the_message_says_what_to_do() -> None:
    with pytest.raises(StateError, match="give every field a default"):
        check_state("hourly", NeedsArgument)
    with pytest.raises(StateError, match=r"make it a dataclass or msgspec\.Struct"):
        check_state("hourly", Plain)


def test_the_fields_of_a_state_as_text() -> None:
    assert state_fields(Counters)["per_key"] == "dict[str, int]"
    assert state_fields(Block) == {"number": "int", "share": "float"}
    assert state_fields(dict) == {"": "dict"}
