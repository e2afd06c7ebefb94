"""Every crash point of source -> stateless -> stateful (two input sets per event) -> writer, for every kind of source
and every kind of target: the run equals one without failure at every port and every target (DESIGN section 13)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from logline.graph.connector import Guarantee
from logline.testing.sim.faults import Faults
from logline.testing.sim.runs import Simulator
from logline.testing.sim.scenarios import ReadKind, chain, merging


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    simulator = Simulator()
    yield simulator
    simulator.close()


@pytest.mark.parametrize("guarantee", ["positioned", "guarded", "named"])
@pytest.mark.parametrize("kind", ["replayable", "non-replayable", "destructive"])
def test_a_kill_at_every_point(simulator: Simulator, kind: ReadKind, guarantee: Guarantee) -> None:
    worlds = list(simulator.every_point(lambda: chain(kind, guarantee), seed=1))
    calm = worlds[0]
    assert simulator.tally.violations == []
    assert calm.points > 200  # the base schedule is no trivial one
    assert simulator.tally.counts["crash"] >= calm.points - 1
    # Both sides of every action of the base schedule were hit.
    assert set(simulator.tally.kills) == set(calm.hits)


def test_a_kill_at_every_point_of_runs_that_are_applied(simulator: Simulator) -> None:
    """Of which some events fail, and are tried again as sets of their own."""
    worlds = list(simulator.every_point(lambda: chain("replayable", "positioned", events=8, plain=True), seed=1))
    assert simulator.tally.violations == []
    assert {("Apply", "before"), ("Apply", "after"), ("Generate", "before")} <= set(worlds[0].hits)
    assert set(simulator.tally.kills) == set(worlds[0].hits)


def test_a_kill_at_every_point_of_a_hand_over(simulator: Simulator) -> None:
    """A source of which each life can read one partition: the next life goes on where the last one handed over."""
    worlds = list(simulator.every_point(lambda: chain("apart", "positioned"), seed=8, reopen=True))
    assert simulator.tally.violations == []
    assert worlds[0].counts["handed"] == 4  # two, and two more after the end was taken back
    assert set(simulator.tally.kills) == set(worlds[0].hits)


@pytest.mark.parametrize("seed", [3, 7])
def test_a_kill_at_every_point_of_sets_that_merge(simulator: Simulator, seed: int) -> None:
    """R32: also of sets that are generated and stay open."""
    worlds = list(simulator.every_point(lambda: merging(seed), seed=seed))
    assert len(worlds) > 50
    assert simulator.tally.violations == []


def test_a_kill_at_every_point_with_checkpoints_of_open_sets(simulator: Simulator) -> None:
    """R22: also between a checkpoint and its commit, and before what it covers is let go."""
    worlds = list(simulator.every_point(lambda: chain("replayable", "positioned", eventual=True), seed=1))
    assert simulator.tally.violations == []
    assert worlds[0].checks.checkpoints.made > 0
    assert {("Checkpoint", "before"), ("Checkpoint", "after"), ("LetGo", "before")} <= set(worlds[0].hits)
    assert set(simulator.tally.kills) == set(worlds[0].hits)


def test_a_second_kill_during_the_recovery_from_the_first(simulator: Simulator) -> None:
    """Two kills close together, all over the schedule: the second mostly strikes the life that recovers."""
    calm = simulator.run(chain("non-replayable", "positioned"), 3, Faults(), "calm")
    for first in range(0, calm.points, 4):
        for gap in (2, 5, 9, 14):
            faults = Faults(kill_at=frozenset({first, first + gap}))
            simulator.run(chain("non-replayable", "positioned"), 3, faults, f"killed at {first} and {first + gap}")
    assert simulator.tally.violations == []
    assert simulator.tally.counts["crash in recovery"] > 30
