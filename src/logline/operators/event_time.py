"""Event time in an Arrow column: its ticks, the windows a tick falls in, and both as instants.

A tick is the column's own integer (milliseconds of a `timestamp[ms]`), so that nothing is converted row by
row. A timestamp without a zone is taken as UTC; a date is its midnight, in microseconds.

Windows of `size` ticks begin every `step` ticks. They are cut into *panes*, the longest spans of which all windows
are made up: every record of a pane is in the same windows. A window that tumbles is one pane.

    >>> axis = TimeAxis.of(pa.timestamp("s"), timedelta(hours=1))
    >>> [str(axis.instant(start)) for start in axis.panes(pa.array([7201, 7300, None, 10800]))]
    ['1970-01-01 02:00:00+00:00', '1970-01-01 03:00:00+00:00']
    >>> sliding = TimeAxis.of(pa.timestamp("s"), timedelta(seconds=10), timedelta(seconds=4))
    >>> sliding.pane, sliding.windows(8)
    (2, [0, 4, 8])
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import gcd

import pyarrow as pa
import pyarrow.compute as pc

from logline.errors import SchemaError
from logline.graph.zones import at_local, shown_local

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)
_FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICRO
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICRO
_DAY = timedelta(days=1) // _MICRO
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DATES = pa.timestamp("us", "UTC")
_TICKS = pa.int64()
_FEW = 64
"""Times of which plain Python makes more in the same time than Arrow does, whose every call costs ten of them."""


def earlier(instant: datetime, span: timedelta) -> datetime:
    """So much earlier, as far as there are instants.

    >>> str(earlier(datetime(2024, 1, 1, tzinfo=UTC), timedelta(days=1)))
    '2023-12-31 00:00:00+00:00'
    """
    first = datetime.min.replace(tzinfo=UTC)
    return instant - span if instant - first >= span else first


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The time line of one column, cut into windows of `size` ticks."""

    type: pa.DataType
    """Of the bounds of windows: the column's own, or for a date a timestamp in UTC."""
    size: int
    step: int
    offset: int = 0
    zone: str | None = None
    """Windows are cut where this zone's clocks show it. Their sizes are whole days, some of 23 or 25 hours."""

    @classmethod
    def of(
        cls,
        column: pa.DataType,
        size: timedelta,
        step: timedelta | None = None,
        offset: timedelta = timedelta(0),
        zone: str | None = None,
    ) -> TimeAxis:
        """The axis of a column of this type; SchemaError if it holds no time, or none fine enough."""
        if pa.types.is_date(column):
            if zone is not None:
                raise SchemaError(f"a {column} has no time of day, so zone={zone!r} means nothing: leave it out")
            axis = _DATES
        elif pa.types.is_timestamp(column):
            axis = column
        else:
            raise SchemaError(f"a time column is a timestamp or a date, not {column}")

        def in_ticks(span: timedelta) -> int:
            ticks, rest = divmod(span // _MICRO * _PER_SECOND[axis.unit], 10**6)
            if rest:
                raise SchemaError(f"a window of {span} has bounds that {column} can't hold: use a finer unit")
            return ticks

        return cls(axis, in_ticks(size), in_ticks(step or size), in_ticks(offset), zone)

    @property
    def pane(self) -> int:
        """The length of a pane."""
        return gcd(self.size, self.step)

    def ticks(self, column: pa.Array) -> pa.Array:
        """The column as int64 ticks."""
        return (column if column.type == self.type else column.cast(self.type)).view(_TICKS)

    # ---- windows and panes ----------------------------------------------------------------------------

    def floor(self, ticks: pa.Array) -> pa.Array:
        """The first tick of the last window that each tick falls in."""
        return self._floor(ticks, self.step)

    def pane_of(self, ticks: pa.Array) -> pa.Array:
        """The first tick of the pane that each tick falls in."""
        return self._floor(ticks, self.pane)

    def panes(self, ticks: pa.Array) -> list[int]:
        """The first ticks of all panes that these fall in, in order."""
        if self.zone is None and len(ticks) <= _FEW:
            return sorted({self._down(tick, self.pane) for tick in ticks.to_pylist() if tick is not None})
        ends = pc.min_max(ticks)
        if not ends["min"].is_valid:
            return []
        both = pa.array([ends["min"].as_py(), ends["max"].as_py()], _TICKS)
        first, last = self.pane_of(both).to_pylist()
        if first == last:  # the usual case by far: an event within one pane
            return [first]
        return sorted(pc.unique(self.pane_of(ticks).drop_null()).to_pylist())

    def windows(self, pane: int) -> list[int]:
        """The first ticks of the windows that a pane is in, the last one last."""
        if self.size == self.step:
            return [pane]
        local = self._local(pane)
        last = local - (local - self.offset) % self.step
        starts = range(last, local - self.size, -self.step)
        found = list(dict.fromkeys(self._at(start) for start in reversed(starts)))  # a zone may skip a whole day
        # Python has no instants before the year 1 that could name windows; the last one may reach back there.
        return [start for start in found[:-1] if self._micros(start) >= _FIRST] + found[-1:]

    def end(self, start: int) -> int:
        """The first tick after the window that begins at `start`."""
        if self.zone is None:
            return start + self.size
        local = self._local(start)
        return self._at(local - (local - self.offset) % self.step + self.size)

    def within(self, ticks: pa.Array, start: int) -> pa.Array:
        """Which ticks fall in the window that begins at `start`; null where there is no time."""
        return pc.and_(pc.greater_equal(ticks, start), pc.less(ticks, self.end(start)))

    def by_pane(self, ticks: pa.Array) -> tuple[pa.Array, dict[int, tuple[int, int]]]:
        """The rows pane by pane, each pane's in the order in which they are there: the row numbers, and where those
        of each pane begin and how many they are. Rows without a time are in no pane.

        >>> order, panes = TimeAxis.of(pa.timestamp("s"), timedelta(seconds=10)).by_pane(pa.array([25, 3, None, 21]))
        >>> order.to_pylist(), panes
        ([1, 0, 3, 2], {0: (0, 1), 20: (1, 2)})
        """
        panes = self.pane_of(ticks)
        order = pc.sort_indices(panes)  # a stable sort, nulls last
        runs = pc.run_end_encode(panes.take(order).drop_null(), run_end_type=pa.int64())
        ends = runs.run_ends.to_pylist()
        starts = [0, *ends[:-1]]
        found = zip(runs.values.to_pylist(), starts, ends, strict=True)
        return order, {pane: (start, end - start) for pane, start, end in found}

    # ---- instants -------------------------------------------------------------------------------------

    def instant(self, tick: int) -> datetime:
        """The bound of a window as an aware instant. The first window of the year 1 and the last one of 9999 may
        reach beyond what Python holds: their bounds are the first and the last instant. OverflowError further out."""
        micros = self._micros(tick)
        reach = self.size * 10**6 // _PER_SECOND[self.type.unit] + (_DAY if self.zone else 0)
        if micros < _FIRST < micros + reach:
            micros = _FIRST
        elif micros > _LAST >= micros - reach:
            micros = _LAST
        return _EPOCH + timedelta(microseconds=micros)

    def start(self, instant: datetime) -> int:
        """The first tick of the window that begins at this instant, as `instant` gave it."""
        tick = self.tick(instant)
        if self.zone is None:
            return self._down(tick, self.step)
        return int(self.floor(pa.array([tick], _TICKS))[0].as_py())

    def tick(self, instant: datetime) -> int:
        """The inverse of `instant`."""
        return (instant - _EPOCH) // _MICRO * _PER_SECOND[self.type.unit] // 10**6

    def _micros(self, tick: int) -> int:
        return tick * 10**6 // _PER_SECOND[self.type.unit]

    # ---- bounds ---------------------------------------------------------------------------------------

    def _down(self, tick: int, span: int) -> int:
        return tick - (tick - self.offset) % span

    def _floor(self, ticks: pa.Array, span: int) -> pa.Array:
        if self.zone is None:
            return self._floor_plain(ticks, span)
        local = self._floor_plain(self._locals(ticks), span)
        start, after = self._ats(local), self._ats(pc.add(local, span))
        before = self._ats(pc.subtract(local, span))
        # Where clocks jump near a bound, what they show may be of the window before or after.
        found = pc.if_else(pc.less(ticks, start), before, start)
        return pc.if_else(pc.greater_equal(ticks, after), after, found)

    def _floor_plain(self, ticks: pa.Array, span: int) -> pa.Array:
        past = pc.subtract(ticks, self.offset) if self.offset else ticks
        past = pc.subtract(past, pc.multiply(pc.divide(past, span), span))
        # Arrow divides towards zero; before 1970 that is the window after.
        past = pc.if_else(pc.less(past, 0), pc.add(past, span), past)
        return pc.subtract_checked(ticks, past)

    def _locals(self, ticks: pa.Array) -> pa.Array:
        return shown_local(ticks.view(pa.timestamp(self.type.unit)), self.zone or "UTC").view(_TICKS)

    def _ats(self, local: pa.Array) -> pa.Array:
        return at_local(local.view(pa.timestamp(self.type.unit)), self.zone or "UTC").view(_TICKS)

    def _local(self, tick: int) -> int:
        return tick if self.zone is None else int(self._locals(pa.array([tick], _TICKS))[0].as_py())

    def _at(self, local: int) -> int:
        return local if self.zone is None else int(self._ats(pa.array([local], _TICKS))[0].as_py())
