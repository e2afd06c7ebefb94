"""The result of user code for a set: outputs without numbers, or a failure as text that can be sent and logged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from logline.names import PortName, Serial

if TYPE_CHECKING:
    from logline.engine.keyed import KeyChanges
    from logline.engine.sets import Member


Outcome = Literal["retried", "failed again", "dropped", "mark"]
"""How an event on port `errors` was settled: its rows came out, or are in a new error; somebody let go of it. A mark
is no error, and settled from the beginning."""


class Produced(NamedTuple):
    """One output of `generate`, before it has an SSN. A write action has the port `@target`."""

    port: PortName
    payload: Any
    rows: int
    nbytes: int
    same: Member | None = None
    """The event that a write action passes on, if it does."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception of user code."""

    kind: str
    message: str
    traceback: str
    retryable: bool = False
    """Whether the operator's `retry` names this kind of exception."""

    @property
    def reason(self) -> str:
        """The exception in one line, as an error's `reason` has it."""
        return f"{self.kind}: {self.message}"


class Result(NamedTuple):
    """What the generation of one set came to."""

    serial: Serial
    outputs: tuple[Produced, ...] = ()
    failure: Failure | None = None
    blameless: bool = False
    """Of a failure: whether the set is not to blame, since what every set needs is gone. It stays due, and the run
    fails, whatever `on_error` says."""
    keyed: KeyChanges | None = None
    """What it changed of the states of keys; part of the step that logs its outputs (R1)."""
