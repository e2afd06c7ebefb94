"""The memory store: the reference that the simulator and the inline engine use.

Nothing but bytes and payloads outlives a life (see `store/memory_rows.py`).
A log with a name (`memory:orders`) lives as long as the process and can be resumed; one without is gone with
its last user.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from logline.engine.events import Head, Output
from logline.engine.sets import own_id
from logline.engine.step import Step
from logline.errors import Collected, LogError, LogInUse
from logline.graph.record import from_plain, to_plain
from logline.names import BellName, BoxName, Incarnation, InstanceName, LogId, PortName, Ssn, sender_of
from logline.store import load
from logline.store.apply import admit, apply, prepare
from logline.store.channels import HandOver
from logline.store.layout import JOURNAL
from logline.store.marks import Mark, check_may_run
from logline.store.memory_rows import MemoryEvents, MemoryRows
from logline.store.reader import Look, RowsReader
from logline.store.rows import Row
from logline.store.seam import Compacted, Holder, Lying, Meta, StoreTraits, Worth, check_line


@dataclass
class _Data:
    """One journal as it lies there."""

    rows: MemoryRows = field(default_factory=MemoryRows)
    events: MemoryEvents = field(default_factory=MemoryEvents)


class MemoryJournal:
    """A journal as the one life that writes to it holds it."""

    def __init__(self, store: MemoryStore, data: _Data) -> None:
        self._store = store
        self._data = data
        journal = load.journal_row(data.rows)
        journal = journal._replace(incarnation=journal.incarnation + 1)
        data.rows.put(JOURNAL, (), journal)
        self.incarnation = Incarnation(journal.incarnation)
        self.image = load.image(data.rows)
        self._heads = {port: Head(h.last, h.total, h.base, set(h.pinned)) for port, h in self.image.heads.items()}
        self.image.keyed = load.keyed(data.rows)

    def commit(self, step: Step) -> None:
        """Atomic under the store's lock: what can fail has been done when the first row changes."""
        prepared = prepare(step)
        with self._store.lock:
            data = self._data
            journal = admit(data.rows, self.incarnation, step.number)
            if journal is None:
                return
            data.events.put(Step.reads.peek(step).staged)
            data.events.put(step.outputs)
            self._heads |= apply(data.rows, step, prepared, journal, self._heads, data.events.collect)

    def close(self) -> None:
        """Does nothing: a journal in memory holds no lock and no file."""


class _Held:
    """A look at a journal while nobody changes it. A class: the simulator looks many times for each commit."""

    __slots__ = ("_instance", "_store")

    def __init__(self, store: MemoryStore, instance: InstanceName) -> None:
        self._store = store
        self._instance = instance

    def __enter__(self) -> Look:
        self._store.lock.acquire()
        data = self._store.look(self._instance)
        return Look(data.rows, data.events)

    def __exit__(self, *error: object) -> None:
        self._store.lock.release()


class MemoryReader(RowsReader):
    """Anyone's view of a journal."""

    def __init__(self, store: MemoryStore, instance: InstanceName) -> None:
        self._store = store
        self._instance = instance

    def look(self) -> _Held:
        """Looks under the store's lock."""
        return _Held(self._store, self._instance)

    def events(self, port: PortName, after: Ssn, *, limit: int = 1 << 30, max_bytes: int = 1 << 62) -> list[Output]:
        """Visible events after `after`."""
        with self._store.lock:
            data = self._store.look(self._instance)
            head, there = load.head(data.rows, port), data.events.ports.get(port, {})
            found: list[Output] = []
            size = 0
            for ssn in range(after + 1, min(head.last, after + limit) + 1):
                row = there.get(Ssn(ssn))
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
        """Exactly these events, in this order. Raises Collected if one of them is gone."""
        with self._store.lock:
            data = self._store.look(self._instance)
            last, there = load.head(data.rows, port).last, data.events.ports.get(port, {})
            for ssn in ssns:
                if ssn > last or ssn not in there:
                    raise Collected(f"{self._instance}.{port}:{ssn} is not in the log")
            return [self._whole(there[ssn]) for ssn in ssns]

    def _whole(self, row: Output) -> Output:
        """With the payload of the event that it passes on, if it does."""
        if row.headers is not None:
            row = row._replace(headers=dict(row.headers))
        if row.same is None:
            return row
        sender, port = sender_of(row.same.channel)
        there = self._store.look(sender).events.ports.get(port, {}).get(row.same.ssn)
        if there is None:
            raise Collected(f"{own_id(row.same)} is collected, which {self._instance} passes on to {row.port[1:]!r}")
        return row._replace(payload=there.payload)


class MemoryLease:
    """Held until another run takes it."""

    def __init__(self, store: MemoryStore, run: str) -> None:
        self._store = store
        self.run = run

    def held(self) -> bool:
        """Whether no other run has taken it."""
        return self._store.holder == self.run

    def release(self) -> None:
        """Gives the lease up, so that another run can begin."""
        with self._store.lock:
            if self._store.holder == self.run:
                self._store.holder = None


class MemoryCrashHint:
    """A crash hint that everyone in this process sees."""

    def __init__(self, store: MemoryStore, instance: InstanceName) -> None:
        self._notes = store.notes
        self._instance = instance

    def write(self, text: str) -> None:
        """Replaces what was there."""
        self._notes[self._instance] = text

    def read(self) -> str:
        """The text that was written last; empty if there is none."""
        return self._notes.get(self._instance, "")

    def drop(self) -> None:
        """Removes the hint, if there is one."""
        self._notes.pop(self._instance, None)

    def close(self) -> None:
        """Does nothing: a hint in memory needs no file."""


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

    def __init__(self, log_id: str | None = None) -> None:
        self.traits = StoreTraits("process")
        self.fresh: HandOver | None = None  # a journal in memory hands over by itself
        self.log_id = LogId(log_id or uuid.uuid4().hex[:12])
        self.lock = threading.RLock()
        self.holder: str | None = None
        self._journals: dict[InstanceName, _Data] = {}
        self._bells: dict[BellName, list[Callable[[], None]]] = {}
        self._meta: bytes | None = None
        self._mark: Mark | None = None
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
        """A reader of the instance's journal; any number of them may read at once."""
        return MemoryReader(self, instance)

    def instances(self) -> list[InstanceName]:
        """The instances that have a journal."""
        with self.lock:
            return list(self._journals)

    def compact(self, worth: Worth) -> Sequence[tuple[InstanceName, Compacted]]:
        """Nothing: memory is given back as events are collected."""
        return ()

    def ring(self, whom: BellName) -> None:
        """Calls all who listen for this bell, on the caller's thread."""
        for heard in tuple(self._bells.get(whom, ())):
            heard()

    def on_bell(self, whom: BellName, heard: Callable[[], None]) -> Callable[[], None]:
        """Has `ring` call `heard`; returns a function that ends this."""
        listeners = self._bells.setdefault(whom, [])
        listeners.append(heard)
        return lambda: listeners.remove(heard)

    def bell(self, instance: InstanceName) -> None:
        """None: whoever rings calls the listeners at once."""

    def mail(self, box: str) -> MemoryMailbox:
        """The box of that name."""
        return MemoryMailbox(self, box)

    def crash_hint(self, instance: InstanceName) -> MemoryCrashHint:
        """The crash hint of that instance."""
        return MemoryCrashHint(self, instance)

    def lease(self, run: str, *, takeover: bool = False) -> MemoryLease:
        """Takes the lease; raises LogInUse if another run holds it and there is no `takeover`."""
        check_may_run(self._mark)
        with self.lock:
            if self.holder is not None and not takeover:
                raise LogInUse(f"the log {self.log_id} is in use by run {self.holder}")
            self.holder = run
            return MemoryLease(self, run)

    def running(self) -> Holder | None:
        """The run of this process that holds the lease, if one does."""
        run = self.holder
        return None if run is None else Holder(run, os.getpid())

    def meta(self) -> Meta | None:
        """The pipeline this log belongs to."""
        if self._meta is None:
            return None
        pipeline, graph = msgspec.json.decode(self._meta)
        return Meta(pipeline, from_plain(graph))

    def set_meta(self, meta: Meta) -> None:
        """Keeps what the log knows of the pipeline, for the next run."""
        self._meta = msgspec.json.encode((meta.pipeline, to_plain(meta.graph)))

    def mark(self) -> Mark | None:
        """What the log is besides itself."""
        return self._mark

    def set_mark(self, mark: Mark | None) -> None:
        """Replaces what the log is besides itself; None takes it away."""
        self._mark = mark

    def restore(self, instance: InstanceName, rows: Iterable[Row], events: Iterable[Lying]) -> None:
        """Writes a whole journal."""
        data = self.data(instance)
        for table, key, value in rows:
            data.rows.put(table, key, value)
        for visible, staged in events:
            data.events.put((*visible, *staged))

    def put_status(self, name: str, status: bytes) -> None:
        """Keeps the newest status of that name."""
        with self.lock:
            self._statuses[name] = status

    def statuses(self) -> Mapping[str, bytes]:
        """Returns the newest status of each name."""
        with self.lock:
            return dict(self._statuses)

    def close(self) -> None:
        """Does nothing: the log goes with its last user, or with the process if it has a name."""


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


def copy_memory(name: str, log_id: LogId, mark: Mark) -> MemoryStore:
    """A fresh log of that name, to be written from another one; instead of what is left of an earlier copy of it."""
    with _named_lock:
        known = _named.get(name)
        again = (
            known is not None and known.log_id == log_id and (known.mark() or Mark("moved", "")).kind == "unfinished"
        )
        if known is not None and not again:
            raise LogError("there is a log of that name in this process: choose another one for the copy")
        made = _named[name] = MemoryStore(log_id)
        made.set_mark(mark)
        return made


def find_memory(name: str) -> MemoryStore | None:
    """The log of that name, if this process has one."""
    with _named_lock:
        return _named.get(name)


def memory_names() -> list[str]:
    """The named logs of this process."""
    with _named_lock:
        return sorted(_named)
