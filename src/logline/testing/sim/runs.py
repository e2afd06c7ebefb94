"""Runs of many simulated schedules: drawn from seeds, or every crash point of a fixed one."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from random import Random

from logline.engine import actions as do
from logline.testing.sim.faults import Faults
from logline.testing.sim.scenarios import Scenario, drawn, windows_of_windows
from logline.testing.sim.world import VIOLATIONS, Point, World, explain


def _is_action(kind: type, name: str) -> bool:
    return issubclass(kind, do.Action) and kind is not do.Action and name not in OWNERS


SELDOM = 50_000
"""Objects that are made between two runs of the cycle collector. Lives come and go as whole graphs of objects: to
look at them as often as Python does by itself takes a sixth of the time."""
OWNERS = {"Wake", "Halt", "Leave"}
"""Not executed by a life, so not points where one can be killed."""
ALL_POINTS: tuple[Point, ...] = tuple(
    product(
        (name for name, kind in vars(do).items() if isinstance(kind, type) and _is_action(kind, name)),
        ("before", "after"),
    )
)


@dataclass
class Tally:
    """What a number of schedules came to."""

    schedules: int = 0
    moves: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    kills: Counter[Point] = field(default_factory=Counter)
    """How often a life was killed at which point."""
    violations: list[tuple[str, str]] = field(default_factory=list)
    """How to replay it, and what was broken."""

    def missing(self) -> list[Point]:
        """Points at which no life was killed."""
        return [point for point in ALL_POINTS if not self.kills[point]]

    def report(self) -> str:
        """The tally as lines of text for people."""
        lines = [
            f"schedules {self.schedules}, moves {self.moves}, crashes {self.counts['crash']}",
            f"crashes during recovery {self.counts['crash in recovery']}, of all lives {self.counts['all at once']}",
            f"zombies {self.counts['zombie'] + self.counts['zombie paused']}, fenced {self.counts['fenced']}",
            f"late writes {self.counts['late write']}, bells lost {self.counts['bell lost']}",
            f"commit answers lost {self.counts['answer lost']}, journals swept {self.counts['swept']}",
            f"errors retried {self.counts['retried']}, dropped {self.counts['dropped']}",
            f"lives stopped {self.counts['stopped']}, ends taken back {self.counts['reopened']}",
            f"pipelines changed {self.counts['evolved']}, changes refused {self.counts['change refused']}",
            f"operators renamed {self.counts['renamed']}, made anew {self.counts['made anew']}",
            f"drivers that died at a change {self.counts['died while it changed']}",
            f"runs caught up {self.counts['caught up']}, drivers died {self.counts['driver died']}",
            f"gathered rows let out {self.counts['flushed']}",
            f"rows of errors replaced {self.counts['rows replaced']}",
            f"wall clock set back {self.counts['clock set back']}, forward {self.counts['clock set forward']}",
            "",
            f"{'killed at':<16} {'before':>8} {'after':>8}",
        ]
        lines += [
            f"{action:<16} {self.kills[action, 'before']:>8} {self.kills[action, 'after']:>8}"
            for action in dict.fromkeys(kind for kind, _ in ALL_POINTS)
        ]
        lines += ["", f"violations {len(self.violations)}"]
        lines.extend(f"  {replay}: {what}" for replay, what in self.violations[:20])
        return "\n".join(lines)


class Simulator:
    """Runs schedules and keeps the tally."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda loop, context: None)  # tasks of killed lives
        self.tally = Tally()
        self._threshold = gc.get_threshold()
        gc.set_threshold(SELDOM)

    def close(self) -> None:
        """The event loop of async operators."""
        gc.set_threshold(*self._threshold)
        gc.collect()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    def run(
        self, scenario: Scenario, seed: int, faults: Faults, replay: str, *, reopen: bool = True, evolve: bool = False
    ) -> World:
        """One schedule. A violation is noted, not raised."""
        world = World(
            scenario.instances,
            seed,
            faults=faults,
            service=scenario.service,
            loop=self.loop,
            reopen=reopen,
            graph=scenario.graph if evolve else None,
        )
        try:
            world.run()
        except VIOLATIONS as error:
            self.tally.violations.append((replay, f"{scenario.description}: {explain(error)}"))
        self.tally.schedules += 1
        self.tally.moves += world.counts["move"]
        self.tally.counts.update(world.counts)
        self.tally.kills.update(world.kills)
        return world

    def schedule(self, seed: int) -> World:
        """The schedule of one seed: graph, faults and interleaving all follow from it."""
        return self.run(drawn(seed), seed, draw_faults(seed), f"--seed {seed} --schedules 1", evolve=True)

    def windows(self, seed: int) -> World:
        """A schedule of windows of windows (R30): whatever fails, no record is late."""
        scenario = windows_of_windows(seed)
        return self.run(scenario, seed, draw_faults(seed), f"windows of windows, seed {seed}", reopen=False)

    def schedules(self, first: int, count: int, progress: Callable[[int], None] | None = None) -> Tally:
        """So many seeds, from `first` on."""
        for index in range(count):
            self.schedule(first + index)
            if progress is not None:
                progress(index + 1)
        return self.tally

    def every_point(self, make: Callable[[], Scenario], seed: int, *, reopen: bool = False) -> Iterator[World]:
        """Kills the acting life at each single point of the schedule without faults, one run for each. With `reopen`
        also of what comes after an end was taken back, where the seed has that: twice the points, four times the
        work."""
        calm = self.run(make(), seed, Faults(), f"calm {seed}", reopen=reopen)
        yield calm
        for point in range(calm.points):
            faults = Faults(kill_at=frozenset({point}))
            yield self.run(make(), seed, faults, f"seed {seed}, killed at point {point}", reopen=reopen)


def draw_faults(seed: int) -> Faults:
    """How a schedule of this seed is treated."""
    rnd = Random(seed * 2654435761 + 1)
    return Faults(
        budget=rnd.randint(0, 15),
        crash=rnd.choice((0.005, 0.02, 0.06)),
        zombie=rnd.choice((0.0, 0.01)),
        all_at_once=rnd.choice((0.0, 0.003)),
        lose_bell=rnd.choice((0.0, 0.2, 0.6)),
        lose_answer=rnd.choice((0.0, 0.1)),
        target_away=rnd.choice((0.0, 0.2)),
        late_start=rnd.choice((0.0, 0.0, 0.3)),
        stop=rnd.choice((0.0, 0.002, 0.01)),
        set_clock=rnd.choice((0.0, 0.003, 0.03)),
    )
