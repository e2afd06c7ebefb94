"""The seam between the engine and a log store. A store keeps journals; the protocol is not its business.

    journal = store.claim(instance)      fences older lives, returns the image
    journal.commit(step)                 atomic; raises Fenced
    reader = store.read(instance)        of anyone: events, members, positions, heads
    store.ring(instance)                 a hint; losing one costs a poll interval, nothing else
    store.lease(...)                     one run at a time
    store.mail(box)                      commands and reports between processes
    store.crash_hint(instance)           a few words from one life for the next

`testing.conformance` is the suite that every implementation passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from logline.engine.events import Head, Output
from logline.engine.history import Finished, Membership
from logline.engine.image import Image, Needs, Outline, SetCounts, Taken
from logline.engine.keyed import KeyState
from logline.engine.sets import Answer, Member
from logline.engine.step import Step
from logline.graph.record import GraphRecord
from logline.names import BellName, ChannelName, Incarnation, InsetId, InstanceName, LogId, PortName, Serial, Ssn
from logline.store.checkpoints import CheckpointRow
from logline.store.marks import Mark
from logline.store.rows import Row

if TYPE_CHECKING:
    from logline.store.channels import HandOver

Reach = Literal["process", "host", "hosts"]
"""Who can open the same log: this process alone, the processes of this host, or those of any host."""
Call = Literal["claim", "commit", "read"]
"""What is asked of a journal."""


class StoreTraits(NamedTuple):
    """What a store is, for those who place processes and threads around it."""

    reach: Reach
    blocking: frozenset[Call] = frozenset()
    """Calls that wait for a disk or a network: a loop has a thread make them."""


class Journal(Protocol):
    """An instance's durable log, as its one writer holds it."""

    incarnation: Incarnation
    image: Image

    def commit(self, step: Step) -> None:
        """All of the step or nothing (R1). Raises Fenced if a newer incarnation has claimed the journal (R10).

        Repeating a commit of the same number after a lost answer changes nothing; a number out of turn is an
        EngineError.
        """

    def close(self) -> None:
        """Releases it, so that the next claim does not have to wait."""


class Reader(Protocol):
    """Anyone's view of a journal: what is committed, nothing else (R2)."""

    def events(self, port: PortName, after: Ssn, *, limit: int, max_bytes: int) -> Sequence[Output]:
        """Visible events from `after + 1` on, without gaps; at least one if there is one.
        Raises Collected if `after + 1` is gone."""

    def pick(self, port: PortName, ssns: Sequence[Ssn]) -> Sequence[Output]:
        """Exactly these events. Raises Collected if one of them is gone."""

    def stored(self, port: PortName) -> Sequence[Ssn]:
        """The SSNs that are visible and not collected."""

    def head(self, port: PortName) -> Head: ...

    def put_out(self, port: PortName) -> int:
        """How many events the port has put out, collected ones too; marks are none (R11, R11')."""

    def base(self, port: PortName) -> Ssn:
        """The head's base alone: a head has as many pinned events as sets have members, and this is asked often."""

    def needs(self, channel: ChannelName) -> Needs:
        """Position and members of open sets, read at one instant (R12)."""

    def taken(self, channel: ChannelName) -> Taken:
        """The position alone: members are as many as sets have, and this is asked while a sender waits (R13)."""

    def image(self) -> Image:
        """The committed image; for tables and checks, not for the path of an event. Without the states of keys. It
        reads every open set: who wants to know how far an instance is asks for the outline."""

    def outline(self) -> Outline:
        """What of the committed image does not grow with open sets, timers and keys."""

    def count_sets(self) -> SetCounts:
        """How many sets are open or due, and what a recovery would read of them. It looks at none of them."""

    def gathering(self) -> Sequence[InsetId]:
        """The sets, and the keys, whose timer comes after a span of time: `fire(after=...)`."""

    def keyed(self) -> Mapping[bytes, KeyState]:
        """The committed states of all keys (R31)."""

    def count_keys(self) -> int:
        """How many keys have a state. It reads none of them."""

    def key_state(self, raw: bytes) -> KeyState | None:
        """The committed state of one key, given as bytes (`encode_key`)."""

    def covered(self, serial: Serial) -> Sequence[Member]:
        """The members of an open set that its checkpoint covers, in the order in which they joined it (R22)."""

    def checkpoints(self) -> Mapping[Serial, CheckpointRow]:
        """The newest checkpoint of each set that has one, without its state."""

    def records(self) -> Mapping[Serial, int]:
        """How many records hold the members of each open set that no checkpoint covers."""

    def history(self) -> Iterator[Finished]:
        """Memberships of done sets that are still remembered."""

    # What a lineage query asks, a row or a few at a time: never by looking at all there is.

    def headers(self, port: PortName, ssns: Sequence[Ssn]) -> Sequence[Output | None]:
        """These events without their payload; None for one that is not in the log."""

    def inset(self, serial: Serial) -> Finished | None:
        """The done set of this serial, if a lineage scope keeps it."""

    def insets_of(self, channel: ChannelName, ssn: Ssn) -> Sequence[Serial]:
        """The done sets with this event as a member, as far as they are remembered."""

    def memberships(self, channel: ChannelName, ssn: Ssn) -> Sequence[Membership]:
        """This event in done sets, as far as they are remembered; a set of one event need not be, unless it was
        dropped."""

    def made_from(self, serial: Serial, ports: Sequence[PortName]) -> Sequence[tuple[PortName, Ssn]]:
        """What a set that a lineage scope keeps put out on these ports; events that are collected may be missing."""

    def answers(self, serial: Serial) -> Sequence[Answer]:
        """The answers that `generate` got for the set: of one that is due, or is done and kept."""

    # The same for many at once, which a store that is far away answers in one round trip.

    def insets(self, serials: Sequence[Serial]) -> Mapping[Serial, Finished]:
        """Those of these sets that a lineage scope keeps."""

    def all_insets_of(self, channel: ChannelName, ssns: Sequence[Ssn]) -> Mapping[Ssn, Sequence[Serial]]:
        """`insets_of` each of these events."""

    def all_made_from(
        self, serials: Sequence[Serial], ports: Sequence[PortName]
    ) -> Mapping[Serial, Sequence[tuple[PortName, Ssn]]]:
        """`made_from` of each of these sets."""

    def all_answers(self, serials: Sequence[Serial]) -> Mapping[Serial, Sequence[Answer]]:
        """`answers` of each of these sets."""

    def incarnation(self) -> Incarnation: ...


class Bell(Protocol):
    """A bell that a loop can wait for beside other things."""

    def fileno(self) -> int:
        """Readable when it has rung."""

    def hear(self) -> None:
        """Takes what has rung up to now."""

    def hangs(self) -> bool:
        """Whether a ring still reaches this bell: one that another life made later takes its place."""

    def close(self) -> None: ...


class Lease(Protocol):
    """The right to run the pipeline of this log."""

    run: str

    def held(self) -> bool:
        """Whether it is still ours. A loop asks often, so this waits for nobody."""

    def release(self) -> None: ...


def check_line(message: bytes) -> None:
    """Raises ValueError for bytes that a mailbox can't carry."""
    if not message or b"\n" in message:
        raise ValueError(f"a message is a line that is not empty and has no line break, not {message[:100]!r}")


class Mailbox(Protocol):
    """Commands and reports between the processes of a run: small, few, and no part of what recovery needs.

    A box has a name that no operator can have, `@driver` say. It is made by the first message and outlives those
    who send and receive; what is in it from an earlier run is dropped by whoever begins the next one. A message is a
    line of bytes that is not empty and has no line break; what it means, the store does not know.
    """

    def send(self, message: bytes) -> None:
        """Appends a message, whole or not at all, and rings the box's bell. Raises ValueError if it is no line."""

    def receive(self) -> list[bytes]:
        """What has come since this object looked last, in the order of sending; at first everything there is."""

    def drop(self) -> None:
        """Empties the box. A message that is sent at the same moment may go too."""


class CrashHint(Protocol):
    """A line that a process leaves for the one after it: a hint, no part of what recovery needs."""

    def write(self, text: str) -> None:
        """Replaces what was there. It outlives a process that is killed, and costs no fsync."""

    def read(self) -> str:
        """The text that was written last; empty if there is none."""

    def drop(self) -> None:
        """Removes the hint, if there is one."""

    def close(self) -> None:
        """Closes it; the hint stays for the next life."""


class Holder(NamedTuple):
    """Who holds the lease: a run, in a living process."""

    run: str
    pid: int


class Compacted(NamedTuple):
    """What a journal takes on disk before and after it was written anew, in bytes."""

    before: int
    after: int
    why_not: str = ""
    """Why it stays as it was."""


Worth = Callable[[int, int], bool]
"""Whether to write a file of so many bytes anew, so many of which are empty."""


class Meta(NamedTuple):
    """What the log knows of the pipeline as a whole."""

    pipeline: str
    graph: GraphRecord


class Lying(NamedTuple):
    """Some events of a port as a journal holds them."""

    visible: list[Output]
    staged: list[Output]
    """Above the port's head (R9)."""


class Journals(Protocol):
    """What a life needs of a store."""

    @property
    def traits(self) -> StoreTraits: ...

    @property
    def fresh(self) -> HandOver | None:
        """Hands events over within this process; None if reading a journal is as cheap."""

    def claim(self, instance: InstanceName) -> Journal: ...

    def read(self, instance: InstanceName) -> Reader: ...

    def ring(self, instance: InstanceName) -> None: ...


class Store(Journals, Protocol):
    """Where the journals of a pipeline live."""

    log_id: LogId

    def instances(self) -> Sequence[InstanceName]:
        """The instances that have a journal."""

    def compact(self, worth: Worth) -> Iterable[tuple[InstanceName, Compacted]]:
        """Gives the room of what was collected back, journal by journal as the result is read. Only the holder of
        the lease may, while nobody lives. Loses nothing, whenever it is killed."""

    def ring(self, whom: BellName) -> None: ...

    def on_bell(self, whom: BellName, heard: Callable[[], None]) -> Callable[[], None]:
        """Calls `heard` when the bell rings; returns a function that ends this. A bell may be lost."""

    def bell(self, instance: InstanceName) -> Bell | None:
        """The same bell for a loop that waits for it beside other things; None if the store only has `on_bell`."""

    def mail(self, box: str) -> Mailbox:
        """The box of that name; its bell is `on_bell` of the same name."""

    def crash_hint(self, instance: InstanceName) -> CrashHint:
        """The crash hint of that instance."""

    def lease(self, run: str, *, takeover: bool = False) -> Lease:
        """Raises LogInUse if another run holds it, LogError if the log has a mark."""

    def running(self) -> Holder | None:
        """Who runs the pipeline now; None if nobody does, also when its process was killed."""

    def meta(self) -> Meta | None: ...

    def set_meta(self, meta: Meta) -> None: ...

    def mark(self) -> Mark | None:
        """What the log is besides itself: a copy, or one that has moved."""

    def set_mark(self, mark: Mark | None) -> None: ...

    def restore(self, instance: InstanceName, rows: Iterable[Row], events: Iterable[Lying]) -> None:
        """Writes a whole journal of a log that is being copied (`store/copying.py`): nobody uses it yet."""

    def put_status(self, name: str, status: bytes) -> None:
        """Writes a status down, in the place of the last one of that name. It need not survive a power cut."""

    def statuses(self) -> Mapping[str, bytes]:
        """The newest status of each name, as it was written."""

    def close(self) -> None: ...
