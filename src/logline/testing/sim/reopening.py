"""Ends that are taken back in a simulated run (R11'): sources grow, and somebody reopens what is downstream."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from logline.engine.reopening import must_reopen, reopen_step
from logline.names import ChannelName, InstanceName, PartitionName, Ssn
from logline.runtime.lives.instances import Instance
from logline.testing.sim.outside import SimSource

if TYPE_CHECKING:
    from logline.testing.sim.world import World


def source_of(instance: Instance) -> SimSource:
    """Of an instance that has one."""
    assert isinstance(instance.source, SimSource)
    return instance.source


def renewed(instance: Instance) -> Instance:
    """As a run knows it that begins now: there may be new files."""
    if instance.source is None:
        return instance
    partitions = tuple(map(PartitionName, instance.source.partitions()))
    return replace(instance, spec=replace(instance.spec, partitions=partitions))


class Reopening:
    """The holder of the lease in one simulated run."""

    def __init__(self, world: World) -> None:
        self._world = world

    def grow(self) -> None:
        """All have left, and there is more to read; or somebody only looks."""
        sources = [name for name, instance in self._world.instances.items() if instance.source is not None]
        for name in self._world.user.sample(sources, self._world.user.randint(1, len(sources))):
            source_of(self._world.instances[name]).grow(self._world.user)
            self._world.define({n: renewed(instance) for n, instance in self._world.instances.items()})
            self._reopen(name, always=True)
            self.after(name)

    def after(self, first: InstanceName) -> None:
        """The holder of the lease takes back the ends of all that is downstream of an instance, each under a claim.
        Some die half way: the next run finishes it, as the log says, and begins all lives anew."""
        down = {first}
        for name, instance in self._world.instances.items():  # in the order of the graph
            if any(channel.sender in down for channel in instance.spec.inputs):
                if self._world.user.random() < 0.1:
                    self._finish_reopening()
                    return
                down.add(name)
                self._reopen(name, always=False)

    def _finish_reopening(self) -> None:
        self._world.counts["reopening finished later"] += 1
        for actor in [actor for actor in self._world.actors if self._world.newest[actor.name] is actor]:
            self._world.kill(actor, restart=False)
        self.finish()
        for name in self._world.instances:
            if name not in self._world.finished and not self._world.newest[name].alive:
                self._world.spawn(name)

    def finish(self) -> None:
        """Reopens what has ended while a sender has gone on, or has come. Nobody lives."""
        for name, instance in self._world.instances.items():
            if must_reopen(self._world.store.read(name).image(), instance.spec, self._heads(instance)):
                self._reopen(name, always=False)

    def _heads(self, instance: Instance) -> dict[ChannelName, Ssn]:
        return {c.name: self._world.store.read(c.sender).head(c.out).last for c in instance.spec.inputs}

    def _reopen(self, name: InstanceName, *, always: bool) -> None:
        instance, journal = self._world.instances[name], self._world.store.claim(name)
        if always or must_reopen(journal.image, instance.spec, self._heads(instance)):
            step = reopen_step(journal.image, instance.spec)
            if not step.empty:
                step.number = journal.image.commits + 1
                journal.commit(step)
                self._world.counts["reopened"] += 1
                self._world.checks.after_commit(name)
        self._world.begin_again(name)
