"""How a message becomes bytes, and bytes a message: the one place that encodes and decodes.

A message is one line of JSON with a `kind`, so that a person can read the log's folder.

    >>> class Wait(Message, frozen=True):
    ...     seconds: int
    >>> encode(Wait(3))
    b'{"kind": "wait", "seconds": 3}'
    >>> waits = Decoder[Wait](Wait, "a wait")
    >>> waits.decode(b'{"kind": "wait", "seconds": 3}')
    Wait(seconds=3)

What is no message is an error with its content in it. A kind or a field that the receiver does not know is one too:
half of a command must not be obeyed.

    >>> try:
    ...     waits.decode(b'{"kind": "explode"}')
    ... except NotAMessage as error:
    ...     print(error)
    not a wait: '{"kind": "explode"}' (Invalid value 'explode' - at `$.kind`)

The messages are beside this module: commands (`commands.py`), reports of workers (`reports.py`), what the driver and
its fork server say to each other (`forks.py`), what lies in the log for others to read (`notes.py`). Whoever receives
one matches all kinds of its union and ends with `assert_never`: a new kind that a receiver does not handle is a type
error.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from logline.errors import LoglineError

logger = logging.getLogger("logline")
SHOWN = 200
"""Bytes that an error shows of what is no message."""


class NotAMessage(LoglineError):
    """Bytes that are no message of the kinds that were expected."""


def _kind(name: str) -> str:
    """The kind of a class: `StatusReport` is a `status_report`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name.rpartition(".")[2]).lower()


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag=_kind):
    """The base of all messages. The kind of a message is the name of its class."""


T = TypeVar("T")


def encode(message: Message) -> bytes:
    """One line, without a line break.

    Not `msgspec.json`: that refuses lone surrogates, which paths, arguments and log lines may have."""
    return json.dumps(msgspec.to_builtins(message, str_keys=True, enc_hook=_plain)).encode()


def _plain(value: Any) -> Any:
    """A number of NumPy's, which an operator may have counted with."""
    return value.item()


class Decoder(Generic[T]):
    """Makes messages of some kinds from bytes."""

    def __init__(self, kinds: Any, name: str) -> None:
        """`kinds`: a message's class or a union of such; `name`: what one of them is, for errors."""
        self._kinds = kinds
        self._name = name

    def decode(self, data: bytes) -> T:
        """Returns the message. Raises NotAMessage."""
        try:
            found: T = msgspec.convert(json.loads(data), self._kinds)
        except (ValueError, RecursionError) as error:
            raise NotAMessage(f"not {self._name}: {_shortened(data)} ({error})") from None
        return found

    def understood(self, lines: Iterable[bytes], sender: str) -> Iterator[T]:
        """Decodes what a sender has sent, and logs an error for each line that is no message. For a listener that has
        to go on."""
        for line in lines:
            try:
                found = self.decode(line)
            except NotAMessage as error:
                logger.error("%s sent something that is %s", sender, error)
                continue
            yield found


def _shortened(data: bytes) -> str:
    text = repr(data[:SHOWN].decode(errors="replace"))
    return text if len(data) <= SHOWN else f"{text}... of {len(data)} bytes"
