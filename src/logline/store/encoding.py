"""Records as bytes, derived from the types of their fields: a new field of a record needs no code here.

    >>> from logline.engine.events import Position
    >>> read = reader_of(Position)
    >>> read(pack(Position(7, 70)))
    Position(ssn=7, total=70, marks=0)

Ids of sets and notes are values of user code with exact types; records hold them as bytes that the engine's codec
made (`engine/codec.py`). Payloads are not records: a store keeps them in its own way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

FORMAT = 8
"""The version of records and tables; a log written with another one is refused."""
T = TypeVar("T")

pack: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
"""A record, or a tuple of plain values."""


def reader_of(record: type[T]) -> Callable[[bytes | memoryview], T]:
    """The inverse of `pack` for records of that type."""
    return msgspec.msgpack.Decoder(record).decode
