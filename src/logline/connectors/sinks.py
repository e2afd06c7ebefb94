"""Sinks that need no external system: the process itself, and a function.

>>> kept = collect()
>>> kept.open("log/store/out")
>>> kept.write(pa.record_batch({"id": [1]}), 1, "store:1")
>>> kept.write(pa.record_batch({"id": [1]}), 1, "store:1")     # once more, as after a crash
>>> kept.table().to_pylist()
[{'id': 1}]
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from threading import Lock
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

import pyarrow as pa

from logline.errors import GuaranteeError, LogError, OptionError
from logline.graph.connector import Guarantee, Sink

WriteFn = Callable[[pa.RecordBatch, int, str], object]


class _Kept:
    """What was written, and per scope the last number: both change under one lock, as R8 asks."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.batches: list[pa.RecordBatch] = []
        self.last: dict[str, int] = {}


_stores: WeakValueDictionary[str, _Kept] = WeakValueDictionary()
_stores_lock = Lock()


class Collect(Sink):
    """Keeps what is written in this process. Copies made by shipping share what the original has."""

    guarantee: Guarantee = "positioned"

    def __init__(self, key: str | None = None) -> None:
        self._key = uuid4().hex if key is None else key
        self._scope = ""
        with _stores_lock:
            found = _stores.get(self._key)
            self._kept = _Kept() if found is None else found
            _stores[self._key] = self._kept

    def __reduce__(self) -> tuple[Any, ...]:
        return Collect, (self._key,)

    def open(self, scope: str) -> None:
        self._scope = scope

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        """Applies number n only after n - 1; what was applied before is left alone."""
        with self._kept.lock:
            last = self._kept.last.get(self._scope, 0)
            if number <= last:
                return
            if number != last + 1:
                raise LogError(
                    f"collect(): write {write_id} has number {number}, but the last one here is {last}; "
                    "was the log made by another process? What collect() keeps is gone with its process"
                )
            self._kept.batches.append(batch)
            self._kept.last[self._scope] = number

    def position(self) -> int:
        """The last number applied in this scope."""
        with self._kept.lock:
            return self._kept.last.get(self._scope, 0)

    def table(self) -> pa.Table:
        """All that was written, in order; a table without columns before the first write."""
        with self._kept.lock:
            written = list(self._kept.batches)
        return pa.Table.from_batches(written) if written else pa.table({})


class Call(Sink):
    """Writes by calling a function."""

    def __init__(self, fn: WriteFn, guarantee: Guarantee) -> None:
        if inspect.iscoroutinefunction(fn) or not callable(fn):
            raise OptionError("call() takes a plain function fn(batch, number, write_id)")
        if guarantee not in self._GUARANTEES:
            raise OptionError(f"guarantee={guarantee!r}: use {', '.join(self._GUARANTEES)}")
        if guarantee == "positioned":
            raise GuaranteeError(
                "call(): a positioned target must also say which number it applied last; "
                "write a Sink with write() and position()"
            )
        self._fn = fn
        self.guarantee = guarantee

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        """Calls the function; the write is done when it returns."""
        self._fn(batch, number, write_id)


def collect() -> Collect:
    """A sink that keeps the batches in this process: `.table()`."""
    return Collect()


def call(fn: WriteFn, *, guarantee: Guarantee = "at_least_once") -> Call:
    """A sink that calls `fn(batch, number, write_id)`; `guarantee`: how it tells a repeated write apart."""
    return Call(fn, guarantee)
