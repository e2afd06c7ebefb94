"""Between a run and other processes: `logline stop LOG` sends a command to the box `@driver` of the log, and the run
obeys. Once a second the run writes its status into the log, for `logline status LOG`.

    tell_run(store, Stop())                             another process
    tell_run(store, Retry(["enrich.errors:3"]))

The commands are those of `RunCommand` (`runtime/messages/commands.py`). The run logs anything else as an error, and
goes on. This works the same with every engine. A bell wakes the listener; one that was lost costs a second.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import assert_never

from logline.errors import BadName, LogError, LoglineError
from logline.names import InstanceName
from logline.runtime.control.engine import Engine
from logline.runtime.control.error_resolution import Request, resolve
from logline.runtime.control.fixed_rows import Fixed
from logline.runtime.control.live_resolution import LiveErrors
from logline.runtime.lives.instances import Instance, find
from logline.runtime.lives.threads import WorkThread
from logline.runtime.log.log_status import DRIVER, note_status
from logline.runtime.messages.commands import RUN_COMMANDS, Drain, Drop, Restart, Retry, RunCommand, Stop
from logline.runtime.messages.wire import encode
from logline.store.seam import Store

LOOK = 1.0
"""Seconds between two looks into the box without a bell, and between two notes."""

logger = logging.getLogger("logline")


def tell_run(store: Store, command: RunCommand) -> None:
    """Sends a command to the process that runs the pipeline of this log; it obeys within a second."""
    store.mail(DRIVER).send(encode(command))


class RemoteControl:
    """Obeys the commands of other processes for as long as a run lasts."""

    def __init__(
        self, engine: Engine, store: Store, instances: Mapping[InstanceName, Instance], errors: LiveErrors
    ) -> None:
        self._engine = engine
        self._store = store
        self._noted = 0.0
        self._instances = instances
        self._box = store.mail(DRIVER)
        self._bell, self._ended = threading.Event(), threading.Event()
        self._over = self._broken = False
        self._errors = errors
        self._resolving: WorkThread[Sequence[Request]] | None = None
        """Retries and drops wait for calls in flight; other commands must not wait for those."""
        self._last: threading.Timer | None = None
        """Drops what a stop does not bring to its end."""
        self._unlisten = store.on_bell(DRIVER, self._bell.set)
        self._thread = threading.Thread(target=self._listen, name="logline-orders", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while not self._over:
            try:
                for command in RUN_COMMANDS.understood(self._box.receive(), "another process"):
                    self._obey(command)
            except LogError:
                pass  # a full disk, a folder that is gone: the engine sees to those
            except Exception as error:
                self._complain(error)
            if time.monotonic() - self._noted >= LOOK:
                self._note()
            self._bell.wait(LOOK)
            self._bell.clear()

    def _note(self) -> None:
        self._noted = time.monotonic()
        lease = self._engine.lease
        try:
            if lease is not None and lease.held():  # one that was taken over has nothing to say any more
                note_status(self._store, lease.run, os.getpid(), self._engine.status())
        except (OSError, LogError):
            pass  # a full disk, a log that is gone: the business of those who have to write
        except Exception as error:
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        if not self._broken:
            self._broken = True
            logger.warning("commands of other processes may not be heard: %s. The run goes on", error)

    def _obey(self, command: RunCommand) -> None:
        match command:
            case Stop():
                logger.info("another process stops this run")
                self._engine.command("stop")
                self._abandon_after(command.grace)
            case Drain():
                logger.info("another process drains this run")
                self._engine.command("drain")
            case Restart():
                self._restart(command.operator)
            case Retry():
                fixed = None if command.rows is None else Fixed(command.rows, command.by)
                self._resolve_soon([Request("retry", event, command.ask, fixed) for event in command.events])
            case Drop():
                self._resolve_soon([Request("drop", event) for event in command.events])
            case _:
                assert_never(command)

    def _abandon_after(self, seconds: float) -> None:
        if self._last is None:
            self._last = threading.Timer(seconds, self._engine.abandon)
            self._last.daemon = True
            self._last.start()

    def _restart(self, operator: str) -> None:
        try:
            instance = find(self._instances, operator)
        except BadName:
            logger.error("another process asks for a restart of %r, which this run does not have", operator)
            return
        logger.info("another process asks for a restart of %r", operator)
        self._engine.restart(instance, lambda: None)

    def _resolve_soon(self, requests: Sequence[Request]) -> None:
        if self._resolving is None:
            self._resolving = WorkThread("logline-errors", self._resolve)
        self._resolving.put(requests)

    def _resolve(self, requests: Sequence[Request]) -> None:
        what, names = requests[0].what, ", ".join(request.event for request in requests)
        try:
            done = self._errors.resolve(requests)
            if done is None:
                done = self._resolve_at_the_end(requests)
            if done:
                logger.info("another process asks to %s %s", what, ", ".join(done))
        except LoglineError as error:
            logger.warning("another process asks to %s %s: %s", what, names, error)
        except Exception as error:
            self._complain(error)

    def _resolve_at_the_end(self, requests: Sequence[Request]) -> list[str]:
        """The run has ended meanwhile. It holds the lease until `close` has returned."""
        self._ended.wait()
        lease = self._engine.lease
        return resolve(self._store, requests).events if lease is not None and lease.held() else []

    def close(self) -> None:
        """Ends the listening when the run is over, and drops the commands that come too late."""
        self._over = True
        self._ended.set()
        self._bell.set()
        self._thread.join()
        if self._resolving is not None:
            self._resolving.stop()
            self._resolving.thread.join()
        if self._last is not None:
            self._last.cancel()
        try:
            self._unlisten()
        finally:
            self._note()
            self._box.drop()
