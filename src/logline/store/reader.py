"""The part of a reader that all stores share: what is asked of rows and of events without their payload."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from logline.engine.clock import port_marks_key
from logline.engine.events import Head, Output
from logline.engine.history import Finished, Membership
from logline.engine.image import Image, Needs, Outline, SetCounts, Taken
from logline.engine.keyed import KeyState
from logline.engine.sets import Answer, Member
from logline.names import ChannelName, Incarnation, InsetId, PortName, Serial, Ssn
from logline.store import checkpoints, history, load, members, pins
from logline.store.checkpoints import CheckpointRow
from logline.store.layout import CLOCK, KEYED
from logline.store.rows import Events, Rows


class Look(NamedTuple):
    """A journal at one instant."""

    rows: Rows
    events: Events


class RowsReader(ABC):
    """Anyone's view of a journal: what is committed, nothing else (see `seam.Reader`)."""

    @abstractmethod
    def look(self) -> AbstractContextManager[Look]:
        """The journal as it is committed now; one that nobody has claimed is empty."""

    def stored(self, port: PortName) -> list[Ssn]:
        """The SSNs that are visible and not collected."""
        with self.look() as (rows, _):
            return load.stored(rows, port)

    def head(self, port: PortName) -> Head:
        """The committed head, holes included."""
        with self.look() as (rows, _):
            head = load.head(rows, port)
            head.pinned = pins.of(rows, port)
            return head

    def put_out(self, port: PortName) -> int:
        """How many events the port has put out; marks are none."""
        with self.look() as (rows, _):
            watermarks = rows.get(CLOCK, (port_marks_key(port),)) or 0
            return max(load.head(rows, port).last - load.journal_row(rows).marks - watermarks, 0)

    def base(self, port: PortName) -> Ssn:
        """Where the committed head begins."""
        with self.look() as (rows, _):
            return load.head(rows, port).base

    def needs(self, channel: ChannelName) -> Needs:
        """Position and members of open sets, all from one look at the journal (R12)."""
        with self.look() as (rows, events):
            return load.needs(rows, events, channel)

    def taken(self, channel: ChannelName) -> Taken:
        """How far the receiver is on the channel."""
        with self.look() as (rows, _):
            return load.taken(rows, channel)

    def image(self) -> Image:
        """The image as of the last commit."""
        with self.look() as (rows, _):
            return load.image(rows)

    def outline(self) -> Outline:
        """What of the image does not grow with its sets."""
        with self.look() as (rows, _):
            return load.outline(rows)

    def count_sets(self) -> SetCounts:
        """How many sets are open or due."""
        with self.look() as (rows, _):
            return load.count_sets(rows)

    def gathering(self) -> list[InsetId]:
        """The sets whose timer comes after a span of time."""
        with self.look() as (rows, _):
            return load.gathering(rows)

    def keyed(self) -> Mapping[bytes, KeyState]:
        """The states of all keys."""
        with self.look() as (rows, _):
            return load.keyed(rows)

    def count_keys(self) -> int:
        """How many keys have a state."""
        with self.look() as (rows, _):
            return rows.count(KEYED)

    def key_state(self, raw: bytes) -> KeyState | None:
        """The state of one key."""
        with self.look() as (rows, _):
            return load.key_state(rows, raw)

    def covered(self, serial: Serial) -> list[Member]:
        """The members of an open set that its checkpoint covers."""
        with self.look() as (rows, _):
            return members.covered(rows, serial)

    def checkpoints(self) -> Mapping[Serial, CheckpointRow]:
        """The newest checkpoint of each set that has one, without its state."""
        with self.look() as (rows, _):
            return dict(checkpoints.every(rows))

    def records(self) -> Mapping[Serial, int]:
        """How many records hold the members of each open set that no checkpoint covers."""
        with self.look() as (rows, _):
            return Counter(serial for (serial, _), _ in rows.scan(members.MEMBERS))

    def history(self) -> Iterator[Finished]:
        """Done sets, in the order of their serials."""
        with self.look() as (rows, _):
            found = list(load.done_sets(rows))
        yield from found

    def headers(self, port: PortName, ssns: Sequence[Ssn]) -> list[Output | None]:
        """These events without their payloads; None for one that is not in the log."""
        with self.look() as (rows, events):
            head = load.head(rows, port)
            return [events.header(port, ssn) if load.has(rows, port, head, ssn) else None for ssn in ssns]

    def inset(self, serial: Serial) -> Finished | None:
        """The done set of this serial, if a lineage scope keeps it."""
        with self.look() as (rows, _):
            return history.inset(rows, serial)

    def insets_of(self, channel: ChannelName, ssn: Ssn) -> list[Serial]:
        """The done sets with this event as a member, whether a lineage scope keeps them or not."""
        with self.look() as (rows, _):
            return history.insets_of(rows, channel, ssn)

    def memberships(self, channel: ChannelName, ssn: Ssn) -> list[Membership]:
        """This event in done sets; a set of one event may only be in a run (`insets_of`), or nowhere."""
        with self.look() as (rows, _):
            return members.memberships(rows, channel, ssn)

    def made_from(self, serial: Serial, ports: Sequence[PortName]) -> list[tuple[PortName, Ssn]]:
        """What the set put out on these ports, found in the events themselves."""
        with self.look() as (rows, events):
            last = {port: load.head(rows, port).last for port in ports}
            return history.made_from(rows, events, serial, last)

    def answers(self, serial: Serial) -> list[Answer]:
        """The answers of a set that is due, or is done and kept."""
        with self.look() as (rows, _):
            return load.answers(rows, serial)

    def insets(self, serials: Sequence[Serial]) -> Mapping[Serial, Finished]:
        """Those of these sets that a lineage scope keeps."""
        with self.look() as (rows, _):
            found = {serial: history.inset(rows, serial) for serial in serials}
        return {serial: inset for serial, inset in found.items() if inset is not None}

    def all_insets_of(self, channel: ChannelName, ssns: Sequence[Ssn]) -> Mapping[Ssn, Sequence[Serial]]:
        """The done sets with each of these events as a member."""
        with self.look() as (rows, _):
            return {ssn: history.insets_of(rows, channel, ssn) for ssn in ssns}

    def all_made_from(
        self, serials: Sequence[Serial], ports: Sequence[PortName]
    ) -> Mapping[Serial, Sequence[tuple[PortName, Ssn]]]:
        """What each of these sets put out on these ports."""
        with self.look() as (rows, events):
            last = {port: load.head(rows, port).last for port in ports}
            return {serial: history.made_from(rows, events, serial, last) for serial in serials}

    def all_answers(self, serials: Sequence[Serial]) -> Mapping[Serial, Sequence[Answer]]:
        """The answers of each of these sets."""
        with self.look() as (rows, _):
            return {serial: load.answers(rows, serial) for serial in serials}

    def incarnation(self) -> Incarnation:
        """The number of the newest life that has claimed the journal."""
        with self.look() as (rows, _):
            return Incarnation(load.journal_row(rows).incarnation)
