"""What users do wrong is told as theirs: with the operator's name, and where there is one the event's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

import logline as ll

EVENTS = 6


class Passing(ll.Operator[Any, Any]):
    outputs = {"out": "n long"}  # noqa: RUF012

    def generate(self, inset: Any, acc: Any, ctx: Any) -> Iterator[Any]:
        yield acc


class Kept(Passing):
    def assign(self, event: ll.Event, ctx: Any) -> Any:
        return ["all"]

    def update(self, inset: Any, acc: Any, event: ll.Event) -> Any:
        return event.batch


class Noting(Kept):
    def assign(self, event: ll.Event, ctx: Any) -> Any:
        return {"all": object()}


class Remembering(Kept):
    State = dict

    def assign(self, event: ll.Event, ctx: Any) -> Any:
        ctx.state["n"] = object()
        return ["all"]


@dataclass
class Typed:
    total: int = 0
    last: dict[str, Any] = field(default_factory=dict)
    mean: float = 0


class Summing(Kept):
    """Its state outgrows the declared type with the fourth event."""

    State = Typed

    def assign(self, event: ll.Event, ctx: Any) -> Any:
        ctx.state.mean = 3  # as a type checker takes it
        ctx.state.total += 1 if event.ssn < 4 else 0.5
        return ["all"]


class Comparing(Kept):
    """Its state would come back as a list."""

    State = Typed

    def assign(self, event: ll.Event, ctx: Any) -> Any:
        ctx.state.last["key"] = (event.ssn, 1)
        return ["all"]


class ComparingMuch(Comparing):
    def assign(self, event: ll.Event, ctx: Any) -> Any:
        ctx.state.last["much"] = "x" * 5000
        return super().assign(event, ctx)


class Failing(Passing):
    def generate(self, inset: Any, acc: Any, ctx: Any) -> Iterator[Any]:
        raise OSError(acc["n"][0].as_py())


class Exiting(Passing):
    def generate(self, inset: Any, acc: Any, ctx: Any) -> Iterator[Any]:
        sys.exit(3)


class ExitingSoon(Kept):
    def update(self, inset: Any, acc: Any, event: ll.Event) -> Any:
        sys.exit(3)


class Closing(Passing):
    def close(self) -> None:
        raise OSError("it does not close")


def leave(batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch["n"].to_pylist() == [2]:
        sys.exit(3)
    return batch


def run(op: Any, **options: Any) -> ll.Run:
    p = ll.Pipeline("mistaken")
    numbers = p.source("numbers", ll.sources.batches([pa.table({"n": [n]}) for n in range(EVENTS)]))
    if isinstance(op, ll.Operator):
        made = numbers.apply("op", op, **options)
    else:
        made = numbers.map_batches("op", op, schema="n long", **options)
    made.sink("store", ll.sinks.collect())
    return p.run(engine="inline")


@pytest.mark.parametrize(
    ("op", "concurrency", "event", "told"),
    [
        (Noting(), 1, "numbers:1", "CodecError: a value of type object can't be logged exactly"),
        (Remembering(), 1, "", "StateError: its state can't be logged: Encoding objects of type object"),
        (Summing(), 1, "", "StateError: operator 'op': the field 'total' of its state could not be read back"),
        (Comparing(), 1, "", "StateError: operator 'op': the field 'last.key' of its state would come back changed"),
        (ComparingMuch(), 1, "", "StateError: operator 'op': the field 'last.key' of its state would come back"),
        (Failing(), 1, "numbers:1", "OSError: 0"),
        (Exiting(), 1, "numbers:1", "SystemExit: 3"),
        (ExitingSoon(), 1, "numbers:1", "SystemExit: 3"),
        (leave, 1, "numbers:3", "SystemExit: 3"),
        (leave, 4, "numbers:3", "SystemExit: 3"),
    ],
)
def test_it_is_told_with_its_operator_and_the_first_event(op: Any, concurrency: int, event: str, told: str) -> None:
    with pytest.raises(ll.PipelineFailed) as failed:
        run(op, **({"concurrency": concurrency} if concurrency > 1 else {}))
    where = f" on {event}" if event else ""
    assert str(failed.value).startswith(f"operator 'op' failed{where}: {told}")
    assert (failed.value.operator, failed.value.event) == ("op", event)


def test_what_fails_to_close_has_done_its_work(caplog: pytest.LogCaptureFixture) -> None:
    assert run(Closing()).result("store")["n"].to_pylist() == list(range(EVENTS))
    assert "close() of op failed (Closing)" in caplog.text
    assert "it does not close" in caplog.text


class Unsteady(ll.Sink):
    """Its first write fails."""

    guarantee = "named"

    def __init__(self) -> None:
        self.failed = False

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        if not self.failed:
            self.failed = True
            raise OSError("the disk is full")


def test_a_write_that_is_tried_again_is_told(caplog: pytest.LogCaptureFixture) -> None:
    p = ll.Pipeline("unsteady")
    numbers = p.source("numbers", ll.sources.batches([pa.table({"n": [1]})]))
    numbers.sink("store", Unsteady(), retry=ll.Retry(attempts=3, wait="1ms"))
    assert p.run(engine="inline").status().phase == "finished"
    assert "store: write 1 to 'out' failed: OSError: the disk is full" in caplog.text
