"""`python -m logline.testing simulate`: many simulated schedules of the shipped machine, with every kind of failure.

Prints how many schedules ran, the crashes in them, how often a life was killed at which action and on which side,
and every violation with the seed that replays it. Exit code 1 on a violation, or if a point was never hit.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections import Counter
from pathlib import Path

from logline.testing.sim.runs import Simulator, Tally


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m logline.testing", description="Logline's test tools.")
    commands = parser.add_subparsers(dest="command", required=True)
    simulate = commands.add_parser(
        "simulate",
        help="run simulated schedules with crashes, zombies, lost bells and late writes",
        description="Each schedule is a random pipeline with a random interleaving and failures, from one seed.",
    )
    simulate.add_argument("--schedules", type=int, default=1000, help="how many (default %(default)s)")
    simulate.add_argument("--seed", type=int, default=0, help="the first seed; they count up (default %(default)s)")
    simulate.add_argument("--stop", action="store_true", help="stop at the first violation")
    simulate.add_argument("--resume", type=Path, help="a file to keep the tally in: a run cut short goes on there")
    return parser


def _load(path: Path | None, seed: int) -> Tally:
    if path is None or not path.exists():
        return Tally()
    kept = json.loads(path.read_text())
    if kept["seed"] != seed:
        raise SystemExit(f"{path} belongs to --seed {kept['seed']}: remove it, or give that seed")
    return Tally(
        kept["schedules"],
        kept["moves"],
        Counter(kept["counts"]),
        Counter({(kind, side): n for kind, side, n in kept["kills"]}),
        [(replay, what) for replay, what in kept["violations"]],
    )


def _save(path: Path, seed: int, tally: Tally) -> None:
    kept = {
        "seed": seed,
        "schedules": tally.schedules,
        "moves": tally.moves,
        "counts": tally.counts,
        "kills": [(kind, side, n) for (kind, side), n in tally.kills.items()],
        "violations": tally.violations,
    }
    aside = path.with_suffix(".new")
    aside.write_text(json.dumps(kept))
    aside.replace(path)  # a kill leaves the old tally or the new one, never half a file


def simulate(schedules: int, seed: int, resume: Path | None, *, stop: bool = False) -> int:
    """Runs the schedules, prints the tally, and returns the exit code."""
    simulator = Simulator()
    simulator.tally = tally = _load(resume, seed)
    began, shown = time.monotonic(), time.monotonic()
    for index in range(tally.schedules, schedules):
        simulator.schedule(seed + index)
        if stop and tally.violations:
            break
        if time.monotonic() - shown > 5:
            shown = time.monotonic()
            rate = (index + 1) / (shown - began)
            print(
                f"{index + 1}/{schedules} schedules, {len(tally.violations)} violations, {rate:.0f}/s",
                file=sys.stderr,
            )
            if resume is not None:
                _save(resume, seed, tally)
    if resume is not None:
        _save(resume, seed, tally)
    simulator.close()
    print(tally.report())
    failed = bool(tally.violations)
    if tally.schedules >= 1000 and (missing := tally.missing()):
        failed = True
        print("never killed at:", ", ".join(f"{kind} ({side})" for kind, side in missing))
    return 1 if failed else 0


def main(argv: list[str] | None = None) -> int:
    """Runs the command line `python -m logline.testing`, and returns its exit code."""
    given = _parser().parse_args(argv)
    logging.getLogger("logline").addHandler(logging.NullHandler())  # writes that fail are part of it
    return simulate(given.schedules, given.seed, given.resume, stop=given.stop)


if __name__ == "__main__":
    sys.exit(main())
