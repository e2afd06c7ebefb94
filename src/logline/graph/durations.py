"""Lengths of time and rates as people write them: "1h", "500ms", "1h30m", "600/min".

>>> duration("1h30m")
datetime.timedelta(seconds=5400)
>>> rate("600/min")
(600, datetime.timedelta(seconds=60))
"""

from __future__ import annotations

import re
from datetime import timedelta

from logline.errors import OptionError

_UNITS = {
    "us": timedelta(microseconds=1),
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|min|s|m|h|d)\s*")
_RATE = re.compile(r"(\d+)\s*/\s*([a-z]+)\Z")


def duration(value: str | timedelta) -> timedelta:
    """Reads a length of time; zero is one, a negative one is not.

    >>> duration("500ms")
    datetime.timedelta(microseconds=500000)
    """
    if isinstance(value, timedelta):
        if value < timedelta(0):
            raise OptionError(f"{value!r} is negative: a duration is zero or more")
        return value
    if not isinstance(value, str):
        raise OptionError(f"{value!r} is not a duration: write it with a unit, as in '30s', or pass a timedelta")
    text = value.strip()
    total, end = timedelta(0), 0
    try:
        while match := _PART.match(text, end):
            total += float(match[1]) * _UNITS[match[2]]
            end = match.end()
    except OverflowError:
        raise OptionError(f"{value!r} is too long for a duration") from None
    if end == 0 or end != len(text):
        raise OptionError(
            f"{value!r} is not a duration: write numbers with the units us, ms, s, m, h or d, "
            "for example '500ms', '1h' or '1h30m'"
        )
    return total


def rate(value: object) -> tuple[int, timedelta]:
    """Reads how many in how long: `600/min` is (600, one minute)."""
    match = _RATE.match(value.strip()) if isinstance(value, str) else None
    if match is None or match[2] not in _UNITS or int(match[1]) < 1:
        raise OptionError(
            f"{value!r} is not a rate: write a count and a unit (ms, s, min, h or d), for example '10/s' or '600/min'"
        )
    return int(match[1]), _UNITS[match[2]]
