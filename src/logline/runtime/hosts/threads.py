"""The driver's own process as a host: a group on a thread of it.

For operators that need what only the driver has, a Spark session say. It is not as safe as a process: code that
kills its process takes the driver along; the run is then resumed by whoever starts it again.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable
from dataclasses import asdict

from logline.graph.shipping import ship
from logline.runtime.hosts.seam import Ended, Group, Hear, Order
from logline.runtime.hosts.worker import HEARTBEAT
from logline.runtime.lives.inline import InlineEngine
from logline.store.seam import Store


class ThreadHost:
    """Runs an inline engine for each life."""

    patient = False

    def __init__(self, store: Store) -> None:
        self._store = store

    def start(self, group: Group, life: int, hear: Hear, ended: Callable[[Ended], None]) -> ThreadTenant:
        """A new thread, with copies of the user's objects that no earlier life has touched."""
        fresh = Group(group.name, pickle.loads(ship(group.instances)))
        return ThreadTenant(fresh, self._store, hear, ended)


class ThreadTenant:
    """One engine, the thread it runs on, and one that reports."""

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
        engine = self._engine
        beat = threading.Thread(target=self._beat, name="logline-beat", daemon=True)
        beat.start()
        self._hear({"started": os.getpid()})
        engine.run()
        self._over.set()
        beat.join()
        self._report()
        if engine.error is not None:
            self._ended(Ended(error=engine.error))
        elif self._dropped:
            self._ended(Ended(how="was dropped"))
        elif engine.phase == "stopped" and any(host.over == "fenced" for host in engine.hosts.values()):
            self._ended(Ended(over="fenced"))
        else:
            self._ended(Ended(over="finished" if engine.phase == "finished" else "stopped"))

    def _beat(self) -> None:
        while not self._over.wait(HEARTBEAT):
            self._report()

    def _report(self) -> None:
        status = self._engine.status()
        plain = {n: asdict(o) for n, o in status.operators.items()}
        self._hear({"status": plain, "quiet": self._engine.drained()})
        known = {"pid": os.getpid(), "phase": status.phase, "operators": plain, "quiet": self._engine.drained()}
        self._store.put_status(self._group.name, known)

    @property
    def pid(self) -> int | None:
        """The driver's own."""
        return None if self._over.is_set() else os.getpid()

    def tell(self, order: Order) -> None:
        """To the engine."""
        self._engine.command(order)

    def kill(self) -> None:
        """Drops its lives where they are, as a crash would."""
        self._dropped = True
        self._engine.abandon()

    def close(self) -> None:
        """A thread in user code that does not return is left behind."""
        self.kill()
        self._thread.join(5.0)

    def waits_for(self) -> str:
        """A thread begins at once."""
        return ""
