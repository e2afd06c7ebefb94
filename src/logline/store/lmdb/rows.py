"""Rows as bytes in LMDB (see `store/rows.py`). One key space for all tables:

    table (2 bytes of a digest of its name), parts of the key -> names among these parts, value; checksum

Numbers are eight bytes that sort as they do. Names are hashed in keys (LMDB bounds their length) and stand in the
value. Every value ends with a checksum. It is verified of all rows when a journal is claimed, and of events whenever
they are read: a flipped byte is found before anything is made of it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from hashlib import blake2b
from itertools import takewhile
from typing import Any, TypeVar

import lmdb
from xxhash import xxh3_64, xxh3_64_intdigest

from logline.errors import LogError
from logline.store.encoding import pack, reader_of
from logline.store.layout import BY_NAME
from logline.store.rows import Key, Table

V = TypeVar("V")
Raw = bytes | memoryview
_SUM = struct.Struct("<Q")
_sum = _SUM.pack
END = -_SUM.size
"""Where the checksum of a value begins."""
_U64 = struct.Struct(">Q")
number = _U64.pack
"""A number that sorts as bytes do."""
_read_all = reader_of(object)


def read_number(raw: Raw) -> int:
    """The inverse of `number`."""
    found: int = _U64.unpack(raw)[0]
    return found


@lru_cache(maxsize=4096)
def hashed(name: str) -> bytes:
    """A name of any length as eight bytes."""
    return blake2b(name.encode(), digest_size=8).digest()


def kind(table: str) -> bytes:
    """What the keys of a table begin with."""
    return blake2b(table.encode(), digest_size=2).digest()


EVENTS, SCHEMAS = kind("events"), kind("schemas")
"""Tables that are the embedded log's own."""
_NAMES = {kind(name): name for name in (*BY_NAME, "events", "schemas")}
assert len(_NAMES) == len(BY_NAME) + 2, "two tables have the same digest: rename one of them"


def sealed(key: bytes, *parts: bytes | memoryview) -> tuple[bytes, bytes]:
    """A row with its checksum, which is over the key too: a row under another key is damage as well. It is made of
    parts, so that a large one is copied once only."""
    digest = xxh3_64(seed=xxh3_64_intdigest(key))
    for part in parts:
        digest.update(part)
    return key, b"".join((*parts, _sum(digest.intdigest())))


def put_all(txn: lmdb.Transaction, items: Iterable[tuple[bytes, bytes]]) -> None:
    """Rows that are sealed."""
    with txn.cursor() as cursor:
        cursor.putmulti(items)


def unpack(raw: Raw) -> Any:
    """A value of a table of the embedded log's own, without its checksum."""
    return _read_all(memoryview(raw)[:END])


def check(key: bytes, raw: memoryview) -> None:
    """Raises unless the row is what was written, under its key."""
    if not _is_whole(key, raw):
        raise _damaged(key)


def _is_whole(key: bytes, raw: memoryview) -> bool:
    end = len(raw) - _SUM.size
    if end < 0:
        return False
    return bool(_SUM.unpack_from(raw, end)[0] == xxh3_64_intdigest(raw[:end], xxh3_64_intdigest(key)))


def _damaged(key: bytes) -> LogError:
    return LogError(
        f"the log is damaged: a row of {_NAMES.get(key[:2], 'no table')!r} is not as written. "
        "Restore the log's folder from a copy, or begin with a fresh log"
    )


def verify(txn: lmdb.Transaction) -> None:
    """Raises unless every row is what was written, under its key, in order and found by it, and none is missing.

    LMDB has no checksums of its own, and a flipped bit may be in a value, in a key, or in what leads to them.
    """
    count, last = 0, b""
    with txn.cursor() as cursor:
        for found, raw in cursor:
            key = bytes(found)
            if key <= last or not _is_whole(key, memoryview(raw)) or txn.get(key) is None:
                raise _damaged(key)
            count, last = count + 1, key
    if count != txn.stat()["entries"]:
        raise LogError(
            f"the log is damaged: it should have {txn.stat()['entries']} rows and has {count}. "
            "Restore the log's folder from a copy, or begin with a fresh log"
        )


# ---- tables -------------------------------------------------------------------------------------------------------

_PACK = [struct.Struct(f">{count}Q").pack for count in range(4)]
_UNPACK = [struct.Struct(f">{count}Q").unpack_from for count in range(4)]


class _Shape:
    """How a table's keys and values become bytes."""

    __slots__ = ("_digest", "_numbers", "key", "named", "read")

    def __init__(self, table: Table[Any]) -> None:
        begin = kind(table.name)
        self.named = table.key[:1] == ("name",)
        self._digest = table.key == ("digest",)
        self._numbers = len(table.key) - self.named
        self.read = reader_of(tuple[str, table.record] if self.named else table.record)  # type: ignore[name-defined]
        self.key: Callable[[Key], bytes]
        """A key as bytes, or what keys begin with."""
        if self._digest:
            self.key = lambda key: b"".join((begin, *key))
        elif self.named:
            self.key = lambda key: begin + hashed(key[0]) + _PACK[len(key) - 1](*key[1:]) if key else begin
        else:
            self.key = lambda key: begin + _PACK[len(key)](*key)

    def row(self, raw_key: bytes, raw: Raw) -> tuple[Key, Any]:
        """The key and the value of a row, from the bytes of both."""
        found = self.read(raw[:END])
        if self.named:
            return (found[0], *_UNPACK[self._numbers](raw_key, 10)), found[1]
        return (raw_key[2:],) if self._digest else _UNPACK[self._numbers](raw_key, 2), found


_shape = cache(_Shape)


class LmdbRows:
    """The rows of a journal in a transaction; values are copied out of the map."""

    __slots__ = ("_txn",)

    def __init__(self, txn: lmdb.Transaction) -> None:
        self._txn = txn

    def get(self, table: Table[V], key: Key) -> V | None:
        """A row, if there is one."""
        shape = _shape(table)
        raw = self._txn.get(shape.key(key))
        if raw is None:
            return None
        found: Any = shape.read(raw[:END])
        return found[1] if shape.named else found  # type: ignore[no-any-return]

    def put(self, table: Table[V], key: Key, value: V) -> None:
        """Instead of what was there; sealed as by `sealed`. A name that is hashed in the key stands in the value."""
        shape = _shape(table)
        at, raw = shape.key(key), pack((key[0], value) if shape.named else value)
        self._txn.put(at, raw + _sum(xxh3_64_intdigest(raw, xxh3_64_intdigest(at))))

    def delete(self, table: Table[Any], key: Key) -> None:
        """Deletes the row of this key, if there is one."""
        self._txn.delete(_shape(table).key(key))

    def delete_range(self, table: Table[Any], prefix: Key = (), below: int | None = None) -> None:
        """Deletes all rows that `scan` would find."""
        delete, begin = self._txn.delete, _shape(table).key(prefix)
        end = None if below is None else begin + number(below)
        with self._txn.cursor() as cursor:
            keys = takewhile(
                lambda key: key.startswith(begin) and (end is None or key < end),
                map(bytes, cursor.iternext(keys=True, values=False)) if cursor.set_range(begin) else (),
            )
            for key in list(keys):
                delete(key)

    def scan(self, table: Table[V], prefix: Key = (), below: int | None = None) -> Iterator[tuple[Key, V]]:
        """The rows whose key begins so, in the order of their keys."""
        shape = _shape(table)
        begin = shape.key(prefix)
        end = None if below is None else begin + number(below)
        with self._txn.cursor() as cursor:
            if not cursor.set_range(begin):
                return
            row = shape.row
            for found, value in cursor:
                key = bytes(found)
                if not key.startswith(begin) or (end is not None and key >= end):
                    return
                yield row(key, value)

    def count(self, table: Table[Any]) -> int:
        """How many rows a table has."""
        begin = _shape(table).key(())
        with self._txn.cursor() as cursor:
            keys = cursor.iternext(keys=True, values=False) if cursor.set_range(begin) else ()
            return sum(1 for _ in takewhile(lambda key: key[:2] == begin, keys))

    def floor(self, table: Table[V], key: Key) -> tuple[Key, V] | None:
        """The last row up to this key."""
        shape = _shape(table)
        prefix = shape.key(key[:-1])
        with self._txn.cursor() as cursor:
            beyond = cursor.set_range(prefix + number(key[-1] + 1))
            if not (cursor.prev() if beyond else cursor.last()):
                return None
            found, value = cursor.item()
            found = bytes(found)
            return shape.row(found, value) if found.startswith(prefix) else None
