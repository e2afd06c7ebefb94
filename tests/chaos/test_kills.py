"""A few dozen kills of each shape of pipeline, by a plan; `make kills` makes as many as one likes."""

from __future__ import annotations

from pathlib import Path
from random import SystemRandom

import pytest
from tests.chaos.kills import plan_of, run
from tests.chaos.shapes import SHAPES


@pytest.mark.parametrize(("number", "shape"), list(enumerate(SHAPES)))
def test_what_is_left_after_kills(number: int, shape: str, tmp_path: Path) -> None:
    """Armed points, random times, several and all at once, the driver, zombies: as if nothing had happened."""
    seed = SystemRandom().randrange(1 << 32)
    number += SystemRandom().choice((0, len(SHAPES)))  # one durability or the other
    print(f"python -m tests.chaos.kills --seed {seed} --run {number} --rounds 5 --lives 3")
    plan = plan_of(seed, number, rounds=5, lives=3)
    assert plan.shape == shape
    kills = run(tmp_path, plan)
    print(dict(kills))
    assert sum(kills.values())  # kills, stops and takeovers; how many there is time for depends on the machine
