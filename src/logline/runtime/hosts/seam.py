"""The seam between supervision and the places where a group can live.

A *host* starts lives of groups: processes of its own (`runtime/hosts/processes.py`), Spark tasks (`logline.spark`),
or threads of the driver's process (`runtime/hosts/threads.py`). It knows how to speak to one, how to kill it, and how
it ended. Whether it is started again is the supervisor's business (`runtime/control/supervisor.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from logline.errors import PipelineFailed
from logline.names import InstanceName
from logline.runtime.lives.instances import Instance
from logline.runtime.messages.commands import WorkerCommand
from logline.runtime.messages.reports import Report

Hear = Callable[[Report], None]
"""Takes a report, on any thread."""


@dataclass(frozen=True)
class Group:
    """Operators that live and die together."""

    name: str
    instances: Mapping[InstanceName, Instance]

    def __str__(self) -> str:
        names = ", ".join(self.instances)
        return names if names == self.name else f"{self.name} ({names})"


@dataclass(frozen=True)
class Ended:
    """How a life ended: it came to an end of its own, its code failed, or it died."""

    over: Literal["finished", "stopped", "fenced", "handed"] | None = None
    """`handed`: what is left to read is for the next life. None: it died, or its code failed."""
    error: PipelineFailed | None = None
    """The user's code failed: no crash, and not to be tried again."""
    how: str = "ended without a word"
    """What killed it, if it died."""


class Tenant(Protocol):
    """One life of a group on a host."""

    @property
    def pid(self) -> int | None:
        """Its process now, on this machine; None while it has none."""

    @property
    def may_live(self) -> bool:
        """Whether it may have a process, here or elsewhere. False if it surely has none, and waits to be brought
        back."""

    def tell(self, command: WorkerCommand) -> None:
        """Sends the command; the life hears it soon."""

    def kill(self) -> None:
        """As kill -9 would; its end is reported when it is gone."""

    def close(self) -> None:
        """Kills it if it lives, and returns when it is gone or a few seconds have passed."""

    def waits_for(self) -> str:
        """Why it has not begun yet, for people; empty if there is nothing to say."""


class Host(Protocol):
    """A place where groups live."""

    patient: bool
    """Whether a life may have to wait for room before it begins: such a wait is no hang."""

    def start(self, group: Group, life: int, hear: Hear, ended: Callable[[Ended], None]) -> Tenant:
        """Begins a life; the first one is number 0. `ended` is called once, on any thread, after the last report.

        A host that restarts a process by itself reports `Started` again, with another pid."""

    def hears(self) -> bool:
        """Whether reports come through now. While they do not, silence says nothing of a life. Never waits."""

    def broken(self) -> str:
        """Why no group can live here any more, for people; empty as long as one can. Never waits."""
