"""Runs that read what is there and leave the streams open (`until="now"`, R11'), one after the other on one log.

The driver is simulated too. It takes ends back before a life begins, hears from its lives how they are, and tells
them to stop when nobody has anything to do. It dies at any moment of this, and another run goes on. Sources grow
between the runs and while one goes on. The last run reads to the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from logline.engine import stimuli as on
from logline.engine.events import Position
from logline.engine.keyed import is_key_timer
from logline.engine.spec import write_port
from logline.names import InstanceName, PortName, Ssn
from logline.runtime.control.reopening import finish_reopening, in_order, take_back_ends
from logline.runtime.lives.catching_up import all_taken
from logline.runtime.lives.gathering import gathers
from logline.testing.sim.outside import Violation
from logline.testing.sim.reopening import renewed, source_of

if TYPE_CHECKING:
    from logline.runtime.lives.instances import Instance
    from logline.testing.sim.world import Actor, World


class DriverDied(Exception):
    """While it took ends back."""


class IncrementalRuns:
    """The drivers of one simulated log."""

    def __init__(self, world: World, rnd: Random, runs: int) -> None:
        self._world, self._rnd = world, rnd
        self.runs = runs
        """How many read what is there, before one reads to the end."""
        self.at_last = False
        """Whether the last run has begun."""
        self.stopping = False
        """Whether this run has told its lives to stop: none is begun any more."""
        self._quiet: dict[InstanceName, Actor] = {}
        """The lives that have said that they rest."""
        self._calm: list[Ssn] | None = None
        self._offered: dict[InstanceName, int] = {}

    def before_the_last(self) -> None:
        """All runs but the last: each catches up, or dies."""
        for _ in range(self.runs):
            self._begin(until_now=True, closes=self._rnd.random() < 0.2)
            while any(actor.alive for actor in self._world.newest.values()):
                self._world.move()
                if self._rnd.random() < 0.002:
                    self._grow()
                if self._rnd.random() < 0.0006:
                    self._die()
                    break
                self._look(self._rnd.choice(list(self._world.newest.values())))
            if self._rnd.random() < 0.7:
                self._grow()

    def last(self) -> None:
        """One that ends the streams. It reads to the end, or takes back the ends of earlier runs and closes."""
        self.at_last = True
        images = [self._world.store.read(n).image() for n, i in self._world.instances.items() if i.source]
        ended = any(image.ended or any(read.ended for read in image.reads.values()) for image in images)
        self._begin(until_now=ended, closes=ended)

    def all_report(self) -> None:
        """Nothing moves: every life reports, twice before anybody looks whether a bell was lost."""
        for actor in (*self._world.newest.values(), *self._world.newest.values()):
            self._look(actor)

    # ---- the beginning --------------------------------------------------------------------------------

    def _begin(self, *, until_now: bool, closes: bool) -> None:
        """As a start does: ends are taken back under claims, then all lives begin. Some drivers die before that."""
        world = self._world
        world.define({n: self._renewed(i, until_now, closes) for n, i in world.instances.items()})
        specs = in_order([instance.spec for instance in world.instances.values()])
        while True:
            try:
                with self._dying():
                    finish_reopening(world.store, specs)
                    if until_now:
                        take_back_ends(world.store, specs)
                break
            except DriverDied:
                world.counts["driver died"] += 1
        for name in world.instances:
            if name in world.store.instances():
                world.checks.after_commit(name)
        self.stopping, self._calm = False, None
        self._offered = self._what_is_there()
        self._quiet.clear()
        world.begin()

    def _renewed(self, instance: Instance, until_now: bool, closes: bool) -> Instance:
        instance = renewed(instance)
        return replace(instance, spec=replace(instance.spec, until_now=until_now, closes=closes))

    @contextmanager
    def _dying(self) -> Iterator[None]:
        """A driver that dies before one of its claims, or between it and its commit."""
        store: Any = self._world.store
        claims = self._rnd.randint(0, 6) if self.runs and self._rnd.random() < 0.3 else -1

        def claim(name: InstanceName) -> Any:
            nonlocal claims
            claims -= 1
            if claims == -1:
                if self._rnd.random() < 0.5:
                    type(store).claim(store, name)
                raise DriverDied
            return type(store).claim(store, name)

        store.claim = claim
        try:
            yield
        finally:
            del store.claim

    # ---- while it goes on -----------------------------------------------------------------------------

    def _grow(self) -> None:
        for instance in self._world.instances.values():
            if instance.source is not None and self._rnd.random() < 0.7:
                source_of(instance).grow(self._rnd)
                self._world.counts["grown"] += 1

    def _die(self) -> None:
        """Its lives die with it. Some do not: another host, or another run has taken over."""
        self._world.counts["driver died"] += 1
        for actor in list(self._world.newest.values()):
            if actor.alive and actor.life.journal is not None and self._rnd.random() < 0.2:
                actor.dismissed = True
                actor.paused = self._rnd.random() < 0.5
            else:
                self._world.kill(actor, restart=False)

    def _look(self, actor: Actor) -> None:
        """One reports. If all have said that they rest, and there is nothing to take, twice, they are told to stop.
        Reports are old: one that rested may have taken something since."""
        world = self._world
        if self.at_last or self.stopping:
            return
        if not world.instances[actor.name].spec.stays_open or actor is not world.newest[actor.name]:
            return
        machine = actor.life.machine
        told = machine.draining or machine.stopping  # by somebody who ends this life: it reads no more, and rests
        if actor.alive and not actor.paused and not told and actor.driver.quiet():
            self._quiet[actor.name] = actor
        else:
            self._quiet.pop(actor.name, None)
        if any(self._quiet.get(n) is not a and n not in world.finished for n, a in world.newest.items()):
            return
        heads = all_taken(world.store, [instance.spec for instance in world.instances.values()])
        if heads is None:
            return
        self._quiet.clear()
        if heads == self._calm and gathers(world.store, world.instances):
            world.counts["flushed"] += 1
            for one in world.newest.values():
                one.driver.arrive(on.Command("flush"))
            heads = None
        elif heads == self._calm:
            self._check_caught_up()
            self.stopping = True
            world.counts["caught up"] += 1
            for one in world.newest.values():
                one.driver.arrive(on.Command("stop"))
        self._calm = heads

    # ---- what it says then ----------------------------------------------------------------------------

    def _what_is_there(self) -> dict[InstanceName, int]:
        """So many events of each replayable source are logged, or there to be read."""
        found = {}
        for name, instance in self._world.instances.items():
            if instance.source is not None and instance.spec.replayable and not instance.spec.destructive:
                found[name] = source_of(instance).size()
        return found

    def _check_caught_up(self) -> None:
        """A run that says it has caught up has read all that was there at its start, and taken it to the end."""
        store = self._world.store
        for name, instance in self._world.instances.items():
            image = store.read(name).image()
            logged = store.read(name).put_out(PortName("out"))
            if logged < self._offered.get(name, logged):
                raise Violation(f"CAUGHT-UP {name} has logged {logged} events, there were {self._offered[name]}")
            if any(timer.is_span and not is_key_timer(inset) for inset, timer in image.timers.items()):
                raise Violation(f"CAUGHT-UP {name} gathers for a while: {image.timers}")
            if image.due:
                raise Violation(f"CAUGHT-UP {name} has sets to generate: {image.due}")
            for target in instance.spec.targets:
                if image.written.get(target, 0) != image.head(write_port(target)).last:
                    raise Violation(f"CAUGHT-UP {name} has writes to do for {target}")
            for channel in instance.spec.inputs:
                at = image.positions.get(channel.name, Position()).ssn
                if at != store.read(channel.sender).head(channel.out).last:
                    raise Violation(f"CAUGHT-UP {name} has not taken all of {channel.name}")
