"""Events of a port that share a row, as stores on disk keep them: one costs a share of what a row costs.

    first SSN, how many, schema number, kind; rows, nbytes, total, serial of each; headers, if one has any;
    one Arrow batch for all

A commit that puts out a run of events packs them so (`Packer`); a reader hands out slices of the batch (`Run`). The
events of a run have at most `TOGETHER` bytes: user code that keeps one slice keeps them all, and a larger run makes
an event hardly cheaper. Events of one run are of one kind.
Rows that are staged (R9) hold one event each: another life may stage other events in their place.

A write action that passes an event on (`Output.same`) has that event's channel and SSN in place of a payload; a
reader takes the payload from the sender's journal, where it stays until the write is known to be done (R12).

    >>> from logline.names import Serial
    >>> event = Output(PortName("out"), Ssn(7), pa.record_batch({"n": [1, 2]}), 2, 16, 16, Serial(3))
    >>> packer = Packer({})
    >>> [(port, run)] = packer.together([event], alone=())
    >>> [(_, number, schema)] = packer.fresh_schemas()
    >>> run.read(port, [7], schema)[0].payload.to_pydict()
    {'n': [1, 2]}
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from logline.engine.events import KINDS, Kind, Output
from logline.engine.sets import Member
from logline.names import ChannelName, PortName, Ssn
from logline.store import payloads
from logline.store.encoding import pack, reader_of
from logline.store.members import Joined

TOGETHER, MOST = 256 << 10, 64
"""Bytes and number of the events that share a row, at most."""
MOST_SAME = 1024
"""Of those that are passed on, and take no room."""
_WHOLE = (payloads.NONE, payloads.STREAM)
ONE = struct.Struct("<IQQQ")
"""Of each event: rows, nbytes, total, serial."""
CODES = {kind: code for code, kind in enumerate(KINDS)}
Schemas = dict[PortName, tuple[int, pa.Schema]]
"""The newest schema of each port, with its number."""
Raw = bytes | memoryview
_read_joined, _read_all = reader_of(Joined), reader_of(object)


class Run(NamedTuple):
    """Events of a port that share a row, as it is written and read."""

    first: int
    many: int
    schema: int
    kind: Kind
    heads: Raw
    """`ONE` of each."""
    more: Raw
    """Their headers; empty if none has any."""
    payload: Any
    """Bytes, of whatever kind the store has."""

    @property
    def end(self) -> int:
        """The SSN after its last event."""
        return self.first + self.many

    def header(self, port: PortName, ssn: int) -> Output:
        """An event without its payload."""
        head = ONE.unpack_from(self.heads, ONE.size * (ssn - self.first))
        return self._special([Output(port, Ssn(ssn), None, *head)])[0]

    def _special(self, found: list[Output]) -> list[Output]:
        """Kind and headers, where there is more to say than that it is an event."""
        if self.kind != "event":
            found = [output._replace(kind=self.kind) for output in found]
        if self.more:
            more: Any = _read_all(self.more)
            found = [output._replace(headers=more[output.ssn - self.first]) for output in found]
        return found

    def read(self, port: PortName, wanted: Sequence[int], schema: pa.Schema | None) -> list[Output]:
        """These events, with payload: copied if it is not bytes of its own, since user code may keep it. Writes that
        pass an event on come without."""
        first, heads = self.first, list(ONE.iter_unpack(self.heads))
        if self.schema == payloads.SAME:
            passed = self.passed()
            found = [Output(port, Ssn(ssn), None, *heads[ssn - first]) for ssn in wanted]
            found = [write._replace(same=passed[write.ssn - first]) for write in found]
        else:
            batches = self._batches(bytes(self.payload), [head[0] for head in heads], wanted, schema)
            if len(wanted) < self.many:
                heads = [heads[ssn - first] for ssn in wanted]
            each = zip(wanted, batches, heads, strict=True)
            found = [Output(port, ssn, batch, *head) for ssn, batch, head in each]  # type: ignore[arg-type]
        return self._special(found)

    def passed(self) -> list[Member]:
        """The events that the writes of this run pass on."""
        return _read_joined(self.payload).members()

    def passed_text(self) -> str:
        """The same as JSON, for people: channel and runs of SSNs, `[["orders.out>store.in", [1, 7]]]`."""
        return msgspec.json.encode(_read_joined(self.payload).runs).decode()

    def passed_from(self, number: int, channel: ChannelName) -> list[int]:
        """Of the writes from that number on: the first event of each run of the channel. A slow target may have a
        long queue, so runs are not taken apart but for the one with which it begins."""
        if number > self.first:
            return [event.ssn for event in self.passed()[number - self.first :] if event.channel == channel]
        return [first for name, first, _ in _read_joined(self.payload).each() if name == channel]

    def _batches(self, body: bytes, sizes: list[int], wanted: Sequence[int], schema: pa.Schema | None) -> list[Any]:
        if self.schema == payloads.NONE:
            return [None]
        if self.schema == payloads.STREAM:
            return [payloads.read_stream(body)]
        assert schema is not None
        whole = payloads.read_batch(body, schema)
        if self.many == 1:
            return [whole]
        starts, first = list(accumulate(sizes, initial=0)), self.first
        parts = [whole.slice(starts[ssn - first], sizes[ssn - first]) for ssn in wanted]
        if 2 * len(parts) < self.many:  # who wants few of them should not keep all
            parts = [payloads.read_batch(bytes(payloads.write_batch(part)), schema) for part in parts]
        return parts


def kept_of(run: Run, base: int, pinned: Collection[int]) -> list[int]:
    """Which events of a run stay when a port is collected up to `base` (R12)."""
    kept = [ssn for ssn in range(run.first, min(run.end, base)) if ssn in pinned] if pinned else []
    return [*kept, *range(max(run.first, base), run.end)]


def is_mostly_empty(run: Run, kept: Sequence[int]) -> bool:
    """Whether a run is to be taken apart: half of it is not needed, and it takes room."""
    return 2 * len(kept) <= run.many and run.schema != payloads.SAME


class _Gathered:
    """Events of a port that are to share a row."""

    __slots__ = ("events", "kind", "most", "schema", "size")

    def __init__(self, schema: int, kind: Kind, most: int) -> None:
        self.events: list[Output] = []
        self.schema = schema
        self.kind = kind
        self.most = most
        self.size = 0


class Packed(NamedTuple):
    """A run and its port, to be written."""

    port: PortName
    run: Run


class Packer:
    """Events as runs. New schemas are known to others once the commit is through."""

    def __init__(self, known: Schemas) -> None:
        self._known = known
        self.fresh: Schemas = {}
        self._fresh: list[tuple[PortName, int, pa.Schema]] = []

    def fresh_schemas(self) -> list[tuple[PortName, int, pa.Schema]]:
        """The schemas that the journal does not have yet, with port and number."""
        return self._fresh

    def alone(self, outputs: Iterable[Output]) -> list[Packed]:
        """Packs each event into a run of its own."""
        return [self._run([output], self._schema(output)) for output in outputs]

    def together(self, outputs: Iterable[Output], alone: Collection[PortName]) -> list[Packed]:
        """Small events share a row, but for those of the ports `alone`."""
        found: list[Packed] = []
        runs: dict[PortName, _Gathered] = {}
        number = self._schema
        for output in outputs:
            port, schema = output.port, number(output)
            run = runs.get(port)
            own = 0 if schema == payloads.SAME else output.nbytes
            if (
                run is None
                or schema != run.schema
                or run.size + own > TOGETHER
                or len(run.events) >= run.most
                or output.kind != run.kind
            ):
                if run is not None:
                    found += self._runs(run.events, run.schema)
                most = 1 if port in alone or schema in _WHOLE else MOST_SAME if schema == payloads.SAME else MOST
                run = runs[port] = _Gathered(schema, output.kind, most)
            run.events.append(output)
            run.size += own
        for run in runs.values():
            found += self._runs(run.events, run.schema)
        return found

    def _runs(self, events: list[Output], schema: int) -> list[Packed]:
        if len(events) > 1:
            with contextlib.suppress(pa.ArrowException):  # a type that Arrow can't join
                return [self._run(events, schema)]
        return [self._run([output], schema) for output in events]

    def _run(self, events: list[Output], schema: int) -> Packed:
        if schema == payloads.NONE:
            payload: bytes | pa.Buffer = b""
        elif schema == payloads.SAME:
            payload = pack(Joined.of([output.same for output in events if output.same is not None]))
        elif schema == payloads.STREAM:
            payload = payloads.write_stream(events[0].payload)
        else:
            batch = events[0].payload
            if len(events) > 1:
                batch = pa.concat_batches([output.payload for output in events])
            payload = payloads.write_batch(batch)
        heads = [ONE.pack(count, size, total, serial) for _, _, _, count, size, total, serial, _, _, _ in events]
        more = b"" if all(output.headers is None for output in events) else pack([o.headers for o in events])
        first = events[0]
        return Packed(first.port, Run(first.ssn, len(events), schema, first.kind, b"".join(heads), more, payload))

    def _schema(self, output: Output) -> int:
        port, _, batch, _, _, _, _, _, same, _ = output
        if same is not None:
            return payloads.SAME
        if batch is None:
            return payloads.NONE
        known = self.fresh.get(port) or self._known.get(port)
        if known is not None and known[1].equals(batch.schema, check_metadata=True):
            return known[0]
        if payloads.needs_stream(batch.schema):
            return payloads.STREAM
        at = 1 if known is None else known[0] + 1
        if at >= payloads.SAME:  # schemas that differ from event to event, in what pandas notes of its index say
            return payloads.STREAM
        self.fresh[port] = (at, batch.schema)
        self._fresh.append((port, at, batch.schema))
        return at


Pick = Callable[[ChannelName, Sequence[Ssn]], Sequence[Output]]
"""Reads exactly these events of a channel, wherever they are."""


def whole_writes(writes: list[Output], pick: Pick) -> list[Output]:
    """Writes with the payloads of the events that they pass on."""
    wanted: dict[ChannelName, list[Ssn]] = {}
    for write in writes:
        if write.same is not None:
            wanted.setdefault(write.same.channel, []).append(write.same.ssn)
    if not wanted:
        return writes
    found = {
        (channel, event.ssn): event.payload
        for channel, ssns in wanted.items()
        for event in pick(channel, sorted(set(ssns)))
    }
    return [w if w.same is None else w._replace(payload=found[w.same.channel, w.same.ssn]) for w in writes]
