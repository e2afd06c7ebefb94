"""A stage whose lives a test starts, moves and crashes one by one: to stop a pipeline at exactly the point that an
example of the paper describes, look at its tables, crash it there, and let it go on.

An event at a time is read, taken in and committed, so that a table can be looked at between any two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from logline.engine import actions as do
from logline.engine.spec import Limits
from logline.names import InstanceName, PortName
from logline.pipeline import Pipeline
from logline.runtime.control.launch import meta_of
from logline.runtime.lives.driver import LifeDriver
from logline.runtime.lives.instances import instances_of as instances_of_graph
from logline.runtime.lives.life import Life
from logline.runtime.log.log import Log
from logline.store.memory import MemoryStore
from logline.testing.stage import Stage

ONE_BY_ONE = Limits(run_events=1, fetch_events=1, commit_events=1)
BEGIN = 1_285_992_000_000_000
"""2010-10-02T04:00Z, in microseconds; the clock moves only when all wait for it."""


class Stepper:
    """A pipeline of which the test decides who moves and how far. Collection is paused."""

    def __init__(self, pipeline: Pipeline, *, limits: Limits = ONE_BY_ONE) -> None:
        graph = pipeline.graph()
        self.store = MemoryStore()
        instances = instances_of_graph(graph, self.store.log_id, limits=limits, collect=False)
        self.instances = {name: replace(p, items=1) for name, p in instances.items()}
        self.store.set_meta(meta_of(self.store, graph, instances))
        self.log = Log(self.store, None)
        self._stage = Stage(self.instances, self.store, now=BEGIN, begin=False, copies=False)

    @property
    def lives(self) -> Mapping[InstanceName, LifeDriver[Life]]:
        """The newest life of each that was started."""
        return self._stage.lives

    def start(self, *names: str) -> None:
        """A new life for each of them."""
        for name in names:
            self._stage.begin(InstanceName(name))

    def crash(self, name: str) -> None:
        """Drops the life: what is left of it is what it committed."""
        self._stage.drop(InstanceName(name))

    def run(
        self,
        *names: str,
        until: Callable[[], bool] | None = None,
        before: Callable[[do.Action], bool] | None = None,
    ) -> None:
        """See `Stage.run`."""
        self._stage.run(*map(InstanceName, names), until=until, before=before)

    # ---- looking ----------------------------------------------------------------------------------------

    def sent(self, name: str, port: str = "out") -> int:
        """The last SSN of a port that is visible."""
        return self.store.read(InstanceName(name)).head(PortName(port)).last

    def taken(self, channel: str) -> int:
        """The last SSN of `A.out>B.in` that its receiver has acknowledged."""
        _, _, to = channel.partition(">")
        image = self.store.read(InstanceName(to.partition(".")[0])).image()
        return image.positions[channel].ssn if channel in image.positions else 0  # type: ignore[index]

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """A table of the log, row by row."""
        return rows(self.log.table(table))

    def read(self, name: str, port: str = "out") -> list[dict[str, Any]]:
        """The records of a port, in order."""
        reader = self.store.read(InstanceName(name))
        events = reader.pick(PortName(port), reader.stored(PortName(port)))
        return [row for event in events if not event.end for row in event.payload.to_pylist()]


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """Row by row."""
    return [tuple(row.values()) for row in table.to_pylist()]
