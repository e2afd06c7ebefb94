"""Which rows of an event belong to a set of a join, by what the log has of the join: its parameters.

A set is a bucket of the time of one side, with the rows of the other side that are near enough; `operators/join.py`
makes them. An id is the bucket's start, or (kind, start), or (port, event) for the late rows of an event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from logline.graph.durations import signed
from logline.names import InsetId, PortName

JOINS = ("IntervalJoin", "WindowJoin", "WholeJoin")
LATE_PORTS = (PortName("late"), PortName("late_right"))
_RIGHT = PortName("right")


def is_late_set(inset: InsetId) -> bool:
    """Whether it is the set of an event's late rows."""
    return isinstance(inset, tuple) and inset[0] in LATE_PORTS


def time_column(parameters: Mapping[str, str], port: PortName) -> str:
    """The event-time column of the side that comes on this port."""
    left, right = parameters["time"].split(", ")
    return right if port == _RIGHT else left


def reach(parameters: Mapping[str, str], inset: InsetId, port: PortName, every: timedelta) -> Sequence[datetime]:
    """From when until before when rows of a side are in a set of an interval join.

    >>> from datetime import UTC
    >>> asked = {"within": "-300s to 600s", "how": "left"}
    >>> start = datetime(2026, 1, 1, tzinfo=UTC)
    >>> [str(at.time()) for at in reach(asked, start, PortName("right"), timedelta(hours=1))]
    ['23:55:00', '01:10:00']
    """
    kind, start = inset if isinstance(inset, tuple) else (None, inset)
    assert isinstance(start, datetime)
    low, high = (signed(text) for text in parameters["within"].split(" to "))
    if kind is not None or parameters["how"] == "right":  # it goes by the right side
        return (start, start + every) if port == _RIGHT else (start - high, start + every - low)
    return (start + low, start + every + high) if port == _RIGHT else (start, start + every)
