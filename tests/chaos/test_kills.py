"""Five hundred kills, by a plan, spread over five shapes of pipelines; `make kills` makes as many as one likes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import SystemRandom

import pytest
from tests.chaos.kills import plan_of, run, total
from tests.chaos.shapes import SHAPES
from tests.postgres import Database

KILLS = 100
ROUNDS, LIVES = 40, 25


@pytest.mark.parametrize(("number", "shape"), list(enumerate(SHAPES)))
def test_what_is_left_after_kills(number: int, shape: str, tmp_path: Path) -> None:
    """Armed points, random times, several and all at once, the driver, zombies: as if nothing had happened."""
    seed = SystemRandom().randrange(1 << 32)
    number += SystemRandom().choice((0, len(SHAPES)))  # one durability or the other, and in the next run the other
    kills: Counter[str] = Counter()
    while total(kills) < KILLS:
        print(f"python -m tests.chaos.kills --seed {seed} --run {number} --rounds {ROUNDS} --lives {LIVES}")
        plan = plan_of(seed, number, ROUNDS, LIVES)
        assert plan.shape == shape
        folder = tmp_path / f"{number}"
        folder.mkdir()
        kills.update(run(folder, plan))
        print(dict(kills))
        number += len(SHAPES)


def test_what_is_left_after_kills_with_a_log_in_postgres(postgres: Database, tmp_path: Path) -> None:
    """The same, and the server ends its sessions now and then."""
    seed = SystemRandom().randrange(1 << 32)
    number, kills = SystemRandom().randrange(len(SHAPES)), Counter[str]()
    while total(kills) < KILLS // 2:
        print(f"python -m tests.chaos.kills --postgres --seed {seed} --run {number} --rounds 12 --lives 8")
        folder = tmp_path / f"{number}"
        folder.mkdir()
        kills.update(run(folder, plan_of(seed, number, 12, 8, postgres.bare)))
        print(dict(kills))
        number += 1
