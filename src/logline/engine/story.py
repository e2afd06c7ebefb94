"""The story of a life: what its machine heard and asked for lately, in words, for debugging.

A life keeps one only if somebody asked for it (`Limits.story`; for a run, LOGLINE_STORY=200 in the environment keeps
the last 200 entries). Payloads are not kept, only what they are.

    >>> from logline.engine import actions as do, stimuli as on
    >>> from logline.engine.moments import Wall
    >>> from logline.names import ChannelName, Ssn
    >>> story = Story(most=2)
    >>> story.add(Wall(5), "running", on.Bell(), [do.Fetch(ChannelName("orders.out>hourly.in"), Ssn(7))])
    >>> story.entries[0]
    Entry(at=5, phase='running', heard='Bell', asked=('Fetch(orders.out>hourly.in, after 7)',))
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.image import Claim, Image
from logline.engine.moments import Wall
from logline.engine.results import Failure
from logline.engine.step import Step

LONGEST = 60
"""Characters that one value may take in a story."""


class Entry(NamedTuple):
    """One stimulus, and the actions that it led to."""

    at: Wall
    """Microseconds since 1970."""
    phase: str
    """That of the machine, afterwards."""
    heard: str
    asked: tuple[str, ...]


class Story:
    """The last entries of one life."""

    def __init__(self, most: int) -> None:
        self.entries: deque[Entry] = deque(maxlen=most)

    def add(self, now: Wall, phase: str, stimulus: on.Stimulus, actions: Sequence[do.Action]) -> None:
        """What happened just now."""
        self.entries.append(Entry(now, phase, _told(stimulus), tuple(map(_told, actions))))


def _told(thing: on.Stimulus | do.Action) -> str:
    parts = []
    for number, field in enumerate(thing.__struct_fields__):
        value = _value(getattr(thing, field))
        if value:
            parts.append(value if number == 0 or not value.lstrip("-").isdigit() else f"{field} {value}")
    name = type(thing).__name__
    return f"{name}({', '.join(parts)})" if parts else name


def _value(value: Any) -> str:
    """A value in few words; empty where there is nothing to say."""
    match value:
        case None | False:
            return ""
        case True:
            return "yes"
        case Step():
            return step_in_words(value)
        case Claim():
            return f"incarnation {value.incarnation}, {_value(value.image)}"
        case Image():
            return f"{len(value.sets)} open sets, {len(value.due)} due, {value.commits} commits"
        case Failure():
            return f"{value.kind}: {value.message}"[:LONGEST]
        case on.Intake():
            opened = len(value.alone) + len(value.opened)
            return f"{opened} sets opened, {len(value.due)} due, {len(value.failed)} failed"
        case bytes() | bytearray():
            return f"{len(value)} bytes"
        case str() | int() | float():
            return str(value)[:LONGEST]
        case tuple() | list() | dict() | set() | frozenset():
            return _many(value)
    return type(value).__name__


def _many(values: Collection[Any]) -> str:
    if not values:
        return ""
    plain = all(isinstance(value, str | int) for value in values)
    return ", ".join(map(str, values)) if plain and len(values) <= 3 else f"{len(values)}"


def step_in_words(step: Step) -> str:
    """The changes that a step makes, with how many of each."""
    found = []
    for changed in (step, step.sets, step.lineage, step.errors, step.reads, step.writes):
        for one in fields(changed):
            value = getattr(changed, one.name)
            if isinstance(value, Collection) and not isinstance(value, bytes):
                if value:
                    found.append(f"{one.name} {len(value)}")
            elif value:
                found.append(one.name if value is True or not isinstance(value, int) else f"{one.name} {value}")
    return ", ".join(found)
