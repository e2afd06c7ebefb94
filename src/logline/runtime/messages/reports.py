"""Reports: what the worker of a group tells the driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from logline.errors import PipelineFailed
from logline.runtime.messages.wire import Decoder, Message
from logline.runtime.status import OperatorStatus


class Started(Message, frozen=True):
    """A life has begun."""

    pid: int
    how: str = ""
    """How the life before it ended, if the host brought the group back by itself and knows."""


class StatusReport(Message, frozen=True):
    """How the operators of a group are; once per heartbeat."""

    operators: Mapping[str, OperatorStatus]
    quiet: bool
    """The group drains, and has nothing left to do."""


class LogLine(Message, frozen=True):
    """What an operator or the engine logged."""

    logger: str
    level: int
    text: str


class Over(Message, frozen=True):
    """The last report: the life came to an end of its own."""

    way: Literal["finished", "stopped", "fenced", "handed"]
    """`fenced`: a newer life has the journal (R10). `handed`: what is left to read is for the next life."""


class Failed(Message, frozen=True):
    """The last report: user code failed for good, or the engine did. Another life would not do better."""

    text: str
    operator: str = ""
    event: str = ""
    traceback: str = ""

    @classmethod
    def of(cls, error: PipelineFailed) -> Failed:
        """Makes the report of an error."""
        text = str(error).removesuffix(f"\n\n{error.traceback}")
        return cls(text, error.operator, error.event, error.traceback)

    def error(self) -> PipelineFailed:
        """Makes the same error again, in the driver."""
        return PipelineFailed(self.text, operator=self.operator, event=self.event, traceback=self.traceback)


Report = Started | StatusReport | LogLine
End = Over | Failed


class Letter(Message, frozen=True):
    """A report by mail, from a Spark task to `@reports`. A status is not sent: it lies in the log (`notes.py`)."""

    run: str
    group: str
    life: int
    report: Started | LogLine


REPORTS_AND_END = Decoder[Report | End](Report | End, "a report of a worker")
END = Decoder[End](End, "the end of a worker")
LETTERS = Decoder[Letter](Letter, "a report of a Spark task")
