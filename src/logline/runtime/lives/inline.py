"""The inline engine: every instance of the pipeline in this process, one loop over their drivers, no JVM.

User code runs on the loop's thread where it is plain and one set at a time; async code has an event loop on a
thread of its own; reads, external writes and calls of the store that block have threads of their life
(`runtime/lives/driver.py`). Everything else that touches a machine happens on the loop.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import os
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Literal

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.moments import Monotonic
from logline.engine.spec import InstanceSpec
from logline.engine.user_errors import USER_ERRORS, failure_of
from logline.errors import PipelineFailed, reason_of
from logline.names import InstanceName
from logline.runtime.lives.arrivals import Arrivals
from logline.runtime.lives.catching_up import all_taken
from logline.runtime.lives.copies import Loan
from logline.runtime.lives.driver import Hooks, LifeDriver, blocking, failed, live
from logline.runtime.lives.gathering import gathers
from logline.runtime.lives.instances import Instance
from logline.runtime.lives.life import Life, Surroundings, waiting_clock
from logline.runtime.lives.live_status import operator_status
from logline.runtime.lives.stories import write_story
from logline.runtime.lives.suspects import Suspects, watch
from logline.runtime.lives.sweeping import sweep
from logline.runtime.lives.threads import EventLoopThread, WorkThread
from logline.runtime.status import AT_WORK, OperatorStatus, Phase, Status
from logline.store.seam import Bell, Lease, Store

logger = logging.getLogger("logline")

POLL = 1_000_000
"""Microseconds until an idle instance looks around without a bell: what a lost bell costs."""
GRACE = 2.0
"""Seconds that the end of a run waits for user code on other threads."""
PATIENCE = 10_000_000
"""Microseconds that a restart waits for a write of the life before."""
CLOSING = 10_000
"""Microseconds between two looks at a life at rest whose sinks are being closed."""
TURN = 32
"""Actions and stimuli of one life before it is another's turn."""


class _OnLoop(Hooks):
    """How the engine drives lives: in order, and what blocks on other threads."""

    def __init__(self, engine: InlineEngine) -> None:
        self._engine = engine
        self.away = blocking(engine.store.traits)

    def post(self, driver: LifeDriver[Any], stimulus: on.Stimulus) -> None:
        """Puts it into the loop's queue; any thread may call this."""
        self._engine.post(driver, stimulus)

    def idle(self, driver: LifeDriver[Any]) -> None:
        """Others wait while inline user code does, but what comes for them is kept."""
        self._engine.wait()

    def wake(self, driver: LifeDriver[Any], at: Monotonic) -> None:
        """Has the loop bring a `Tick` to the driver at that time."""
        self._engine.at(at, partial(driver.arrive, on.Tick()))

    def read_waits(self, driver: LifeDriver[Any]) -> None:
        """The loop looks at the read; this is the read's own thread."""
        self._engine.order(partial(self._engine.look_at_read, driver))

    def halted(self, driver: LifeDriver[Any], halt: do.Halt) -> None:
        """The pipeline stops where it is, and can be resumed."""
        self._engine.fail(failed(driver, halt))

    def ended(self, driver: LifeDriver[Any], why: str) -> None:
        """Writes the story of the life, if it keeps one, and ends the listening for its bell."""
        try:
            write_story(self._engine.store, driver.name, driver.machine, why)
        finally:
            self._engine.note_ended(driver)


class InlineEngine:
    """Runs all instances until they have left, or until it is told to stop."""

    def __init__(
        self,
        instances: Mapping[InstanceName, Instance],
        store: Store,
        lease: Lease | None = None,
        life: int = 0,
        *,
        whole: bool = True,
    ) -> None:
        """`life` counts the processes that died before this one. If these instances are not the `whole` pipeline,
        others say when it is drained."""
        self.store = store
        self._loan = Loan(instances)
        instances = self._loan.instances
        self._whole = whole
        self.lease = lease
        self.phase: Phase = "running"
        self.error: PipelineFailed | None = None
        self._hooks = _OnLoop(self)
        self._incoming: Arrivals[tuple[LifeDriver[Life], on.Stimulus] | None] = Arrivals()
        self._bells: dict[LifeDriver[Life], tuple[Bell | None, Callable[[], None]]] = {}
        """By life: its bell, if it is one to wait for, and how to stop hearing it."""
        self._timers: list[tuple[Monotonic, int, Callable[[], None]]] = []
        self._ticks = 0
        self._watched: set[LifeDriver[Life]] = set()
        """Lives with a read that the loop will look at."""
        self._async: EventLoopThread | None = None
        self._janitor: WorkThread[InstanceSpec] | None = None
        self._commands: deque[Callable[[], None]] = deque()
        self._counters: dict[InstanceName, Counter[str]] = {name: Counter() for name in instances}
        self._restarts: Counter[InstanceName] = Counter()
        self._called = {name: str(p.called) for name, p in instances.items()}
        self._told: Literal["stop", "drain"] | None = None
        self._stop_told = False
        """Whether somebody has said so; the loop may be in user code and not have heard it yet."""
        self._threads: list[threading.Thread] = []
        self._closing: list[threading.Thread] = []
        """Threads that close sinks and sources; the run lasts until they have."""
        self._resting: set[InstanceName] = set()
        """Instances that begin no life until they are woken."""
        self._rests: list[tuple[Collection[InstanceName], Callable[[], None]]] = []
        """Who waits for the ends of which lives."""
        self._left_seen = 0
        self._looked = waiting_clock()
        self._pristine = self._loan.pristine
        """What a life begins with after a crash: the user's objects as no earlier life has touched them."""
        self._stays_open = any(p.spec.stays_open for p in instances.values())
        """Whether the run ends when all that is there has gone through."""
        self._caught_up = False
        suspects = watch(store, (p.spec for p in instances.values()), life)
        self.drivers = {name: self._live(p, suspects.get(name)) for name, p in instances.items()}

    def _live(self, instance: Instance, suspects: Suspects | None = None) -> LifeDriver[Life]:
        counters = self._counters[instance.spec.name]

        def count(metric: str, n: int) -> None:
            counters[metric] += n

        around = Surroundings(count=count, loop=self.event_loop, suspects=suspects)
        driver = live(instance, self.store, self._hooks, around)
        self._listen(driver)
        return driver

    # ---- from any thread ------------------------------------------------------------------------------

    def post(self, driver: LifeDriver[Life], stimulus: on.Stimulus) -> None:
        """Puts something that came for a life into the loop's queue; any thread may call this."""
        self._incoming.put((driver, stimulus))

    def command(self, kind: Literal["stop", "drain", "flush"]) -> None:
        """`stop`: every life ends in order. `drain`: sources stop reading, and it stops when all is quiet. `flush`:
        what is gathered for a span of time goes out."""
        self.order(lambda: self._tell(kind))
        if kind == "stop":  # user code may be on the loop's own thread. After the order: machines hear of it first
            self._stop_told = not self._caught_up
            for driver in tuple(self.drivers.values()):
                driver.life.stop_calls()

    def abandon(self) -> None:
        """Drops every life where it is, as a crash would; what is logged stays logged."""
        self.order(self._abandon)

    def restart(self, instance: InstanceName, done: Callable[[], None]) -> None:
        """Drops the life of one instance, as a crash would, and begins a new one; then calls `done`."""
        self.order(lambda: self._restart(instance, done))

    def rest(self, instances: Iterable[InstanceName], done: Callable[[], None]) -> None:
        """Ends the lives of these instances as a stop does, and keeps them from beginning again until `wake`. Calls
        `done` when none is left."""
        names = frozenset(instances)
        self.order(lambda: self._rest(names, done))
        for name in names:  # user code may be on the loop's own thread. After the order, as in `command`
            self.drivers[name].life.stop_calls()

    def wake(self, instances: Iterable[InstanceName]) -> None:
        """Begins a new life of each; one that has not come to its end is dropped, as a crash would."""
        names = tuple(instances)
        self.order(lambda: self._wake(names))

    def order(self, command: Callable[[], None]) -> None:
        """Has the loop call it soon."""
        self._commands.append(command)
        self._incoming.put(None)

    def event_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of async operators."""
        if self._async is None:
            self._async = EventLoopThread()
            self._threads.append(self._async.thread)
        return self._async.loop

    # ---- the loop -------------------------------------------------------------------------------------

    def run(self) -> None:
        """Returns when the run is over; `phase` and `error` say how."""
        for driver in self.drivers.values():
            driver.begin()
        try:
            while self.phase in AT_WORK:
                self._look_around()
                if not self._turn():
                    self._when_idle()
                    if self.phase in AT_WORK:
                        self.wait()
        except BaseException as error:
            self.phase = "failed"
            if self.error is None:
                self.error = PipelineFailed.of_engine(error)
        finally:
            try:
                self._close()
            finally:
                self._loan.end()

    def _turn(self) -> bool:
        """A bounded share of work for each life."""
        worked = self._collect_incoming()
        for driver in self.drivers.values():
            step = driver.step
            for _ in range(TURN):
                if not step():
                    break
                worked = True
        over = sum(driver.over is not None for driver in self.drivers.values())
        if over > self._left_seen:
            self._left_seen = over
            self._sweep()
        if over == len(self.drivers) and self.phase in AT_WORK and not self._renewing():
            left = all(driver.over == "left" for driver in self.drivers.values())
            self.phase = "finished" if left else "caught up" if self._caught_up else "stopped"
        return worked

    def _renewing(self) -> bool:
        """At rest, or fenced off while we hold the lease: an error is retried or dropped, and a new life is about to
        come. A run that is told to stop does not wait for it."""
        if self._told == "stop":
            return False
        if self._resting:
            return True
        return self.lease is not None and self.lease.held() and any(d.over == "fenced" for d in self.drivers.values())

    def wait(self) -> None:
        """Until something comes, a timer does, or it is time to look around."""
        now = waiting_clock()
        until = min(self._looked + POLL, self._timers[0][0] if self._timers else now + POLL)
        self._incoming.wait(max(until - now, 0) / 1e6)
        self._collect_incoming()
        self._look_around()

    def _look_around(self) -> None:
        """Calls timers that have come; and every so often a bell for all, however busy others are: one may have been
        lost, and a source that had nothing may have something now."""
        now = waiting_clock()
        while self._timers and self._timers[0][0] <= now:
            _, _, call = heapq.heappop(self._timers)
            call()
        if now >= self._looked + POLL:
            self._looked = now
            self._look_at_lease()
            for driver in self.drivers.values():
                if driver.over is None:
                    self._keep_bell(driver)
                    write_story(self.store, driver.name, driver.machine, None)
                    driver.arrive(on.Bell())

    def _collect_incoming(self) -> bool:
        items = self._incoming.take()
        for item in items:
            if item is None:
                self._obey()
            else:
                driver, stimulus = item
                driver.arrive(stimulus)
        return bool(items)

    def _obey(self) -> None:
        while self._commands:
            self._commands.popleft()()

    def _when_idle(self) -> None:
        self._look_at_lease()
        if self._whole and self.drained():
            catching_up = self.phase == "running" and self._told is None
            if catching_up and gathers(self.store, self.drivers):
                self.command("flush")
                return
            self._caught_up = catching_up
            self.command("stop")

    def _look_at_lease(self) -> None:
        """Ends the run if it has lost the log to another one. Raises LogError if the log itself is gone."""
        if self.lease is not None and not self.lease.held():
            logger.warning("another run has taken the log over: this one ends")
            self._abandon()

    def at(self, when: Monotonic, call: Callable[[], None]) -> None:
        """Calls it at that time."""
        self._ticks += 1
        heapq.heappush(self._timers, (when, self._ticks, call))

    # ---- bells and reads ------------------------------------------------------------------------------

    def _listen(self, driver: LifeDriver[Life]) -> None:
        """Subscribes to the bell of a life: the loop waits for it, or the store calls."""
        bell = self.store.bell(driver.name)
        if bell is None:
            self._bells[driver] = None, self.store.on_bell(driver.name, lambda: self.post(driver, on.Bell()))
        else:
            self._bells[driver] = bell, self._incoming.listen(bell, lambda: (driver, on.Bell()))

    def _keep_bell(self, driver: LifeDriver[Life]) -> None:
        """A life that is fenced off and wakes late may hang its own bell in the place of this one."""
        bell = self._bells[driver][0]
        if bell is None or driver.life.journal is None or bell.hangs() or "read" in self.store.traits.blocking:
            return
        if not driver.life.fenced():
            self.unlisten(driver)
            self._listen(driver)

    def unlisten(self, driver: LifeDriver[Life]) -> None:
        """Ends the listening for the bell of a life."""
        found = self._bells.pop(driver, None)
        if found is not None:  # else it could not be hung up again: the folder of the log is gone
            found[1]()

    def look_at_read(self, driver: LifeDriver[Life]) -> None:
        """Takes over what a read has got while its source blocks, now or when that is due."""
        if driver in self._watched or driver.over is not None:
            return
        found, again = driver.life.hand_over()
        for stimulus in found:
            driver.arrive(stimulus)
        if again is not None:
            self._watched.add(driver)
            self.at(again, partial(self._when_read_is_due, driver))

    def _when_read_is_due(self, driver: LifeDriver[Life]) -> None:
        self._watched.discard(driver)
        self.look_at_read(driver)

    # ---- commands and ends ----------------------------------------------------------------------------

    def _tell(self, kind: Literal["stop", "drain", "flush"]) -> None:
        if kind != "flush":
            self._told = kind if self._told != "stop" else self._told
        if kind == "drain" and self.phase == "running":
            self.phase = "draining"
        for driver in self.drivers.values():
            driver.arrive(on.Command(kind))

    def _abandon(self) -> None:
        for driver in self.drivers.values():
            driver.end("fenced")
        self.phase = "stopped"

    def _restart(self, instance: InstanceName, done: Callable[[], None]) -> None:
        old = self.drivers[instance]
        if old.over is None:
            old.end("fenced")
            self._let_go(old)
        begun = False

        def begin() -> None:
            nonlocal begun
            if not begun:
                begun = True
                old.when_claimed(lambda: self._begin_again(old, done))

        old.when_written(begin)
        if not begun:  # a write that hangs may be why it is restarted
            self.at(Monotonic(waiting_clock() + PATIENCE), begin)

    def _rest(self, names: Collection[InstanceName], done: Callable[[], None]) -> None:
        self._resting.update(names)
        self._rests.append((names, done))
        for name in names:
            self.drivers[name].arrive(on.Command("stop"))
        self._look_at_rests()

    def _look_at_rests(self) -> None:
        """Sinks and sources that are still being closed belong to the life: the next one may have the same."""
        waiting, self._rests = self._rests, []
        for names, done in waiting:
            drivers = [self.drivers[name] for name in names]
            if any(driver.over is None for driver in drivers):
                self._rests.append((names, done))
            elif any(t.closing and t.thread.is_alive() for driver in drivers for t in driver.threads()):
                self._rests.append((names, done))
                self.at(Monotonic(waiting_clock() + CLOSING), self._look_at_rests)
            else:
                done()

    def _wake(self, names: Iterable[InstanceName]) -> None:
        for name in names:
            self._resting.discard(name)
            self._restart(name, lambda: None)

    def _begin_again(self, old: LifeDriver[Life], done: Callable[[], None]) -> None:
        if old.name in self._resting:  # it begins when it is woken
            done()
            return
        driver = self.drivers[old.name] = self._live(self._pristine[old.name].renew(old.life.instance))
        self._restarts[old.name] += 1
        driver.begin()
        if self._told is not None:
            driver.arrive(on.Command(self._told))
        done()

    @staticmethod
    def _let_go(driver: LifeDriver[Life]) -> None:
        """After a kill the process is gone; here it goes on, and so would the clients and threads of the operator."""
        op = driver.life.instance.op
        try:
            if op is not None:
                op.close()
        except USER_ERRORS as error:
            logger.warning("%s.close() failed in a restart\n%s", driver.name, failure_of(error).traceback)

    def fail(self, error: PipelineFailed) -> None:
        """The pipeline stops where it is, and can be resumed. Of several sets of a run, the first is told."""
        if self.error is None:
            self.error = error
            self.phase = "failed"

    def _sweep(self) -> None:
        """R12: for those that have left, the holder of the lease collects; a claim would fence its lives."""
        if self.lease is not None and not self.lease.held():
            return
        for driver in self.drivers.values():
            if driver.over == "left" and driver.life.spec.collect:
                if self.store.traits.blocking & {"claim", "read"}:
                    if self._janitor is None:
                        self._janitor = WorkThread("logline-janitor", self._sweep_away)
                        self._threads.append(self._janitor.thread)
                    self._janitor.put(driver.life.spec)
                else:
                    sweep(driver.life.spec, self.store)

    def _sweep_away(self, spec: InstanceSpec) -> None:
        """Collects, on the janitor's thread."""
        try:
            sweep(spec, self.store)
        except Exception:
            logger.warning("the journal of %s could not be collected", spec.name, exc_info=True)

    def _close(self) -> None:
        for driver in self.drivers.values():
            try:
                driver.end("fenced" if self.phase == "failed" else "stopped")
            except Exception:  # the others have to end too
                logger.warning("the life of %s did not end as it should", driver.name, exc_info=True)
        self._incoming.close()
        if self._async is not None:
            self._async.stop()
        if self._janitor is not None:
            self._janitor.stop()
        for thread in self._closing:
            thread.join()
        until = time.monotonic() + GRACE
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0))
            if thread.is_alive():
                logger.warning("thread %s is still at work; what it does is not part of the run", thread.name)

    def note_ended(self, driver: LifeDriver[Life]) -> None:
        """A life is over; its threads come to their end when what they do does."""
        self.unlisten(driver)
        for thread in driver.threads():
            (self._closing if thread.closing else self._threads).append(thread.thread)
        if self._rests:
            self._look_at_rests()

    # ---- what others ask ------------------------------------------------------------------------------

    def pid(self, instance: InstanceName) -> int | None:
        """The process that hosts an instance now: this one."""
        return os.getpid() if self.drivers[instance].over is None else None

    def drained(self) -> bool:
        """Whether sources read no more, since they were told so or have read what is there, and nobody has anything
        to do until something comes from outside."""
        return (
            (self.phase == "draining" or self._stays_open)
            and self._incoming.empty
            and not self._resting
            and all(driver.quiet() for driver in tuple(self.drivers.values()))
            # A bell may still be on its way, or be lost: the log itself says whether all was taken.
            and all_taken(self.store, [driver.life.spec for driver in self.drivers.values()]) is not None
        )

    def status(self) -> Status:
        """The run at this moment; numbers of a running pipeline may be a moment old."""
        operators = {self._called[name]: self._status_of(name, driver) for name, driver in self.drivers.items()}
        phase: Phase = "stopping" if self._stop_told and self.phase in AT_WORK else self.phase
        return Status(phase, operators, reason_of(self.error))

    def _status_of(self, name: InstanceName, driver: LifeDriver[Life]) -> OperatorStatus:
        live = OperatorStatus(
            restarts=self._restarts[name],
            counters=dict(self._counters[name]),
            pid=os.getpid(),
            host=socket.gethostname(),
        )
        return operator_status(driver, self.store, live)
