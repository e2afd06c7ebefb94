"""Event time in an Arrow column: its ticks, the window a tick falls in, and both as instants.

A tick is the column's own integer (milliseconds of a `timestamp[ms]`), so that nothing is converted row by
row. A timestamp without a zone is taken as UTC; a date is its midnight, in microseconds.

    >>> axis = TimeAxis.of(pa.timestamp("s"), timedelta(hours=1))
    >>> [str(axis.instant(start)) for start in axis.starts(pa.array([7201, 7300, None, 10800]))]
    ['1970-01-01 02:00:00+00:00', '1970-01-01 03:00:00+00:00']
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from logline.errors import SchemaError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)
_FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICRO
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICRO
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DATES = pa.timestamp("us", "UTC")
_TICKS = pa.int64()
_FEW = 64
"""Times of which plain Python makes more in the same time than Arrow does, whose every call costs ten of them."""


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The time line of one column, cut into windows of `size` ticks."""

    type: pa.DataType
    """Of the bounds of windows: the column's own, or for a date a timestamp in UTC."""
    size: int

    @classmethod
    def of(cls, column: pa.DataType, size: timedelta) -> TimeAxis:
        """The axis of a column of this type; SchemaError if it holds no time, or none fine enough."""
        if pa.types.is_date(column):
            axis = _DATES
        elif pa.types.is_timestamp(column):
            axis = column
        else:
            raise SchemaError(f"a time column is a timestamp or a date, not {column}")
        ticks, rest = divmod(size // _MICRO * _PER_SECOND[axis.unit], 10**6)
        if rest:
            raise SchemaError(f"a window of {size} has bounds that {column} can't hold: use a finer unit")
        return cls(axis, ticks)

    def ticks(self, column: pa.Array) -> pa.Array:
        """The column as int64 ticks."""
        return (column if column.type == self.type else column.cast(self.type)).view(_TICKS)

    def floor(self, ticks: pa.Array) -> pa.Array:
        """The first tick of the window that each tick falls in."""
        past = pc.subtract(ticks, pc.multiply(pc.divide(ticks, self.size), self.size))
        # Arrow divides towards zero; before 1970 that is the window after.
        past = pc.if_else(pc.less(past, 0), pc.add(past, self.size), past)
        return pc.subtract_checked(ticks, past)

    def starts(self, ticks: pa.Array) -> list[int]:
        """The first ticks of all windows that these fall in, in order."""
        if len(ticks) <= _FEW:
            return sorted({tick - tick % self.size for tick in ticks.to_pylist() if tick is not None})
        ends = pc.min_max(ticks)
        if not ends["min"].is_valid:
            return []
        first, last = (tick - tick % self.size for tick in (ends["min"].as_py(), ends["max"].as_py()))
        if first == last:  # the usual case by far: an event within one window
            return [first]
        return sorted(pc.unique(self.floor(ticks).drop_null()).to_pylist())

    def within(self, ticks: pa.Array, start: int) -> pa.Array:
        """Which ticks fall in the window that begins at `start`; null where there is no time."""
        return pc.and_(pc.greater_equal(ticks, start), pc.less(ticks, start + self.size))

    def instant(self, tick: int) -> datetime:
        """The bound of a window as an aware instant. The first window of the year 1 and the last one of 9999 may
        reach beyond what Python holds: their bounds are the first and the last instant. OverflowError further out."""
        micros = tick * 10**6 // _PER_SECOND[self.type.unit]
        size = self.size * 10**6 // _PER_SECOND[self.type.unit]
        if micros < _FIRST < micros + size:
            micros = _FIRST
        elif micros > _LAST >= micros - size:
            micros = _LAST
        return _EPOCH + timedelta(microseconds=micros)

    def start(self, instant: datetime) -> int:
        """The first tick of the window that begins at this instant, as `instant` gave it."""
        tick = self.tick(instant)
        return tick - tick % self.size

    def tick(self, instant: datetime) -> int:
        """The inverse of `instant`."""
        return (instant - _EPOCH) // _MICRO * _PER_SECOND[self.type.unit] // 10**6
