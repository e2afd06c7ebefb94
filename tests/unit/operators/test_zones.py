"""Days as clocks show them: across daylight saving, at midnights that are skipped or come twice."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.operators.harness import Harness

from logline.errors import SchemaError
from logline.operators import WindowAggregate, sliding, tumbling
from logline.operators.event_time import TimeAxis

UTC_US = pa.timestamp("us", "UTC")
COUNT = {"n": ("n", "sum")}
DAY = timedelta(days=1)
ZONES = ["Europe/Paris", "America/St_Johns", "America/Havana", "America/Sao_Paulo", "Asia/Beirut", "Asia/Kolkata"]


def batch(*times, type=UTC_US):
    return pa.record_batch({"at": pa.array(times, type), "n": [1] * len(times)})


def days(window, *times, crashes=True):
    op = Harness(WindowAggregate(window, (), COUNT), batch().schema, crashes=crashes)
    for time in times:
        op.send(batch(time))
    return [event[0] for event in op.end().out()]


@pytest.mark.parametrize(("month", "day", "hours"), [(3, 28, 24), (3, 29, 23), (10, 25, 25), (10, 26, 24)])
def test_a_day_in_paris(month, day, hours):
    paris = ZoneInfo("Europe/Paris")
    start, end = datetime(2026, month, day, tzinfo=paris), datetime(2026, month, day + 1, tzinfo=paris)
    last = end.astimezone(UTC) - timedelta(seconds=1)
    made = days(tumbling("1d", on="at", zone="Europe/Paris"), start.astimezone(UTC), last, end.astimezone(UTC))
    assert [(row["window_start"], row["n"]) for row in made] == [(start, 2), (end, 1)]
    assert made[0]["window_end"] - made[0]["window_start"].astimezone(UTC) == timedelta(hours=hours)


def test_an_offset_is_a_time_of_day_there():
    """Six in the morning is six in the morning, also when the night was short."""
    window = tumbling("1d", on="at", zone="Europe/Paris", offset="6h")
    made = days(window, datetime(2026, 3, 29, 3, 59, tzinfo=UTC), datetime(2026, 3, 29, 4, tzinfo=UTC))
    assert [row["window_start"] for row in made] == [
        datetime(2026, 3, 28, 5, tzinfo=UTC),
        datetime(2026, 3, 29, 4, tzinfo=UTC),
    ]


def test_weeks_begin_on_mondays_with_an_offset_of_four_days():
    made = days(tumbling("7d", on="at", zone="Europe/Paris", offset="4d"), datetime(2026, 4, 1, tzinfo=UTC))
    assert made[0]["window_start"].astimezone(ZoneInfo("Europe/Paris")).isoformat() == "2026-03-30T00:00:00+02:00"


def test_days_that_overlap_in_a_zone():
    made = days(sliding("3d", "1d", on="at", zone="Europe/Paris"), datetime(2026, 3, 29, 12, tzinfo=UTC))
    hours = [(row["window_end"] - row["window_start"]) / timedelta(hours=1) for row in made]
    assert hours == [71, 71, 71]
    assert [row["n"] for row in made] == [1, 1, 1]


def test_a_day_that_was_skipped_has_no_window():
    """Samoa had no 30 December 2011."""
    times = [datetime(2011, 12, 30, 9, tzinfo=UTC), datetime(2011, 12, 30, 11, tzinfo=UTC)]
    made = days(tumbling("1d", on="at", zone="Pacific/Apia"), *times)
    assert [row["window_end"] - row["window_start"] for row in made] == [DAY, DAY]
    assert made[0]["window_end"] == made[1]["window_start"] == datetime(2011, 12, 30, 10, tzinfo=UTC)


@settings(max_examples=200)
@given(
    st.sampled_from(ZONES),
    st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5),
    st.sampled_from(["s", "ms", "us", "ns"]),
    st.integers(0, 23),
)
def test_windows_tile_the_time_line(zone, seconds, unit, hour):
    axis = TimeAxis.of(pa.timestamp(unit), DAY, offset=timedelta(hours=hour), zone=zone)
    per = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    for second in seconds:
        tick = second * per
        (pane,) = axis.panes(pa.array([tick], pa.int64()))
        assert pane <= tick < axis.end(pane)
        assert axis.start(axis.instant(pane)) == pane
        (after,) = axis.panes(pa.array([axis.end(pane)], pa.int64()))
        (last,) = axis.panes(pa.array([axis.end(pane) - 1], pa.int64()))
        assert (last, after) == (pane, axis.end(pane))
        shown = axis.instant(pane).astimezone(ZoneInfo(zone))
        jumps = (axis.instant(pane) - timedelta(seconds=1)).astimezone(ZoneInfo(zone))
        assert shown.hour == hour or shown.utcoffset() != jumps.utcoffset()


def test_days_around_a_clock_that_goes_back_over_midnight():
    """In 2000 Newfoundland's clocks went from 00:01 back to 23:01: midnight came twice, and the first one counts."""
    first = datetime(2000, 10, 29, 2, 30, tzinfo=UTC)
    made = days(
        tumbling("1d", on="at", zone="America/St_Johns"), first + timedelta(minutes=-1), first, first + DAY / 48
    )
    assert [(row["window_start"].astimezone(UTC), row["n"]) for row in made][1:] == [(first, 2)]


@pytest.mark.parametrize("size", ["1d", "7d"])
def test_sentinel_dates_have_their_windows(size):
    times = [datetime(1, 1, 1, 12, tzinfo=UTC), datetime(9999, 12, 31, 20, tzinfo=UTC)]
    for zone in ("Europe/Paris", "America/New_York"):
        made = days(tumbling(size, on="at", zone=zone), *times)
        assert [row["n"] for row in made] == [1, 1]


def test_a_date_has_no_zone():
    op = WindowAggregate(tumbling("1d", on="at", zone="Europe/Paris"), (), COUNT)
    with pytest.raises(SchemaError, match="has no time of day"):
        op.schemas({"in": batch(date(2026, 3, 1), type=pa.date32()).schema})


def test_the_zone_and_the_offset_give_open_sets_their_meaning():
    op = WindowAggregate(tumbling("1d", on="at", zone="Europe/Paris", offset="6h"), (), COUNT)
    expected = {"size": DAY, "on": "at", "offset": timedelta(hours=6), "zone": "Europe/Paris"}
    assert op.parameters() == expected
    assert WindowAggregate(tumbling("1d", on="at"), (), COUNT).parameters() == {"size": DAY, "on": "at"}
