"""How much of the past a recovery may have to repeat: the option `eventual=` of an operator with `policy="eventual"`.

>>> Eventual(replay="1000 events").replay
'1000 events'
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from logline.errors import OptionError
from logline.graph.durations import duration
from logline.graph.operator import Duration

_EVENTS = re.compile(r"\s*([0-9][0-9_,]*)\s*events?\s*")


@dataclass(frozen=True, slots=True)
class Eventual:
    """When the open input sets of an operator have checkpoints. Without `replay` and `records` that is reckoned: a
    set has one when the time that it would save after a failure is worth more than what it costs.

    >>> Eventual(replay="1000 events", records=1000, budget=0.05, every="1s").budget
    0.05
    """

    replay: str | int | None = None
    """At most so many events are taken in again after a failure: `"1000 events"`, or a number."""
    records: int | None = None
    """At most so many records (checkpoints, and records of members) are read after a failure. Each open set has one
    at least, so a number below that of open sets can't be kept."""
    budget: float = 0.05
    """The share of time that may go into checkpoints. Where it is too small for `replay` or `records`, it counts."""
    every: Duration = "1s"
    """How often open sets are looked at."""

    @property
    def events(self) -> int | None:
        """`replay` as a number."""
        return replay_events(self.replay)


def replay_events(value: Any) -> int | None:
    """How many events `replay=` says.

    >>> replay_events("1,000 events")
    1000
    """
    if value is None:
        return None
    found = _EVENTS.fullmatch(value) if isinstance(value, str) else None
    number = int(re.sub("[_,]", "", found[1])) if found else value
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise OptionError(f"replay={value!r}: give a number of events, as in replay='1000 events' or replay=1000")
    return number


def check_eventual(value: Any) -> Eventual:
    """The option as it was given, checked."""
    if not isinstance(value, Eventual):
        raise OptionError(f"{value!r} is not an Eventual: write ll.Eventual(replay='1000 events')")
    replay_events(value.replay)
    records: Any = value.records
    if records is not None and (not isinstance(records, int) or isinstance(records, bool) or records < 1):
        raise OptionError(f"records={records!r} is not a whole number of at least 1")
    budget: Any = value.budget
    if not isinstance(budget, int | float) or isinstance(budget, bool) or not 0 < budget <= 1:
        raise OptionError(f"budget={budget!r}: give a share of the time, above 0 and at most 1, as in budget=0.05")
    return replace(value, every=duration(value.every))
