"""Random graphs of non-deterministic operators under random crash schedules (DESIGN section 13).

A failing seed is printed and replays: `python -m logline.testing simulate --seed S --schedules 1`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logline.testing.__main__ import main
from logline.testing.sim.faults import Faults
from logline.testing.sim.operators import Pick
from logline.testing.sim.outside import Violation
from logline.testing.sim.runs import Simulator, draw_faults
from logline.testing.sim.scenarios import chain, drawn
from logline.testing.sim.world import World


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    simulator = Simulator()
    yield simulator
    simulator.close()


@given(
    graph=st.integers(0, 1 << 30),
    schedule=st.integers(0, 1 << 30),
    faults=st.builds(
        Faults,
        budget=st.integers(0, 20),
        crash=st.sampled_from([0.0, 0.01, 0.05, 0.2]),
        zombie=st.sampled_from([0.0, 0.02]),
        all_at_once=st.sampled_from([0.0, 0.005]),
        lose_bell=st.sampled_from([0.0, 0.3, 0.9]),
        lose_answer=st.sampled_from([0.0, 0.2]),
        late_write=st.sampled_from([0.0, 0.5, 1.0]),
        target_away=st.sampled_from([0.0, 0.3]),
        stop=st.sampled_from([0.0, 0.01]),
    ),
)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_any_graph_under_any_schedule(simulator: Simulator, graph: int, schedule: int, faults: Faults) -> None:
    scenario = drawn(graph)
    World(scenario.instances, schedule, faults=faults, service=scenario.service, loop=simulator.loop).run()


def test_a_thousand_schedules_hit_every_crash_point(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["simulate", "--schedules", "1000", "--seed", "20261115"])
    report = capsys.readouterr().out
    assert code == 0, report
    assert "schedules 1000" in report
    assert "violations 0" in report
    assert "never killed at" not in report


def test_a_seed_replays_exactly() -> None:
    reports = []
    for _ in range(2):
        simulator = Simulator()
        for seed in range(40, 44):
            simulator.schedule(seed)
        reports.append((simulator.tally.moves, simulator.tally.counts, simulator.tally.kills))
        simulator.close()
    assert reports[0] == reports[1]


@pytest.mark.parametrize("seed", [2911, 307649])
def test_seeds_that_once_found_a_bug(simulator: Simulator, seed: int) -> None:
    """2911: writes read back from the log while the answer to the commit that holds them is still under way.
    307649: an error that was dropped after the history of a lineage scope had gone, and was kept for good."""
    before = len(simulator.tally.violations)
    simulator.run(drawn(seed), seed, replace(draw_faults(seed), stop=0.0), f"seed {seed}")
    assert simulator.tally.violations[before:] == []


@pytest.mark.parametrize("seed", [270018465, 270021279])
def test_seeds_where_asking_again_held_up_a_retry(simulator: Simulator, seed: int) -> None:
    """Whoever asked for a retry claimed the journal first and looked then: a set that makes many calls was fenced off
    before it came to its end, again and again."""
    simulator.schedule(seed)


@pytest.mark.parametrize("seed", [134, 70203])
def test_seeds_where_a_connection_was_replaced_by_one_at_its_end(simulator: Simulator, seed: int) -> None:
    """Sets were open, every input had ended, and nobody took in an end any more: it left without generating them."""
    world = simulator.schedule(seed)
    assert world.counts["evolved"]
    assert not simulator.tally.violations


@pytest.mark.parametrize("seed", [940000021])
def test_operators_are_renamed_while_events_are_under_way(simulator: Simulator, seed: int) -> None:
    world = simulator.schedule(seed)
    assert world.counts["renamed"]
    assert not simulator.tally.violations


@pytest.mark.parametrize(
    ("seed", "found"),
    [
        (940000117, "what the earlier generation had not finished kept the events of its senders for good"),
        (940000501, "what the earlier generation had made lost its lineage before the scope's time was over"),
    ],
)
def test_operators_are_made_anew_while_events_are_under_way(simulator: Simulator, seed: int, found: str) -> None:
    world = simulator.schedule(seed)
    assert world.counts["made anew"]
    assert not simulator.tally.violations, found


@pytest.mark.parametrize("seed", [610004030, 610004365])
def test_seeds_where_a_run_that_closes_died_or_was_late(simulator: Simulator, seed: int) -> None:
    """Its source had logged the end of what it read, and not its own; or did so after the next run had looked."""
    simulator.schedule(seed)


@pytest.mark.parametrize("seed", [20261609, 20261899])
def test_seeds_that_found_a_bug_in_a_stop(simulator: Simulator, seed: int) -> None:
    """A set in generation waited for its writes to be executed, which a life that stops did not do any more."""
    before = len(simulator.tally.violations)
    simulator.schedule(seed)
    assert simulator.tally.violations[before:] == []


class Forgetful(Pick):
    """Loses the last record of each event: what the end check is there to notice."""

    def generate(self, inset, acc, ctx):  # type: ignore[no-untyped-def]
        yield from super().generate(inset, acc[:-1], ctx)


def test_a_lost_record_is_a_violation(simulator: Simulator) -> None:
    scenario = chain("replayable", "positioned")
    op = scenario.instances["pick"].op  # type: ignore[index]
    op.__class__ = Forgetful
    with pytest.raises(Violation, match="EXACTLY-ONCE pick"):
        World(scenario.instances, 1, service=scenario.service, loop=simulator.loop).run()


def test_a_violation_is_reported_with_its_seed(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:  # type: ignore[no-untyped-def]
    def broken(self: Pick, inputs: object, outputs: object) -> None:
        raise Violation("BROKEN on purpose")

    monkeypatch.setattr(Pick, "check", broken)
    seed = next(s for s in range(100) if any(isinstance(p.op, Pick) for p in drawn(s).instances.values()))
    assert main(["simulate", "--schedules", "1", "--seed", str(seed)]) == 1
    assert f"--seed {seed} --schedules 1: drawn({seed}): Violation: BROKEN on purpose" in capsys.readouterr().out


def test_a_soak_that_was_cut_short_goes_on(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    kept = tmp_path / "soak.json"
    assert main(["simulate", "--schedules", "5", "--seed", "7", "--resume", str(kept)]) == 0
    assert main(["simulate", "--schedules", "9", "--seed", "7", "--resume", str(kept)]) == 0
    resumed = capsys.readouterr().out.rpartition("schedules 9")[2]
    assert main(["simulate", "--schedules", "9", "--seed", "7"]) == 0
    assert capsys.readouterr().out.rpartition("schedules 9")[2] == resumed  # the same tally as in one go
