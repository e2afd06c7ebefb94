"""Collects a journal for an instance that does not live (R12): the one caller of the janitor.

Whoever holds the run's lease does it for instances that have left; `logline gc` does it for all when nothing runs.
"""

from __future__ import annotations

from collections.abc import Callable

from logline.engine.moments import Moment
from logline.engine.spec import InstanceSpec
from logline.recovery.machines import janitor_for
from logline.runtime.lives.driver import Hooks, LifeDriver
from logline.runtime.lives.life import both_clocks
from logline.runtime.lives.log_life import LogLife
from logline.store.seam import Journals


def sweep(
    spec: InstanceSpec, store: Journals, clock: Callable[[], Moment] = both_clocks, *, all_rest: bool = False
) -> None:
    """One look at one journal. It claims the journal, which fences off a life that still runs; without `all_rest`
    nothing is collected of an instance that has not left."""
    LifeDriver(lambda _: LogLife(spec, store, janitor_for(spec, all_rest=all_rest)), Hooks(), clock).run()
