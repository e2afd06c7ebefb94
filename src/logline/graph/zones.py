"""Local time of a zone: what its clocks show, and when they show it.

Clocks that go forward skip some local times, and clocks that go back show some twice. A skipped time counts as the
moment of the jump, a time that comes twice as the first of the two. So bounds in local time stay in order.

    >>> midnight = pa.array([datetime(2026, 3, 29)], pa.timestamp("us"))
    >>> at_local(midnight, "Europe/Paris").cast(pa.timestamp("us", "UTC"))[0].as_py().isoformat()
    '2026-03-28T23:00:00+00:00'
    >>> later(datetime(2026, 3, 28, 23, tzinfo=UTC), timedelta(days=1), "Europe/Paris").isoformat()
    '2026-03-29T22:00:00+00:00'
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from logline.errors import OptionError


def check_zone(zone: object) -> str:
    """The name of a time zone that is known here; OptionError otherwise."""
    if not isinstance(zone, str):
        raise OptionError(f"zone={zone!r} is not the name of a time zone, as 'Europe/Paris' is")
    try:
        at_local(pa.array([0], pa.timestamp("s")), zone)
    except pa.ArrowInvalid as error:
        raise OptionError(f"zone={zone!r} is not a time zone that this machine knows ({error})") from None
    return zone


def shown_local(times: pa.Array, zone: str) -> pa.Array:
    """What the zone's clocks show at these instants: a timestamp without a zone counts as UTC."""
    return pc.local_timestamp(times.cast(pa.timestamp(times.type.unit, zone)))


def at_local(local: pa.Array, zone: str) -> pa.Array:
    """The instants at which the zone's clocks show these times."""
    return pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="latest")


def later(start: datetime, span: timedelta, zone: str | None) -> datetime:
    """The instant at which the zone's clocks show so much more; without a zone, so much later."""
    if zone is None:
        return start + span
    local = shown_local(pa.array([start], pa.timestamp("us", "UTC")), zone)
    found = at_local(pc.add(local, pa.scalar(span, pa.duration("us"))), zone)
    instant: datetime = found.cast(pa.timestamp("us", "UTC"))[0].as_py()
    return instant.astimezone(UTC)
