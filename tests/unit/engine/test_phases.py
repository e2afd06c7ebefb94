"""What `assign` may return, and what is said of the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import logline as ll

BATCH = pa.record_batch({"n": [1]})
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Assigned(ll.Operator[int, None]):
    """Assigns each event to what it was given."""

    outputs = {"out": "id string"}  # noqa: RUF012

    def __init__(self, ids: Any) -> None:
        self.ids = ids

    def assign(self, event: ll.Event, ctx: Any) -> Any:
        return self.ids() if callable(self.ids) else self.ids

    def update(self, inset: Any, acc: int | None, event: ll.Event) -> int:
        return (acc or 0) + 1

    def generate(self, inset: Any, acc: int, ctx: Any) -> Iterator[Any]:
        yield pa.record_batch({"id": [repr(inset)]})


def keys() -> Any:
    return {"a": 1, "b": 2}.keys()


def several() -> Iterator[str]:
    yield "a"
    yield "b"


@pytest.mark.parametrize("ids", [["a", "b"], ("a", "b"), {"a": 1, "b": None}, several, keys])
def test_ids_in_any_collection(ids: Any) -> None:
    with ll.testing.drive(Assigned(ids), crashes=False) as op:
        assert op.send(BATCH).end().out()["id"].to_pylist() == ["'a'", "'b'"]


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        ("abc", "returned 'abc'"),
        (None, "returned None"),
        (7, "returned 7"),
        ([["a", 1]], "returned [['a', 1]]"),
        ([{"a": 1}], "returned [{'a': 1}]"),
    ],
)
def test_what_is_no_list_of_ids_is_refused(ids: Any, says: str) -> None:
    says = f"Assigned.assign() {says}: return a list of set ids, as in ['a']"
    with (
        ll.testing.drive(Assigned(ids), crashes=False) as op,
        pytest.raises(ll.PipelineFailed, match=re.escape(says)),
    ):
        op.send(BATCH)


def test_an_error_of_a_generator_is_its_own() -> None:
    def broken() -> Iterator[str]:
        yield "a"
        raise TypeError("mine")

    with (
        ll.testing.drive(Assigned(broken), crashes=False) as op,
        pytest.raises(ll.PipelineFailed, match="TypeError: mine"),
    ):
        op.send(BATCH)


class Meddling(Assigned):
    def assign(self, event: ll.Event, ctx: Any) -> Any:
        event.note = 5  # type: ignore[misc]
        return ["a"]


def test_an_event_is_frozen() -> None:
    with ll.testing.drive(Meddling([]), crashes=False) as op, pytest.raises(ll.PipelineFailed, match="immutable"):
        op.send(BATCH)


class Asking(Assigned):
    """Calls the context in `assign`, as it was told."""

    def assign(self, event: ll.Event, ctx: Any) -> Any:
        self.ids(ctx)
        return ["a"]


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (
            lambda ctx: ctx.fire("a", at=5, clock="wall"),
            "fire('a', at=5): give a datetime with a time zone, not an int",
        ),
        (lambda ctx: ctx.fire("a", at=NOON, after="1s"), "after='1s'): give one of them"),
        (lambda ctx: ctx.fire("a", after=timedelta.max), "that would be after the year 9999"),
        (lambda ctx: ctx.fire("a", after="soon"), "soon"),
        (lambda ctx: ctx.fire("a", clock="sun"), "fire('a', clock='sun'): take one of 'event', 'wall'"),
        (lambda ctx: ctx.ended("nope"), "ended('nope'): Asking has no such input port; it has 'in'"),
    ],
)
def test_what_the_context_is_asked_wrongly(ask: Any, says: str) -> None:
    with (
        ll.testing.drive(Asking(ask), crashes=False) as op,
        pytest.raises(ll.PipelineFailed, match=re.escape(says)),
    ):
        op.send(BATCH)
