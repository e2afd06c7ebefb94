"""What a `Run` asks of what executes the pipeline: the inline engine, or the supervisor of other processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, Protocol

from logline.errors import PipelineFailed
from logline.names import InstanceName
from logline.runtime.status import Phase, Status
from logline.store.seam import Lease


class Engine(Protocol):
    """Executes the pipeline of one run."""

    lease: Lease | None
    phase: Phase
    error: PipelineFailed | None

    def run(self) -> None:
        """Returns when the run is over."""

    def status(self) -> Status: ...

    def command(self, kind: Literal["stop", "drain"]) -> None: ...

    def abandon(self) -> None: ...

    def pid(self, instance: InstanceName) -> int | None:
        """The process that hosts an instance now."""

    def restart(self, instance: InstanceName, done: Callable[[], None]) -> None: ...

    def rest(self, instances: Iterable[InstanceName], done: Callable[[], None]) -> None:
        """Ends the lives of these instances as a stop does, and calls `done` when none is left. They begin again with
        `wake`; the run goes on meanwhile."""

    def wake(self, instances: Iterable[InstanceName]) -> None:
        """Begins a new life of each. One that has not come to its end is dropped as by a restart."""
