"""The names that key everything: operators, instances, ports, channels, events, input sets.

Ids are types, never bare strings passed around. The full name of an event is
`operator[/replica][.port]:ssn`; `.out` may be left out:

    >>> event_name(Called("orders"), PortName("out"), Ssn(17))
    'orders:17'
    >>> event_name(Called("hourly"), PortName("late"), Ssn(3))
    'hourly.late:3'
    >>> parse_events("hourly/2.late:12..40")
    EventRange(called='hourly/2', port='late', first=12, last=40)

An operator is not an instance, even where one instance has the operator's name: `graph.instances` says which
instances an operator has. The name of an instance is made of the operator's id in the log and its replica number:

    >>> instance_name(OperatorId("hourly"), 2)
    'hourly/2'

The id is the name under which the operator first came into the log, and its generation. A rename keeps it; an
operator that is made anew, or that comes after another one of its name, has the next generation (R14):

    >>> operator_id("hourly", 1), operator_id("hourly", 2)
    ('hourly', 'hourly@2')
    >>> generation_of(OperatorId("hourly@2"))
    ('hourly', 2)

What a user writes names operators as they are called now (`Called`); `graph.instances` says which instance that is.

    >>> parse_port("hourly/2.late")
    ('hourly/2', 'late')
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple, NewType

from logline.errors import BadName

OperatorName = NewType("OperatorName", str)
OperatorId = NewType("OperatorId", str)
"""What an operator is called in the log for good: `hourly`, or `hourly@2` for its second generation (R14)."""
InstanceName = NewType("InstanceName", str)
"""One running copy of an operator, by the operator's id: `hourly`, or `hourly/2` when it has replicas."""
Called = NewType("Called", str)
"""An instance as users call it, by the operator's name of today: `hourly`, or `hourly/2`."""
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
LATE = PortName("late")

LONGEST = 64
"""Characters of a name: it is the name of files and sockets, and the kernel allows 108 bytes for a socket's path."""
NAME_RULE = f"a name has letters, digits, '_' and '-', and begins with a letter; {LONGEST} characters at most"

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*\Z")
_PORT_OF = r"(?P<called>[A-Za-z][A-Za-z0-9_-]*(?:@\d+)?(?:/\d+)?)(?:\.(?P<port>[A-Za-z][A-Za-z0-9_-]*))?"
_PORT = re.compile(rf"{_PORT_OF}\Z")
_EVENTS = re.compile(rf"{_PORT_OF}:(?P<first>\d+)(?:\.\.(?P<last>\d+))?\Z")


class EventRange(NamedTuple):
    """One event, or a run of events of one port, as a user names it."""

    called: Called
    port: PortName
    first: Ssn
    last: Ssn


def is_word(text: str) -> bool:
    """Whether `text` looks like the name of an operator, a port or a target."""
    return bool(_WORD.match(text))


def may_name(text: str) -> bool:
    """Whether `text` may name a pipeline, an operator, a group, a port or a target."""
    return is_word(text) and len(text) <= LONGEST


def operator_id(first: str, generation: int) -> OperatorId:
    """The id of an operator that first came under this name, in this generation."""
    return OperatorId(first if generation == 1 else f"{first}@{generation}")


def generation_of(operator: OperatorId) -> tuple[str, int]:
    """The name under which the operator first came, and its generation."""
    first, _, generation = operator.partition("@")
    return first, int(generation or 1)


def instance_name(operator: OperatorId, replica: int | None = None) -> InstanceName:
    """The name of an operator's only instance, or of the replica of that number."""
    return InstanceName(operator if replica is None else f"{operator}/{replica}")


def called(operator: OperatorName, replica: int | None = None) -> Called:
    """What users call an operator's only instance, or the replica of that number."""
    return Called(operator if replica is None else f"{operator}/{replica}")


def parse_called(text: object) -> Called:
    """Reads what a user calls an instance: `hourly`, or `hourly/2` for one of several replicas.

    Says nothing about whether there is such an instance.
    """
    match = _matched(_PORT, text)
    if match is None or match["port"]:
        raise BadName(
            f"{text!r} does not name an instance: write operator[/replica], for example 'hourly' or 'hourly/2'"
        )
    return Called(match["called"])


def parse_port(text: object) -> tuple[Called, PortName]:
    """Reads an instance's output port as a user writes it: `hourly.late`, or `hourly` for its port `out`."""
    match = _matched(_PORT, text)
    if match is None:
        raise BadName(
            f"{text!r} does not name a port: write operator[/replica][.port], for example 'orders' or 'hourly.late'"
        )
    return Called(match["called"]), PortName(match["port"] or OUT)


def _matched(form: re.Pattern[str], text: object) -> re.Match[str] | None:
    return form.match(text.strip()) if isinstance(text, str) else None


def event_name(sender: Called | InstanceName, port: PortName, ssn: Ssn) -> str:
    """The short name of an event: for users by what they call its sender, in the log by the sender's own name."""
    return f"{sender}:{ssn}" if port == OUT else f"{sender}.{port}:{ssn}"


def port_name(sender: Called | InstanceName, port: PortName) -> str:
    """The full name of a port."""
    return f"{sender}.{port}"


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
    return EventRange(Called(match["called"]), PortName(match["port"] or OUT), Ssn(first), Ssn(last))


def channel_name(sender: InstanceName, out: PortName, receiver: InstanceName, port: PortName) -> ChannelName:
    """The name of a channel; the same in every life and every journal."""
    return ChannelName(f"{sender}.{out}>{receiver}.{port}")


def sender_of(channel: ChannelName) -> tuple[InstanceName, PortName]:
    """Where the events of a channel come from."""
    sender, _, out = channel.partition(">")[0].rpartition(".")
    return InstanceName(sender), PortName(out)
