"""The world of a simulated pipeline: lives, a scheduler, faults. Single-threaded, and all chance is one seed.

Every action of a machine is a point where its life can be killed, before it is executed or after it (its outcome
then never arrives). Beyond that: actions of one life are executed in any order and their outcomes arrive in any
order; a life that is declared dead may go on (a zombie), at once or when it is woken up later; bells get lost;
the answer to a commit gets lost and the commit is repeated; a write of a dead life lands late or never; all lives
die at once; a life is told to stop, or to drain and then to stop, and another one goes on; somebody sets the wall
clock back or forward. Every life has a monotonic clock of its own, as processes have.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.error_resolution import drop_step, retry_step
from logline.engine.image import Image
from logline.engine.moments import Moment, Monotonic, Wall
from logline.engine.results import Produced
from logline.engine.step import Step
from logline.errors import Collected, LogError, LoglineError
from logline.graph.model import Graph
from logline.names import ERRORS, BellName, InstanceName, Ssn
from logline.runtime.lives.context import call_name
from logline.runtime.lives.driver import Hooks, LifeDriver, live
from logline.runtime.lives.generation import AsyncRunner
from logline.runtime.lives.instances import Instance, for_partition, next_partition
from logline.runtime.lives.life import Life, Surroundings
from logline.runtime.lives.sweeping import sweep
from logline.store.channels import HandOver
from logline.store.memory import MemoryStore
from logline.testing.sim.checks import OF_USER_CODE, Checks
from logline.testing.sim.evolving import Evolving
from logline.testing.sim.faults import RARE, Faults
from logline.testing.sim.incremental import IncrementalRuns
from logline.testing.sim.outside import PaidService, SimSource, Violation
from logline.testing.sim.reopening import Reopening

Point = tuple[str, str]
"""A kind of action and a side: ("Commit", "after")."""


EPOCHS = 7_919_000_003
"""Microseconds between the monotonic clocks of two lives."""
KILLED = "killed"
"""Why a life is over that did not end by itself."""


@dataclass(eq=False)
class Actor:
    """A life in the simulated world."""

    name: InstanceName
    driver: LifeDriver[Life]
    paused: bool = False
    epoch: int = 0
    """What its monotonic clock said when the world began; another one for each life."""
    dismissed: bool = False
    """Declared dead: another life has been started in its place."""
    calls_stopped: bool = False
    """Told to stop: no call may begin."""
    asked: set[str] = field(default_factory=set)
    """What it has asked the paid service for."""

    @property
    def life(self) -> Life:
        """What executes its actions."""
        return self.driver.life

    @property
    def alive(self) -> bool:
        """Whether it was not killed, and has not ended."""
        return self.driver.over is None

    @property
    def busy(self) -> bool:
        """Whether something is at hand for it."""
        return bool(self.driver.todo or self.driver.stimuli)


class _AtRandom(Hooks):
    """Any order, and two points around each action where the life can end. One for each life."""

    actor: Actor

    def __init__(self, world: World) -> None:
        self._world = world

    def choose(self, driver: LifeDriver[Any]) -> int:
        """Any action or stimulus. While plain user code waits, actions first: only this life goes on."""
        if driver.awaiting:
            self._world.maybe_stop(self.actor)
        todo = len(driver.todo)
        among = todo if driver.awaiting and todo else todo + len(driver.stimuli)
        return int(self._world.rnd.random() * among)

    def asked(self, driver: LifeDriver[Any], actions: Sequence[do.Action]) -> Sequence[do.Action]:
        """A life leaves at once: what it has asked for and not done is lost, as in a crash."""
        left: list[do.Action] = []
        for action in actions:
            self._world.checks.asked(driver.life, action)
            if isinstance(action, do.Leave | do.Wake | do.Halt):
                driver.execute(action)
            else:
                left.append(action)
        return left

    def execute(self, driver: LifeDriver[Any], action: do.Action) -> Sequence[on.Stimulus]:
        """With its faults and checks."""
        return self._world.execute(self.actor, action)

    def idle(self, driver: LifeDriver[Any]) -> None:
        """Commits and writes of this life may wait for time to pass."""
        self._world.idle()

    def wake(self, driver: LifeDriver[Any], at: Monotonic) -> None:
        """When nothing else moves."""
        self._world.wake(self.actor, at)

    def halted(self, driver: LifeDriver[Any], halt: do.Halt) -> None:
        """No simulated operator fails for good."""
        failure = halt.failure
        raise Violation(f"HALT {driver.name}: {failure.kind}: {failure.message} {failure.traceback}")

    def ended(self, driver: LifeDriver[Any], why: str) -> None:
        """By itself, or killed."""
        self._world.ended(self.actor, why)


class World:
    """One simulated run: lives, a scheduler that chooses what comes next, and the faults that it draws."""

    def __init__(
        self,
        instances: Mapping[InstanceName, Instance],
        seed: int,
        *,
        faults: Faults | None = None,
        service: PaidService | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        max_moves: int = 60_000,
        reopen: bool = True,
        graph: Graph | None = None,
    ) -> None:
        """With `graph`, the one that the instances are made of, the pipeline may change while it is at work."""
        self.rnd = Random(seed)
        self.instances = instances
        self.faults = faults or Faults()
        self.loop = loop
        self.now = 1_000_000
        """The time that has passed."""
        self.wall_ahead = 0
        """How far the wall clock is from that."""
        self._latest = 0
        """The latest that the wall clock has ever shown."""
        self.store = MemoryStore("sim")
        self.store.ring = self._ring  # type: ignore[method-assign]
        if seed % 2 == 0:  # half of the schedules hand events over beside the journal, a few at a time
            self.store.fresh = HandOver(most=2_000)
        self.service = service or PaidService()
        self.checks = Checks(instances, self.store, self.service, clock=self.moment)
        self.points = 0
        self.hits: Counter[Point] = Counter()
        self.kills: Counter[Point] = Counter()
        self.counts: Counter[str] = Counter()
        self.max_moves = max_moves
        self.actors: list[Actor] = []
        self.newest: dict[InstanceName, Actor] = {}
        self.finished: set[InstanceName] = set()
        self._wakes: list[tuple[int, int, Actor]] = []
        self._late: list[Callable[[], object]] = []
        self._setter = Random(seed + 2)
        """Whoever sets the wall clock."""
        self.user = Random(seed + 1)
        """Whoever looks at errors, or stops a life; with chance of its own, so that a schedule without stays what it
        is."""
        self.reopening = Reopening(self)
        self.reopenings = Random(f"reopenings {seed}").choice((0, 0, 1, 2)) if reopen else 0
        self.evolving = Evolving(self, graph, seed) if graph is not None else None
        runs = Random(f"incremental runs {seed}")
        self.incremental = IncrementalRuns(self, runs, runs.choice((0, 0, 0, 1, 2)) if reopen else 0)
        for source in (instance.source for instance in instances.values() if isinstance(instance.source, SimSource)):
            source.honest = self.incremental.runs > 0

    def define(self, instances: Mapping[InstanceName, Instance]) -> None:
        """The pipeline as the lives that begin from now on know it."""
        self.instances = self.checks.instances = instances

    def begin(self) -> None:
        """A run begins a life for every instance. Those of an earlier run that still live are zombies."""
        self.finished.clear()
        for name in self.instances:
            actor = self.spawn(name)
            if self.faults.late_start and self.rnd.random() < self.faults.late_start:
                actor.paused = True
                self.counts["late start"] += 1

    # ---- lives ----------------------------------------------------------------------------------------

    def spawn(self, name: InstanceName) -> Actor:
        instance = self.instances[name]
        if instance.source is not None and instance.source.apart:
            instance = for_partition(instance, next_partition(instance, self.store))
        loop = self.loop
        self.counts["life"] += 1
        epoch = self.counts["life"] * EPOCHS % 10**12
        hooks = _AtRandom(self)
        around = Surroundings(
            clock=lambda: self.moment(epoch),
            random=Random(self.rnd.random()),
            loop=None if loop is None else lambda: loop,
            threads=False,
            stubs={call_name(self.service.ask): lambda token: self._ask(hooks.actor, token)},
        )
        actor = hooks.actor = Actor(name, live(instance, self.store, hooks, around), epoch=epoch)
        actor.driver.begin()
        self.actors.append(actor)
        self.newest[name] = actor
        return actor

    def kill(self, actor: Actor, *, restart: bool = True) -> None:
        if not actor.alive:
            return
        self.counts["crash"] += 1
        if actor.life.machine.phase == "recovering":
            self.counts["crash in recovery"] += 1
        actor.driver.end(KILLED)
        for action in actor.driver.todo:  # a write may be on its way when its process dies
            self._maybe_late(actor, action)
        if restart and self.newest[actor.name] is actor and not self.incremental.stopping:
            self.spawn(actor.name)

    def _maybe_late(self, actor: Actor, action: do.Action) -> None:
        """The writes that a process has begun when it dies may still take effect, all of them or some."""
        if isinstance(action, do.WriteOut) and self.rnd.random() < self.faults.late_write:
            begun = self._some(action)
            self._late.append(lambda: actor.life.execute(begun))
            self.counts["late write"] += 1

    def _some(self, action: do.WriteOut) -> do.WriteOut:
        """A run of writes may be left after any of them."""
        return action.first(int(self.rnd.random() * len(action.writes)) + 1)

    def ended(self, actor: Actor, why: str) -> None:
        """A life is over: killed, or by itself."""
        self.actors.remove(actor)
        self._pump(actor)
        if why == KILLED:
            return
        self.counts[why] += 1
        if why == "stopped" and (lost := actor.asked - set(self.service.kept)):
            raise Violation(f"PAID-FOR-NOTHING {actor.name} was stopped in order, without the answers for {lost}")
        if why == "left":
            if self.newest[actor.name] is actor:  # else another life has been begun, which looks for itself
                self.finished.add(actor.name)
        elif why in ("handed", "stopped") and self.newest[actor.name] is actor:
            if not self.incremental.stopping:
                self.spawn(actor.name)
        elif why == "fenced" and self.newest[actor.name] is actor:
            raise Violation(f"FENCED the newest life of {actor.name}")

    # ---- one move -------------------------------------------------------------------------------------

    def run(self) -> World:
        """In some schedules a few runs read what is there. Then one goes on until every instance has left. In some
        schedules ends are then taken back and it goes on. At last zombies wake up and the last checks are made."""
        self.incremental.before_the_last()
        self.incremental.last()
        self._until_all_left()
        for _ in range(self.reopenings):
            self.reopening.grow()
            self._until_all_left()
        self._aftermath()
        self.checks.at_end()
        return self

    def _until_all_left(self) -> None:
        while len(self.finished) < len(self.instances):
            self.move()

    def move(self) -> None:
        """Somebody does the next thing, or nobody can and time passes."""
        self.counts["move"] += 1
        if self.counts["move"] > self.max_moves:
            raise Violation(f"LIVELOCK after {self.max_moves} moves: {self.where()}")
        if self.evolving is not None and self.incremental.at_last and self.evolving.is_time():
            self.evolving.change()
            return
        rnd = self.rnd
        if self._late and rnd.random() < 0.05:
            self._land()
            return
        if rnd.random() < 0.01:
            self._sweep()
        if self.checks.errors and self.user.random() < 0.03 and not self.incremental.stopping:
            self._resolve_error(*self.user.choice(sorted(self.checks.errors)))
        self.maybe_stop()
        if self.faults.set_clock and self._setter.random() < self.faults.set_clock:
            self._set_clock()
        awake = [a for a in self.actors if not a.paused and a.busy]
        if not awake:
            self.idle()
            return
        awake[int(rnd.random() * len(awake))].driver.step()

    def execute(self, actor: Actor, action: do.Action) -> Sequence[on.Stimulus]:
        """One action with its two points where the life can end."""
        kind = type(action).__name__
        if self._point(actor, kind, "before"):
            self._maybe_late(actor, action)
            return ()
        if not actor.alive:
            return ()
        if isinstance(action, do.WriteOut):
            action = self._some(action)
        if isinstance(action, OF_USER_CODE):
            self.checks.before(actor.life, action, current=self._current(actor))
        if isinstance(action, do.WriteOut) and self.rnd.random() < self.faults.target_away:
            self.instances[actor.name].sinks[action.target].failing.append(  # type: ignore[index, union-attr]
                self.rnd.choice(action.writes).ssn
            )
        outcome = actor.life.execute(action)
        if actor.driver.over is not None:
            return ()  # killed inside user code
        if isinstance(action, do.StopCalls):
            actor.calls_stopped = True
        if isinstance(action, do.Generate | do.Release | do.Permit):
            self._pump(actor)
        if isinstance(action, do.Rebuild):
            self.checks.rebuilt(actor.life, action.image)
        if isinstance(action, do.Commit):
            self.checks.after_commit(actor.name, actor.life if self._current(actor) else None)
            if outcome and self.rnd.random() < self.faults.lose_answer:
                self.counts["answer lost"] += 1
                actor.driver.todo.append(action)  # the driver does not know, and commits again
                return ()
        self._point(actor, kind, "after")
        return outcome

    def _ask(self, actor: Actor, token: str) -> list[Any]:
        """A call of the paid service, by the user code of this life."""
        if actor.calls_stopped and actor.alive:
            raise Violation(f"ASKED-AFTER-STOP {actor.name} asks for {token}")
        actor.asked.add(token)
        return self.service.ask(token)

    def _current(self, actor: Actor) -> bool:
        journal = actor.life.journal
        return journal is not None and self.store.read(actor.name).incarnation() == journal.incarnation

    def _pump(self, actor: Actor) -> None:
        """Lets async user code run until it waits."""
        loop = self.loop
        if loop is None or not isinstance(actor.life.runner, AsyncRunner):
            return
        for _ in range(5):
            loop.call_soon(loop.stop)
            loop.run_forever()

    # ---- faults ---------------------------------------------------------------------------------------

    def _point(self, actor: Actor, kind: str, side: str) -> bool:
        """A point where a life can end; True if this one did."""
        index, self.points = self.points, self.points + 1
        self.hits[kind, side] += 1
        faults, rnd = self.faults, self.rnd
        if index in faults.kill_at:
            self.kills[kind, side] += 1
            self.kill(actor)
            return True
        if faults.budget <= 0:
            return False
        dice = rnd.random() / (8 if kind in RARE else 1)
        if dice < faults.crash:
            faults.budget -= 1
            victim = actor if rnd.random() < 0.7 else rnd.choice(self.actors)
            if faults.victims and victim.name not in faults.victims:
                return False
            if victim is actor:
                self.kills[kind, side] += 1
            self.kill(victim)
            return not actor.alive
        if dice < faults.crash + faults.zombie:
            faults.budget -= 1
            self._zombie(actor)
        elif dice < faults.crash + faults.zombie + faults.all_at_once:
            faults.budget -= 1
            self.counts["all at once"] += 1
            self.kills[kind, side] += 1
            for other in list(self.actors):
                self.kill(other)
            return True
        return False

    def _zombie(self, actor: Actor) -> None:
        """Declared dead while it lives on: at once, or paused until somebody wakes it."""
        if self.newest[actor.name] is not actor or actor.life.journal is None or self.incremental.stopping:
            return
        actor.dismissed = True
        actor.paused = self.rnd.random() < 0.5
        self.counts["zombie paused" if actor.paused else "zombie"] += 1
        self.spawn(actor.name)
        sleeping = [a for a in self.actors if a.paused]
        if sleeping and self.rnd.random() < 0.5:
            self.rnd.choice(sleeping).paused = False

    def maybe_stop(self, actor: Actor | None = None) -> None:
        """Somebody may stop a life: this one, or any. One that has calls under way has more to lose."""
        if self.faults.stop and self.user.random() < self.faults.stop:
            asking = [a for a in self.actors if a.life.calls_in_flight]
            self._stop(actor or self.user.choice(asking or self.actors))

    def _stop(self, actor: Actor) -> None:
        """At once, or it drains, and is told to stop when nothing moves any more."""
        if self.faults.budget > 0 and not actor.life.machine.stopping:
            self.faults.budget -= 1
            actor.driver.arrive(on.Command("drain" if self.user.random() < 0.5 else "stop"))

    def _land(self) -> None:
        self._late.pop(int(self.rnd.random() * len(self._late)))()

    def _ring(self, whom: BellName) -> None:
        for actor in self.actors:
            if actor.name == whom:
                if self.rnd.random() < self.faults.lose_bell:
                    self.counts["bell lost"] += 1
                else:
                    actor.driver.arrive(on.Bell())

    def _sweep(self) -> None:
        """The holder of the lease collects for one that has left."""
        if not self.finished:
            return
        self._sweep_one(self.rnd.choice(sorted(self.finished)))
        if self.evolving is not None:
            for name in self.evolving.every():
                self.evolving.sweep_former(name)

    def _sweep_one(self, name: InstanceName) -> None:
        sweep(self.instances[name].spec, self.store, self.moment)
        self.counts["swept"] += 1
        self.checks.after_commit(name)

    def _resolve_error(self, name: InstanceName, ssn: Ssn) -> None:
        """Somebody retries or drops an error, under a claim that fences the life; some are killed halfway. Now and
        then they ask twice, or give the rows anew, as they were. They look before they claim, as the runtime does: if
        all of them claimed, a set that takes longer than they wait would never be done."""
        reader, retry = self.store.read(name), self.user.random() < 0.7
        spec = self.instances[name].spec
        try:
            (error,) = reader.pick(ERRORS, [ssn])
        except Collected:
            return  # retried before, and gone
        rows = Produced(ERRORS, error.payload, error.rows, error.nbytes) if self.user.random() < 0.5 else None

        def change(image: Image) -> Step:
            return retry_step(image, spec, error, fixed=rows) if retry else drop_step(image, name, error)

        if self.user.random() < 0.9:
            try:
                if change(reader.image()).empty:
                    self.counts["asked in vain"] += 1
                    return
            except LogError:
                self.counts["can't be retried"] += 1
                return
        journal = self.store.claim(name)
        step = Step()
        try:
            step = change(journal.image)
        except LogError:
            self.counts["can't be retried"] += 1
        else:
            if not step.empty and self.user.random() < 0.9:
                step.number = journal.image.commits + 1
                journal.commit(step)
                self.counts["retried" if retry else "dropped"] += 1
                self.counts["rows replaced"] += self.checks.resolved(name, ssn, step, retried=retry)
                self.checks.after_commit(name)
        self.begin_again(name)
        if step.reopened and not self.store.read(name).image().ended:
            self.reopening.after(name)

    def begin_again(self, name: InstanceName) -> None:
        """A claim has fenced the life of an instance off: the supervisor begins another one."""
        if name in self.finished and self.store.read(name).image().left:
            return
        self.finished.discard(name)
        actor = self.newest[name]
        if not actor.alive or actor.life.journal is not None:  # else its claim is yet to come
            actor.dismissed = True
            self.spawn(name)

    # ---- time -----------------------------------------------------------------------------------------

    def moment(self, epoch: int = 0) -> Moment:
        """What the clocks of a life say."""
        return Moment(Monotonic(self.now + epoch), Wall(self.now + self.wall_ahead))

    def _set_clock(self) -> None:
        """By a moment, by about as much as anything here waits for, or by days."""
        by = self._setter.choice((2_000, 900_000, 40_000_000, 2 * 86_400_000_000))
        back = self._setter.random() < 0.5
        self._latest = max(self._latest, self.moment().wall)
        self.checks.lineage.forget_old()
        self.wall_ahead += -by if back else by
        self.counts["clock set back" if back else "clock set forward"] += 1

    def wake(self, actor: Actor, at: Monotonic) -> None:
        """A life waits for this time."""
        self._wakes.append((at - actor.epoch, self.counts["move"], actor))

    def idle(self) -> None:
        """Nothing can move: async code goes on, time passes to the next timer, everyone looks, sleepers wake."""
        self.counts["idle"] += 1
        for actor in list(self.actors):
            self._pump(actor)
        self.incremental.all_report()
        self._wakes = [w for w in self._wakes if w[2].alive]
        for actor in self.actors:
            if actor.life.machine.draining or actor.life.machine.stopping:
                actor.driver.arrive(on.Command("stop"))
            elif self.newest[actor.name] is actor and not actor.paused and not actor.busy:
                self.checks.at_rest(actor.life, self.moment().wall, wakes=any(w[2] is actor for w in self._wakes))
        if self._wakes:
            self.now = max(self.now, min(w[0] for w in self._wakes))
            due = [w for w in self._wakes if w[0] <= self.now]
            self._wakes = [w for w in self._wakes if w[0] > self.now]
            for _, _, actor in due:
                actor.driver.arrive(on.Tick())
            if self.counts["idle"] % 4:
                return
        self.now += 1000
        if self.counts["idle"] > 3000:
            raise Violation(f"STUCK {self.where()}")
        for actor in self.actors:
            if not actor.paused:
                actor.driver.arrive(on.Bell())
        sleeping = [a for a in self.actors if a.paused]
        if sleeping and self.rnd.random() < 0.1:
            self.rnd.choice(sleeping).paused = False

    def _aftermath(self) -> None:
        """After the end: writes still land, zombies wake up and finish what they were doing."""
        while self._late:
            self._land()
        self.faults = Faults()
        for actor in self.actors:
            actor.paused = False
        for _ in range(400):
            busy = [a for a in self.actors if a.busy]
            if not busy:
                break
            self.rnd.choice(busy).driver.step()
        for actor in list(self.actors):
            actor.driver.end(KILLED)
        self.checks.lineage.at_end()
        kept = [keep.age for instance in self.instances.values() for keep in instance.spec.retain.values()]
        self.wall_ahead = max(self._latest - self.now, self.wall_ahead)  # what was put out ahead of time has its age
        self.now += max(kept, default=0) + 1  # nothing is kept any longer; what is needed is known downstream first
        every = list(self.instances) if self.evolving is None else self.evolving.every()
        for name in (*(reversed(every) if kept else ()), *every):
            if name in self.instances:
                self._sweep_one(name)
            elif self.evolving is not None:
                self.evolving.sweep_former(name)

    def where(self) -> str:
        """What is not finished, for messages."""
        found: list[str] = []
        for name, actor in self.newest.items():
            if name not in self.finished:
                image = self.store.read(name).image()
                kinds = Counter(type(x).__name__ for x in (*actor.driver.todo, *actor.driver.stimuli))
                found.append(
                    f"{name}: {actor.life.machine.phase} sets={len(image.sets)} due={len(image.due)} "
                    f"ended={image.ended} waiting={dict(kinds)}"
                )
        return " | ".join(found)


def explain(error: BaseException) -> str:
    """One line of a violation."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


VIOLATIONS: tuple[type[BaseException], ...] = (
    Violation,
    LoglineError,
    AssertionError,
    KeyError,
    IndexError,
    TypeError,
)
