"""The driver's own process as a host: each group runs on a thread.

For operators that need what only the driver has, a Spark session say. It is not as safe as a process: code that
kills its process takes the driver along; the run is then resumed by whoever starts it again.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable
from typing import assert_never

from logline.graph.shipping import ship
from logline.runtime.hosts.seam import Ended, Group, Hear
from logline.runtime.hosts.worker import Heartbeat, carry_out, end_of
from logline.runtime.lives.inline import InlineEngine
from logline.runtime.messages.commands import WorkerCommand
from logline.runtime.messages.notes import GroupStatus
from logline.runtime.messages.reports import Failed, Over, Started, StatusReport
from logline.runtime.messages.wire import encode
from logline.store.seam import Store


class ThreadHost:
    """Runs each life as an inline engine on a thread of its own."""

    patient = False

    def __init__(self, store: Store) -> None:
        self._store = store

    def start(self, group: Group, life: int, hear: Hear, ended: Callable[[Ended], None]) -> ThreadTenant:
        """Starts a thread, with copies of the user's objects that no earlier life has touched."""
        fresh = Group(group.name, pickle.loads(ship(group.instances)))
        return ThreadTenant(fresh, self._store, hear, ended)

    def hears(self) -> bool:
        """Always: a report is a call."""
        return True

    def broken(self) -> str:
        """Returns nothing: the supervisor lives here too."""
        return ""


class ThreadTenant:
    """One life: an engine, the thread that it runs on, and a thread that reports."""

    def __init__(self, group: Group, store: Store, hear: Hear, ended: Callable[[Ended], None]) -> None:
        self._group = group
        self._store = store
        self._hear = hear
        self._ended = ended
        self._engine = InlineEngine(group.instances, store, whole=False)
        self._dropped = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"logline {group.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        heart = Heartbeat(self._report, lambda: self._hear(StatusReport({}, quiet=False)), self._over)
        heart.start()
        self._hear(Started(os.getpid()))
        try:
            self._engine.run()
        except BaseException as error:  # as it closed
            self._ended(Ended(how=f"failed: {error}"))
            raise
        finally:
            self._over.set()
            heart.join()
        heart.report()
        self._ended(self._end())

    def _end(self) -> Ended:
        match end_of(self._engine):
            case Failed():
                return Ended(error=self._engine.error)
            case Over() if self._dropped:
                return Ended(how="was dropped")
            case Over(way):
                return Ended(over=way)
            case end:
                assert_never(end)

    def _report(self) -> None:
        status, quiet = self._engine.status(), self._engine.drained()
        self._hear(StatusReport(status.operators, quiet))
        known = GroupStatus(os.getpid(), status.phase, status.operators, quiet, time.time())
        self._store.put_status(self._group.name, encode(known))

    @property
    def pid(self) -> int | None:
        """The driver's own process, as long as the life lasts."""
        return None if self._over.is_set() else os.getpid()

    @property
    def may_live(self) -> bool:
        """Until it is over."""
        return not self._over.is_set()

    def tell(self, command: WorkerCommand) -> None:
        """Gives the command to the engine, which obeys between two pieces of work."""
        carry_out(self._engine, command)

    def kill(self) -> None:
        """Drops its lives where they are, as a crash would."""
        self._dropped = True
        self._engine.abandon()

    def close(self) -> None:
        """Drops the life and waits a few seconds. A thread in user code that does not return is left behind."""
        self.kill()
        self._thread.join(5.0)

    def waits_for(self) -> str:
        """Returns nothing: a thread begins at once."""
        return ""
