"""Rows and events of one journal in memory.

A value is kept as bytes, in every table: a later life can't be handed an object that an earlier one still holds.
Payloads are Arrow batches, which nobody can change.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import Any, TypeVar

from logline.engine.events import Head, Output
from logline.names import ChannelName, PortName, Ssn
from logline.store.encoding import pack, reader_of
from logline.store.rows import Key, Table

V = TypeVar("V")
TOGETHER = 64
"""Events that are given out at once."""


@cache
def _reader(table: Table[V]) -> Callable[[bytes], V]:
    return reader_of(table.record)


class _Ordered:
    """The rows of one table, in the order of their keys."""

    __slots__ = ("keys", "values")

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.values: dict[Key, bytes] = {}


class MemoryRows:
    """Ordered dicts, one for each table that has rows."""

    def __init__(self) -> None:
        self._tables: dict[str, _Ordered] = {}
        self.changes = 0
        """Grows with every change: who has looked before knows whether to look again."""

    def get(self, table: Table[V], key: Key) -> V | None:
        """A row, if there is one."""
        known = self._tables.get(table.name)
        raw = None if known is None else known.values.get(key)
        return None if raw is None else _reader(table)(raw)

    def put(self, table: Table[V], key: Key, value: V) -> None:
        """Replaces the row of this key, if there is one."""
        self.changes += 1
        known = self._tables.get(table.name)
        if known is None:
            known = self._tables[table.name] = _Ordered()
        if key not in known.values:
            if known.keys and key < known.keys[-1]:
                insort(known.keys, key)
            else:
                known.keys.append(key)
        known.values[key] = pack(value)

    def delete(self, table: Table[Any], key: Key) -> None:
        """Deletes the row of this key, if there is one."""
        self.changes += 1
        known = self._tables.get(table.name)
        if known is not None and known.values.pop(key, None) is not None:
            del known.keys[bisect_left(known.keys, key)]

    def delete_range(self, table: Table[Any], prefix: Key = (), below: int | None = None) -> None:
        """Deletes all rows that `scan` would find."""
        self.changes += 1
        known = self._tables.get(table.name)
        if known is not None:
            first, end = _range(known.keys, prefix, below)
            for key in known.keys[first:end]:
                del known.values[key]
            del known.keys[first:end]

    def scan(self, table: Table[V], prefix: Key = (), below: int | None = None) -> Iterable[tuple[Key, V]]:
        """The rows whose key begins so, in the order of their keys."""
        known = self._tables.get(table.name)
        if known is None:
            return ()
        read, values = _reader(table), known.values
        first, end = _range(known.keys, prefix, below)
        return [(key, read(values[key])) for key in known.keys[first:end]]

    def count(self, table: Table[Any]) -> int:
        """How many rows a table has."""
        known = self._tables.get(table.name)
        return 0 if known is None else len(known.keys)

    def floor(self, table: Table[V], key: Key) -> tuple[Key, V] | None:
        """The last row up to this key."""
        known = self._tables.get(table.name)
        at = bisect_right(known.keys, key) if known is not None else 0
        if known is None or not at or known.keys[at - 1][:-1] != key[:-1]:
            return None
        found = known.keys[at - 1]
        return found, _reader(table)(known.values[found])


def _range(keys: list[Key], prefix: Key, below: int | None) -> tuple[int, int]:
    """Where the keys that begin so are."""
    if not prefix and below is None:
        return 0, len(keys)
    first = bisect_left(keys, prefix)
    if below is not None:
        return first, bisect_left(keys, (*prefix, below))
    size, end = len(prefix), first
    while end < len(keys) and keys[end][:size] == prefix:
        end += 1
    return first, end


class MemoryEvents:
    """Events as they were put out: visible ones and staged ones."""

    def __init__(self) -> None:
        self.ports: dict[PortName, dict[Ssn, Output]] = {}

    def put(self, outputs: Iterable[Output]) -> None:
        """Instead of what was there; without the payload of an event that is passed on, which its sender has."""
        for output in outputs:
            row = output if output.same is None else output._replace(payload=None)
            if row.headers is not None:
                row = row._replace(headers=dict(row.headers))
            self.ports.setdefault(output.port, {})[output.ssn] = row

    def collect(self, port: PortName, head: Head, base: Ssn, pinned: Collection[Ssn]) -> None:
        """Found from the old base on, not by looking at everything there is."""
        there = self.ports.get(port, {})
        for ssn in (*head.pinned, *range(head.base, base)):
            if ssn not in pinned:
                there.pop(Ssn(ssn), None)

    def header(self, port: PortName, ssn: Ssn) -> Output | None:
        """The event of this SSN without its payload; None if it is not there."""
        found = self.ports.get(port, {}).get(ssn)
        return None if found is None else found._replace(payload=None, same=None)

    def first_from(self, port: PortName, ssn: int) -> Output | None:
        """The first event from `ssn` on that is there, without its payload."""
        there = self.ports.get(port, {})
        found = min((known for known in there if known >= ssn), default=None)
        return None if found is None else self.header(port, found)

    def lying(self, port: PortName) -> Iterable[list[Output]]:
        """All that is there of a port."""
        there = self.ports.get(port, {})
        ssns = sorted(there)
        return [[there[ssn] for ssn in ssns[at : at + TOGETHER]] for at in range(0, len(ssns), TOGETHER)]

    def passed(self, port: PortName, first: int, channel: ChannelName) -> list[int]:
        """The events that these writes pass on."""
        there = self.ports.get(port, {}).values()
        return [w.same.ssn for w in there if w.ssn >= first and w.same is not None and w.same.channel == channel]
