"""The state of a key as bytes: a mark of the type that wrote it, and the value as msgpack through msgspec.

    >>> codec = KeyCodec("visits", int)
    >>> codec.decode(codec.encode(7))
    7

The mark tells states of an earlier type apart, so that `migrate` is given those and no others, whenever one of them
is next asked for. Without `migrate` they are read as the type of now: fields that were added have their defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any
from zlib import crc32

import msgspec

from logline.errors import StateError
from logline.graph.states import decode_state, encode_state, state_fields

MARK = 4
"""Bytes of the mark."""
Migrate = Callable[[Any], Any]


def mark_of(fields: Mapping[str, str]) -> bytes:
    """Tells types with other fields apart."""
    return crc32(repr(sorted(fields.items())).encode()).to_bytes(MARK, "big")


class KeyCodec:
    """Writes and reads the states of one operator's keys."""

    def __init__(self, name: str, kind: Any, migrate: Migrate | None = None) -> None:
        self._name = name
        self._kind = kind
        self._migrate = migrate
        self._mark = mark_of(state_fields(kind))
        self._decoder = msgspec.msgpack.Decoder(kind)

    def encode(self, state: Any) -> bytes:
        """A state as it is logged. It is read back at once: what no later life could read is the author's error."""
        try:
            value = encode_state(state)
            self._decoder.decode(value)
        except Exception as error:
            raise StateError(
                f"operator {self._name!r}: the state {state!r:.200} of a key can't be logged as {self._shown} "
                f"({error}): its values must have the types that it declares"
            ) from error
        return self._mark + value

    def decode(self, raw: bytes) -> Any:
        """A state as it was logged, by this type or an earlier one."""
        try:
            if raw[:MARK] == self._mark:
                return self._decoder.decode(memoryview(raw)[MARK:])
            if self._migrate is None:
                return _whole(self._decoder.decode(memoryview(raw)[MARK:]))
            found = self._migrate(msgspec.msgpack.decode(raw[MARK:]))
            return found if isinstance(found, self._kind) else msgspec.convert(found, self._kind)
        except Exception as error:
            raise StateError(
                f"operator {self._name!r}: the state of a key in the log can't be read as {self._shown} ({error}): "
                "give migrate=, a function from the old state, as a dict, to the new one"
            ) from error

    @property
    def _shown(self) -> str:
        return getattr(self._kind, "__name__", str(self._kind))


def _whole(state: Any) -> Any:
    """The state with the fields that were added: msgspec leaves the defaults of a dataclass to its class, and would
    not write them."""
    if is_dataclass(state):
        for field in fields(state):
            object.__setattr__(state, field.name, getattr(state, field.name))
    return state


def plain_state(raw: bytes) -> Any:
    """A state in plain values, for those who have no type for it."""
    return decode_state(raw[MARK:], object)
