"""What the driver and its fork server say to each other, one packet per message."""

from __future__ import annotations

from logline.runtime.messages.wire import Decoder, Message


class Fork(Message, frozen=True):
    """Driver to server: make a process. The packet carries its two pipes: commands to read, reports to write."""

    number: int
    """The driver's number for the process."""
    name: str
    """The group's name, which the process shows."""


class Kill(Message, frozen=True):
    """Driver to server: kill a process. The server knows whether the process id is still that process."""

    number: int


class Forked(Message, frozen=True):
    """Server to driver: the process is there."""

    number: int
    pid: int


class NotForked(Message, frozen=True):
    """Server to driver: the system refused to make the process."""

    number: int
    reason: str


class Exited(Message, frozen=True):
    """Server to driver: the process is gone."""

    number: int
    code: int
    """Its exit code; negative if a signal killed it."""


ForkRequest = Fork | Kill
ForkAnswer = Forked | NotForked | Exited

FORK_REQUESTS = Decoder[ForkRequest](ForkRequest, "a request to the fork server")
FORK_ANSWERS = Decoder[ForkAnswer](ForkAnswer, "an answer of the fork server")
