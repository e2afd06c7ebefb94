"""Lives driven by hand, one action at a time, on a memory store: to stop a pipeline at exactly the point that an
example of the paper describes, look at its tables, crash it there, and let it go on.

Same machines, runners and store as in every engine; only who calls them, and when, is the test's. An event at a
time is read, taken in and committed, so that a table can be looked at between any two of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.spec import Limits
from logline.errors import Fenced
from logline.names import InstanceName, PortName
from logline.pipeline import Pipeline
from logline.runtime.control.launch import meta_of
from logline.runtime.lives.generation import Key
from logline.runtime.lives.instances import Instance
from logline.runtime.lives.instances import instances_of as instances_of_graph
from logline.runtime.lives.life import Life
from logline.runtime.log.log import Log
from logline.store.memory import MemoryStore

ONE_BY_ONE = Limits(run_events=1, fetch_events=1, commit_events=1)


class Hosted:
    """A life, and what waits for it."""

    def __init__(self, stepper: Stepper, instance: Instance) -> None:
        self.stepper = stepper
        self.stimuli: deque[on.Stimulus] = deque([on.Started()])
        self.todo: deque[do.Action] = deque()
        self.wakes: list[int] = []
        self.over: str | None = None
        self._awaiting: Key | None = None
        self.life = Life(
            instance,
            stepper.store,
            clock=lambda: stepper.now,
            report=self.stimuli.append,
            await_durable=self._await_durable,
            threads=False,
        )
        self._unlisten = stepper.store.on_bell(instance.spec.name, lambda: self.stimuli.append(on.Bell()))

    def next_action(self) -> do.Action | None:
        """Handles stimuli until there is something to do; None if there is nothing."""
        while not self.todo and self.stimuli and self.over is None:
            self.todo.extend(self.life.machine.handle(self.stimuli.popleft(), self.stepper.now))
        return self.todo[0] if self.todo else None

    def execute_next(self) -> None:
        action = self.todo.popleft()
        if isinstance(action, do.Wake):
            self.wakes.append(action.at)
        elif isinstance(action, do.Leave):
            self.end(action.why)
        elif isinstance(action, do.Halt):
            raise AssertionError(action.failure.traceback)
        else:
            answered = {(a.serial, a.row, a.n) for a in action.answers} if isinstance(action, do.Release) else ()
            if self._awaiting in answered:
                self._awaiting = None
            self.stimuli.extend(self.life.execute(action))

    def _await_durable(self, stimulus: on.Stimulus, key: Key) -> None:
        self.stimuli.append(stimulus)
        self._awaiting = key
        while self._awaiting is not None:
            if self.next_action() is None:
                raise Fenced("the life is over")
            self.execute_next()

    def end(self, why: str) -> None:
        self.over = why
        self._unlisten()
        self.life.close(in_order=why != "crashed")


class Stepper:
    """A pipeline of which the test decides who moves and how far. Collection is paused."""

    def __init__(self, pipeline: Pipeline, *, limits: Limits = ONE_BY_ONE) -> None:
        graph = pipeline.graph()
        self.store = MemoryStore()
        self.now = 1_285_992_000_000_000
        """The wall clock, in microseconds: 2010-10-02T04:00Z; moves only when all wait for it."""
        instances = instances_of_graph(graph, self.store.log_id, limits=limits, collect=False)
        self.instances = {name: replace(p, items=1) for name, p in instances.items()}
        self.store.set_meta(meta_of(graph, instances))
        self.log = Log(self.store, None)
        self.lives: dict[str, Hosted] = {}

    def start(self, *names: str) -> None:
        """A new life for each of them."""
        for name in names:
            self.lives[name] = Hosted(self, self.instances[InstanceName(name)])

    def crash(self, name: str) -> None:
        """Drops the life: what is left of it is what it committed."""
        self.lives.pop(name).end("crashed")

    def run(
        self,
        *names: str,
        until: Callable[[], bool] | None = None,
        before: Callable[[do.Action], bool] | None = None,
    ) -> None:
        """Moves these lives in turn, an action each, until `until` holds, or one is about to do what `before`
        says; without either, until all of them wait for something that does not come."""
        for _ in range(100_000):
            moved = False
            for host in [self.lives[name] for name in names]:
                if until is not None and until():
                    return
                action = host.next_action()
                if action is not None:
                    if before is not None and before(action):
                        return
                    host.execute_next()
                    moved = True
            if not moved and not self._pass_time(names):
                if (until is not None and not until()) or before is not None:
                    raise AssertionError(f"{names} wait, and what was waited for has not come")
                return
        raise AssertionError(f"{names} don't come to rest")

    def _pass_time(self, names: tuple[str, ...]) -> bool:
        hosts = [self.lives[name] for name in names if self.lives[name].over is None]
        wakes = [at for host in hosts for at in host.wakes]
        if not wakes:
            return False
        self.now = max(self.now, min(wakes))
        for host in hosts:
            due = [at for at in host.wakes if at <= self.now]
            if due:
                host.wakes = [at for at in host.wakes if at > self.now]
                host.stimuli.append(on.Tick())
        return True

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
