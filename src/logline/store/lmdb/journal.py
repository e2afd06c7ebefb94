"""A journal in LMDB: its one writer, and anyone's readers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Any

import lmdb
import pyarrow as pa

from logline.engine.events import Head, Output, Position
from logline.engine.history import Finished
from logline.engine.image import Image, Needs, Taken
from logline.engine.sets import Answer, Member, own_id
from logline.engine.step import Step
from logline.errors import Collected, EngineError, Fenced, LogError
from logline.names import (
    ERRORS,
    ChannelName,
    Incarnation,
    InsetId,
    InstanceName,
    PartitionName,
    PortName,
    Serial,
    Ssn,
    TargetName,
    sender_of,
)
from logline.store.encoding import FORMAT
from logline.store.faults import point
from logline.store.lmdb import lineage_history, members, payloads, pins, rows
from logline.store.lmdb.environment import Environment, release
from logline.store.lmdb.events import Packer, Row, collect, read_schema, row_of, rows_from


def get(txn: lmdb.Transaction, key: bytes) -> rows.Raw:
    """A row that must be there."""
    found = txn.get(key)
    if found is None:
        raise EngineError(f"the journal has no row {key!r}")
    return found


def load_header(txn: lmdb.Transaction) -> rows.Header:
    """The header; a fresh one if the journal is new."""
    raw = txn.get(rows.HEADER)
    if raw is None:
        return rows.Header()
    found = rows.Header(*rows.unpack(raw))
    if found.format != FORMAT:
        raise LogError(f"this log has format {found.format}, this version of Logline reads {FORMAT}")
    return found


def load_image(txn: lmdb.Transaction) -> Image:
    """The image, row by row."""
    header = load_header(txn)
    image = Image(commits=header.commits, serial=Serial(header.serial), ended=header.ended, left=header.left)
    image.positions = {ChannelName(c): p for c, p in (rows.read_position(v) for _, v in rows.scan(txn, b"p"))}
    for _, value in rows.scan(txn, b"h"):
        port, last, total, base = rows.unpack(value)
        image.heads[port] = Head(last, total, base)
    for port, head in image.heads.items():
        head.pinned = pins.of(txn, port)
    dues: list[tuple[int, Serial]] = []
    for key, value in rows.scan(txn, b"s"):
        serial = Serial(rows.read_number(key[1:]))
        image.sets[serial], due = rows.read_set(value)
        if due:
            dues.append((due, serial))
    image.due = [serial for _, serial in sorted(dues)]
    for serial, joined in members.every(txn):
        image.sets[serial].members += joined
    raw = txn.get(b"S")
    image.state = None if raw is None else bytes(raw[: rows.END])
    image.clock = dict(rows.unpack(v) for _, v in rows.scan(txn, b"c"))
    image.timers = dict(rows.read_timer(v) for _, v in rows.scan(txn, b"t"))
    for _, value in rows.scan(txn, b"a"):
        answer = rows.read_answer(value)
        image.answers.setdefault(answer.serial, []).append(answer)
    for key, value in rows.scan(txn, b"f"):
        image.failures[Serial(rows.read_number(key[1:]))] = rows.read_failure(value)
    image.resolved = {Ssn(rows.read_number(key[1:])) for key, _ in rows.scan(txn, b"q")}
    image.written = dict(rows.unpack(v) for _, v in rows.scan(txn, b"w"))
    image.reads = {PartitionName(p): r for p, r in (rows.read_progress(v) for _, v in rows.scan(txn, b"r"))}
    image.segments = {segment.number: segment for segment in lineage_history.segments(txn)}
    return image


class LmdbJournal:
    """A journal in the hands of one life."""

    def __init__(self, env: Environment, instance: InstanceName) -> None:
        self._env = env
        self._instance = instance
        self._schemas: dict[PortName, tuple[int, pa.Schema]] = {}
        with env.write() as txn:
            point(instance, "claim.inside")
            rows.verify(txn)
            header = load_header(txn)
            header = header._replace(incarnation=header.incarnation + 1)
            rows.put(txn, rows.HEADER, rows.pack(header))
            self.image = load_image(txn)
            for _, value in rows.scan(txn, b"$"):
                port, at, raw = rows.unpack(value)
                self._schemas[port] = (at, pa.ipc.read_schema(pa.py_buffer(raw)))
            self._staging = self._staged(txn)
        self.incarnation = Incarnation(header.incarnation)
        self._heads = {p: Head(h.last, h.total, h.base, set(h.pinned)) for p, h in self.image.heads.items()}
        self._closed = False

    def _staged(self, txn: lmdb.Transaction) -> set[PortName]:
        """Ports with rows above their head. Another life may stage there too: no two events share a row."""
        with txn.cursor() as cursor:
            heads = self.image.heads.items()
            return {port for port, head in heads if next(rows_from(cursor, port, head.last + 1), None) is not None}

    def commit(self, step: Step) -> None:
        """One transaction. Whatever can fail for its own reasons is made before it begins."""
        packer = Packer(self._schemas)
        self._staging.update(output.port for output in step.reads.staged)
        events = packer.alone(step.reads.staged) + packer.together(step.outputs, self._staging)
        plain = [rows.sealed(key, value) for key, value in rows.plain_puts(step)]
        joining = members.joining(step)
        with self._env.write() as txn:
            header = load_header(txn)
            if header.incarnation != self.incarnation:
                raise Fenced("a newer incarnation has claimed the journal")
            if step.number == header.commits:
                return  # repeated after a lost answer
            if step.number != header.commits + 1:
                raise EngineError(f"commit {step.number} after commit {header.commits}: out of turn")
            rows.put_all(txn, (*packer.schemas, *events, *plain, *joining))
            for key in rows.gone_timers(step):
                txn.delete(key)
            heads = self._moved_heads(step)
            dues = self._put_sets(txn, step, header)
            self._collect(txn, step, heads)
            for port, head in heads.items():
                rows.put(txn, b"h" + rows.hashed(port), rows.pack((port, head.last, head.total, head.base)))
            header = header._replace(
                commits=step.number,
                serial=max(header.serial, step.sets.serial),
                dues=dues,
                ended=header.ended or step.ended,
                left=header.left or step.left,
            )
            rows.put(txn, rows.HEADER, rows.pack(header))
            point(self._instance, "commit.inside")
        self._heads |= heads  # only once the transaction is through
        self._schemas |= packer.fresh
        if self._env.users > 1:  # somebody in this process reads this journal
            self._env.recent.add(o for o in step.outputs if o.port[0] != "@")

    def _moved_heads(self, step: Step) -> dict[PortName, Head]:
        moved: dict[PortName, Head] = {}

        def head(port: PortName) -> Head:
            if port not in moved:
                old = self._heads.get(port, Head())
                moved[port] = Head(old.last, old.total, old.base, old.pinned)
            return moved[port]

        for port, (last, total) in step.reads.reveal.items():
            head(port).last, head(port).total = last, total
        newest = {output.port: output for output in step.outputs}
        for port, output in newest.items():
            head(port).last, head(port).total = output.ssn, output.total
        for port in step.collected:
            head(port)
        return moved

    def _put_sets(self, txn: lmdb.Transaction, step: Step, header: rows.Header) -> int:
        dues = header.dues
        for serial, member in step.sets.alone.items():
            dues += 1
            rows.put(txn, b"s" + rows.number(serial), rows.set_value(own_id(member), "ready", dues))
        for serial, opened in step.sets.opened.items():
            rows.put(txn, b"s" + rows.number(serial), rows.set_value(opened.id, None, 0))
        for serial, cause in step.sets.due.items():
            dues += 1
            key = b"s" + rows.number(serial)
            opened, _ = rows.read_set(get(txn, key))
            rows.put(txn, key, rows.set_value(opened.id, cause, dues))
        for serial in step.sets.parked:
            key = b"s" + rows.number(serial)
            opened, _ = rows.read_set(get(txn, key))
            rows.put(txn, key, rows.set_value(opened.id, "parked", 0))
            self._drop_work(txn, serial)
        made = lineage_history.made_by(step.outputs, step.lineage.kept)
        for finished in step.sets.finished:
            self._remember(txn, finished.serial, finished.id, members.Joined.of(finished.members), made)
        for serial in step.sets.done:
            self._finish(txn, serial, made)
        lineage_history.put_step(txn, step)
        for channel, base in step.forget.items():
            members.forget(txn, channel, base)
        return dues

    @staticmethod
    def _remember(
        txn: lmdb.Transaction, serial: Serial, inset: InsetId, joined: members.Joined, made: lineage_history.Made
    ) -> None:
        members.remember(txn, serial, inset, joined)
        if serial in made:
            lineage_history.put_set(txn, serial, inset, joined, made[serial])

    def _finish(self, txn: lmdb.Transaction, serial: Serial, made: lineage_history.Made) -> None:
        """The set leaves the image; its memberships are remembered, and its answers if lineage keeps what it made."""
        key = b"s" + rows.number(serial)
        opened, _ = rows.read_set(get(txn, key))
        txn.delete(key)
        self._remember(txn, serial, opened.id, members.take(txn, serial), made)
        for answer in [rows.read_answer(v) for _, v in rows.scan(txn, b"a" + rows.number(serial))]:
            txn.delete(rows.answer_key(b"a", answer))
            if serial in made:
                rows.put(txn, rows.answer_key(b"A", answer), rows.pack(answer))
        txn.delete(b"f" + rows.number(serial))

    @staticmethod
    def _drop_work(txn: lmdb.Transaction, serial: Serial) -> None:
        """What was kept for the generation of a set that is parked."""
        for answer_key in [k for k, _ in rows.scan(txn, b"a" + rows.number(serial))]:
            txn.delete(answer_key)
        txn.delete(b"f" + rows.number(serial))

    def _collect(self, txn: lmdb.Transaction, step: Step, heads: dict[PortName, Head]) -> None:
        for port, (base, pinned) in step.collected.items():
            head = heads[port]
            collect(txn, port, head, base, pinned)
            if port == ERRORS:
                for ssn in (s for s in (*head.pinned, *range(head.base, base)) if s not in pinned):
                    txn.delete(rows.resolved_key(ssn))
            # Pinned ones too: everybody has taken them, and who comes back reads them from the rows.
            self._env.recent.drop(port, range(head.base, base))
            pins.change(txn, port, head.pinned, pinned)
            head.base, head.pinned = base, set(pinned)

    def close(self) -> None:
        """Lets go of the environment."""
        if not self._closed:
            self._closed = True
            self._env.disown()
            release(self._env)

    def __del__(self) -> None:
        # Of a life that was dropped as by a crash: nobody calls close(). In a fork it is the parent's.
        if not getattr(self, "_closed", True) and self._env.pid == os.getpid():
            self.close()


class LmdbReader:
    """Anyone's view of a journal: what is committed, nothing else."""

    def __init__(
        self,
        find: Callable[[], Environment | None],
        instance: InstanceName,
        read: Callable[[InstanceName], LmdbReader],
    ) -> None:
        """`read` gives the readers of other journals."""
        self._find = find
        self._read = read
        self._found: Environment | None = None
        self._instance = instance
        self._schemas: dict[tuple[PortName, int], pa.Schema] = {}

    @property
    def _env(self) -> Environment | None:
        """None while nobody has claimed the journal; it may be claimed at any time."""
        if self._found is None:
            self._found = self._find()
        return self._found

    def events(self, port: PortName, after: Ssn, *, limit: int, max_bytes: int) -> Sequence[Output]:
        """Visible events after `after`."""
        found = self._events(port, after, limit, max_bytes)
        return self._whole(found) if port[0] == "@" else found

    def _events(self, port: PortName, after: Ssn, limit: int, max_bytes: int) -> list[Output]:
        found: list[Output] = []
        env = self._env
        if env is None:
            return found
        with env.read() as txn:
            head = self._head(txn, port)
            if after >= head.last or limit <= 0:
                return found
            wanted, top = after + 1, min(head.last, after + limit)
            found, size = env.recent.run(port, wanted, top, max_bytes)
            wanted += len(found)
            if wanted > top or size >= max_bytes:
                return found
            if wanted < head.base:  # among holes: as far as events are pinned without a gap
                here = takewhile(lambda ssn: self._has(txn, port, head, ssn), range(wanted, top + 1))
                top = max(here, default=wanted - 1)
            with txn.cursor() as cursor:
                for row in rows_from(cursor, port, wanted):
                    if row.first > wanted or wanted > top:
                        break
                    upto = min(row.first + row.many - 1, top)
                    for output in row.read(port, range(wanted, upto + 1), self._schema(txn, port, row.schema)):
                        found.append(output)
                        size += output.nbytes
                        if size >= max_bytes:
                            return found
                    wanted = upto + 1
            if not found:
                raise Collected(f"{self._instance}.{port}:{wanted} has been collected")
        return found

    def pick(self, port: PortName, ssns: Sequence[Ssn]) -> Sequence[Output]:
        """Exactly these events."""
        if self._env is None:
            if ssns:
                raise Collected(f"{self._instance}.{port}:{ssns[0]} is not in the log")
            return []
        with self._env.read() as txn:
            head = self._head(txn, port)
            found: list[Output] = []
            with txn.cursor() as cursor:
                for row, wanted in self._by_row(txn, cursor, port, head, ssns):
                    found += row.read(port, wanted, self._schema(txn, port, row.schema))
        return self._whole(found) if port[0] == "@" else found

    def _whole(self, writes: list[Output]) -> list[Output]:
        """With the payloads of the events that they pass on, from the journals where these are."""
        wanted: dict[ChannelName, list[Ssn]] = {}
        for write in writes:
            if write.same is not None:
                wanted.setdefault(write.same.channel, []).append(write.same.ssn)
        if not wanted:
            return writes
        found: dict[tuple[ChannelName, Ssn], Any] = {}
        for channel, ssns in wanted.items():
            sender, port = sender_of(channel)
            for event in self._read(sender).pick(port, sorted(set(ssns))):
                found[channel, event.ssn] = event.payload
        return [w if w.same is None else w._replace(payload=found[w.same.channel, w.same.ssn]) for w in writes]

    def _by_row(
        self, txn: lmdb.Transaction, cursor: lmdb.Cursor, port: PortName, head: Head, ssns: Sequence[Ssn]
    ) -> Iterator[tuple[Row, list[Ssn]]]:
        """Each row once, for as many of these events as stand there one after the other."""
        row: Row | None = None
        wanted: list[Ssn] = []
        for ssn in ssns:
            if row is None or not row.first <= ssn < row.first + row.many or ssn <= wanted[-1]:
                if row is not None:
                    yield row, wanted
                row, wanted = row_of(cursor, port, ssn), []
            if row is None or not self._has(txn, port, head, ssn):
                raise Collected(f"{self._instance}.{port}:{ssn} is not in the log")
            wanted.append(ssn)
        if row is not None:
            yield row, wanted

    @staticmethod
    def _has(txn: lmdb.Transaction, port: PortName, head: Head, ssn: int) -> bool:
        """Whether an event is visible and not collected; it may lie there all the same."""
        if ssn >= head.base:
            return ssn <= head.last
        return pins.has(txn, port, ssn)

    def _schema(self, txn: lmdb.Transaction, port: PortName, number: int) -> pa.Schema | None:
        found = self._schemas.get((port, number))
        if found is None and number not in (payloads.STREAM, payloads.SAME, payloads.NONE):
            found = self._schemas[port, number] = read_schema(txn, port, number)
        return found

    def stored(self, port: PortName) -> Sequence[Ssn]:
        """Visible and not collected."""
        if self._env is None:
            return []
        with self._env.read() as txn:
            head = self._head(txn, port)
            return [*sorted(pins.of(txn, port)), *(Ssn(ssn) for ssn in range(head.base, head.last + 1))]

    def head(self, port: PortName) -> Head:
        """The committed head, holes included."""
        if self._env is None:
            return Head()
        with self._env.read() as txn:
            head = self._head(txn, port)
            head.pinned = pins.of(txn, port)
            return head

    def base(self, port: PortName) -> Ssn:
        """Where the committed head begins."""
        if self._env is None:
            return Head().base
        with self._env.read() as txn:
            return self._head(txn, port).base

    @staticmethod
    def _head(txn: lmdb.Transaction, port: PortName) -> Head:
        raw = txn.get(b"h" + rows.hashed(port))
        return Head() if raw is None else Head(*rows.unpack(raw)[1:])

    def needs(self, channel: ChannelName) -> Needs:
        """One consistent look: a transaction is a snapshot."""
        if self._env is None:
            return Needs(Position(), [], False)
        with self._env.read() as txn:
            position, left = self._taken(txn, channel)
            return Needs(
                position,
                members.needed(txn, channel),
                left,
                lineage_history.low(txn, channel),
                self._unwritten(txn, channel),
            )

    def taken(self, channel: ChannelName) -> Taken:
        """How far it is."""
        if self._env is None:
            return Taken(Position(), False)
        with self._env.read() as txn:
            return self._taken(txn, channel)

    @staticmethod
    def _taken(txn: lmdb.Transaction, channel: ChannelName) -> Taken:
        raw = txn.get(b"p" + rows.hashed(channel))
        return Taken(Position() if raw is None else rows.read_position(raw)[1], load_header(txn).left)

    @staticmethod
    def _unwritten(txn: lmdb.Transaction, channel: ChannelName) -> Ssn | None:
        done: dict[TargetName, int] = dict(rows.unpack(value) for _, value in rows.scan(txn, b"w"))
        found: list[int] = []
        for _, value in rows.scan(txn, b"h"):
            port = rows.unpack(value)[0]
            if port[0] != "@":
                continue
            first = done.get(port[1:], 0) + 1
            with txn.cursor() as cursor:
                for row in rows_from(cursor, port, first):
                    if row.schema == payloads.SAME:
                        found += row.passed_from(first, channel)
        return Ssn(min(found)) if found else None

    def image(self) -> Image:
        """The committed image."""
        if self._env is None:
            return Image()
        with self._env.read() as txn:
            return load_image(txn)

    def history(self) -> Iterator[Finished]:
        """Done sets, in the order of their serials."""
        found: dict[Serial, tuple[InsetId, list[Member]]] = {}
        known: dict[Serial, Finished] = {}
        if self._env is not None:
            with self._env.read() as txn:
                for serial, inset, joined in members.remembered(txn):
                    found.setdefault(serial, (inset, []))[1].extend(joined)
                known = {finished.serial: finished for finished in lineage_history.every(txn)}
        for serial in sorted({*found, *known}):
            inset, rest = found.get(serial, ("", []))
            yield known.get(serial) or Finished(serial, inset, tuple(rest))

    # ---- lineage ----------------------------------------------------------------------------------------

    def headers(self, port: PortName, ssns: Sequence[Ssn]) -> Sequence[Output | None]:
        """Without payload."""
        if self._env is None:
            return [None] * len(ssns)
        with self._env.read() as txn:
            head = self._head(txn, port)
            with txn.cursor() as cursor:
                found = [(ssn, row_of(cursor, port, ssn)) for ssn in ssns]
            return [
                row.header(port, ssn) if row is not None and self._has(txn, port, head, ssn) else None
                for ssn, row in found
            ]

    def inset(self, serial: Serial) -> Finished | None:
        """A kept set."""
        if self._env is None:
            return None
        with self._env.read() as txn:
            return lineage_history.inset(txn, serial)

    def insets_of(self, channel: ChannelName, ssn: Ssn) -> Sequence[Serial]:
        """Kept or not."""
        if self._env is None:
            return []
        with self._env.read() as txn:
            return lineage_history.insets_of(txn, channel, ssn)

    def made_from(self, serial: Serial, ports: Sequence[PortName]) -> Sequence[tuple[PortName, Ssn]]:
        """As it was put out."""
        if self._env is None:
            return []
        with self._env.read() as txn:
            return lineage_history.made_from(txn, serial, ports, {port: self._head(txn, port).last for port in ports})

    def answers(self, serial: Serial) -> Sequence[Answer]:
        """Of the image, or lineage_history."""
        if self._env is None:
            return []
        with self._env.read() as txn:
            return lineage_history.answers(txn, serial)

    def incarnation(self) -> Incarnation:
        """The newest."""
        if self._env is None:
            return Incarnation(0)
        with self._env.read() as txn:
            return Incarnation(load_header(txn).incarnation)
