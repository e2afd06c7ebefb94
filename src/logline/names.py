"""The names that key everything: operators, instances, ports, channels, events, input sets.

Ids are types, never bare strings passed around. The full name of an event is
`operator[/replica][.port]:ssn`; `.out` may be left out:

    >>> event_name(InstanceName("orders"), PortName("out"), Ssn(17))
    'orders:17'
    >>> event_name(InstanceName("hourly"), PortName("late"), Ssn(3))
    'hourly.late:3'
    >>> parse_events("hourly/2.late:12..40")
    EventRange(instance='hourly/2', port='late', first=12, last=40)

An operator is not an instance, even where one instance has the operator's name: `graph.instances` says which
instances an operator has. Here are the only two ways to the name of an instance: from its operator and its replica
number, and from what a user wrote.

    >>> instance_name(OperatorName("hourly"), 2)
    'hourly/2'
    >>> parse_instance("hourly/2")
    'hourly/2'
    >>> parse_port("hourly")
    ('hourly', 'out')
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple, NewType

from logline.errors import BadName

OperatorName = NewType("OperatorName", str)
InstanceName = NewType("InstanceName", str)
"""One running copy of an operator: `hourly`, or `hourly/2` when it has replicas."""
PortName = NewType("PortName", str)
TargetName = NewType("TargetName", str)
PartitionName = NewType("PartitionName", str)
ChannelName = NewType("ChannelName", str)
"""A sender's output port joined to a receiver's input port: `orders.out>hourly.in`."""
Ssn = NewType("Ssn", int)
"""An event's number on its output port: 1, 2, 3, ... without gaps."""
Serial = NewType("Serial", int)
"""The number of an input set within its instance; (id, serial) is the set (R7)."""
Incarnation = NewType("Incarnation", int)
LogId = NewType("LogId", str)
BoxName = NewType("BoxName", str)
"""A mailbox of a run; begins with `@`, which no operator's name does."""
BellName = InstanceName | BoxName
"""Whom a bell wakes: an instance, or whoever reads a mailbox."""

Atom = str | int | datetime
InsetId = Atom | tuple[Atom, ...]
"""The label an operator gives to an input set: an hour, a block number, a key."""

OUT = PortName("out")
IN = PortName("in")
ERRORS = PortName("errors")

LONGEST = 64
"""Characters of a name: it is the name of files and sockets, and the kernel allows 108 bytes for a socket's path."""
NAME_RULE = f"a name has letters, digits, '_' and '-', and begins with a letter; {LONGEST} characters at most"

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*\Z")
_PORT_OF = r"(?P<instance>[A-Za-z][A-Za-z0-9_-]*(?:/\d+)?)(?:\.(?P<port>[A-Za-z][A-Za-z0-9_-]*))?"
_PORT = re.compile(rf"{_PORT_OF}\Z")
_EVENTS = re.compile(rf"{_PORT_OF}:(?P<first>\d+)(?:\.\.(?P<last>\d+))?\Z")


class EventRange(NamedTuple):
    """One event, or a run of events of one port, as a user names it."""

    instance: InstanceName
    port: PortName
    first: Ssn
    last: Ssn


def is_word(text: str) -> bool:
    """Whether `text` looks like the name of an operator, a port or a target."""
    return bool(_WORD.match(text))


def may_name(text: str) -> bool:
    """Whether `text` may name a pipeline, an operator, a group, a port or a target."""
    return is_word(text) and len(text) <= LONGEST


def instance_name(operator: OperatorName, replica: int | None = None) -> InstanceName:
    """The name of an operator's only instance, or of the replica of that number."""
    return InstanceName(operator if replica is None else f"{operator}/{replica}")


def parse_instance(text: object) -> InstanceName:
    """Reads the name of an instance as a user writes it: `hourly`, or `hourly/2` for one of several replicas.

    Says nothing about whether there is such an instance.
    """
    match = _matched(_PORT, text)
    if match is None or match["port"]:
        raise BadName(
            f"{text!r} does not name an instance: write operator[/replica], for example 'hourly' or 'hourly/2'"
        )
    return InstanceName(match["instance"])


def parse_port(text: object) -> tuple[InstanceName, PortName]:
    """Reads an instance's output port as a user writes it: `hourly.late`, or `hourly` for its port `out`."""
    match = _matched(_PORT, text)
    if match is None:
        raise BadName(
            f"{text!r} does not name a port: write operator[/replica][.port], for example 'orders' or 'hourly.late'"
        )
    return InstanceName(match["instance"]), PortName(match["port"] or OUT)


def _matched(form: re.Pattern[str], text: object) -> re.Match[str] | None:
    return form.match(text.strip()) if isinstance(text, str) else None


def event_name(instance: InstanceName, port: PortName, ssn: Ssn) -> str:
    """The short name of an event."""
    return f"{instance}:{ssn}" if port == OUT else f"{instance}.{port}:{ssn}"


def port_name(instance: InstanceName, port: PortName) -> str:
    """The full name of a port, as the log's tables show it."""
    return f"{instance}.{port}"


def parse_events(text: object) -> EventRange:
    """Reads `orders:17`, `hourly.late:3` or `hourly:12..40`."""
    match = _matched(_EVENTS, text)
    if match is None:
        raise BadName(
            f"{text!r} does not name an event: write operator[/replica][.port]:ssn, "
            "for example 'orders:17', 'hourly.late:3' or 'hourly:12..40'"
        )
    first = int(match["first"])
    last = int(match["last"]) if match["last"] else first
    if first < 1 or last < first:
        raise BadName(f"{text!r} names no event: SSNs begin at 1 and a range rises")
    return EventRange(InstanceName(match["instance"]), PortName(match["port"] or OUT), Ssn(first), Ssn(last))


def channel_name(sender: InstanceName, out: PortName, receiver: InstanceName, port: PortName) -> ChannelName:
    """The name of a channel; the same in every life and every journal."""
    return ChannelName(f"{sender}.{out}>{receiver}.{port}")


def sender_of(channel: ChannelName) -> tuple[InstanceName, PortName]:
    """Where the events of a channel come from."""
    sender, _, out = channel.partition(">")[0].rpartition(".")
    return InstanceName(sender), PortName(out)
