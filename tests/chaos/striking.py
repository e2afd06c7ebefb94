"""A driver that strikes at its own workers, and at itself, by a plan that follows from a seed.

    python -m tests.chaos.striking FOLDER LIFE [takeover]

`FOLDER/plan.json` holds the plan; `LIFE` is how many drivers there were before. Each round lets the pipeline go on a
little and then strikes. What is done is written down first, so that it is known when this process does not live on.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import psycopg
from tests.chaos.shapes import SHAPES

import logline as ll
from logline.errors import TakenOver
from logline.runtime.control import supervisor

STRIKES = {"one": 5, "several": 3, "all": 2, "pause": 2, "zombie": 2, "silent": 0.5}
"""How often each is drawn, against the others, where the driver goes on."""
SERVER_STRIKES = {"sessions": 3}
"""The same where the log is in PostgreSQL: the server ends all its sessions, as when it is restarted."""
DRIVER_STRIKES = {"driver": 3, "everything": 2, "takeover": 2}
CHUNK = 20
"""Events that a round lets in."""
SILENCE, BEGIN = 3.0, 8.0
"""Seconds after which a life counts as hanging, and one that has not begun."""

ARMED = ("claim.inside", "commit.before", "commit.inside", "commit.after")
POINTS: dict[str, dict[str, tuple[str, ...]]] = {
    "stateless": {"doubled": ("user.code",), "files": ("write.before", "write.after")},
    "stateful": {
        "blocks": ("user.code", "user.update"),
        "database": ("user.open", "user.position", "user.write", "write.before", "write.after"),
        "files": ("write.before", "write.after"),
    },
    "two_inputs": {
        "pairs": ("user.code", "user.update"),
        "database": ("user.open", "user.position", "user.write", "write.before", "write.after"),
        "files": ("write.before", "write.after"),
    },
    "writers": {
        "asks": ("user.code", "user.open", "user.position", "user.write", "write.before", "write.after"),
        "rated": ("user.code",),
        "files": ("write.before", "write.after"),
    },
    "children": {
        "pooled": ("user.code", "user.open"),
        "piped": ("user.code", "user.open"),
        "files": ("write.before", "write.after"),
    },
}
"""Where an operator can die besides `ARMED`; those that are no source also in generation and recovery."""


@dataclass(frozen=True)
class Plan:
    """All that a run does follows from this."""

    seed: str
    shape: str
    durability: Any
    rounds: int
    lives: int
    """The first lives of each operator under each driver die at an armed point, most of them."""
    drivers: int
    """How many drivers are killed or taken over."""

    log: str = ""
    """The DSN of the server that has the log; empty: it is in the run's folder."""

    @property
    def events(self) -> int:
        return self.rounds * CHUNK

    def url(self, folder: Path) -> str:
        """The address of the log."""
        if not self.log:
            return f"lmdb:{folder / 'log'}"
        name = "".join(c if c.isalnum() else "_" for c in str(folder).lower())[-40:]
        return f"{self.log}&log=k_{name}"

    def armed(self, operators: list[str], life: int) -> str:
        """The points of the workers under the driver number `life`."""
        rnd = Random(f"{self.seed}/armed/{life}")
        found = []
        for name in operators:
            own = POINTS[self.shape].get(name, ())
            more = () if name in ("numbers", "left", "right") else ("generate.inside", "rebuild.before")
            for n in range(self.lives):
                if rnd.random() < 0.9:
                    point = rnd.choice((*ARMED, *own, *own, *more))
                    once = point in ("claim.inside", "rebuild.before", "user.open", "user.position")
                    found.append(f"{name}:{point}:{1 if once else rnd.randint(1, 4)}:{n}")
        return ",".join(found)

    def strikes(self) -> list[str]:
        """One for each round. The driver's own ends are spread over the run."""
        rnd = Random(f"{self.seed}/strikes")
        drawn = STRIKES | SERVER_STRIKES if self.log else STRIKES
        found = rnd.choices(list(drawn), weights=list(drawn.values()), k=self.rounds)
        for at in rnd.sample(range(self.rounds), k=min(self.drivers, self.rounds)):
            found[at] = rnd.choices(list(DRIVER_STRIKES), weights=list(DRIVER_STRIKES.values()))[0]
        return found


class Striker:
    """Strikes round after round, and lets the pipeline go to its end after the last one."""

    def __init__(self, folder: Path, plan: Plan, run: ll.Run, first: int) -> None:
        self.folder, self.plan, self.run, self.first = folder, plan, run, first
        self.names = list(run.status().operators)
        self.rnd = Random(f"{plan.seed}/from/{first}")
        self.seen: set[int] = set()

    def note(self, **what: Any) -> None:
        with (self.folder / "strikes.jsonl").open("a") as file:
            file.write(json.dumps(what) + "\n")

    def allow(self, events: int) -> None:
        """The greatest line counts: a driver that was taken over may still be at it."""
        with (self.folder / "allowed").open("a") as file:
            file.write(f"{events}\n")

    def work(self) -> None:
        try:
            self.rounds()
        except BaseException:
            traceback.print_exc()
            os._exit(70)

    def begun(self) -> bool:
        """Whether every operator has, or had, a process."""
        return self.run.status().phase != "running" or all(self.run.pid(name) for name in self.names)

    def rounds(self) -> None:
        until = time.monotonic() + 30.0
        while not self.begun() and time.monotonic() < until:
            time.sleep(0.005)
        for at, kind in list(enumerate(self.plan.strikes()))[self.first :]:
            self.allow((at + 1) * CHUNK)
            self.settle()
            time.sleep(self.rnd.random() * 0.08)  # not to wait for anything: to strike at any moment
            if self.run.status().phase != "running":
                break
            self.strike(at, kind)
        self.note(restarts=self.restarts())

    def restarts(self) -> int:
        return sum(operator.restarts for operator in self.run.status().operators.values())

    def settle(self) -> None:
        """Until every operator that lives has a life that has claimed its journal: a process that still starts is
        struck in vain. Not for long, since one that dies at its claim never gets there."""
        until = time.monotonic() + 1.0
        while time.monotonic() < until and any(not self.claimed(name) for name in self.names):
            time.sleep(0.005)

    def claimed(self, name: str) -> bool:
        pid = self.run.pid(name)
        with contextlib.suppress(OSError, ValueError, IndexError):  # it is being written
            owner = (self.folder / "log" / "journals" / name / "owner").read_text().split()[0]
            return pid is None or int(owner) == pid
        return pid is None

    def pids(self, names: list[str]) -> list[int]:
        found = [pid for name in names if (pid := self.run.pid(name)) is not None and pid not in self.seen]
        self.seen.update(found)
        return found

    def strike(self, at: int, kind: str) -> None:
        rnd = self.rnd
        if kind == "sessions":
            self.note(round=at, kind=kind, pids=[])
            end_sessions(self.plan.log)
            return
        count = {"one": 1, "pause": 1, "zombie": 1, "silent": 1, "several": rnd.randint(2, 3)}.get(
            kind, len(self.names)
        )
        names = rnd.sample(self.names, count)
        pids = self.pids(names)
        note: dict[str, Any] = {"round": at, "kind": kind, "pids": pids}
        self.note(**(note | {"restarts": self.restarts()} if kind in DRIVER_STRIKES else note))
        if kind in ("one", "several", "all"):
            send(pids, signal.SIGKILL)
        elif kind == "everything":
            send([*pids, os.getpid()], signal.SIGKILL)
        elif kind == "driver":
            send([os.getpid()], signal.SIGKILL)
        elif kind == "takeover":  # who started this process starts another one, and wakes these up later
            send([*pids, os.getpid()], signal.SIGSTOP)
        elif kind == "silent":  # the supervisor finds out
            send(pids, signal.SIGSTOP)
        elif kind == "pause":
            send(pids, signal.SIGSTOP)
            time.sleep(rnd.random() * 0.3)
            send(pids, signal.SIGCONT)
        elif pids:
            send(pids, signal.SIGSTOP)
            declare_dead(self.run, names[0])
            time.sleep(rnd.choice((0.0, 0.3, 0.8)))  # it wakes up before or after the next life has claimed
            send(pids, signal.SIGCONT)


def end_sessions(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()")


def declare_dead(run: ll.Run, name: str) -> None:
    """Starts the next life while the old process is still there, as a supervisor that can't reach it would."""
    engine: Any = run._engine
    worker = engine.workers[name]

    def replace() -> None:
        if worker.tenant is not None:
            worker.restarts += 1
            engine._start(worker)

    engine._events.put(replace)


def send(pids: list[int], sign: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, sign)


def main() -> None:
    folder, life, takeover = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] == ["takeover"]
    plan = Plan(**json.loads((folder / "plan.json").read_text()))
    known = [json.loads(line) for line in (folder / "strikes.jsonl").read_text().splitlines()]
    first = 1 + max((line["round"] for line in known if "round" in line), default=-1)
    pipeline = SHAPES[plan.shape](folder, plan.events)
    os.environ["LOGLINE_FAULT"] = plan.armed(list(pipeline.graph().nodes), life)
    settings: Any = {} if plan.log else {"durability": plan.durability}
    run = pipeline.start(plan.url(folder), engine="processes", takeover=takeover, **settings)
    engine: Any = run._engine
    supervisor.BEGIN = BEGIN
    supervisor.LONGEST = 1
    if engine is not None:
        engine.soon, engine.silence = 0.0, SILENCE  # no death counts as soon after the last, however many there are
        threading.Thread(target=Striker(folder, plan, run, first).work, daemon=True).start()
    try:
        print(run.wait().phase, flush=True)
    except TakenOver:
        print("taken over", flush=True)


def save(folder: Path, plan: Plan) -> None:
    """What a driver begins with."""
    (folder / "plan.json").write_text(json.dumps(asdict(plan)))
    (folder / "strikes.jsonl").touch()
    (folder / "allowed").write_text("0\n")


if __name__ == "__main__":
    main()
