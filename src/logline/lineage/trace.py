"""Backward and forward lineage: from events to the events they were made of, or that were made of them.

Events and their neighbours by look-ups, never by scanning the log: what a query costs depends on what it finds
(LOG.io section 7.3). What is equally far away is looked up together (`levels.py`).

    backward   event -> its set (the serial in its header) -> the members of the set on enabled input ports
    forward    event -> the sets it was in, of each receiver -> what they put out on enabled output ports

Rejected rows that were retried are a way like any other: what came of them was made of the event on port `errors`,
and that of the events whose rows were rejected.

`Trace.links` has every pair that was found; `ends` says of an event why the lineage does not go on there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from logline.engine.events import Output
from logline.engine.sets import Answer
from logline.lineage.levels import Levels
from logline.lineage.view import Event, LogView, Port
from logline.names import Called, Serial, Ssn

Direction = Literal["backward", "forward"]
End = Literal["source", "by hand", "scope", "expired", "sink", "open", "nothing", "to"]
"""Why a lineage does not go on: at a source; at rows that somebody put in the place of an error's; where nothing is
captured; beyond the retention; at a sink; not taken or in a set that is not done; taken, and nothing came of it; at
the port that was asked for."""


class Link(NamedTuple):
    """One event was made of another: by which operator, in which of its input sets."""

    event: Event
    """The one that was found."""
    of: Event
    """The one it was found from: backward what was made of it, forward what it was made of."""
    operator: Called
    serial: Serial
    inset: str


@dataclass
class Trace:
    """What a query found."""

    direction: Direction
    asked: list[Event]
    links: list[Link] = field(default_factory=list)
    depths: dict[Event, int] = field(default_factory=dict)
    """Every event that was found, with the length of the shortest way to it; in the order in which it was found."""
    ends: dict[Event, End] = field(default_factory=dict)
    headers: dict[Event, Output | None] = field(default_factory=dict)
    """Rows and bytes; None for an event that is collected."""
    calls: dict[tuple[Called, Serial], Sequence[Answer]] = field(default_factory=dict)
    """The answers that sets on the way were given by the outside (R9): reads are inputs too."""

    def kept(self, event: Event) -> bool:
        """Whether its records are still in the log."""
        return self.headers[event] is not None


def trace(view: LogView, asked: Iterable[Event], direction: Direction, to: Port | None = None) -> Trace:
    """Everything that the events were made of, or all that was made of them; with `to`, only ways that lead there."""
    asked = list(asked)
    found = Trace(direction, asked, depths=dict.fromkeys(asked, 0))
    follow = _backward if direction == "backward" else _forward
    useful = None if to is None else _ways_to(view, to, direction)
    known, level = Levels(view), asked
    while level:
        known.ask_headers(level)
        found.headers |= {event: known.headers[event] for event in level}
        going = []
        for event in level:
            if to is not None and event[:2] == to and found.depths[event]:
                found.ends[event] = "to"
            else:
                going.append(event)
        (known.ask_backward if direction == "backward" else known.ask_forward)(going)
        level = []
        for event in going:
            for link in follow(view, known, found, event):
                if useful is not None and link.event[:2] not in useful:
                    continue
                found.links.append(link)
                if link.event not in found.depths:
                    found.depths[link.event] = found.depths[event] + 1
                    level.append(link.event)
    return found if to is None else _leading_to(found, to)


def _backward(view: LogView, known: Levels, found: Trace, event: Event) -> Iterator[Link]:
    header = known.headers[event]
    instance, port, _ = event
    if header is None:
        found.ends[event] = "expired"
        return
    if view.operator(instance).kind == "source":
        found.ends[event] = "source"
        return
    if not header.serial:
        found.ends[event] = "by hand"
        return
    inset = known.insets.get((instance, header.serial))
    if inset is None or port not in view.ports_enabled(instance).outputs:
        found.ends[event] = "expired" if _was_captured(view, event) else "scope"
        return
    text = view.inset(instance, inset)
    answers = known.answers.get((instance, inset.serial))
    if answers:
        found.calls[instance, inset.serial] = answers
    members = [m for m in inset.members if view.traced_in(m.channel)]
    if not members:
        found.ends[event] = "scope"
    for member in dict.fromkeys((m.channel, m.ssn) for m in members):
        yield Link((*view.sender(member[0]), member[1]), event, instance, inset.serial, text)


def _was_captured(view: LogView, event: Event) -> bool:
    """Whether lineage is captured of whatever the event was made of: if it is not there, it is forgotten."""
    instance, port, _ = event
    inputs = view.inputs(instance)
    return port in view.ports_enabled(instance).outputs and all(view.traced_in(c.name) for c in inputs)


def _forward(view: LogView, known: Levels, found: Trace, event: Event) -> Iterator[Link]:
    _, _, ssn = event
    made = False
    ends: End | None = None
    receivers = known.receivers(event)
    for channel in receivers:
        receiver = view.receiver(channel)
        if not known.is_traced(channel):
            ends = ends or ("sink" if view.operator(receiver).kind == "sink" else "scope")
            continue
        serials = known.serials[channel.name, ssn]
        for serial in serials:
            inset = known.insets.get((receiver, serial))
            for out, number in known.made[receiver, serial]:
                made = True
                text = "" if inset is None else view.inset(receiver, inset)
                yield Link((receiver, out, Ssn(number)), event, receiver, serial, text)
        if not serials and view.operator(receiver).kind == "sink":
            ends = "sink"
    if not made:
        if not receivers:
            found.ends[event] = "sink"
        elif ends is not None:
            found.ends[event] = ends
        elif known.is_waited_for(event):
            found.ends[event] = "open"
        else:
            found.ends[event] = "expired" if found.headers[event] is None else "nothing"


def _ways_to(view: LogView, to: Port, direction: Direction) -> set[Port]:
    """The ports from which a way leads to `to` in this direction, `to` included."""
    found, todo = {to}, [to]
    while todo:
        instance = todo.pop()[0]
        for channel in view.channels.values():
            sender, receiver = view.sender(channel.name), view.receiver(channel)
            if direction == "backward" and sender in found:
                new = {(receiver, out) for out in view.operator(receiver).outputs} - found
            elif direction == "forward" and receiver == instance:
                new = {sender} - found
            else:
                continue
            found |= new
            todo += new
    return found


def _leading_to(found: Trace, to: Port) -> Trace:
    """Drops what turned out to lead elsewhere."""
    before: dict[Event, list[Link]] = {}
    for link in found.links:
        before.setdefault(link.event, []).append(link)
    reached = [event for event in found.depths if event[:2] == to and found.depths[event]]
    useful, todo = set(reached), list(reached)
    while todo:
        for link in before.get(todo.pop(), ()):
            if link.of not in useful:
                useful.add(link.of)
                todo.append(link.of)
    useful.update(found.asked)
    return Trace(
        found.direction,
        found.asked,
        [link for link in found.links if link.event in useful],
        {event: depth for event, depth in found.depths.items() if event in useful},
        {event: end for event, end in found.ends.items() if event in useful},
        {event: header for event, header in found.headers.items() if event in useful},
        {key: calls for key, calls in found.calls.items() if any(link[2:4] == key for link in found.links)},
    )
