"""Supervision: each group lives on a host, and is started again when it dies, while the others go on.

A life that makes no report for a while hangs, and is killed; the next one has longer if that one got nowhere, since
it may only be slow. A life that was fenced off ends quietly and is no failure (R10). Repeated crashes back off; a
group that dies again and again without getting anywhere stops the pipeline. The supervisor holds no state that
matters: what a group is, is in the log (R5).
"""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, assert_never

from logline.errors import PipelineFailed, reason_of
from logline.names import InstanceName, Ssn
from logline.runtime.hosts.seam import Ended, Group, Host, Tenant
from logline.runtime.lives.catching_up import all_taken
from logline.runtime.lives.gathering import gathers
from logline.runtime.lives.suspects import pardon
from logline.runtime.lives.sweeping import sweep
from logline.runtime.messages.commands import Drain, Flush, Stop, WorkerCommand
from logline.runtime.messages.reports import LogLine, Report, Started, StatusReport
from logline.runtime.status import AT_WORK, OperatorStatus, Phase, Status, logged_status
from logline.store.seam import Lease, Store

logger = logging.getLogger("logline")
TICK = 0.2
BEGIN = 30.0
"""Seconds that a process has to say that it started."""
AWAY = 2.0
"""Seconds between two looks after which the supervisor itself was away: suspended, or on a machine that was. Reports
that came meanwhile are not heard yet."""
LONGEST = 8
"""How many times as long as the first a life of a slow group may be silent."""
PATIENCE = 5.0
"""Seconds after which a life that waits for room is spoken of, and again each time twice as late."""


def back_off(crashes: int) -> float:
    """Seconds to wait before the next life, after so many deaths in a row: the first two cost nothing."""
    return 0.0 if crashes < 3 else min(0.05 * 2 ** (crashes - 3), 2.5)


def _logged(group: Group, store: Store) -> dict[str, OperatorStatus]:
    """How far a group is before its first report: a run that goes on does not begin with nothing."""
    return {one.called: logged_status(store, one.spec, OperatorStatus()) for one in group.instances.values()}


@dataclass
class Worker:
    """One group and what is known of its life."""

    group: Group
    host: Host
    tenant: Tenant | None = None
    lives: int = 0
    begun: bool = False
    """Whether this life has said that it started."""
    started: float = 0.0
    heard: float = 0.0
    patience: float = PATIENCE
    status: Mapping[str, OperatorStatus] = field(default_factory=dict)
    quiet: bool = False
    restarts: int = 0
    crashes: int = 0
    """In a row."""
    hangs: bool = False
    """Whether this life was killed because it made no report."""
    reached: int = 0
    """How far the group had come when it died last."""
    slowness: int = 1
    """How many times as long as others it may be silent."""
    asked: bool = False
    """Whether somebody has asked for the death of this life."""
    fenced: bool = False
    """Whether it was fenced off last, which counts as a crash unless a restart comes for it."""
    retry_at: float | None = None
    resting: bool = False
    """Whether it begins no life until it is woken."""
    over: str | None = None


class Supervisor:
    """Runs each group on its host. The same surface as the inline engine's."""

    silence = 15.0
    """Seconds without a report after which a life counts as hanging."""
    crashes = 12
    """Deaths in a row, each soon after the last, that stop the pipeline."""
    soon = 5.0
    """Seconds; a life that dies sooner has got nowhere."""

    def __init__(
        self,
        groups: Sequence[tuple[Group, Host]],
        store: Store,
        lease: Lease | None = None,
        closing: Callable[[], None] = lambda: None,
        ui: str = "",
    ) -> None:
        """`closing` is called when no life is left; `ui` is where the hosts show their lives."""
        self.store = store
        self.lease = lease
        self.phase: Phase = "running"
        self.error: PipelineFailed | None = None
        self._closing = closing
        self._ui = ui
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stop_asked = False
        self._rests: list[tuple[list[Worker], Callable[[], None]]] = []
        """Who waits for the ends of which lives."""
        self._swept = 0.0
        self._calm: list[Ssn] | None = None
        """The last events of all channels when all processes were quiet."""
        self._looked = time.monotonic()
        self.workers = {group.name: Worker(group, host, status=_logged(group, store)) for group, host in groups}
        self._stays_open = any(part.spec.stays_open for group, _ in groups for part in group.instances.values())
        """Whether the run ends when all that is there has gone through."""
        self._caught_up = False

    # ---- from any thread ------------------------------------------------------------------------------

    def command(self, kind: Literal["stop", "drain"]) -> None:
        """`stop`: every life ends in order. `drain`: sources stop reading, and it stops when all is quiet."""
        command: WorkerCommand
        match kind:
            case "stop":
                command = Stop()
            case "drain":
                command = Drain()
            case _:
                assert_never(kind)
        self._events.put(lambda: self._tell(command))

    def abandon(self) -> None:
        """Kills every life; what is logged stays logged."""
        self._events.put(self._abandon)

    def restart(self, instance: InstanceName, done: Callable[[], None]) -> None:
        """Kills the life of the instance's group, if it has one, and a new one is started. Then calls `done`."""

        def kill() -> None:
            self._restart(self._worker_of(instance))
            done()

        self._events.put(kill)

    def rest(self, instances: Iterable[InstanceName], done: Callable[[], None]) -> None:
        """Ends the lives of these instances' groups as a stop does, and keeps them from beginning again until `wake`.
        Calls `done` when none is left."""
        names = tuple(instances)
        self._events.put(lambda: self._rest(self._workers_of(names), done))

    def wake(self, instances: Iterable[InstanceName]) -> None:
        """Begins a new life of each of these instances' groups; one that has not come to its end is killed."""
        names = tuple(instances)
        self._events.put(lambda: self._wake(self._workers_of(names)))

    def pid(self, instance: InstanceName) -> int | None:
        """The process that hosts an instance now."""
        tenant = self._worker_of(instance).tenant
        return None if tenant is None else tenant.pid

    def _worker_of(self, instance: InstanceName) -> Worker:
        return next(w for w in self.workers.values() if instance in w.group.instances)

    def _workers_of(self, instances: Iterable[InstanceName]) -> list[Worker]:
        names = frozenset(instances)
        return [worker for worker in self.workers.values() if not names.isdisjoint(worker.group.instances)]

    def status(self) -> Status:
        """The run at this moment; numbers are as old as the last report."""
        operators: dict[str, OperatorStatus] = {}
        for worker in self.workers.values():
            lives = worker.tenant is not None and worker.begun
            waits = "its process has not begun" if self.phase == "draining" and worker.over is None else ""
            for instance in worker.group.instances.values():
                known = worker.status[instance.called]
                known = known if lives else replace(known.without_life(), waits=waits)
                operators[instance.called] = replace(known, restarts=worker.restarts)
        return Status(self.phase, operators, reason_of(self.error), self._ui)

    # ---- the loop -------------------------------------------------------------------------------------

    def run(self) -> None:
        """Returns when the run is over; `phase` and `error` say how."""
        try:
            for worker in self.workers.values():
                self._start(worker)
            while self.phase in AT_WORK:
                self._take_events()
                self._look_around()
            if self.phase == "finished":
                self._sweep()  # one that left before its receivers had taken anything has collected nothing
        except BaseException as error:
            self.phase = "failed"
            if self.error is None:
                self.error = PipelineFailed.of_engine(error)
        finally:
            try:
                self._close_tenants()
            finally:
                self._closing()

    def _take_events(self) -> None:
        """All that have come: a report that waits here is no silence."""
        with contextlib.suppress(queue.Empty):
            self._events.get(timeout=TICK)()
            while self.phase in AT_WORK:
                self._events.get_nowait()()

    def _start(self, worker: Worker) -> None:
        worker.lives += 1
        worker.begun = worker.quiet = worker.hangs = False
        worker.retry_at = None
        worker.asked = False
        worker.patience = PATIENCE
        worker.started = worker.heard = time.monotonic()
        life = worker.lives
        worker.tenant = worker.host.start(
            worker.group,
            worker.restarts,
            lambda report: self._events.put(lambda: self._hear(worker, life, report)),
            lambda ended: self._events.put(lambda: self._ended(worker, life, ended)),
        )

    def _restart(self, worker: Worker) -> None:
        if worker.fenced:  # by a retry of an error, for which this restart is
            worker.fenced = False
            worker.crashes = max(worker.crashes - 1, 0)
        if worker.tenant is not None:
            worker.asked = True
            worker.tenant.kill()
        elif worker.over == "finished" and not worker.resting and not self._stop_asked:
            self._start_again(worker)  # its end was taken back (R11')

    def _rest(self, workers: list[Worker], done: Callable[[], None]) -> None:
        self._calm = None
        self._rests.append((workers, done))
        for worker in workers:
            worker.resting = True
            worker.quiet = False
            worker.retry_at = None
            if worker.tenant is not None:
                worker.tenant.tell(Stop())
        self._look_at_rests()

    def _look_at_rests(self) -> None:
        for rest in list(self._rests):
            workers, done = rest
            if all(worker.tenant is None for worker in workers):
                self._rests.remove(rest)
                done()

    def _wake(self, workers: Iterable[Worker]) -> None:
        for worker in workers:
            rested, worker.resting = worker.resting and worker.tenant is None, False
            if not rested:
                self._restart(worker)
            elif not self._stop_asked:
                self._start_again(worker)

    def _start_again(self, worker: Worker) -> None:
        """Begins a new life where there is none, though the last one ended in order."""
        worker.over = None
        worker.restarts += 1
        self._start(worker)

    def _hear(self, worker: Worker, life: int, report: Report) -> None:
        if worker.lives != life or worker.tenant is None:
            return
        worker.heard = time.monotonic()
        match report:
            case StatusReport():
                worker.status = {**worker.status, **report.operators}  # a life that has just begun tells of none
                worker.quiet = report.quiet
            case LogLine():
                logging.getLogger(report.logger).log(report.level, "%s", report.text)
            case Started():
                if worker.begun:  # the host brought it back by itself
                    self._count(worker, report.how or "died")
                worker.begun = True
                worker.hangs = False
                worker.started = worker.heard
                worker.quiet = False
                if self._stop_asked or self.phase == "draining":
                    worker.tenant.tell(Stop() if self._stop_asked else Drain())
            case _:
                assert_never(report)

    def _ended(self, worker: Worker, life: int, ended: Ended) -> None:
        if worker.lives != life:
            return
        worker.tenant = None
        self._note_end(worker, ended)
        self._look_at_rests()

    def _note_end(self, worker: Worker, ended: Ended) -> None:
        if ended.error is not None:
            self._fail(ended.error)
        elif worker.resting and not self._stop_asked:
            if ended.over is None:
                self._count(worker, ended.how)
            elif ended.over == "finished":
                worker.over = "finished"
        elif ended.over == "finished" and worker.asked and not self._stop_asked:
            # It ended by itself before the kill of a restart came: its end may be taken back by now (R11').
            self._start_again(worker)
        elif ended.over == "stopped" and not self._stop_asked:
            # It was to rest, and was woken before it had ended.
            self._start_again(worker)
        elif ended.over in ("finished", "stopped"):
            worker.over = ended.over
        elif self._stop_asked:
            worker.over = "stopped"
        elif ended.over == "handed":
            worker.crashes = 0
            self._start(worker)
        elif ended.over == "fenced" and self.lease is not None and not self.lease.held():
            logger.info("group %s was fenced off and ended", worker.group)
            worker.over = "stopped"
        elif self._count(worker, "was fenced off by a stray copy of itself" if ended.over else ended.how):
            worker.fenced = ended.over == "fenced"
            worker.retry_at = time.monotonic() + back_off(worker.crashes)

    def _count(self, worker: Worker, how: str) -> bool:
        """One more death; False if that was one too many. One that somebody has asked for is no crash, and no set is
        to blame for it."""
        worker.restarts += 1
        if worker.asked:
            worker.asked = False
            pardon(self.store, (instance.spec for instance in worker.group.instances.values()))
            return True
        stuck = worker.hangs and not self._got_on(worker)
        if stuck:
            worker.slowness = min(worker.slowness * 2, LONGEST)
        nowhere = stuck or (not worker.hangs and time.monotonic() - worker.started < self.soon)
        worker.crashes = worker.crashes + 1 if nowhere else 1
        if worker.crashes >= self.crashes:
            self._fail(
                PipelineFailed(
                    f"the process of {worker.group} {how}, {worker.crashes} times in a row: it does not get anywhere",
                    operator=next(iter(worker.group.instances)),
                )
            )
            return False
        logger.warning("the process of group %s %s: it is started again", worker.group, how)
        return True

    def _got_on(self, worker: Worker) -> bool:
        """Whether the group has come further since this was asked last."""
        before = worker.reached
        worker.reached = 0
        for instance in worker.group.instances.values():
            reader = self.store.read(instance.spec.name)
            worker.reached += sum(reader.taken(channel.name).position.ssn for channel in instance.spec.inputs)
            worker.reached += sum(reader.head(port).last for port in instance.spec.ports)
        return worker.reached > before

    def _fail(self, error: PipelineFailed) -> None:
        if self.error is None:
            self.error = error
        self.phase = "failed"

    def _look_around(self) -> None:
        for host in {id(worker.host): worker.host for worker in self.workers.values()}.values():
            if why := host.broken():
                self._fail(PipelineFailed(why))
                return
        now = time.monotonic()
        away, self._looked = now - self._looked, now
        for worker in self.workers.values():
            worker.heard = min(now, worker.heard + (away if away > AWAY else 0.0)) if worker.host.hears() else now
            if worker.retry_at is not None and now >= worker.retry_at and not self._stop_asked:
                self._start(worker)
            elif worker.tenant is not None and now - worker.heard > self._silence(worker):
                if worker.host.patient and not worker.tenant.may_live:
                    logger.warning("group %s has no process: it waits to be brought back", worker.group)
                else:
                    logger.warning("the process of group %s makes no report: it is killed", worker.group)
                    worker.hangs = True
                worker.heard = now
                worker.tenant.kill()
            elif worker.tenant is not None and not worker.begun and now - worker.started > worker.patience:
                worker.patience *= 2
                if why := worker.tenant.waits_for():
                    logger.warning("group %s has not begun after %.0f s: %s", worker.group, now - worker.started, why)
        if self.lease is not None and not self.lease.held():
            logger.warning("another run has taken the log over: this one ends")
            self._abandon()
        elif self.phase in AT_WORK:
            self._decide_phase(now)

    def _silence(self, worker: Worker) -> float:
        """How long a life may be silent: one that has not begun may be at its imports, or wait for room."""
        if worker.begun:
            return self.silence * worker.slowness
        return math.inf if worker.host.patient else max(self.silence, BEGIN) * worker.slowness

    def _decide_phase(self, now: float) -> None:
        done = [w for w in self.workers.values() if w.over is not None and (self._stop_asked or not w.resting)]
        if len(done) == len(self.workers):
            finished = all(w.over == "finished" for w in done)
            self.phase = "finished" if finished else "caught up" if self._caught_up else "stopped"
        elif (self.phase == "draining" or self._stays_open) and not self._stop_asked and self._drained():
            if self.phase == "running" and self._gathers():
                self._tell(Flush())
            else:
                self._caught_up = self.phase == "running"
                self._tell(Stop())
        if now - self._swept > 1.0:
            self._swept = now
            self._sweep()

    def _sweep(self) -> None:
        """R12: for those that have left, the holder of the lease collects."""
        for worker in self.workers.values():
            for instance in worker.group.instances.values() if worker.over is not None else ():
                if instance.spec.collect and self.store.read(instance.spec.name).outline().left:
                    sweep(instance.spec, self.store)

    def _drained(self) -> bool:
        """Every process is quiet, and nobody has anything to take. Reports are old: a process that was quiet may have
        taken something since. So all have to say it once more, without anything new in the log meanwhile."""
        if not all(not w.resting and (w.quiet or w.over is not None) for w in self.workers.values()):
            return False
        instances = [i for worker in self.workers.values() for i in worker.group.instances.values()]
        heads = all_taken(self.store, [instance.spec for instance in instances])
        if heads is None:
            return False
        if heads == self._calm:
            return True
        self._calm = heads
        for worker in self.workers.values():
            worker.quiet = False
        return False

    def _gathers(self) -> bool:
        living = (worker for worker in self.workers.values() if worker.over is None)
        return gathers(self.store, (name for worker in living for name in worker.group.instances))

    def _tell(self, command: WorkerCommand) -> None:
        self._calm = None
        match command:
            case Drain():
                if self.phase == "running":
                    self.phase = "draining"
            case Stop():
                self._stop_asked = True
                if self.phase in AT_WORK and not self._caught_up:
                    self.phase = "stopping"
            case Flush():
                pass
            case _:
                assert_never(command)
        for worker in self.workers.values():
            worker.quiet = False
            if worker.tenant is not None:
                worker.tenant.tell(command)
            elif self._stop_asked and worker.over is None:
                worker.over = "stopped"

    def _abandon(self) -> None:
        self._stop_asked = True
        self._close_tenants()
        if self.phase in AT_WORK:
            self.phase = "stopped"

    def _close_tenants(self) -> None:
        """Closes all lives at the same time, since each may take a few seconds."""
        tenants = [worker.tenant for worker in self.workers.values() if worker.tenant is not None]
        closing = [threading.Thread(target=tenant.close, name="logline-close", daemon=True) for tenant in tenants]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join()
