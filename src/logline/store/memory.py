"""The memory store: the reference that the simulator and the inline engine use.

Nothing but bytes outlives a life (see `store.encoding`); payloads are Arrow batches, which nobody can change.
A log with a name (`memory:orders`) lives as long as the process and can be resumed; one without is gone with
its last user.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from logline.engine.events import Collection, Head, Output, Position
from logline.engine.history import Finished
from logline.engine.image import Image, Needs, Taken
from logline.engine.sets import Answer, Member, own_id
from logline.engine.step import Step
from logline.errors import Collected, EngineError, Fenced, LogInUse
from logline.graph.record import from_plain, to_plain
from logline.names import (
    BellName,
    BoxName,
    ChannelName,
    Incarnation,
    InsetId,
    InstanceName,
    LogId,
    PortName,
    Serial,
    Ssn,
    TargetName,
    sender_of,
)
from logline.store.encoding import decode_image, decode_step, encode_image, encode_step
from logline.store.lineage_history import KeptHistory
from logline.store.seam import Holder, Meta, check_line

_NO_HEAD = Head()
"""The head of a port that has put out nothing; never changed."""


@dataclass
class _Data:
    """One journal as it lies there."""

    incarnation: Incarnation = Incarnation(0)
    image: Image = field(default_factory=Image)
    rows: dict[PortName, dict[Ssn, Output]] = field(default_factory=dict)
    """Visible rows and staged ones; what is visible, the head says."""
    done: dict[ChannelName, dict[Ssn, dict[Serial, tuple[InsetId, Any]]]] = field(default_factory=dict)
    """Memberships of done sets, by event."""
    forgotten: dict[ChannelName, Ssn] = field(default_factory=dict)
    """Below these nothing is remembered, but for stragglers until the next time."""
    stragglers: dict[ChannelName, set[Ssn]] = field(default_factory=dict)
    kept: KeptHistory = field(default_factory=KeptHistory)
    """What lineage scopes keep."""


class MemoryJournal:
    """A journal in the hands of one life."""

    def __init__(self, store: MemoryStore, data: _Data) -> None:
        self._store = store
        self._data = data
        data.incarnation = self.incarnation = Incarnation(data.incarnation + 1)
        self.image = decode_image(encode_image(data.image))

    def commit(self, step: Step) -> None:
        """Atomic under the store's lock."""
        raw = encode_step(step)
        with self._store.lock:
            data = self._data
            if data.incarnation != self.incarnation:
                raise Fenced("a newer incarnation has claimed the journal")
            if step.number == data.image.commits:
                return  # repeated after a lost answer
            if step.number != data.image.commits + 1:
                raise EngineError(f"commit {step.number} after commit {data.image.commits}: out of turn")
            _apply(data, decode_step(raw), step.outputs, step.reads.staged)

    def close(self) -> None:
        """Nothing is held."""


def _apply(data: _Data, step: Step, outputs: Sequence[Output], staged: Sequence[Output]) -> None:
    for output in (*staged, *outputs):
        row = output if output.same is None else output._replace(payload=None)
        if row.headers is not None:
            row = row._replace(headers=dict(row.headers))
        data.rows.setdefault(output.port, {})[output.ssn] = row
    over = list(step.sets.finished)
    for serial in step.sets.done:
        opened = data.image.sets[serial]
        over.append(Finished(serial, opened.id, (*opened.members, *step.sets.members.get(serial, ()))))
    for finished in over:
        _remember(data, *finished)
    data.kept.expire(step.lineage.expired)
    data.kept.add(step, over, outputs, data.image.answers)
    collected = {port: _gone(data.image.head(port), change) for port, change in step.collected.items()}
    step.outputs = list(outputs)
    data.image.apply(step)
    data.image.commits = step.number
    for port, gone in collected.items():
        rows = data.rows.get(port, {})
        for ssn in gone:
            rows.pop(ssn, None)
    for channel, base in step.forget.items():
        known = data.done.get(channel, {})
        begin = data.forgotten.get(channel, Ssn(1))
        late = data.stragglers.get(channel, set())
        reached = {s for s in late if s < base}
        late -= reached
        for old in (*range(begin, base), *reached):
            known.pop(Ssn(old), None)
        data.forgotten[channel] = max(begin, base)


def _gone(head: Head, change: Collection) -> list[Ssn]:
    """What a collection drops: found from the old base on, not by looking at everything there is."""
    candidates = (*head.pinned, *range(head.base, change.base))
    return [Ssn(ssn) for ssn in candidates if ssn not in change.pinned]


def _remember(data: _Data, serial: Serial, inset: InsetId, members: Sequence[Member]) -> None:
    for member in members:
        if member.ssn < data.forgotten.get(member.channel, 1):  # it was pinned by this set
            data.stragglers.setdefault(member.channel, set()).add(member.ssn)
        data.done.setdefault(member.channel, {}).setdefault(member.ssn, {})[serial] = (inset, member.note)


class MemoryReader:
    """Anyone's view of a journal."""

    def __init__(self, store: MemoryStore, instance: InstanceName) -> None:
        self._store = store
        self._instance = instance

    @property
    def _data(self) -> _Data:
        return self._store.look(self._instance)

    def events(self, port: PortName, after: Ssn, *, limit: int = 1 << 30, max_bytes: int = 1 << 62) -> list[Output]:
        """Visible events after `after`."""
        with self._store.lock:
            data = self._data
            head = data.image.heads.get(port, _NO_HEAD)
            rows = data.rows.get(port, {})
            found: list[Output] = []
            size = 0
            for ssn in range(after + 1, min(head.last, after + limit) + 1):
                row = rows.get(Ssn(ssn))
                if row is None and found:
                    break  # a pinned event before a hole
                if row is None:
                    raise Collected(f"{self._instance}.{port}:{ssn} has been collected")
                found.append(self._whole(row))
                size += row.nbytes
                if size >= max_bytes:
                    break
            return found

    def pick(self, port: PortName, ssns: Sequence[Ssn]) -> list[Output]:
        """Exactly these events."""
        with self._store.lock:
            data = self._data
            last, rows = data.image.heads.get(port, _NO_HEAD).last, data.rows.get(port, {})
            for ssn in ssns:
                if ssn > last or ssn not in rows:
                    raise Collected(f"{self._instance}.{port}:{ssn} is not in the log")
            return [self._whole(rows[ssn]) for ssn in ssns]

    def _whole(self, row: Output) -> Output:
        """With the payload of the event that it passes on, if it does."""
        if row.same is None:
            return row
        sender, port = sender_of(row.same.channel)
        there = self._store.look(sender).rows.get(port, {}).get(row.same.ssn)
        if there is None:
            raise Collected(f"{own_id(row.same)} is collected, which {self._instance} passes on to {row.port[1:]!r}")
        return row._replace(payload=there.payload)

    def stored(self, port: PortName) -> list[Ssn]:
        """Visible and not collected."""
        with self._store.lock:
            data = self._data
            last = data.image.heads.get(port, _NO_HEAD).last
            return sorted(s for s in data.rows.get(port, {}) if s <= last)

    def head(self, port: PortName) -> Head:
        """The committed head."""
        with self._store.lock:
            head = self._data.image.heads.get(port, _NO_HEAD)
            return Head(head.last, head.total, head.base, set(head.pinned))

    def base(self, port: PortName) -> Ssn:
        """Where the committed head begins."""
        with self._store.lock:
            return self._data.image.heads.get(port, _NO_HEAD).base

    def needs(self, channel: ChannelName) -> Needs:
        """One consistent look."""
        with self._store.lock:
            image = self._data.image
            members = [m.ssn for o in image.sets.values() for m in o.members if m.channel == channel]
            position = image.positions.get(channel, Position())
            return Needs(position, members, image.left, image.low(channel), self._unwritten(channel))

    def _unwritten(self, channel: ChannelName) -> Ssn | None:
        image = self._data.image
        found = []
        for port, head in image.heads.items():
            if port[0] == "@":
                rows, done = self._data.rows.get(port, {}), image.written.get(TargetName(port[1:]), 0)
                undone = (rows.get(Ssn(number)) for number in range(max(done + 1, head.base), head.last + 1))
                passed = (row.same for row in undone if row is not None and row.same is not None)
                found += [event.ssn for event in passed if event.channel == channel]
        return min(found, default=None)

    def taken(self, channel: ChannelName) -> Taken:
        """How far it is."""
        with self._store.lock:
            image = self._data.image
            return Taken(image.positions.get(channel, Position()), image.left)

    def image(self) -> Image:
        """A copy, made of bytes."""
        with self._store.lock:
            return decode_image(encode_image(self._data.image))

    def history(self) -> Iterator[Finished]:
        """Done sets, in the order of their serials."""
        with self._store.lock:
            found: dict[Serial, tuple[InsetId, list[Member]]] = {}
            for channel, known in self._data.done.items():
                for ssn, sets in known.items():
                    for serial, (inset, note) in sets.items():
                        found.setdefault(serial, (inset, []))[1].append(Member(channel, ssn, note))
            kept = dict(self._data.kept.all())
        for serial in sorted({*found, *kept}):
            inset, members = found.get(serial, ("", []))
            yield kept.get(serial) or Finished(serial, inset, tuple(members))

    def headers(self, port: PortName, ssns: Sequence[Ssn]) -> list[Output | None]:
        """Without payload."""
        with self._store.lock:
            data = self._data
            last, rows = data.image.heads.get(port, _NO_HEAD).last, data.rows.get(port, {})
            found = [rows.get(ssn) if ssn <= last else None for ssn in ssns]
            return [None if row is None else row._replace(payload=None, same=None) for row in found]

    def inset(self, serial: Serial) -> Finished | None:
        """A kept set."""
        with self._store.lock:
            return self._data.kept.inset(serial)

    def insets_of(self, channel: ChannelName, ssn: Ssn) -> list[Serial]:
        """Kept or not."""
        with self._store.lock:
            data = self._data
            known = set(data.done.get(channel, {}).get(ssn, {}))
            return sorted(known | set(data.kept.lone_of(channel, ssn)))

    def made_from(self, serial: Serial, ports: Sequence[PortName]) -> list[tuple[PortName, Ssn]]:
        """As it was put out."""
        with self._store.lock:
            known = self._data.kept.made.get(serial, ())
            return [(port, ssn) for port, ssn in known if port in ports]

    def answers(self, serial: Serial) -> list[Answer]:
        """Of the image, or kept."""
        with self._store.lock:
            data = self._data
            return list(data.image.answers.get(serial) or data.kept.answers.get(serial) or ())

    def incarnation(self) -> Incarnation:
        """The newest."""
        with self._store.lock:
            return self._data.incarnation


class MemoryLease:
    """Held until another run takes it."""

    def __init__(self, store: MemoryStore, run: str) -> None:
        self._store = store
        self.run = run

    def held(self) -> bool:
        """Whether it is still ours."""
        return self._store.holder == self.run

    def release(self) -> None:
        """Lets another run begin."""
        with self._store.lock:
            if self._store.holder == self.run:
                self._store.holder = None


class MemoryCrashHint:
    """A text that everyone in this process sees."""

    def __init__(self, store: MemoryStore, instance: InstanceName) -> None:
        self._notes = store.notes
        self._instance = instance

    def write(self, text: str) -> None:
        """Instead of what was there."""
        self._notes[self._instance] = text

    def read(self) -> str:
        """Empty if there is none."""
        return self._notes.get(self._instance, "")

    def drop(self) -> None:
        """Nothing stays of it."""
        self._notes.pop(self._instance, None)

    def close(self) -> None:
        """Nothing is open."""


class MemoryMailbox:
    """A list that everyone in this process sees."""

    def __init__(self, store: MemoryStore, box: str) -> None:
        self._store = store
        self._box = box
        self._letters: list[bytes] | None = None
        self._seen = 0

    def send(self, message: bytes) -> None:
        """Appends the message and rings the bell."""
        check_line(message)
        with self._store.lock:
            self._store.boxes.setdefault(self._box, []).append(message)
        self._store.ring(BoxName(self._box))

    def receive(self) -> list[bytes]:
        """Returns what this object has not seen. After a drop the box is another list, read from the start."""
        with self._store.lock:
            letters = self._store.boxes.get(self._box)
            if letters is not self._letters:
                self._letters, self._seen = letters, 0
            new = [] if letters is None else letters[self._seen :]
            self._seen += len(new)
        return new

    def drop(self) -> None:
        """Removes the box; the next message makes it anew."""
        with self._store.lock:
            self._store.boxes.pop(self._box, None)


class MemoryStore:
    """All journals of one pipeline, in this process."""

    slow = False

    def __init__(self, log_id: str | None = None) -> None:
        self.log_id = LogId(log_id or uuid.uuid4().hex[:12])
        self.lock = threading.RLock()
        self.holder: str | None = None
        self._journals: dict[InstanceName, _Data] = {}
        self._bells: dict[BellName, list[Callable[[], None]]] = {}
        self._meta: bytes | None = None
        self._statuses: dict[str, bytes] = {}
        self.boxes: dict[str, list[bytes]] = {}
        self.notes: dict[InstanceName, str] = {}

    def data(self, instance: InstanceName) -> _Data:
        """The journal as it lies there; made when first asked for."""
        found = self._journals.get(instance)
        return found if found is not None else self._journals.setdefault(instance, _Data())

    def look(self, instance: InstanceName) -> _Data:
        """The same for a reader: looking makes no journal."""
        found = self._journals.get(instance)
        return found if found is not None else _Data()

    def claim(self, instance: InstanceName) -> MemoryJournal:
        """Fences older lives (R10)."""
        with self.lock:
            return MemoryJournal(self, self.data(instance))

    def read(self, instance: InstanceName) -> MemoryReader:
        """Anyone may read."""
        return MemoryReader(self, instance)

    def instances(self) -> list[InstanceName]:
        """The journals there are."""
        with self.lock:
            return list(self._journals)

    def ring(self, whom: BellName) -> None:
        """Calls whoever listens."""
        for heard in tuple(self._bells.get(whom, ())):
            heard()

    def on_bell(self, whom: BellName, heard: Callable[[], None]) -> Callable[[], None]:
        """Listens."""
        listeners = self._bells.setdefault(whom, [])
        listeners.append(heard)
        return lambda: listeners.remove(heard)

    def bell(self, instance: InstanceName) -> None:
        """Whoever rings calls at once."""

    def mail(self, box: str) -> MemoryMailbox:
        """The box of that name."""
        return MemoryMailbox(self, box)

    def crash_hint(self, instance: InstanceName) -> MemoryCrashHint:
        """The note of that instance."""
        return MemoryCrashHint(self, instance)

    def lease(self, run: str, *, takeover: bool = False) -> MemoryLease:
        """One run at a time."""
        with self.lock:
            if self.holder is not None and not takeover:
                raise LogInUse(f"the log {self.log_id} is in use by run {self.holder}")
            self.holder = run
            return MemoryLease(self, run)

    def running(self) -> Holder | None:
        """A run of this process."""
        run = self.holder
        return None if run is None else Holder(run, os.getpid())

    def meta(self) -> Meta | None:
        """The pipeline this log belongs to."""
        if self._meta is None:
            return None
        pipeline, graph = msgspec.json.decode(self._meta)
        return Meta(pipeline, from_plain(graph))

    def set_meta(self, meta: Meta) -> None:
        """Remembered for the next run."""
        self._meta = msgspec.json.encode((meta.pipeline, to_plain(meta.graph)))

    def put_status(self, name: str, status: bytes) -> None:
        """Keeps the newest status of that name."""
        with self.lock:
            self._statuses[name] = status

    def statuses(self) -> Mapping[str, bytes]:
        """Returns the newest status of each name."""
        with self.lock:
            return dict(self._statuses)

    def close(self) -> None:
        """Nothing to close."""


_named: dict[str, MemoryStore] = {}
_named_lock = threading.Lock()


def open_memory(name: str) -> MemoryStore:
    """The log `memory:NAME` of this process; a nameless one is fresh.

    Its id is not its name: the same name in another process is another log, and a target outside that keeps
    positions by log id must not take one for the other (R8).
    """
    if not name:
        return MemoryStore()
    with _named_lock:
        if name not in _named:
            _named[name] = MemoryStore()
        return _named[name]


def find_memory(name: str) -> MemoryStore | None:
    """The log of that name, if this process has one."""
    with _named_lock:
        return _named.get(name)


def memory_names() -> list[str]:
    """The named logs of this process."""
    with _named_lock:
        return sorted(_named)
