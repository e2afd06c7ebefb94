"""A further try of `generate` begins with what the first one had, whatever that one did to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import logline as ll


class Consuming(ll.Operator[list[tuple[int, Any]], None]):
    """Uses up its event state; its first try fails in the middle."""

    outputs = {"out": "x long, note string"}  # noqa: RUF012

    def open(self, ctx: Any) -> None:
        self.tries = 0

    def assign(self, event: ll.Event, ctx: Any) -> dict[Any, Any]:
        return {"all": f"note {event.ssn}"}

    def update(self, inset: Any, acc: Any, event: ll.Event) -> Any:
        acc = acc or []
        acc.append((event.batch["x"][0].as_py(), event.note))
        return acc

    def generate(self, inset: Any, acc: Any, ctx: Any) -> Any:
        return self._consume(acc)

    def _consume(self, acc: list[tuple[int, Any]]) -> Iterator[pa.Table]:
        self.tries += 1
        while acc:
            x, note = acc.pop(0)
            if x == 2 and self.tries == 1:
                raise OSError("away")
            yield pa.table({"x": [x], "note": [note]})


class ConsumingAsync(Consuming):
    async def generate(self, inset: Any, acc: Any, ctx: Any) -> AsyncIterator[pa.Table]:
        for made in self._consume(acc):
            yield made


@pytest.mark.parametrize(("op", "concurrency"), [(Consuming(), 1), (Consuming(), 2), (ConsumingAsync(), 2)])
@pytest.mark.parametrize("memory", [True, False])
def test_the_event_state_is_whole(op: Any, concurrency: int, memory: bool, tmp_path: Path) -> None:
    p = ll.Pipeline("tries")
    numbers = p.source("numbers", ll.sources.batches([pa.table({"x": [n]}) for n in range(5)]))
    options: dict[str, Any] = {"concurrency": concurrency} if concurrency > 1 else {}
    made = numbers.apply("op", op, retry=ll.Retry(attempts=3, wait="1ms"), **options)
    made.sink("store", ll.sinks.collect())
    run = p.run(None if memory else f"lmdb:{tmp_path / 'log'}", engine="inline")
    assert run.result("store").to_pylist() == [{"x": n, "note": f"note {n + 1}"} for n in range(5)]
