"""A pipeline on a stage: real machines, phases and runners in one thread, in order, on a clock that a test moves.

What `drive` and `run` are built on. A crash drops a life where it stands; the next one gets what was committed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from random import Random
from typing import Any

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.errors import LogError, PipelineFailed
from logline.names import InstanceName
from logline.runtime.lives.generation import Key
from logline.runtime.lives.instances import Instance
from logline.runtime.lives.life import Life
from logline.store.seam import Store


class StageLife:
    """A life, and what waits for it."""

    def __init__(self, stage: Stage, instance: Instance) -> None:
        self.stage = stage
        self.name = instance.spec.name
        self.stimuli: deque[on.Stimulus] = deque([on.Started()])
        self.todo: deque[do.Action] = deque()
        self.over: str | None = None
        self._granted: set[Key] = set()
        self.life = Life(
            stage.fresh(instance),
            stage.store,
            clock=lambda: stage.now,
            report=self._report,
            await_durable=self._await_durable,
            count=stage.count,
            stubs=stage.stubs,
            random=Random(f"{stage.seed}/{self.name}"),
            loop=stage.loop,
            threads=False,
        )
        self._unlisten = stage.store.on_bell(self.name, lambda: self.stimuli.append(on.Bell()))

    def _report(self, stimulus: on.Stimulus) -> None:
        self.stimuli.append(stimulus)
        self.stage.heard()

    def _await_durable(self, stimulus: on.Stimulus, key: Key) -> None:
        self.stimuli.append(stimulus)
        while key not in self._granted:
            if self.over is not None:
                raise LogError("the life is over")
            if not self.step() and not self.stage.pass_time():
                raise AssertionError(f"{self.name}: a call waits for an answer that does not come")
        self._granted.discard(key)

    def step(self) -> bool:
        """One action or one stimulus."""
        if self.over is not None:
            return False
        if self.todo:
            self._execute(self.todo.popleft())
        elif self.stimuli:
            self.todo.extend(self.life.machine.handle(self.stimuli.popleft(), self.stage.now))
        else:
            return False
        return True

    def _execute(self, action: do.Action) -> None:
        if isinstance(action, do.Wake):
            self.stage.wakes.append((action.at, self))
        elif isinstance(action, do.Leave):
            self.end(action.why)
        elif isinstance(action, do.Halt):
            self.end("failed")
            raise PipelineFailed(
                f"operator {self.name!r} failed: {action.failure.kind}: {action.failure.message}",
                operator=self.name,
                event=action.event,
                traceback=action.failure.traceback,
            )
        else:
            if isinstance(action, do.Permit):
                self._granted.add((action.serial, action.row, action.n))
            elif isinstance(action, do.Release):
                self._granted.update((a.serial, a.row, a.n) for a in action.answers)
            self.stimuli.extend(self.life.execute(action))

    def end(self, why: str) -> None:
        """The life is over."""
        self.over = why
        self._unlisten()
        self.life.close(in_order=why in ("left", "stopped"))

    def waits_for_user_code(self) -> bool:
        """Whether async user code is under way."""
        machine: Any = self.life.machine
        return self.over is None and getattr(machine, "in_flight", 0) > 0


class Stage:
    """All lives of one pipeline."""

    def __init__(
        self,
        instances: Mapping[InstanceName, Instance],
        store: Store,
        *,
        now: int,
        seed: object = 0,
        stubs: Mapping[str, Any] | None = None,
    ) -> None:
        self.instances = instances
        self.stubs = stubs or {}
        self._pristine = {name: deepcopy(p.op) for name, p in instances.items()}
        self.store = store
        self.now = now
        self.seed = seed
        self.wakes: list[tuple[int, StageLife]] = []
        self.counters: dict[str, int] = {}
        self.after_step: Callable[[], None] = lambda: None
        """Called between any two steps: where a script kills."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self.lives = {name: StageLife(self, p) for name, p in instances.items()}

    def fresh(self, instance: Instance) -> Instance:
        """As in a process of its own, a life gets a copy of the operator: what an earlier one left in it is gone.

        A deep copy, not a pickled one: loading a class by value would change the author's class in this process.
        """
        if instance.op is None:
            return instance
        return replace(instance, op=deepcopy(self._pristine[instance.spec.name]))

    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of async user code; runs only while the stage lets it."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop

    def heard(self) -> None:
        """Async user code has something to say."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def count(self, metric: str, n: int) -> None:
        """`ctx.count` of every operator."""
        self.counters[metric] = self.counters.get(metric, 0) + n

    def crash(self, name: InstanceName) -> None:
        """Kills a life where it stands and starts the next one."""
        if self.lives[name].over is None:
            self.lives[name].end("crashed")
        self.wakes = [w for w in self.wakes if w[1].over is None]
        self.lives[name] = StageLife(self, self.instances[name])

    def run_until_idle(self) -> None:
        """Until nobody has anything to do at this time of the clock."""
        while True:
            moved = False
            for life in list(self.lives.values()):
                if life.step():
                    moved = True
                    self.after_step()
            if moved:
                continue
            if self._loop is not None and any(life.waits_for_user_code() for life in self.lives.values()):
                self._loop.run_forever()  # until user code reports
            elif not self._tick():
                return

    def pass_time(self) -> bool:
        """Moves the clock to the next thing that somebody waits for; False if nobody does."""
        self.wakes = [w for w in self.wakes if w[1].over is None]
        if not self.wakes:
            return False
        self.now = max(self.now, min(at for at, _ in self.wakes))
        return self._tick()

    def advance(self, until: int) -> None:
        """Lets time pass, with all that happens on the way."""
        self.run_until_idle()
        while self.wakes and min(at for at, _ in self.wakes) <= until:
            self.pass_time()
            self.run_until_idle()
        self.now = max(self.now, until)
        self.run_until_idle()

    def run_out(self) -> None:
        """Until every life has left."""
        self.run_until_idle()
        while any(life.over is None for life in self.lives.values()):
            if not self.pass_time():
                for life in self.lives.values():
                    life.stimuli.append(on.Bell())
                waiting = [life.name for life in self.lives.values() if life.over is None]
                before = self.store.read(waiting[0]).image().commits
                self.run_until_idle()
                if not self.wakes and self.store.read(waiting[0]).image().commits == before:
                    raise AssertionError(f"the pipeline does not come to an end: {', '.join(waiting)} still wait")
            self.run_until_idle()

    def _tick(self) -> bool:
        due = [w for w in self.wakes if w[0] <= self.now]
        self.wakes = [w for w in self.wakes if w[0] > self.now and w[1].over is None]
        for _, life in due:
            life.stimuli.append(on.Tick())
        return bool(due)

    def close(self) -> None:
        """Ends what is left."""
        for life in self.lives.values():
            if life.over is None:
                life.end("stopped")
        if self._loop is not None:
            for _ in range(3):  # cancelled tasks get to their end
                self._loop.call_soon(self._loop.stop)
                self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()
            self._loop = None
