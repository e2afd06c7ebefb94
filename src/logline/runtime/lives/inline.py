"""The inline engine: every instance of the pipeline in this process, one loop over their machines, no JVM.

User code runs on the loop's thread where it is plain and one set at a time; async code has an event loop on a
thread of its own; reads and external writes have a thread per instance, since they may block. Everything else
that touches a machine happens on the loop.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import os
import queue
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Literal

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.machine import Machine
from logline.engine.operating import OperatorMachine
from logline.errors import Fenced, PipelineFailed
from logline.names import ERRORS, InstanceName
from logline.recovery.machines import janitor_for
from logline.runtime.lives.arrivals import Arrivals
from logline.runtime.lives.generation import Key
from logline.runtime.lives.instances import Instance
from logline.runtime.lives.life import Life
from logline.runtime.lives.suspects import Suspects, watch
from logline.runtime.status import OperatorStatus, Phase, Status, logged_status
from logline.store.seam import Bell, Lease, Store

logger = logging.getLogger("logline")

POLL = 1_000_000
"""Microseconds until an idle instance looks around without a bell: what a lost bell costs."""
GRACE = 2.0
"""Seconds that the end of a run waits for user code on other threads."""
_AWAY = (do.Read, do.Confirm, do.WriteOut, do.AskPosition)


def wall_clock() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


class _Worker:
    """A thread that executes actions which may block."""

    def __init__(self, name: str, work: Callable[[do.Action], None]) -> None:
        self._todo: queue.SimpleQueue[do.Action | None] = queue.SimpleQueue()
        self._work = work
        self._stopped = False
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def put(self, action: do.Action) -> None:
        self._todo.put(action)

    def _run(self) -> None:
        while (action := self._todo.get()) is not None and not self._stopped:
            self._work(action)

    def stop(self) -> None:
        """Begins nothing more; what is under way may still take effect, as after a crash."""
        self._stopped = True
        self._todo.put(None)


class _Host:
    """A life with what waits for it."""

    def __init__(self, engine: InlineEngine, instance: Instance, suspects: Suspects | None = None) -> None:
        self.engine = engine
        self.instance = instance
        self.stimuli: deque[on.Stimulus] = deque()
        self.todo: deque[do.Action] = deque()
        self.awaiting: Key | None = None
        self.over: str | None = None
        self.counters: Counter[str] = Counter()
        self.life = Life(
            instance,
            engine.store,
            clock=wall_clock,
            report=self.report,
            await_durable=self.await_durable,
            count=self.count,
            loop=engine.event_loop,
            suspects=suspects,
            watch=self._watch_read,
        )
        self._watched = False
        """Whether the loop will look at the read that is under way."""
        self._worker: _Worker | None = None
        self._committer: _Worker | None = None
        self._bell, self._unlisten = engine.listen(self)

    @property
    def machine(self) -> Machine:
        return self.life.machine

    def count(self, metric: str, n: int) -> None:
        self.counters[metric] += n

    def report(self, stimulus: on.Stimulus) -> None:
        self.engine.post(self, stimulus)

    def await_durable(self, stimulus: on.Stimulus, key: Key) -> None:
        """User code on the loop's thread waits for an answer: go on with this instance until it is there."""
        self.stimuli.append(stimulus)
        self.awaiting = key
        while self.awaiting is not None:
            if self.over is not None or self.machine.phase == "failed":
                raise Fenced("the life is over")  # as if by a newer one: `Life.execute` ends it quietly
            if not self.step():
                self.engine.wait()

    def _watch_read(self) -> None:
        """On the reader's thread."""
        if not self._watched:
            self.engine.order(self._look_at_read)

    def _look_at_read(self) -> None:
        if self.over is None:
            found, again = self.life.hand_over()
            self.stimuli.extend(found)
            if again is not None and not self._watched:
                self._watched = True
                self.engine.at(again, self._when_read_is_due)

    def _when_read_is_due(self) -> None:
        self._watched = False
        self._look_at_read()

    def tick(self) -> None:
        """A time that the machine asked for has come."""
        self.stimuli.append(on.Tick())

    def keep_bell(self) -> None:
        """A life that is fenced off and wakes late may hang its own bell in the place of this one."""
        journal, bell = self.life.journal, self._bell
        if bell is None or journal is None or bell.hangs():
            return
        if self.engine.store.read(self.instance.spec.name).incarnation() == journal.incarnation:
            self._unlisten()
            self._bell, self._unlisten = self.engine.listen(self)

    def step(self) -> bool:
        """One action, or one stimulus; False if there is none."""
        if self.todo:
            self.execute(self.todo.popleft())
        elif self.stimuli:
            self.todo.extend(self.machine.handle(self.stimuli.popleft(), wall_clock()))
        else:
            return False
        return True

    def execute(self, action: do.Action) -> None:
        if isinstance(action, _AWAY):
            if self._worker is None:
                self._worker = _Worker(f"logline-{self.instance.spec.name}", self._work_away)
                self.engine.threads.append(self._worker.thread)
            self._worker.put(action)
        elif isinstance(action, do.Commit) and self.engine.store.slow:
            self._commit_away(action)
        elif isinstance(action, do.Wake):
            self.engine.at(action.at, self.tick)
        elif isinstance(action, do.Leave):
            self.leave(action.why)
        elif isinstance(action, do.Halt):
            self.engine.fail(self, action)
        else:
            if (isinstance(action, do.Permit) and self.awaiting == (action.serial, action.row, action.n)) or (
                isinstance(action, do.Release) and self.awaiting in {(a.serial, a.row, a.n) for a in action.answers}
            ):
                self.awaiting = None
            self.stimuli.extend(self.life.execute(action))

    def _commit_away(self, action: do.Action) -> None:
        """A commit that waits for a disk has a thread of its own: work on the next step goes on meanwhile."""
        if self._committer is None:
            self._committer = _Worker(f"logline-commit-{self.instance.spec.name}", self._work_away)
        self._committer.put(action)

    def _work_away(self, action: do.Action) -> None:
        try:
            for stimulus in self.life.execute(action):
                self.report(stimulus)
        except BaseException:
            self.engine.post(self, _Bug(traceback.format_exc()))

    def leave(self, why: str) -> None:
        self.over = why
        self._unlisten()
        for worker in (self._worker, self._committer):
            if worker is not None:
                worker.stop()
        self.life.close(in_order=why != "fenced")

    def quiet(self) -> bool:
        """Whether it has nothing to do until something comes from outside."""
        if self.over is not None:
            return True
        machine = self.machine
        return not self.todo and not self.stimuli and machine.quiet()


class _Bug(on.Stimulus):
    """The engine itself failed on a worker thread."""

    def __init__(self, text: str) -> None:
        object.__setattr__(self, "text", text)


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
        self._whole = whole
        self.lease = lease
        self.phase: Phase = "running"
        self.error: PipelineFailed | None = None
        self._incoming: Arrivals[tuple[_Host, on.Stimulus] | None] = Arrivals()
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._ticks = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._commands: deque[Callable[[], None]] = deque()
        self._restarts: Counter[InstanceName] = Counter()
        self._told: Literal["stop", "drain"] | None = None
        self.threads: list[threading.Thread] = []
        self._left_seen = 0
        self._looked = wall_clock()
        self._pristine = {name: deepcopy(p.op) for name, p in instances.items()}
        """What a life begins with after a crash: an operator that no earlier life has touched."""
        suspects = watch(store, (p.spec for p in instances.values()), life)
        self.hosts = {name: _Host(self, p, suspects.get(name)) for name, p in instances.items()}

    # ---- from any thread ------------------------------------------------------------------------------

    def post(self, host: _Host, stimulus: on.Stimulus) -> None:
        """Something came for an instance."""
        self._incoming.put((host, stimulus))

    def listen(self, host: _Host) -> tuple[Bell | None, Callable[[], None]]:
        """Has the bell of an instance arrive; returns it, if it is one to wait for, and how to stop that."""
        name = host.instance.spec.name
        bell = self.store.bell(name)
        if bell is None:
            return None, self.store.on_bell(name, lambda: self.post(host, on.Bell()))
        return bell, self._incoming.listen(bell, lambda: (host, on.Bell()))

    def command(self, kind: Literal["stop", "drain"]) -> None:
        """`stop`: every life ends in order. `drain`: sources stop reading, and it stops when all is quiet."""
        self.order(lambda: self._tell(kind))

    def abandon(self) -> None:
        """Drops every life where it is, as a crash would; what is logged stays logged."""
        self.order(self._abandon)

    def restart(self, instance: InstanceName, done: Callable[[], None]) -> None:
        """Drops the life of one instance, as a crash would, and begins a new one; then calls `done`."""
        self.order(lambda: self._restart(instance, done))

    def order(self, command: Callable[[], None]) -> None:
        """Has the loop call it soon."""
        self._commands.append(command)
        self._incoming.put(None)

    def event_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of async operators, on its own thread."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            thread = threading.Thread(target=self._run_loop, args=(self._loop,), name="logline-async", daemon=True)
            self.threads.append(thread)
            thread.start()
        return self._loop

    @staticmethod
    def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        if pending:
            loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        loop.close()

    # ---- the loop -------------------------------------------------------------------------------------

    def run(self) -> None:
        """Returns when the run is over; `phase` and `error` say how."""
        for host in self.hosts.values():
            host.stimuli.append(on.Started())
        try:
            while self.phase in ("running", "draining"):
                self._look_around()
                if not self._turn():
                    self._when_idle()
                    if self.phase in ("running", "draining"):
                        self.wait()
        except BaseException as error:
            if self.error is None:
                self.phase = "failed"
                self.error = PipelineFailed(f"the engine failed: {error}", traceback=traceback.format_exc())
        finally:
            self._close()

    def _turn(self) -> bool:
        """A bounded share of work for each instance."""
        worked = self._collect_incoming()
        for host in self.hosts.values():
            for _ in range(32):
                if host.over is not None or not host.step():
                    break
                worked = True
        over = sum(host.over is not None for host in self.hosts.values())
        if over > self._left_seen:
            self._left_seen = over
            self._sweep()
        if over == len(self.hosts) and self.phase in ("running", "draining") and not self._renewing():
            left = all(host.over == "left" for host in self.hosts.values())
            self.phase = "finished" if left else "stopped"
        return worked

    def _renewing(self) -> bool:
        """Fenced off while we hold the lease: an error was retried or dropped, and a restart is about to come. A run
        that is told to stop does not wait for it."""
        if self._told == "stop":
            return False
        return self.lease is not None and self.lease.held() and any(h.over == "fenced" for h in self.hosts.values())

    def wait(self) -> None:
        """Until something comes, a timer does, or it is time to look around."""
        now = wall_clock()
        until = min(self._looked + POLL, self._timers[0][0] if self._timers else now + POLL)
        self._incoming.wait(max(until - now, 0) / 1e6)
        self._collect_incoming()
        self._look_around()

    def _look_around(self) -> None:
        """Ticks for timers that have come; and every so often a bell for all, however busy others are: one may
        have been lost, and a source that had nothing may have something now."""
        now = wall_clock()
        while self._timers and self._timers[0][0] <= now:
            _, _, call = heapq.heappop(self._timers)
            call()
        if not self._looked <= now < self._looked + POLL:  # also when the clock was set back
            self._looked = now
            for host in self.hosts.values():
                if host.over is None:
                    host.keep_bell()
                    host.stimuli.append(on.Bell())

    def _collect_incoming(self) -> bool:
        items = self._incoming.take()
        for item in items:
            if item is None:
                self._obey()
                continue
            host, stimulus = item
            if host.over is not None:
                continue  # a life that is over: nobody wants to know
            if isinstance(stimulus, _Bug):
                raise RuntimeError(stimulus.text)  # type: ignore[attr-defined]
            host.stimuli.append(stimulus)
        return bool(items)

    def _obey(self) -> None:
        while self._commands:
            self._commands.popleft()()

    def _tell(self, kind: Literal["stop", "drain"]) -> None:
        self._told = kind if self._told != "stop" else self._told
        if kind == "drain" and self.phase == "running":
            self.phase = "draining"
        for host in self.hosts.values():
            if host.over is None:
                host.stimuli.append(on.Command(kind))

    def _abandon(self) -> None:
        for host in self.hosts.values():
            if host.over is None:
                host.leave("fenced")
        self.phase = "stopped"

    def _restart(self, instance: InstanceName, done: Callable[[], None]) -> None:
        old = self.hosts[instance]
        if old.over is None:
            old.leave("fenced")
            self._let_go(old)
        fresh = replace(old.instance, op=deepcopy(self._pristine[instance]))
        host = self.hosts[instance] = _Host(self, fresh)
        host.counters = old.counters
        self._restarts[instance] += 1
        host.stimuli.append(on.Started())
        if self._told is not None:
            host.stimuli.append(on.Command(self._told))
        done()

    @staticmethod
    def _let_go(host: _Host) -> None:
        """After a kill the process is gone; here it goes on, and so would the clients and threads of the operator."""
        op = host.instance.op
        try:
            if op is not None:
                op.close()
        except Exception:
            logger.warning("%s.close() failed in a restart", host.instance.spec.name, exc_info=True)

    def _when_idle(self) -> None:
        if self.lease is not None and not self.lease.held():
            logger.warning("another run has taken the log over: this one ends")
            self._abandon()
        if self._whole and self.drained():
            self.command("stop")

    def at(self, when: int, call: Callable[[], None]) -> None:
        """Calls it at that time."""
        self._ticks += 1
        heapq.heappush(self._timers, (when, self._ticks, call))

    def fail(self, host: _Host, halt: do.Halt) -> None:
        """An operator failed for good: the pipeline stops where it is, and can be resumed."""
        name = host.instance.spec.name
        event = halt.event
        if not event and host.life.phases is not None and halt.serial in host.life.phases.sets:
            event = str(host.life.phases.sets[halt.serial].name())
        if self.error is not None:
            return  # of several sets of a run, the first
        self.error = PipelineFailed(
            f"operator {name!r} failed"
            + (f" on {event}" if event else "")
            + f": {halt.failure.kind}: {halt.failure.message}",
            operator=name,
            event=event,
            traceback=halt.failure.traceback,
        )
        self.phase = "failed"

    def _sweep(self) -> None:
        """R12: for those that have left, the holder of the lease collects; a claim would fence its lives."""
        if self.lease is not None and not self.lease.held():
            return
        for host in self.hosts.values():
            if host.over == "left" and host.instance.spec.collect:
                sweep(host.instance, self.store)

    def _close(self) -> None:
        for host in self.hosts.values():
            if host.over is None:
                host.leave("fenced" if self.phase == "failed" else "stopped")
        self._incoming.close()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
        until = time.monotonic() + GRACE
        for thread in self.threads:
            thread.join(max(until - time.monotonic(), 0))
            if thread.is_alive():
                logger.warning("thread %s is still in user code; what it does is not part of the run", thread.name)

    def pid(self, instance: InstanceName) -> int | None:
        """The process that hosts an instance now: this one."""
        return os.getpid() if self.hosts[instance].over is None else None

    def drained(self) -> bool:
        """Whether sources were told to stop reading, and nobody has anything to do until something comes from
        outside."""
        return (
            self.phase == "draining" and self._incoming.empty and all(h.quiet() for h in tuple(self.hosts.values()))
        )

    def status(self) -> Status:
        """The run at this moment; numbers of a running pipeline may be a moment old."""
        operators = {str(name): self._operator_status(name, host) for name, host in self.hosts.items()}
        return Status(self.phase, operators, str(self.error).splitlines()[0] if self.error else "")

    def _operator_status(self, name: InstanceName, host: _Host) -> OperatorStatus:
        machine, spec = host.machine, host.instance.spec
        live = OperatorStatus(restarts=self._restarts[name], counters=dict(host.counters))
        if host.over is not None or machine.phase in ("new", "claiming"):
            return logged_status(self.store, spec, live)  # the machine knows nothing yet, or nothing any more
        taken = lag = flight = 0
        if isinstance(machine, OperatorMachine):
            for channel in spec.inputs:
                at = machine.inbox.channels[channel.name].position
                taken += at.ssn - int(at.ended)
                lag += max(self.store.read(channel.sender).head(channel.out).last - at.ssn, 0)
            flight = machine.in_flight
        ended = int(machine.end_given)
        last = {port: machine.outbox.heads[port].last - ended for port in spec.ports}
        return replace(
            live,
            taken=taken,
            out=sum(last.values()),
            lag=lag,
            open_sets=len(host.life.phases.sets) if host.life.phases is not None else 0,
            in_flight=flight,
            errors=machine.outbox.open_errors - (ended if ERRORS in spec.ports else 0),
            errors_ever=last.get(ERRORS, 0),
        )


def sweep(instance: Instance, store: Store, clock: Callable[[], int] = wall_clock) -> None:
    """Collects the journal of an instance that has left."""
    life = Life(instance, store, clock=clock, report=lambda s: None, await_durable=lambda s, k: None, threads=False)
    life.machine = janitor_for(instance.spec)
    todo: deque[do.Action] = deque(life.machine.handle(on.Started(), clock()))
    while todo:
        action = todo.popleft()
        if not isinstance(action, do.Leave):
            for stimulus in life.execute(action):
                todo.extend(life.machine.handle(stimulus, clock()))
