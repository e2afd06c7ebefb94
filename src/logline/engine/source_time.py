"""The event time of a source (R30): the least, over its partitions, of the greatest time put out minus the lateness.

A partition that has ended does not count, nor one that has had nothing to read for `idle`. One that is not read since
nobody takes its events is not idle. Of a source whose partitions are read in turn, the greatest time of all counts.
"""

from __future__ import annotations

from collections.abc import Iterable

from logline.engine.clock import EventClock, of_inputs
from logline.engine.event_time import IDLE
from logline.engine.image import Image
from logline.engine.moments import Monotonic
from logline.engine.port_time import PortTime
from logline.engine.spec import InstanceSpec
from logline.engine.step import Step
from logline.names import ChannelName, PartitionName

_STAGED = "+"


class SourceTime:
    """The clock of one source, and what its port says of it."""

    def __init__(self, spec: InstanceSpec, port: PortTime) -> None:
        self._port = port
        keys = [ChannelName(f"@{name}") for name in spec.partitions]
        self._key = {p: keys[0] if spec.in_turn else key for p, key in zip(spec.partitions, keys, strict=True)}
        self._clock = EventClock(dict.fromkeys(self._key.values()), lateness=spec.lateness, idle=spec.idle)
        self._staged: dict[PartitionName, int] = {}
        """The greatest time of a staged read, until all of it is shown."""
        self._logged: dict[ChannelName, int] = {}
        self._idle = False

    def restore(self, image: Image, now: Monotonic) -> None:
        """As it was; silence is counted anew."""
        for partition in self._key:
            staged = image.clock.get(ChannelName(_STAGED + partition))
            progress = image.reads.get(partition)
            if staged is not None and progress is not None and progress.status == "complete":
                self._staged[partition] = staged
        self._clock.restore(of_inputs(image.clock), (), now)
        self._logged = self._clock.image()
        self._idle = bool(image.clock.get(IDLE))

    def read(self, partition: PartitionName, time: int | None, now: Monotonic) -> None:
        """Something was put out, with this greatest time."""
        self._clock.saw(self._key[partition], time, now)

    def stage(self, partition: PartitionName, time: int | None, step: Step) -> None:
        """Something was read that is shown later."""
        if time is not None:
            time = max(time, self._staged.get(partition, time))
            self._staged[partition] = step.clock[ChannelName(_STAGED + partition)] = time

    def unstage(self, partition: PartitionName) -> None:
        """The read failed half way: what it found is not shown."""
        self._staged.pop(partition, None)

    def shown(self, partition: PartitionName, now: Monotonic) -> None:
        """All that was staged is shown. What the log says of it is not taken back: it is true from now on."""
        self.read(partition, self._staged.pop(partition, None), now)

    def advance(
        self, read: Iterable[PartitionName], waiting: Iterable[PartitionName], step: Step, now: Monotonic
    ) -> Monotonic | None:
        """Moves on as far as it may, with `read`: those that have ended, and `waiting`: those that have nothing for
        now. Returns when to look again."""
        clock, ended = self._clock, set(read)
        clock.ended = {key for key in self._key.values() if all(p in ended for p, k in self._key.items() if k == key)}
        silent = {self._key[p] for p in waiting}
        for key in clock.greatest:
            if key not in silent:
                clock.active[key] = now  # it is not read, or has just been: that is no silence
        time, rests = clock.advance(now), clock.rests(now)
        if (logged := clock.image()) != self._logged:
            self._logged = logged
            step.clock.update(logged)
        if rests != self._idle:
            self._idle = rests
            step.clock[IDLE] = int(rests)
        self._port.passes(time, rests=rests)
        self._port.seal(waits=False)
        return clock.next_silence(now, silent)
