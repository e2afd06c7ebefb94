"""Sources of the numbers 0, 1, 2, ..., an event each, and an operator that takes them two at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import logline as ll

NUMBERS = pa.schema([("n", pa.int64())])


class Waiting(ll.Source):
    """So many events, then nothing until there is a file `go`, then perhaps more."""

    schema = NUMBERS

    def __init__(self, folder: Path, events: int, more: int = 0) -> None:
        self.folder = folder
        self.events = events
        self.more = more

    def read(self, partition: str, offset: Any) -> Iterator[Any]:
        for n in range(offset or 0, self.events + self.more):
            while n == self.events and not self._may_go():
                yield None
            yield pa.record_batch({"n": [n]}), n + 1
        while not self._may_go():
            yield None

    def _may_go(self) -> bool:
        return (self.folder / "go").exists()


class Endless(ll.Source):
    """Never ends by itself."""

    schema = NUMBERS

    def read(self, partition: str, offset: int | None) -> Iterator[tuple[pa.RecordBatch, int] | None]:
        n = offset or 0
        while True:
            n += 1
            yield pa.record_batch({"n": [n]}), n
            yield None


class Pairs(ll.Operator[list[int], None]):
    """Sets of two events, 0 and 1, 2 and 3, ...; what comes of them is for others to say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def assign(self, event: ll.Event, ctx: Any) -> list[int]:
        return [event.batch["n"][0].as_py() // 2]

    def update(self, inset: Any, acc: list[int] | None, event: ll.Event) -> list[int]:
        return [*(acc or []), event.batch["n"][0].as_py()]

    def ready(self, inset: Any, acc: list[int], ctx: Any) -> bool:
        return len(acc) == 2
