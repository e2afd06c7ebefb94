"""Kills processes of running pipelines by the hundred, and compares what they leave with a run without failure.

    python -m tests.chaos.kills --kills 500 --seed 7
    python -m tests.chaos.kills --kills 10000 --resume .kills.json     goes on where it was stopped
    python -m tests.chaos.kills --seed 7 --run 12                      one run again

A run is a pipeline of `shapes`, driven and struck by `striking` in a process of its own. Its plan follows from the
seed and the number of the run; when exactly a strike lands does not. After each run: the same rows in files and in
the database, each once; no process, socket or temporary file left.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from tests.chaos.shapes import SHAPES, result
from tests.chaos.striking import Plan, save, send
from tests.postgres import server
from tests.waiting import PATIENCE

from logline.store.address import find_store
from logline.store.postgres.host import meeting_folder

ROOT = Path(__file__).parents[2]
MARK = "LOGLINE_KILLS"


class Wrong(AssertionError):
    """A run that is not as it must be."""


def plan_of(seed: int, number: int, rounds: int, lives: int, log: str = "") -> Plan:
    """Shapes take turns, both durabilities too. One driver of each run is killed, or taken over. `log`: the DSN of a
    server, if the log is to be there."""
    shape = list(SHAPES)[number % len(SHAPES)]
    durability = ("process", "disk")[number // len(SHAPES) % 2]
    return Plan(f"{seed}/{number}", shape, durability, rounds, lives, drivers=1, log=log)


@cache
def expected(shape: str, events: int) -> dict[str, Any]:
    """The result of a run without failure, in one process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "allowed").write_text(f"{events}\n")
        SHAPES[shape](folder, events).run(engine="inline")
        return result(shape, folder)


def begin(folder: Path, life: int, *options: str) -> subprocess.Popen[bytes]:
    """Its output goes to files: what lives on with user code would hold a pipe open."""
    with (folder / "stdout").open("a") as out, (folder / "stderr").open("a") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.striking", str(folder), str(life), *options],
            cwd=ROOT,
            env={**os.environ, MARK: str(folder)},
            stdout=out,
            stderr=errors,
        )


class Watch:
    """Gives up on a run in which nobody has struck, and nothing was let in, for long."""

    def __init__(self, folder: Path) -> None:
        self.signs = (folder / "strikes.jsonl", folder / "allowed")
        self.seen, self.until = -1, 0.0

    def look(self) -> None:
        seen, now = sum(path.stat().st_size for path in self.signs), time.monotonic()
        if seen != self.seen:
            self.seen, self.until = seen, now + PATIENCE
        if now > self.until:
            raise Wrong("it does not get on")


def changed(process: subprocess.Popen[bytes], watch: Watch) -> bool:
    """Waits until it has ended or was stopped; whether it was stopped."""
    while process.poll() is None:
        if Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
            return True
        watch.look()
        time.sleep(0.05)  # who asks too often slows down what it waits for
    return False


def struck(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "strikes.jsonl").read_text().splitlines()]


def run(folder: Path, plan: Plan) -> Counter[str]:
    """One run, from its first driver to its end: how many processes were killed, by kind. Raises if it is wrong."""
    save(folder, plan)
    watch = Watch(folder)
    rnd = Random(f"{plan.seed}/wakes")
    life, killed_drivers = 0, 0
    driver = begin(folder, life)
    started = [driver]
    try:
        while True:
            if changed(driver, watch):
                zombie = driver
                driver = begin(folder, life := life + 1, "takeover")
                started.append(driver)
                time.sleep(rnd.random() * 1.5)  # before, while or after the other run claims the journals
                asleep = [line["pids"] for line in struck(folder) if line.get("kind") == "takeover"][-1]
                send([*asleep, zombie.pid], signal.SIGCONT)
                if changed(zombie, watch) or zombie.returncode != 0:
                    raise Wrong(f"a driver that was taken over ended with {zombie.returncode}")
            elif driver.returncode == -signal.SIGKILL:
                killed_drivers += 1
                driver = begin(folder, life := life + 1)
                started.append(driver)
            else:
                break
        if driver.returncode != 0 or not (folder / "stdout").read_text().endswith("finished\n"):
            raise Wrong(f"the last driver ended with {driver.returncode}")
        nothing_left(folder, plan)
        if result(plan.shape, folder) != expected(plan.shape, plan.events):
            raise Wrong("the result is not that of a run without failure")
    finally:
        send([*processes(folder), *daemons(folder)], signal.SIGKILL)
        for process in started:
            process.wait()
    return tally(folder, killed_drivers)


def nothing_left(folder: Path, plan: Plan) -> None:
    """No process, no socket, no file that was written aside, no lease."""
    until = time.monotonic() + PATIENCE
    while left := processes(folder):
        send(left, signal.SIGCONT)  # one that was stopped while it began, by a driver that did not live to wake it up
        if time.monotonic() > until:
            raise Wrong(f"processes are left: {left}")
        time.sleep(0.01)
    found: list[Any] = list((folder / "files").glob(".*"))
    if plan.log:
        store = find_store(plan.url(folder))
        assert store is not None
        found += [*(meeting_folder(store.log_id) / "bells").iterdir(), *filter(None, [store.running()])]
        store.close()
    else:
        log = folder / "log"
        found += [*(log / "bells").iterdir(), *log.glob("lease.*"), *log.rglob(".*")]
    if found:
        raise Wrong(f"something is left: {found}")


def processes(folder: Path) -> list[int]:
    """Those that this run has started, whoever is their parent now. Not what has made itself a daemon."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{MARK}={folder}".encode() in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
    return sorted(set(found) - set(daemons(folder)))


def daemons(folder: Path) -> list[int]:
    """What user code has put into a session of its own."""
    with contextlib.suppress(OSError):
        return [int(line) for line in (folder / "daemons").read_text().split()]
    return []


def tally(folder: Path, drivers: int) -> Counter[str]:
    """Processes killed with signal 9, by kind. Armed deaths are the restarts that nothing else explains."""
    kills: Counter[str] = Counter()
    sent = restarts = 0
    for line in struck(folder):
        count = len(line.get("pids", ()))
        if line.get("kind") in ("one", "several", "all", "silent", "everything"):
            kills[line["kind"]] += count
        elif line.get("kind") == "driver":
            kills["with their driver"] += count
        elif "kind" in line:
            kills[f"({line['kind']})"] += count
        if line.get("kind") in ("one", "several", "all", "silent", "zombie"):
            sent += count
        restarts += line.get("restarts", 0)
    kills["driver"] += drivers
    kills["armed"] += max(restarts - sent, 0)
    return kills


def total(kills: Counter[str]) -> int:
    """Kinds in brackets are stops, not kills."""
    return sum(count for kind, count in kills.items() if not kind.startswith("("))


def campaign(
    seed: int, number: int, wanted: int, resume: Path | None, rounds: int, lives: int, log: str = ""
) -> None:
    """Run after run, from `number` on, until enough processes were killed."""
    kills: Counter[str] = Counter()
    if resume is not None and resume.exists():
        known = json.loads(resume.read_text())
        seed, number, kills = known["seed"], known["runs"], Counter(known["kills"])
    began = time.monotonic()
    while total(kills) < wanted:
        folder = Path(tempfile.mkdtemp(prefix="logline-kills-"))
        try:
            found = run(folder, plan_of(seed, number, rounds, lives, log))
        except BaseException:
            again = f"--seed {seed} --run {number} --rounds {rounds} --lives {lives}"
            print(f"run {number} failed, see {folder}; once more: {again}", flush=True)
            raise
        shutil.rmtree(folder)
        kills.update(found)
        number += 1
        if resume is not None:
            aside = resume.with_name(f"{resume.name}.new")
            aside.write_text(json.dumps({"seed": seed, "runs": number, "kills": dict(kills)}))
            aside.replace(resume)
        spent = time.monotonic() - began
        print(f"run {number - 1}: {total(found)} kills; {total(kills)} of {wanted} in {spent:.0f} s", flush=True)
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(kills.items()))
    print(f"seed {seed}: {total(kills)} kills in {number} runs ({kinds}); every result as without failure")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.kills", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--run", type=int, default=None, help="only this run of the seed")
    parser.add_argument("--resume", type=Path, default=None, help="keep the tally in a file, and go on there")
    parser.add_argument("--rounds", type=int, default=12, help="strikes in each run")
    parser.add_argument("--lives", type=int, default=8, help="lives of each operator that die at armed points")
    parser.add_argument("--postgres", action="store_true", help="with logs in a PostgreSQL of its own")
    given = parser.parse_args()
    log = server().dsn if given.postgres else ""
    seed = Random().randrange(1 << 32) if given.seed is None else given.seed
    if given.run is not None:
        campaign(seed, given.run, 1, None, given.rounds, given.lives, log)
    else:
        campaign(seed, 0, given.kills, given.resume, given.rounds, given.lives, log)


if __name__ == "__main__":
    main()
