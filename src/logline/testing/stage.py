"""A pipeline on a stage: real machines, phases and runners in one thread, in order, on clocks that a test moves.

`drive` and `run` use it. So do the tests that stop a pipeline at exactly the point that an example of the paper
describes. A crash drops a life where it stands; the next one gets what was committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.moments import Moment, Monotonic, Wall
from logline.names import InstanceName
from logline.runtime.lives.copies import copied
from logline.runtime.lives.driver import Hooks, LifeDriver, failed, live
from logline.runtime.lives.instances import Instance
from logline.runtime.lives.life import Life, Surroundings
from logline.runtime.lives.threads import SteppedLoop
from logline.store.seam import Store


class _OnStage(Hooks):
    """In order, with clocks that a test moves."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def post(self, driver: LifeDriver[Any], stimulus: on.Stimulus) -> None:
        """Ends the turn of async user code, if it is that which reports."""
        driver.arrive(stimulus)
        self._stage.loop.heard()

    def idle(self, driver: LifeDriver[Any]) -> None:
        """Only time can bring what inline user code waits for."""
        if not self._stage.pass_time():
            raise AssertionError(f"{driver.name}: a call waits for an answer that does not come")

    def wake(self, driver: LifeDriver[Any], at: Monotonic) -> None:
        """When so much time has passed."""
        self._stage.wakes.append((at, driver))

    def halted(self, driver: LifeDriver[Any], halt: do.Halt) -> None:
        """The test fails with the user's error."""
        error = failed(driver, halt)
        driver.end("failed")
        raise error

    def ended(self, driver: LifeDriver[Any], why: str) -> None:
        """Nobody hears its bell."""
        self._stage.unlisten(driver)


def _let_interrupts_through(error: BaseException) -> None:
    """User code runs on the thread of the test: there a KeyboardInterrupt is somebody's Ctrl-C."""
    if isinstance(error, KeyboardInterrupt):
        raise error


class Stage:
    """Lives of one pipeline."""

    def __init__(
        self,
        instances: Mapping[InstanceName, Instance],
        store: Store,
        *,
        now: int,
        seed: object = 0,
        stubs: Mapping[str, Any] | None = None,
        begin: bool = True,
        copies: bool = True,
    ) -> None:
        """Without `begin`, lives begin one by one. Without `copies`, every life has the operator itself, which a test
        can then look into."""
        self.instances = instances
        self.stubs = stubs or {}
        self._pristine = {name: copied(p.op) for name, p in instances.items()} if copies else {}
        self.store = store
        self.passed = Monotonic(0)
        """The time that has passed since the test began: the clock to wait by."""
        self._began = now
        """What the wall clock said then; another time if somebody has set it since."""
        self.seed = seed
        self.wakes: list[tuple[Monotonic, LifeDriver[Life]]] = []
        self.counters: dict[str, int] = {}
        self.after_step: Callable[[], None] = lambda: None
        """Called between any two steps: where a script kills."""
        self._hooks = _OnStage(self)
        self._bells: dict[LifeDriver[Life], Callable[[], None]] = {}
        self.loop = SteppedLoop()
        self.lives: dict[InstanceName, LifeDriver[Life]] = {}
        for name in instances if begin else ():
            self.begin(name)

    # ---- lives ----------------------------------------------------------------------------------------

    def begin(self, name: InstanceName) -> LifeDriver[Life]:
        """A new life. As in a process of its own, it gets a copy of the operator: what an earlier one left in it is
        gone. A deep copy, not a pickled one: loading a class by value would change the author's class here.
        """
        instance = self.instances[name]
        if name in self._pristine:
            instance = replace(instance, op=copied(self._pristine[name]))
        around = Surroundings(
            clock=self.moment,
            count=self._count,
            random=Random(f"{self.seed}/{name}"),
            loop=self.loop.get,
            threads=False,
            stubs=self.stubs,
            raised=_let_interrupts_through,
        )
        driver = self.lives[name] = live(instance, self.store, self._hooks, around)
        self._bells[driver] = self.store.on_bell(name, lambda: driver.arrive(on.Bell()))
        driver.begin()
        return driver

    def unlisten(self, driver: LifeDriver[Life]) -> None:
        """Nobody hears its bell."""
        self._bells.pop(driver)()

    def drop(self, name: InstanceName) -> None:
        """Kills a life where it stands: what is left of it is what it committed."""
        self.lives[name].end("crashed")
        self.wakes = [w for w in self.wakes if w[1].over is None]

    def crash(self, name: InstanceName) -> None:
        """Kills a life where it stands and starts the next one."""
        self.drop(name)
        self.begin(name)

    def _count(self, metric: str, n: int) -> None:
        """`ctx.count` of every operator."""
        self.counters[metric] = self.counters.get(metric, 0) + n

    # ---- moves ----------------------------------------------------------------------------------------

    def run_until_idle(self) -> None:
        """Until nobody has anything to do at this time of the clock."""
        while True:
            moved = False
            for driver in list(self.lives.values()):
                if driver.step():
                    moved = True
                    self.after_step()
            if not moved and not self._let_user_code_run() and not self._tick():
                return

    def run(
        self,
        *names: InstanceName,
        until: Callable[[], bool] | None = None,
        before: Callable[[do.Action], bool] | None = None,
    ) -> None:
        """Moves these lives in turn, an action each, until `until` holds, or one is about to do what `before`
        says; without either, until all of them wait for something that does not come."""
        for _ in range(100_000):
            moved = False
            for driver in [self.lives[name] for name in names]:
                if until is not None and until():
                    return
                action = driver.peek()
                if action is not None:
                    if before is not None and before(action):
                        return
                    driver.step()
                    moved = True
            if not moved and not self._let_user_code_run() and not self.pass_time(*names):
                if (until is not None and not until()) or before is not None:
                    raise AssertionError(f"{names} wait, and what was waited for has not come")
                return
        raise AssertionError(f"{names} don't come to rest")

    def _let_user_code_run(self) -> bool:
        """Lets async user code run until it reports; False if there is none under way."""
        return any(self._in_flight(driver) for driver in self.lives.values()) and self.loop.run()

    @staticmethod
    def _in_flight(driver: LifeDriver[Life]) -> bool:
        return driver.over is None and getattr(driver.machine, "in_flight", 0) > 0

    def run_out(self) -> None:
        """Until every life has left."""
        self.run_until_idle()
        while any(driver.over is None for driver in self.lives.values()):
            if not self.pass_time():
                for driver in self.lives.values():
                    driver.arrive(on.Bell())
                waiting = [driver.name for driver in self.lives.values() if driver.over is None]
                before = self.store.read(waiting[0]).image().commits
                self.run_until_idle()
                if not self.wakes and self.store.read(waiting[0]).image().commits == before:
                    raise AssertionError(f"the pipeline does not come to an end: {', '.join(waiting)} still wait")
            self.run_until_idle()

    # ---- time -----------------------------------------------------------------------------------------

    def pass_time(self, *names: InstanceName) -> bool:
        """Lets time pass to the next thing that one of these waits for, or anybody; False if nobody does."""
        self.wakes = [w for w in self.wakes if w[1].over is None]
        awaited = [at for at, driver in self.wakes if not names or driver.name in names]
        if not awaited:
            return False
        self.passed = max(self.passed, min(awaited))
        return self._tick()

    def moment(self) -> Moment:
        """What the clocks say."""
        return Moment(self.passed, Wall(self._began + self.passed))

    def set_wall(self, by: int) -> None:
        """Somebody sets the wall clock, forward or back, by so many microseconds. No time passes."""
        self._began += by

    def advance(self, span: int) -> None:
        """Lets so many microseconds pass, with all that happens on the way."""
        until = self.moment().after(span)
        self.run_until_idle()
        while self.wakes and min(at for at, _ in self.wakes) <= until:
            self.pass_time()
            self.run_until_idle()
        self.passed = max(self.passed, until)
        self.run_until_idle()

    def _tick(self) -> bool:
        due = [w for w in self.wakes if w[0] <= self.passed]
        self.wakes = [w for w in self.wakes if w[0] > self.passed and w[1].over is None]
        for _, driver in due:
            driver.arrive(on.Tick())
        return bool(due)

    def close(self) -> None:
        """Ends what is left."""
        for driver in self.lives.values():
            driver.end("stopped")
        self.loop.close()
