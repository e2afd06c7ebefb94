"""Journals as tables of small rows: what a store has to offer so that the meaning of a step is written once.

`store/layout.py` declares the tables, `store/apply.py` turns a step into changes of rows, `store/load.py` and
`store/history.py` read them. A store implements `Rows` in its own way: the memory store as ordered dicts, the
embedded log as byte keys in a transaction, another one as SQL tables with typed columns. Keys are tuples of numbers,
names and digests; values are records of plain typed values. How either becomes bytes or columns is the store's
business.

    rows.put(POSITIONS, (channel,), Position(Ssn(7), 70))
    rows.get(POSITIONS, (channel,))               Position(ssn=7, total=70, marks=0)
    rows.scan(MEMBERS, (serial,))                 the rows whose key begins so, in the order of their keys

Events with payloads are not rows: how a store packs, collects and reads them is its own business too (`Events`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from logline.engine.events import Head, Output
from logline.names import ChannelName, PortName, Ssn

V = TypeVar("V")
Key = tuple[Any, ...]
Column = Literal["number", "name", "digest"]
"""What a part of a key is: a number from 0 on, which sorts; a name of any length; 16 bytes."""


class Table(Generic[V]):
    """A table: what its keys are made of, and the type of its values. A name comes first in a key, a digest alone."""

    def __init__(self, name: str, record: type[V], *key: Column) -> None:
        self.name = name
        self.record = record
        """A NamedTuple, a dataclass or one plain value; its encoding follows from the types of its fields."""
        self.key = key

    def __repr__(self) -> str:
        return f"Table({self.name!r})"


class Row(NamedTuple):
    """A row, whatever its table."""

    table: Table[Any]
    key: Key
    value: Any


class Rows(Protocol):
    """The rows of one journal at one instant. Within a commit they can be changed, otherwise only read."""

    def get(self, table: Table[V], key: Key) -> V | None: ...

    def put(self, table: Table[V], key: Key, value: V) -> None: ...

    def delete(self, table: Table[Any], key: Key) -> None:
        """Deletes the row of this key, if there is one."""

    def delete_range(self, table: Table[Any], prefix: Key = (), below: int | None = None) -> None:
        """Deletes all rows that `scan` would find."""

    def scan(self, table: Table[V], prefix: Key = (), below: int | None = None) -> Iterable[tuple[Key, V]]:
        """Rows whose key begins with `prefix`, in the order of their keys; with `below`, those whose next part is a
        number below it. Names are in an order of the store's own. While it runs nothing may be changed."""

    def count(self, table: Table[Any]) -> int:
        """How many rows a table has. No value is read."""

    def floor(self, table: Table[V], key: Key) -> tuple[Key, V] | None:
        """The row with the greatest key up to this one that differs from it in the last part only, a number."""


class Events(Protocol):
    """The events of one journal as they lie there, at one instant. Which of them count, the heads say."""

    def header(self, port: PortName, ssn: Ssn) -> Output | None:
        """An event without payload, if it lies there."""

    def first_from(self, port: PortName, ssn: int) -> Output | None:
        """The first event that lies there from `ssn` on, without payload."""

    def passed(self, port: PortName, first: int, channel: ChannelName) -> Iterable[int]:
        """Which events of the channel the writes from number `first` on pass on (`Output.same`): of a run of them
        that follow each other, the first is enough."""

    def lying(self, port: PortName) -> Iterable[list[Output]]:
        """All that lies there of a port, in order and with payloads, a run at a time: collected and staged events
        too. A write that passes an event on comes without that one's payload."""


class Collector(Protocol):
    """How a commit drops events."""

    def __call__(self, port: PortName, head: Head, base: Ssn, pinned: Collection[Ssn]) -> None:
        """Drops what is below `base` and not pinned; `head` says what was there before."""
