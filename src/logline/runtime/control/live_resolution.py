"""Retries or drops errors of a pipeline that runs, without paying twice for what its operators are at (R9).

A retry is a step under a claim (`runtime/control/error_resolution.py`), and a claim fences off the operator's life.
So that life ends first, as by a stop: it begins no call any more, those in flight come to their end, and their
answers are logged. Then the claim fences nobody, and the next life finds the answers and the sets that are retried.

    errors = LiveErrors(engine, store)
    errors.resolve([Request("retry", "enrich.errors:3")])       None: the run was over before
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence

from logline.names import InstanceName
from logline.runtime.control.engine import Engine
from logline.runtime.control.error_resolution import Request, lives_in_the_way, resolve
from logline.runtime.status import AT_WORK
from logline.store.seam import Store

GRACE = 30.0
"""Seconds that a life has to come to its end; then it is dropped, and what it was at is done again."""
LOOK = 0.1
"""Seconds between two looks whether the run is over."""


class LiveErrors:
    """The errors of a pipeline while an engine runs it."""

    def __init__(self, engine: Engine, store: Store) -> None:
        self._engine = engine
        self._store = store
        self._one_at_a_time = threading.Lock()
        """Else one would claim what another has just let begin again."""

    def resolve(self, requests: Sequence[Request]) -> list[str] | None:
        """Does what is asked, and returns what is done now; None if the run was over before it could be."""
        with self._one_at_a_time:
            lives = lives_in_the_way(self._store, requests)
            if not lives:
                return []
            woken = set(lives)
            try:
                self._rest(lives)
                if self._engine.phase not in AT_WORK:
                    return None
                done, fenced = resolve(self._store, requests)
                woken.update(fenced)
                return done
            finally:
                self._engine.wake(woken)

    def _rest(self, lives: Iterable[InstanceName]) -> None:
        rested, until = threading.Event(), time.monotonic() + GRACE
        self._engine.rest(lives, rested.set)
        while not rested.wait(LOOK) and self._engine.phase in AT_WORK and time.monotonic() < until:
            pass
