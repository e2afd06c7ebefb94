"""The rows of a journal in LMDB: keys, values, and how a step becomes puts and deletes (R1).

A commit writes what changed, never the whole image. One key space, told apart by the first byte:

    !  header: format, incarnation, commits, serial, dues, ended, left     S  global state
    p  channel -> position          h  port -> head            k  port, block -> pinned
    s  serial -> set                m  serial, commit -> members
    t  id -> timer                  a  serial, row, n -> answer f  serial -> failure
    q  SSN -> (resolved error)
    w  target -> written            r  partition -> progress   c  channel -> event clock
    $  port, n -> Arrow schema      E  port, SSN -> events     D  channel, block, serial -> members of a done set
    g  n -> segment of history      G  segment, commit -> what of it that commit finished
    F  serial -> done set with members and outputs             A  serial, row, n -> answer of a done set
    R  serial -> run of sets of one event                      Q  channel, SSN -> (index of runs)

A block is 64 SSNs (`store/lmdb/members.py`, `store/lmdb/pins.py`). The last three lines are what lineage scopes keep
(`store/lmdb/lineage_history.py`).

Names are hashed in keys (LMDB bounds their length) and stand in the value. Every value ends with a checksum, which
is verified when a journal is claimed: a flipped byte is found before anything is made of it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import lmdb
import msgspec
from xxhash import xxh3_64, xxh3_64_intdigest

from logline.engine import codec
from logline.engine.events import Position
from logline.engine.progress import Progress
from logline.engine.results import Failure
from logline.engine.sets import Answer, OpenSet, Timer
from logline.engine.step import Step
from logline.errors import LogError
from logline.names import InsetId, PortName
from logline.store.encoding import FORMAT

HEADER = b"!"
Raw = bytes | memoryview
_SUM = struct.Struct("<Q")
_sum = _SUM.pack
END = -_SUM.size
"""Where the checksum of a value begins."""
_U64 = struct.Struct(">Q")
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode


class Header(NamedTuple):
    """What is read and written by every commit."""

    format: int = FORMAT
    incarnation: int = 0
    commits: int = 0
    serial: int = 0
    dues: int = 0
    """Numbers the sets as they become due, so that their order is a key (R6)."""
    ended: bool = False
    left: bool = False


def put(txn: lmdb.Transaction, key: bytes, value: bytes) -> None:
    """A row with its checksum, which is over the key too: a row under another key is damage as well."""
    txn.put(key, value + _sum(xxh3_64_intdigest(value, xxh3_64_intdigest(key))))


def sealed(key: bytes, *parts: bytes | memoryview) -> tuple[bytes, bytes]:
    """A row as `put` would put it, made of parts: a large one is copied once only."""
    digest = xxh3_64(seed=xxh3_64_intdigest(key))
    for part in parts:
        digest.update(part)
    return key, b"".join((*parts, _sum(digest.intdigest())))


def put_all(txn: lmdb.Transaction, items: Iterable[tuple[bytes, bytes]]) -> None:
    """Rows that are sealed."""
    with txn.cursor() as cursor:
        cursor.putmulti(items)


def verify(txn: lmdb.Transaction) -> None:
    """Raises unless every row is what was written, under its key, in order and found by it, and none is missing.

    LMDB has no checksums of its own, and a flipped bit may be in a value, in a key, or in what leads to them.
    """
    count, last = 0, b""
    with txn.cursor() as cursor:
        for found, raw in cursor:
            key = bytes(found)
            end = len(raw) - _SUM.size
            view = memoryview(raw)
            whole = end >= 0 and _SUM.unpack_from(view, end)[0] == xxh3_64_intdigest(
                view[:end], xxh3_64_intdigest(key)
            )
            if not whole or (count and key <= last) or txn.get(key) is None:
                raise LogError(
                    f"the log is damaged: a row of kind {key[:1].decode(errors='replace')!r} is not as written. "
                    "Restore the log's folder from a copy, or begin with a fresh log"
                )
            count, last = count + 1, key
    if count != txn.stat()["entries"]:
        raise LogError(
            f"the log is damaged: it should have {txn.stat()['entries']} rows and has {count}. "
            "Restore the log's folder from a copy, or begin with a fresh log"
        )


def pack(value: Any) -> bytes:
    """A plain value; `put` adds the checksum."""
    return _pack(value)


def unpack(raw: bytes | memoryview) -> Any:
    """The inverse of `pack`; the checksum was verified when the journal was claimed."""
    return _unpack(memoryview(raw)[:END])


def unpack_all(raw: memoryview) -> Any:
    """A part of a row, where no checksum stands at the end."""
    return _unpack(raw)


@lru_cache(maxsize=4096)
def hashed(name: str) -> bytes:
    """A name of any length as eight bytes."""
    return blake2b(name.encode(), digest_size=8).digest()


def number(value: int) -> bytes:
    """A number that sorts as bytes do."""
    return _U64.pack(value)


def read_number(raw: bytes | memoryview) -> int:
    """The inverse of `number`."""
    found: int = _U64.unpack(raw)[0]
    return found


def scan(txn: lmdb.Transaction, prefix: bytes) -> Iterator[tuple[bytes, Raw]]:
    """Rows whose key begins so, in order. Values are views into the map: copy what outlives the transaction."""
    with txn.cursor() as cursor:
        if not cursor.set_range(prefix):
            return
        for key, value in cursor:
            key = bytes(key)
            if not key.startswith(prefix):
                return
            yield key, value


def until(txn: lmdb.Transaction, first: bytes, end: bytes) -> Iterator[tuple[bytes, Raw]]:
    """Rows from one key up to another, which is not among them."""
    with txn.cursor() as cursor:
        if not cursor.set_range(first):
            return
        for key, value in cursor:
            key = bytes(key)
            if key >= end:
                return
            yield key, value


def event_key(port: PortName, ssn: int) -> bytes:
    """Where a run of events, write actions or staged rows lies that begins with this one (see `lmdb.events`)."""
    return b"E" + hashed(port) + _U64.pack(ssn)


# ---- a step as puts and deletes ---------------------------------------------------------------------------------


def set_value(inset: InsetId, cause: str | None, due: int) -> bytes:
    """An open set; its members are rows of their own."""
    return pack((codec.encode(inset), cause, due))


def read_set(raw: bytes | memoryview) -> tuple[OpenSet, int]:
    """An open set without its members, and its place among the due ones."""
    inset, cause, due = unpack(raw)
    return OpenSet(codec.decode(inset), [], cause), due


def plain_puts(step: Step) -> Iterator[tuple[bytes, bytes]]:
    """The rows of a step that simply replace what was there."""
    for channel, position in step.positions.items():
        yield b"p" + hashed(channel), pack((channel, *position))
    if step.state is not None:
        yield b"S", step.state
    for channel, at in step.clock.items():
        yield b"c" + hashed(channel), pack((channel, at))
    for inset, timer in step.timers.items():
        if timer is not None:
            yield timer_key(inset), pack((codec.encode(inset), *timer))
    for answers in step.sets.answers.values():
        for answer in answers:
            yield answer_key(b"a", answer), pack(answer)
    for serial, failure in step.sets.failures.items():
        yield b"f" + number(serial), pack((failure.kind, failure.message, failure.traceback, failure.retryable))
    for ssn in step.errors.resolved:
        yield resolved_key(ssn), b""
    for target, count in step.writes.written.items():
        yield b"w" + hashed(target), pack((target, count))
    for partition, progress in step.reads.progress.items():
        yield b"r" + hashed(partition), pack((partition, *progress))


def resolved_key(ssn: int) -> bytes:
    """An event on port `errors` that was retried or dropped."""
    return b"q" + number(ssn)


def answer_key(kind: bytes, answer: Answer) -> bytes:
    """Answers of a set that is due (`a`), or of one that is done and kept (`A`)."""
    return kind + number(answer.serial) + number(answer.row + 1) + number(answer.n)


def gone_timers(step: Step) -> Iterable[bytes]:
    """The timers that a step clears."""
    return [timer_key(inset) for inset, timer in step.timers.items() if timer is None]


def timer_key(inset: InsetId) -> bytes:
    """One timer per id."""
    return b"t" + blake2b(codec.canonical(inset), digest_size=16).digest()


def read_progress(raw: bytes | memoryview) -> tuple[str, Progress]:
    """A partition and how far it is read."""
    partition, *rest = unpack(raw)
    progress = Progress(*rest)
    return partition, progress._replace(unconfirmed=tuple(progress.unconfirmed))


def read_answer(raw: bytes | memoryview) -> Answer:
    """A kept answer."""
    return Answer(*unpack(raw))


def read_failure(raw: bytes | memoryview) -> Failure:
    """Why a set is not generated."""
    return Failure(*unpack(raw))


def read_timer(raw: bytes | memoryview) -> tuple[InsetId, Timer]:
    """A timer and its id."""
    encoded, at, clock = unpack(raw)
    return codec.decode(encoded), Timer(at, clock)


def read_position(raw: bytes | memoryview) -> tuple[str, Position]:
    """A channel and its position."""
    channel, *position = unpack(raw)
    return channel, Position(*position)
