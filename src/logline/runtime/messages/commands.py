"""Commands: to a worker or the watchdog of a Spark task, from the driver; to a run, from any process, by mail to
`@driver`."""

from __future__ import annotations

from logline.names import LogId, OperatorName
from logline.runtime.messages.wire import Decoder, Message


class Begin(Message, frozen=True):
    """The first message to a worker process: what it runs, and in which surroundings."""

    path: list[str]
    """The driver's `sys.path`."""
    argv: list[str]
    log: str
    """The address of the log."""
    log_id: LogId
    """Which log that is: another one may be there by now."""
    level: int
    """The driver's level of logging."""
    group: str
    faults: str
    """Crash points that are armed (`store/faults.py`)."""
    life: int
    instances: bytes
    """The group's instances with the user's objects, pickled."""


class Stop(Message, frozen=True):
    """End every life in order: nothing is begun, and what is under way ends."""

    grace: float = 30.0
    """Seconds that it has, in a command to a run. What has not ended then is dropped. A worker is told by its driver
    when that is."""


class Drain(Message, frozen=True):
    """Let the sources stop reading; end when nothing is left to do."""


class Flush(Message, frozen=True):
    """Let out what operators gather for a span of time: nothing more comes in this run."""


class KillProcess(Message, frozen=True):
    """Kill a process of the task, by mail to `@watch/GROUP`."""

    pid: int
    born: str
    """When it was started, as the kernel counts: a process that has taken over the id is not meant."""
    place: str
    """Where it is: the same id elsewhere is another process."""


class Restart(Message, frozen=True):
    """End the life of one operator as a crash would, and begin a new one."""

    operator: OperatorName


class Retry(Message, frozen=True):
    """Generate the input sets of errors once more."""

    events: list[str]
    """The names of the errors: `enrich.errors:3`."""
    ask: bool = False
    """Ask again what was answered before, too."""
    rows: bytes | None = None
    """Rows to take instead of the error's, as an Arrow IPC stream; for one error."""
    by: str = ""
    """Who gave the rows, and when."""


class Drop(Message, frozen=True):
    """Let go of errors."""

    events: list[str]


WorkerCommand = Stop | Drain | Flush
RunCommand = Stop | Drain | Restart | Retry | Drop

BEGIN = Decoder[Begin](Begin, "a worker's first message")
WORKER_COMMANDS = Decoder[WorkerCommand](WorkerCommand, "a command to a worker")
WATCHDOG_ORDERS = Decoder[KillProcess](KillProcess, "an order to a watchdog")
RUN_COMMANDS = Decoder[RunCommand](RunCommand, "a command to a run")
