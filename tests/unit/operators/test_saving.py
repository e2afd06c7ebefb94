"""Event states of ready-made operators come back from a checkpoint exactly as they were (R22).

A checkpoint is taken at any place in a set's life. What is generated after it must be, to the last bit, what comes of
the state that was never written: the same additions in the same order.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.operators.harness import FakeContext

import logline as ll
from logline.engine.event_state import event_states_of
from logline.errors import StateError
from logline.graph.event_states import check_event_state
from logline.graph.operator import Event, Operator
from logline.names import Called, PortName, Ssn
from logline.operators import Rebatch, StreamJoin, WindowAggregate
from logline.operators.whole import Running

START = datetime(2024, 5, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("item", pa.string()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("d", pa.decimal128(20, 2)),
        ("unused", pa.string()),
    ]
)


class Spread(ll.Aggregate[Any]):
    """An author's own."""

    type = "long"

    def init(self) -> Any:
        return None

    def add(self, acc: Any, values: pa.Array) -> Any:
        return self.merge(acc, (min(values.to_pylist()), max(values.to_pylist())))

    def merge(self, acc: Any, other: Any) -> Any:
        return other if acc is None else (min(acc[0], other[0]), max(acc[1], other[1]))

    def result(self, acc: Any) -> Any:
        return None if acc is None else acc[1] - acc[0]


class SavedSpread(Spread):
    def encode(self, acc: Any) -> bytes:
        return msgspec.json.encode(acc)

    def decode(self, data: bytes) -> Any:
        return tuple(msgspec.json.decode(data))


AGG: dict[str, Any] = {
    "total": ("n", "sum"),
    "money": ("d", "sum"),
    "float": ("x", "sum"),
    "mean": ("x", "mean"),
    "dev": ("x", "stddev"),
    "least": ("n", "min"),
    "many": ("n", "count"),
    "distinct": ("item", "count_distinct"),
    "all": ("n", "collect_list"),
    "top": ("n", "top", 2),
    "p90": ("x", "quantile", 0.9),
    "spread": ("n", SavedSpread()),
}
UNORDERED = {name: one for name, one in AGG.items() if name != "all"}


def operators() -> dict[str, Operator[Any, Any]]:
    return {
        "tumbling": WindowAggregate(ll.tumbling("1h", on="at"), ["item"], AGG),
        "without groups": WindowAggregate(ll.tumbling("1h", on="at"), [], AGG),
        "zone": WindowAggregate(ll.tumbling("1d", on="at", zone="Europe/Paris"), ["item"], AGG),
        "sliding": WindowAggregate(ll.sliding("1h", step="20m", on="at"), ["item"], UNORDERED),
        "sliding in order": WindowAggregate(ll.sliding("1h", step="20m", on="at"), ["item"], AGG),
        "blocks": WindowAggregate(ll.events(100), ["item"], AGG),
        "whole": WindowAggregate(ll.whole(), ["item"], AGG),
        "rebatch": Rebatch(1000, "1h"),
    }


def joins() -> dict[str, Operator[Any, Any]]:
    by: dict[str, Any] = {"on": ["item"], "how": "outer"}
    return {
        "interval": StreamJoin(SCHEMA, SCHEMA, ("-1h", "1h"), time="at", **by),
        "window": StreamJoin(SCHEMA, SCHEMA, ll.tumbling("1h", on="at"), **by),
        "whole": StreamJoin(SCHEMA, SCHEMA, ll.whole(), **by),
        "semi": StreamJoin(SCHEMA, SCHEMA, ll.whole(), on=["item"], how="semi"),
    }


rows = st.fixed_dictionaries(
    {
        "at": st.integers(0, 3599).map(lambda s: datetime.fromtimestamp(START.timestamp() + s, UTC)),
        "item": st.sampled_from(["a", "b", None]),
        "n": st.none() | st.integers(-(2**62), 2**62),
        "x": st.none() | st.floats(-1e9, 1e9),
        "d": st.none() | st.integers(-(10**6), 10**6).map(lambda n: Decimal(n) / 100),
        "unused": st.just("?"),
    }
)
batches = st.lists(rows, min_size=1, max_size=3).map(lambda found: pa.RecordBatch.from_pylist(found, schema=SCHEMA))


def event(ssn: int, batch: pa.RecordBatch, note: Any) -> Event:
    return Event(Called("orders"), PortName("out"), Ssn(ssn), PortName("in"), batch).with_note(note)


def taken(op: Operator[Any, Any], acc: Any, batch: pa.RecordBatch, ssn: int) -> Any:
    inset: Any = START if hasattr(op, "window") and hasattr(op.window, "on") else 1
    if hasattr(op, "window") and getattr(op.window, "zone", None):
        inset = datetime(2024, 4, 30, 22, tzinfo=UTC)
    note = (0, batch.num_rows) if isinstance(op, Rebatch) else None
    return op.update(inset, acc, event(ssn, batch, note))


def result(op: Operator[Any, Any], acc: Any) -> Any:
    """What comes of the state; the error, if a sum does not fit."""
    parts = acc.parts if isinstance(acc, Running) or hasattr(acc, "axis") else acc
    try:
        if isinstance(op, Rebatch):
            made: Any = acc.table()
        else:
            made = op._result(parts) if hasattr(op, "_result") else op.aggregates.result(parts)  # type: ignore[attr-defined]
    except OverflowError as error:
        return str(error)
    return made.schema, repr(made.to_pylist())


@pytest.mark.parametrize("name", list(operators()))
@settings(max_examples=6, deadline=None)
@given(
    before=st.lists(batches, min_size=1, max_size=3),
    times=st.sampled_from([1, 30]),
    after=st.lists(batches, max_size=2),
)
def test_a_state_goes_on_from_a_checkpoint_as_if_there_was_none(
    name: str, before: list[pa.RecordBatch], times: int, after: list[pa.RecordBatch]
) -> None:
    op, later = operators()[name], operators()[name]  # the later life knows nothing but the bytes
    acc: Any = None
    for ssn, batch in enumerate(before * times, 1):  # so many that partials are made of them
        acc = taken(op, acc, batch, ssn)
    data, layout = event_states_of("op", op).encode(acc)
    back = event_states_of("op", later).decode(data, layout)
    assert result(later, back) == result(op, acc)
    for ssn, batch in enumerate(after, 1000):
        acc, back = taken(op, acc, batch, ssn), taken(later, back, batch, ssn)
    assert result(later, back) == result(op, acc)


sided = st.lists(st.tuples(st.sampled_from(["left", "right"]), batches), max_size=4)


@pytest.mark.parametrize("name", list(joins()))
@settings(max_examples=6, deadline=None)
@given(before=sided.filter(bool), after=sided)
def test_a_join_goes_on_from_a_checkpoint_as_if_there_was_none(
    name: str, before: list[tuple[str, pa.RecordBatch]], after: list[tuple[str, pa.RecordBatch]]
) -> None:
    op, later = joins()[name], joins()[name]
    inset: Any = "all" if name in ("whole", "semi") else START

    def take(on: Operator[Any, Any], acc: Any, events: list[tuple[str, pa.RecordBatch]]) -> Any:
        for ssn, (side, batch) in enumerate(events, 1):
            one = Event(Called("orders"), PortName("out"), Ssn(ssn), PortName(side), batch)
            acc = on.update(inset, acc, one)
        return acc

    def made(on: Operator[Any, Any], acc: Any) -> Any:
        found: Any = on.generate(inset, acc, FakeContext())
        return [emit.data.to_pylist() for emit in found]

    acc = take(op, None, before)
    data, layout = event_states_of("op", op).encode(acc)
    back = event_states_of("op", later).decode(data, layout)
    assert repr(made(later, back)) == repr(made(op, acc))
    assert repr(made(later, take(later, back, after))) == repr(made(op, take(op, acc, after)))


def test_late_rows_of_a_join_come_back() -> None:
    op = joins()["interval"]
    batch = pa.RecordBatch.from_pylist([{"at": None, "n": 1}], schema=SCHEMA)
    acc = op.update(("late_right", "orders:1"), None, event(1, batch, None))
    data, layout = event_states_of("op", op).encode(acc)
    assert event_states_of("op", op).decode(data, layout) == acc


def test_late_records_come_back() -> None:
    op = operators()["tumbling"]
    batch = pa.RecordBatch.from_pylist([{"at": None, "n": 1}], schema=SCHEMA)
    acc = op.update(("late", "orders:1"), None, event(1, batch, []))
    data, layout = event_states_of("op", op).encode(acc)
    assert event_states_of("op", op).decode(data, layout) == acc


def test_another_aggregate_does_not_read_the_state() -> None:
    op = WindowAggregate(ll.whole(), ["item"], {"total": ("n", "sum")})
    data, layout = event_states_of("op", op).encode(taken(op, None, pa.RecordBatch.from_pylist([], schema=SCHEMA), 1))
    other = WindowAggregate(ll.whole(), ["item"], {"total": ("n", "max")})
    with pytest.raises(StateError, match=r"operator 'op': the log has a checkpoint .* that other code has made"):
        event_states_of("op", other).decode(data, layout)


def test_an_aggregate_of_ones_own_says_how_it_is_written() -> None:
    op = WindowAggregate(ll.whole(), [], {"spread": ("n", Spread())})
    with pytest.raises(StateError, match=r"operator 'w': the aggregate Spread of column 'n' .* define encode"):
        check_event_state("w", op)
