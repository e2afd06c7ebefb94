"""Lengths of time, rates and sizes as people write them: "1h", "500ms", "1h30m", "600/min", "10GB".

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


def shown(span: timedelta) -> str:
    """A length of time as people write it.

    >>> shown(timedelta(milliseconds=50)), shown(timedelta(minutes=2))
    ('50ms', '120s')
    """
    seconds = span.total_seconds()
    return f"{seconds * 1000:g}ms" if seconds < 1 else f"{seconds:g}s"


def signed(value: str | timedelta) -> timedelta:
    """Reads a length of time that may be negative.

    >>> signed("-5m") == -duration("5m"), signed(timedelta(seconds=-1)), signed("2s")
    (True, datetime.timedelta(days=-1, seconds=86399), datetime.timedelta(seconds=2))
    """
    given: object = value
    if isinstance(given, timedelta):
        return given
    if isinstance(given, str) and given.strip().startswith("-"):
        return -duration(given.strip()[1:])
    return duration(value)


def shown_signed(span: timedelta) -> str:
    """A length of time that may be negative, so that `signed` reads it again.

    >>> shown_signed(timedelta(minutes=-5)), shown_signed(timedelta(microseconds=1500001))
    ('-300s', '1s500001us')
    """
    seconds, rest = divmod(abs(span), timedelta(seconds=1))
    text = (f"{seconds}s" if seconds or not rest else "") + (f"{rest // timedelta(microseconds=1)}us" if rest else "")
    return f"-{text}" if span < timedelta(0) else text


_SIZES = {"kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(kB|KB|MB|GB|TB)\Z")


def keep(value: object) -> tuple[timedelta | None, int | None]:
    """How long, how much, or both, whichever is reached first.

    >>> keep("7d"), keep("10GB"), keep(("7d", "10GB"))
    ((datetime.timedelta(days=7), None), (None, 10000000000), (datetime.timedelta(days=7), 10000000000))
    """
    span: timedelta | None = None
    size: int | None = None
    for part in value if isinstance(value, tuple | list) else (value,):
        match = _SIZE.match(part.strip()) if isinstance(part, str) else None
        if match is not None and size is None:
            size = int(float(match[1]) * _SIZES[match[2]])
        elif match is None and span is None and isinstance(part, str | timedelta):
            span = duration(part)
        else:
            raise OptionError(f"{value!r}: write a time ('7d'), a size ('10GB'), or one of each: ('7d', '10GB')")
    if span is None and size is None:
        raise OptionError(f"{value!r}: write a time ('7d'), a size ('10GB'), or one of each: ('7d', '10GB')")
    return span, size


def rate(value: object) -> tuple[int, timedelta]:
    """Reads how many in how long: `600/min` is (600, one minute)."""
    match = _RATE.match(value.strip()) if isinstance(value, str) else None
    if match is None or match[2] not in _UNITS or int(match[1]) < 1:
        raise OptionError(
            f"{value!r} is not a rate: write a count and a unit (ms, s, min, h or d), for example '10/s' or '600/min'"
        )
    return int(match[1]), _UNITS[match[2]]
