"""R30 in the simulator: windows of windows behind sources that are late, out of order and crash."""

from collections.abc import Iterator

import pytest

from logline.engine.events import WATERMARK_HEADER
from logline.names import InstanceName, PortName
from logline.testing.sim.faults import Faults
from logline.testing.sim.runs import Simulator
from logline.testing.sim.scenarios import windows_of_windows
from logline.testing.sim.world import World


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    found = Simulator()
    yield found
    found.close()


@pytest.mark.parametrize("first", [0, 1000])
def test_no_record_is_late_whatever_fails(simulator: Simulator, first: int) -> None:
    for seed in range(first, first + 25):
        simulator.windows(seed)
    assert not simulator.tally.violations, simulator.tally.report()
    assert simulator.tally.counts["crash"] > 50


def totals(world: World, name: str) -> dict[str, int]:
    """How many records each window that was put out has."""
    rows = world.checks.ghost[InstanceName(name), PortName("out")].values()
    return {row.payload[0][0]: len(row.payload) for row in rows if row.kind == "event"}


@pytest.mark.parametrize("seed", [3, 8])
def test_windows_have_the_same_totals_with_and_without_crashes(simulator: Simulator, seed: int) -> None:
    calm = simulator.run(windows_of_windows(seed), seed, Faults(), "calm", reopen=False)
    rough = simulator.run(windows_of_windows(seed), seed, Faults(budget=20, crash=0.05), "rough", reopen=False)
    assert not simulator.tally.violations, simulator.tally.report()
    assert rough.counts["crash"] >= 5
    for name in ("hours", "days"):
        assert totals(calm, name) == totals(rough, name) != {}


def test_windows_close_before_the_end(simulator: Simulator) -> None:
    """Else time would not flow: at the end they close anyway."""
    early = 0
    for seed in range(10):
        world = simulator.run(windows_of_windows(seed, events=12), seed, Faults(), f"seed {seed}", reopen=False)
        rows = world.checks.ghost[InstanceName("days"), PortName("out")]
        said = [row.headers.get(WATERMARK_HEADER) for row in rows.values() if row.headers]
        early += len([time for time in said if isinstance(time, int) and time >= 12])
    assert not simulator.tally.violations, simulator.tally.report()
    assert early >= 10
