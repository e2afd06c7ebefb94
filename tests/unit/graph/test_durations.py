from datetime import timedelta

import pytest

from logline.errors import OptionError
from logline.graph.durations import duration, rate


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1h", timedelta(hours=1)),
        ("500ms", timedelta(milliseconds=500)),
        ("5m", timedelta(minutes=5)),
        ("5min", timedelta(minutes=5)),
        ("2d", timedelta(days=2)),
        ("1h30m", timedelta(minutes=90)),
        ("1h 30m", timedelta(minutes=90)),
        ("0s", timedelta(0)),
        ("1.5s", timedelta(milliseconds=1500)),
        ("3us", timedelta(microseconds=3)),
        (timedelta(seconds=7), timedelta(seconds=7)),
    ],
)
def test_duration(text: str | timedelta, expected: timedelta) -> None:
    assert duration(text) == expected


@pytest.mark.parametrize("text", ["", "5", "h", "1 hour", "-1s", "1h x", "1w", "ms5"])
def test_what_is_not_a_duration_is_shown_with_an_example(text: str) -> None:
    with pytest.raises(OptionError, match="is not a duration: write numbers with the units") as info:
        duration(text)
    assert repr(text) in str(info.value)


def test_a_bare_number_and_a_negative_time_are_refused() -> None:
    with pytest.raises(OptionError, match="write it with a unit, as in '30s'"):
        duration(5)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="is negative"):
        duration(timedelta(seconds=-1))
    with pytest.raises(OptionError, match="too long"):
        duration("99999999999999999d")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("600/min", (600, timedelta(minutes=1))),
        ("10/s", (10, timedelta(seconds=1))),
        ("1 / h", (1, timedelta(hours=1))),
    ],
)
def test_rate(text: str, expected: tuple[int, timedelta]) -> None:
    assert rate(text) == expected


@pytest.mark.parametrize("text", ["", "600", "0/s", "-1/s", "10/week", "ten/s", "10/s/s"])
def test_what_is_not_a_rate_is_shown_with_an_example(text: str) -> None:
    with pytest.raises(OptionError, match=r"is not a rate.*'600/min'"):
        rate(text)
