"""What became of the rows of one event at one operator that was sent it: read from the operator's journal.

The sets that the event is in say what the operator does, or did, with each row:

    above the position                      not taken yet
    in an open set, a due one               still there
    in a set that was dropped, or late      the membership tells
    in a set that is done                   what the set put out, as far as a lineage scope keeps it
    on port `errors`                        the error names the event and holds the rows

A set that is done and put out nothing is not kept, so what is not found may be forgotten instead. That is told apart
by how far the operator's ports are collected (`forgotten`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import msgspec
import pyarrow as pa

from logline.engine.sets import Member, own_id
from logline.graph.instances import Channel
from logline.lineage.view import Event, LogView, Port, name_of
from logline.names import ERRORS, Called, ChannelName, InsetId, PortName, Serial, Ssn
from logline.store.seam import Reader
from logline.store.tables import inset_text, stored_events

Stage = Literal["open", "due", "parked", "done"]


class InSet(NamedTuple):
    """An input set that an event is in."""

    serial: Serial
    stage: Stage
    id: InsetId | None
    """None where the journal only has the serial: a set that is this one event."""
    note: Any = None
    dropped: str | None = None


class Error(NamedTuple):
    """An event on port `errors`."""

    event: Event
    serial: Serial
    reason: str
    rows: pa.Table | None
    """None if it holds none."""


@dataclass
class Receiver:
    """One look at an operator's journal."""

    view: LogView
    instance: Called
    opaque: bool = False
    """Whether the rows that it takes are not those that its sender logged: what it does with a row is not known."""

    def __post_init__(self) -> None:
        self.reader: Reader = self.view.reader(self.instance)
        self.operator = self.view.operator(self.instance)
        if self.opaque:
            self.operator = msgspec.structs.replace(self.operator, type="", depends=(), parameters=None)
        self.enabled = sorted(self.view.ports_enabled(self.instance).outputs - {ERRORS})
        # The image before anything that is done: a set that is finished in between is in both, and done.
        self.image = self.reader.image()

    @cached_property
    def _open(self) -> Mapping[tuple[ChannelName, Ssn], list[InSet]]:
        found: dict[tuple[ChannelName, Ssn], list[InSet]] = {}
        for serial, known in self.image.sets.items():
            stage: Stage = "open" if known.cause is None else "parked" if known.cause == "parked" else "due"
            for channel, ssn, note in known.members:
                found.setdefault((channel, ssn), []).append(InSet(serial, stage, known.id, note))
        return found

    def sets(self, channel: ChannelName, ssn: Ssn) -> list[InSet]:
        """The sets that an event is or was in, as far as they are remembered; the oldest first."""
        done = [
            InSet(serial, "done", inset, note, dropped)
            for serial, inset, note, dropped in self.reader.memberships(channel, ssn)
        ]
        over = {known.serial for known in done}
        # A set that was merged may have the event more than once, with other rows each time.
        found = [*done, *(known for known in self._open.get((channel, ssn), ()) if known.serial not in over)]
        over |= {known.serial for known in found}
        found += [InSet(serial, "done", None) for serial in self.reader.insets_of(channel, ssn) if serial not in over]
        return sorted(found, key=lambda known: known.serial)

    @cached_property
    def _errors(self) -> Mapping[str, list[Error]]:
        found: dict[str, list[Error]] = {}
        for output in stored_events(self.reader, ERRORS) if ERRORS in self.operator.outputs else ():
            (row,) = output.payload.to_pylist()
            name = (self.instance, ERRORS, output.ssn)
            error = Error(name, output.serial, row["reason"], _rows_held(row["data"]))
            for name in row["events"]:
                found.setdefault(name, []).append(error)
        return found

    def errors(self, channel: ChannelName, ssn: Ssn) -> Sequence[Error]:
        """The errors that hold rows of an event, settled ones too as far as they are in the log."""
        return self._errors.get(str(own_id(Member(channel, ssn))), ())

    @cached_property
    def _again(self) -> Channel | None:
        return self.view.again(self.instance)

    def retried(self, error: Error) -> Channel | None:
        """The channel by which rejected rows went in again; None if they did not, or their whole set did."""
        if self._again is None or not self.sets(self._again.name, error.event[2]):
            return None
        return self._again

    def settled(self, error: Error) -> bool:
        """Whether an error was retried or dropped, or is on its way: what became of it is told then."""
        return error.event[2] in self.image.resolved or error.event[2] in self.image.retrying

    def made(self, serial: Serial) -> list[Event]:
        """What a set put out on the ports where lineage is captured."""
        return [(self.instance, port, ssn) for port, ssn in self.reader.made_from(serial, self.enabled)]

    def members(self, serial: Serial) -> Sequence[Member]:
        """The members of a done set that lineage keeps."""
        known = self.reader.inset(serial)
        return () if known is None else known.members

    def traces(self, channel: ChannelName) -> bool:
        """Whether lineage is captured of what comes by this channel."""
        return bool(self.enabled) and self.view.traced_in(channel)

    @cached_property
    def _first_serials(self) -> list[float]:
        """For each port of which something is collected: the set that made the first event which is not."""
        found: list[float] = []
        for port in self.enabled:
            base = self.reader.base(port)
            if base > 1:
                (first,) = self.reader.headers(port, [base])
                while first is not None and first.kind == "watermark":  # which no set has made
                    base = Ssn(base + 1)
                    (first,) = self.reader.headers(port, [base])
                found.append(float("inf") if first is None or first.mark else first.serial)
        return found

    def forgotten(self, channel: ChannelName, ssn: Ssn, serial: Serial | None) -> bool:
        """Whether the event may have led to something that is not in the log any more. Serials rise on a port; the
        set that made the first event which is there may have made others before it."""
        if not self._first_serials:
            return False
        if serial is None:
            low = self.image.low(channel)
            return low is None or ssn < low
        return any(serial <= first for first in self._first_serials)

    def inset_text(self, event: Event, known: InSet) -> str:
        """The set as the log's tables show it."""
        if self.operator.stateless or known.id is None:
            return name_of(event)
        return inset_text(known.id, known.serial)


def ports_towards(view: LogView, target: Called, port: PortName | None) -> set[Port]:
    """The output ports from which a way leads to a port, itself included; or to an operator that has none."""
    found = set() if port is None else {(target, port)}
    todo = [target]
    while todo:
        for channel in view.inputs(todo.pop()):
            sender = view.sender(channel.name)
            if sender not in found:
                found.add(sender)
                todo.append(sender[0])
    return found


def rows_of(view: LogView, event: Event) -> pa.Table:
    """The rows of an event; of an error, those that it holds. Raises Collected if it is gone."""
    instance, port, ssn = event
    (output,) = view.reader(instance).pick(port, [ssn])
    if port != ERRORS:
        return pa.Table.from_batches([output.payload])
    return _rows_held(output.payload.column("data")[0].as_py()) or pa.table({})


def _rows_held(data: bytes | None) -> pa.Table | None:
    return None if data is None else pa.ipc.open_stream(data).read_all()
