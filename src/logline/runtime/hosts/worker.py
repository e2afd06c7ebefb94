"""What a worker does, whatever process it is in: it runs the instances of one group on the inline engine's loop.

How commands come in and reports go out differs (pipes in `runtime/hosts/piped_worker.py`, mail in a Spark task), so
the caller gives both.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable
from typing import NoReturn, assert_never

from logline.errors import LogError, LogGone
from logline.runtime.lives.inline import InlineEngine
from logline.runtime.messages.commands import WORKER_COMMANDS, Drain, Flush, Stop, WorkerCommand
from logline.runtime.messages.notes import GroupStatus
from logline.runtime.messages.reports import End, Failed, LogLine, Over, Report, Started, StatusReport
from logline.runtime.messages.wire import NotAMessage, encode
from logline.store import faults
from logline.store.processes import as_worker_process
from logline.store.seam import Store

HEARTBEAT = 0.5
"""Seconds between two reports; their own thread makes them, so that slow user code does not delay them."""
SWITCH = 0.0002
"""Seconds after which a busy thread lets others run: reads and writes have threads of their own, and with Python's
default of 5 ms each of their turns would cost that much while the loop is busy."""
GARBAGE = 50_000
"""New objects after which Python looks for cycles."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
MEMORY = 64 << 20
"""Bytes of freed memory that a worker keeps. Runs of events come and go in buffers of some hundred KB: handed back to
the kernel each time, they cost page faults, a sixth of the time of a busy worker."""

Say = Callable[[Report], object]
"""Sends a report to the driver."""


class _Forward(logging.Handler):
    """Sends what operators log to the driver."""

    def __init__(self, say: Say) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except Exception:
            self.handleError(record)  # as every handler: a format that does not fit is no failure of the operator
            return
        with contextlib.suppress(LogError):  # a line that finds no room in a mailbox is no failure of the operator
            self._say(LogLine(record.name, record.levelno, text))


class Heartbeat:
    """Makes a report every so often. One that fails (a full disk, a folder that is gone) is told once and does not
    end it: the supervisor would kill a life for its silence that can still work, or say itself why it can't.

    A report asks the log how far the life is, and waits for a log whose server is away. A second thread says
    meanwhile that the process lives: that does not depend on the log."""

    def __init__(self, report: Callable[[], None], alive: Callable[[], object], over: threading.Event) -> None:
        self._report = report
        self._alive = alive
        self._over = over
        self._told = False
        self._count = 0
        """Reports that were made."""
        self._threads = [
            threading.Thread(target=target, name=f"logline-{name}", daemon=True)
            for name, target in (("beat", self._run), ("alive", self._watch))
        ]

    def start(self) -> None:
        """Until the life is over."""
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Waits for the last report, once the life is over."""
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while not self._over.wait(HEARTBEAT):
            self.report()

    def _watch(self) -> None:
        before = -1
        while not self._over.wait(2 * HEARTBEAT):
            if self._count == before:
                with contextlib.suppress(LogError):  # who reports through the log is not heard either
                    self._alive()
            before = self._count

    def report(self) -> None:
        """One report; never raises."""
        try:
            self._report()
            self._count += 1
        except LogGone:
            pass  # the life ends for it, and says so
        except Exception as error:
            if not self._told:
                self._told = True
                logging.getLogger("logline").warning("the status of a life can't be written: %s. It goes on", error)


def carry_out(engine: InlineEngine, command: WorkerCommand) -> None:
    """Has the engine do what a command says."""
    match command:
        case Stop():
            engine.command("stop")
        case Drain():
            engine.command("drain")
        case Flush():
            engine.command("flush")
        case _:
            assert_never(command)


def obey_line(engine: InlineEngine, line: bytes) -> None:
    """Carries out the command that a driver has sent. What is no command fails the engine, and with it the run: the
    driver is of the same version, so a worker that does not understand it must not guess."""
    try:
        command = WORKER_COMMANDS.decode(line)
    except NotAMessage as error:
        text = f"a worker was sent something that is {error}"

        def fail() -> NoReturn:
            raise NotAMessage(text)

        engine.order(fail)
        return
    carry_out(engine, command)


def end_of(engine: InlineEngine) -> End:
    """How an engine that has run came to its end."""
    if engine.error is not None:
        return Failed.of(engine.error)
    if engine.phase == "finished":
        return Over("finished")
    ways = {driver.over for driver in engine.drivers.values()}
    return Over("fenced" if "fenced" in ways else "handed" if "handed" in ways else "stopped")


def _keep_memory() -> None:
    with contextlib.suppress(OSError, AttributeError):  # another C library than glibc
        tune = ctypes.CDLL(None).mallopt
        tune(_M_MMAP_THRESHOLD, MEMORY // 2)  # 32 MiB is as much as glibc takes
        tune(_M_TRIM_THRESHOLD, MEMORY)


@as_worker_process()
def work(
    group: str,
    instances: bytes,
    store: Store,
    *,
    level: int,
    armed: str,
    life: int,
    say: Say,
    obey: Callable[[InlineEngine], Callable[[], None]],
    note: Callable[[GroupStatus], None] | None = None,
) -> End:
    """Runs one group until it is over, and returns how it ended. Closes the log. Leaves the process as it was, except
    for how that keeps freed memory.

    `obey` is called with the engine, begins to give it commands, and returns a function that ends this. `note` writes
    a status down; without it, the status is the newest one of the group.
    """
    logger = logging.getLogger("logline")
    before = sys.getswitchinterval(), logger.level, gc.get_threshold()
    forward = _Forward(say)
    over = threading.Event()
    faults.arm(armed, life)
    sys.setswitchinterval(SWITCH)
    # An event makes a few dozen small objects and no cycles: looking for those after every 700 objects costs
    # several percent. What is imported by now stays for good.
    gc.freeze()
    gc.set_threshold(GARBAGE)
    _keep_memory()
    logger.setLevel(level)
    logger.addHandler(forward)
    try:
        engine = InlineEngine(pickle.loads(instances), store, life=life, whole=False)

        def report() -> None:
            status = engine.status()
            quiet = engine.drained()
            say(StatusReport(status.operators, quiet))
            known = GroupStatus(os.getpid(), status.phase, status.operators, quiet, time.time())
            if note is None:
                store.put_status(group, encode(known))
            else:
                note(known)

        beat = Heartbeat(report, lambda: say(StatusReport({}, quiet=False)), over)
        beat.start()
        unhear = obey(engine)
        try:
            say(Started(os.getpid()))
            engine.run()
        finally:
            over.set()
            beat.join()
            unhear()
        beat.report()
        return end_of(engine)
    finally:
        logger.removeHandler(forward)
        sys.setswitchinterval(before[0])
        logger.setLevel(before[1])
        gc.set_threshold(*before[2])
        gc.unfreeze()  # else what each life of a process that is used again leaves would pile up
        store.close()
