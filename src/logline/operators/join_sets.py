"""Which input sets of a join a row belongs to, on a time line in ticks (`event_time.py`).

An interval join cuts the time of one side, which it goes by, into *buckets*. The set of a bucket has its rows, and
the rows of the other side that are near enough to one of them. A row near two buckets is in both sets.

    >>> axis = TimeAxis.of(pa.timestamp("s"), timedelta(seconds=10))
    >>> near = Reach(axis, -2, 5)                 # from 2 s before the bucket until 5 s after it
    >>> near.of(pa.array([27, 9, 8]))
    [Alike(last=9, sets=[0, 10]), Alike(last=27, sets=[20])]
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from logline.operators.event_time import TimeAxis

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


class Alike(NamedTuple):
    """Rows that are in the same sets."""

    last: int
    """The greatest tick among them."""
    sets: list[int]
    """The first ticks of the sets, in order."""


class Frame(Protocol):
    """The sets of one side's rows. A set is named by its first tick."""

    def of(self, ticks: pa.Array) -> list[Alike]:
        """The sets of rows with these times, the earliest rows first."""

    def within(self, ticks: pa.Array, start: int) -> pa.Array:
        """Which ticks belong to a set."""

    def end(self, start: int) -> int:
        """The first tick after a set's rows."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The set of a bucket has the rows from `low` after its first tick on, until `high` after its last one."""

    axis: TimeAxis
    low: int = 0
    high: int = 0

    def of(self, ticks: pa.Array) -> list[Alike]:
        ends = pc.min_max(ticks)
        if not ends["min"].is_valid:
            return []
        both = pa.array([ends["min"].as_py(), ends["max"].as_py()], pa.int64())
        firsts, lasts = self._bounds(both)
        if firsts[0] == firsts[1] and lasts[0] == lasts[1]:  # the usual case: an event within one bucket
            return [self._alike(both[1].as_py(), firsts[0].as_py(), lasts[0].as_py())]
        ticks = ticks.drop_null()
        firsts, lasts = self._bounds(ticks)
        table = pa.table({"tick": ticks, "first": firsts, "last": lasts})
        alike = table.group_by(["first", "last"], use_threads=False).aggregate([("tick", "max")])
        rows = zip(*(alike[name].to_pylist() for name in ("tick_max", "first", "last")), strict=True)
        return [self._alike(*row) for row in sorted(rows)]

    def _bounds(self, ticks: pa.Array) -> tuple[pa.Array, pa.Array]:
        """The first and the last bucket that each tick is near."""
        high, low = (pc.subtract_checked(ticks, pa.scalar(by, pa.int64())) for by in (self.high, self.low))
        return self.axis.floor(high), self.axis.floor(low)

    def _alike(self, tick: int, first: int, last: int) -> Alike:
        if first < last:  # no row is in a bucket before the year 1 or after 9999, and Python can't name one
            first, last = max(first, self.axis.start(FIRST)), min(last, self.axis.start(LAST))
        return Alike(tick, list(range(first, last + 1, self.axis.size)))

    def within(self, ticks: pa.Array, start: int) -> pa.Array:
        return pc.and_(pc.greater_equal(ticks, start + self.low), pc.less(ticks, self.end(start)))

    def end(self, start: int) -> int:
        return start + self.axis.size + self.high


@dataclass(frozen=True, slots=True)
class Panes:
    """The sets are windows."""

    axis: TimeAxis

    def of(self, ticks: pa.Array) -> list[Alike]:
        panes = self.axis.panes(ticks)
        if len(panes) == 1:
            return [Alike(pc.max(ticks).as_py(), self.axis.windows(panes[0]))]
        ticks = ticks.drop_null()
        table = pa.table({"pane": self.axis.pane_of(ticks), "tick": ticks})
        alike = table.group_by(["pane"], use_threads=False).aggregate([("tick", "max")])
        rows = sorted(zip(alike["tick_max"].to_pylist(), alike["pane"].to_pylist(), strict=True))
        return [Alike(tick, self.axis.windows(pane)) for tick, pane in rows]

    def within(self, ticks: pa.Array, start: int) -> pa.Array:
        return self.axis.within(ticks, start)

    def end(self, start: int) -> int:
        return self.axis.end(start)


def ticks_of(span: timedelta, kind: pa.DataType) -> int:
    """A span, which may be negative, in ticks of a time column."""
    ticks = TimeAxis.of(kind, abs(span)).size
    return -ticks if span < timedelta(0) else ticks


def timer(axis: TimeAxis, tick: int) -> datetime:
    """A time to wait for. What Python can't hold is its last instant: only the end of the input comes after it."""
    return axis.instant(min(tick, axis.tick(LAST)))
