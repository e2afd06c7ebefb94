"""Reads of a source whose code may block for as long as it likes.

A read action takes what comes, up to so many events or for as long as `within`. While the source's own code waits for
more, on the reader's thread, nobody can ask it to return: what it gave before is handed over by another thread, and
what it gives later is for the next read action.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Final

from logline.engine import codec
from logline.engine import stimuli as on
from logline.engine.moments import Moment, Monotonic
from logline.engine.results import Produced
from logline.graph.connector import is_read_item, no_read_item
from logline.names import OUT, PartitionName
from logline.runtime.lives.instances import Instance

END: Final = object()


class Reading:
    """One pass over a partition, from some offset on."""

    def __init__(self, batches: Iterator[tuple[Any, Any] | None]) -> None:
        self._batches = batches
        self._kept: list[Any] = []

    def next(self) -> Any:
        """A batch with its offset, None if there is nothing now, or END."""
        if not self._kept:
            got = next(self._batches, END)
            if got is None or got is END or is_read_item(got):
                return got
            raise no_read_item(got, self._source())
        got = self._kept.pop()
        if isinstance(got, BaseException):
            raise got
        return got

    def _source(self) -> str:
        """A generator knows whose it is: `Orders.read`."""
        owner, _, method = getattr(self._batches, "__qualname__", "").rpartition(".")
        return f"source {owner.rpartition('.')[2]}" if owner and method == "read" else "the source"

    def keep(self, got: Any) -> None:
        """It came, or was raised, too late for its read action."""
        self._kept.append(got)

    def close(self) -> None:
        """As a life does that ends in order."""
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()


class Gathering:
    """What one read action has got so far."""

    def __init__(self, partition: PartitionName, instance: Instance, began: Moment) -> None:
        assert instance.source is not None
        self.partition = partition
        self.due = began.after(instance.within)
        self._instance = instance
        self._apart = instance.spec.destructive or not instance.source.gather
        self._lock = threading.Lock()
        self._over = False
        self._items: list[on.ReadItem] = []
        self._batches: list[Any] = []
        self._rows = self._events = self._nbytes = 0
        self._last = b""

    def add(self, batch: Any, offset: Any) -> bool:
        """False if what came before was handed over: this is for the next read action."""
        with self._lock:
            if self._over:
                return False
            self._last = codec.encode(offset)
            batch = self._instance.payloads.taken(batch)  # now: the source may fill its memory again
            self._batches.append(batch)
            self._rows += getattr(batch, "num_rows", 1)
            if self._apart or self._rows >= self._instance.rows:
                self._flush()
            return True

    def is_enough(self, now: Monotonic) -> bool:
        """Whether the read action is over, if nobody has ended it."""
        if not self._items and not self._batches:
            return False
        instance = self._instance
        return self._events >= instance.items or self._nbytes >= instance.spec.limits.fetch_bytes or now >= self.due

    def take(self) -> list[on.ReadItem] | None:
        """Ends it: all that is there; None if somebody else has."""
        with self._lock:
            if self._over:
                return None
            if self._batches:
                self._flush()
            self._over = True
            return self._items

    def give_up(self) -> bool:
        """Ends it without a look at what is there; False if somebody else has ended it."""
        with self._lock:
            mine, self._over = not self._over, True
            return mine

    def waits(self) -> bool:
        """Whether something is there that its action has not reported yet."""
        return not self._over and bool(self._items or self._batches)

    def _flush(self) -> None:
        """Read batches as events of at most `rows` records; all of them belong to one offset."""
        payloads = self._instance.payloads
        outputs = tuple(map(payloads.read, payloads.chunk(self._batches, self._instance.rows)))
        item = on.ReadItem(outputs, self._last, self._greatest_time(outputs))
        self._items.append(item)
        self._events += len(item.outputs)
        self._nbytes += sum(produced.nbytes for produced in item.outputs)
        self._batches, self._rows = [], 0

    def _greatest_time(self, outputs: tuple[Produced, ...]) -> int | None:
        """R30: how far event time has come with these, where the source declares it."""
        if not self._instance.spec.timed_out:
            return None
        times = [self._instance.payloads.greatest_time(OUT, produced.payload) for produced in outputs]
        return max((time for time in times if time is not None), default=None)
