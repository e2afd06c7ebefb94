"""Between a run and other processes: `logline stop LOG` writes to the box `@driver` of the log, and whoever runs it
obeys; once a second it writes down how it goes, for `logline status LOG`.

    {"do": "stop"}    {"do": "drain"}    {"do": "restart", "operator": "hourly"}
    {"do": "retry", "event": "enrich.errors:3"}    {"do": "drop", "event": "enrich.errors:3"}

The same for every engine. A bell wakes the listener; one that was lost costs a second.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Collection

from logline.errors import LoglineError
from logline.names import InstanceName, parse_instance
from logline.runtime.control.engine import Engine
from logline.runtime.control.error_resolution import What, parse_error, resolve
from logline.runtime.log.log_status import DRIVER, note_status
from logline.store.seam import Store

LOOK = 1.0
"""Seconds between two looks into the box without a bell, and between two notes."""

logger = logging.getLogger("logline")


class RemoteControl:
    """Listens for as long as a run lasts."""

    def __init__(self, engine: Engine, store: Store, instances: Collection[InstanceName]) -> None:
        self._engine = engine
        self._store = store
        self._noted = 0.0
        self._instances = instances
        self._box = store.mail(DRIVER)
        self._bell = threading.Event()
        self._over = False
        self._unlisten = store.on_bell(DRIVER, self._bell.set)
        self._thread = threading.Thread(target=self._listen, name="logline-orders", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while not self._over:
            for message in self._box.receive():
                self._obey(message)
            if time.monotonic() - self._noted >= LOOK:
                self._note()
            self._bell.wait(LOOK)
            self._bell.clear()

    def _note(self) -> None:
        self._noted = time.monotonic()
        lease = self._engine.lease
        with contextlib.suppress(OSError):  # a full disk is the business of those who have to write
            if lease is not None and lease.held():  # one that was taken over has nothing to say any more
                note_status(self._store, lease.run, os.getpid(), self._engine.status())

    def _obey(self, message: dict[str, object]) -> None:
        what, operator = message.get("do"), message.get("operator")
        if what == "stop":
            logger.info("another process stops this run")
            self._engine.command("stop")
        elif what == "drain":
            logger.info("another process drains this run")
            self._engine.command("drain")
        elif what == "restart" and operator in self._instances:
            logger.info("another process asks for a restart of %r", operator)
            self._engine.restart(parse_instance(operator), lambda: None)
        elif what in ("retry", "drop"):
            self._resolve(str(message.get("event")), what)
        else:
            logger.warning("another process asks for something that this run does not know: %s", message)

    def _resolve(self, event: str, what: What) -> None:
        try:
            if resolve(self._store, event, what):
                self._engine.restart(parse_error(self._store, event).instance, lambda: None)
                logger.info("another process asks to %s %s", what, event)
        except LoglineError as error:
            logger.warning("another process asks to %s %s: %s", what, event, error)

    def close(self) -> None:
        """The run is over; what comes now is for nobody."""
        self._over = True
        self._bell.set()
        self._thread.join()
        self._unlisten()
        self._note()
        self._box.drop()
