"""`run.result`: what a collect() sink got, read from the log, whoever wrote it and wherever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.numbers import Waiting
from tests.unit.runtime.taps import Tap
from tests.waiting import PATIENCE, until

from logline.connectors import sinks, sources
from logline.engine.spec import write_port
from logline.errors import Collected, LogError
from logline.graph.connector import Guarantee
from logline.names import InstanceName, OperatorName, TargetName
from logline.pipeline import Pipeline
from logline.runtime.control.run import Run
from logline.runtime.log.log import kept_writes

STORE, OUT = InstanceName("store"), TargetName("out")
COUNT = 1500
"""Events: enough that the sink would have collected its writes several times."""


def numbers(sink: Any = None) -> Pipeline:
    p = Pipeline("numbers")
    ids = p.source("ids", sources.batches(lambda: (pa.table({"id": [n]}) for n in range(COUNT))))
    ids.sink("store", sinks.collect() if sink is None else sink)
    return p


def ids(run: Run) -> list[int]:
    table = run.result("store")
    return table["id"].to_pylist() if table.num_columns else []


def same(run: Run, wanted: list[int]) -> bool:
    found = ids(run)
    assert found == wanted[: len(found)]
    return found == wanted


def kill(run: Run, operator: str) -> None:
    """Returns when another life is about to begin."""
    before = run.status().operators[operator].restarts
    pid = until(lambda: run.pid(operator))
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: run.status().operators[operator].restarts > before)


def stored(run: Run, operator: str) -> int:
    reader = run.log.store.read(InstanceName(operator))
    port: Any = write_port(OUT) if operator == "store" else "out"
    return len(reader.stored(port))


@pytest.mark.parametrize(("log", "engine"), [("memory:", "inline"), ("lmdb:", "inline"), ("lmdb:", "processes")])
def test_all_of_it_stays_in_the_log(tmp_path: Path, log: str, engine: Any) -> None:
    place = f"{log}{tmp_path}/log"
    run = numbers().run(place, engine=engine)
    assert ids(run) == list(range(COUNT))
    assert stored(run, "store") == COUNT
    assert stored(run, "ids") < COUNT  # what nothing needs is collected, as ever
    again = numbers().run(place, engine=engine)  # a finished log
    assert ids(again) == list(range(COUNT))


def test_during_the_run_it_grows(key: str) -> None:
    tap = Tap(key)
    p = Pipeline("growing")
    p.source("tap", tap).sink("store", sinks.collect())
    with p.start(engine="inline") as run:
        assert run.result("store").num_rows == 0
        for n in range(3):
            tap.put(n, run=run)
            so_far = list(range(n + 1))
            until(partial(same, run, so_far))  # the write and then what is known of it are on their way
        tap.close_it(run)
        run.wait(PATIENCE)
    assert ids(run) == [0, 1, 2]


def test_after_a_killed_worker(tmp_path: Path) -> None:
    p = Pipeline("numbers")
    p.source("ids", Waiting(tmp_path, COUNT // 2, COUNT // 2), rows=1).sink("store", sinks.collect())
    with p.start(f"lmdb:{tmp_path}/log", engine="processes", durability="process") as run:

        def seen() -> int:
            table = run.result("store")
            found = table["n"].to_pylist() if table.num_columns else []
            assert found == list(range(len(found)))
            return len(found)

        for _ in range(2):
            until(seen)
            kill(run, "store")
        (tmp_path / "go").touch()
        while not run._over.wait(0.002):
            seen()
        assert run.wait(PATIENCE).operators["store"].restarts == 2
        assert seen() == COUNT


ROOT = Path(__file__).parents[4]
SCRIPT = """
import os, sys
from tests.unit.runtime.control.test_result import ids, numbers

run = numbers().start(sys.argv[1], engine="inline")
while len(ids(run)) < 20:
    pass
os._exit(7)
"""


def test_a_later_run_has_what_the_earlier_one_got(tmp_path: Path) -> None:
    """The first run is another process, and what its collect() had at hand is gone with it."""
    log = f"lmdb:{tmp_path}/log"
    command = [sys.executable, "-c", SCRIPT, log]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=False)
    assert done.returncode == 7
    p = numbers()
    with p.start(log, engine="inline") as run:
        assert len(ids(run)) >= 20
        run.wait(PATIENCE)
    assert ids(run) == list(range(COUNT))
    kept: Any = p.graph().nodes[OperatorName("store")].targets[OUT]
    with pytest.raises(LogError, match=r"run\.result"):
        kept.table()


class Forgetful(sinks.Collect):
    """As a sink that was another one when the log was made."""

    guarantee: Guarantee = "positioned"
    kept = False


def test_writes_that_were_collected_are_not_left_out_in_silence(key: str) -> None:
    log = f"memory:{key}"
    numbers(Forgetful()).run(log, engine="inline")
    run = numbers().run(log, engine="inline")
    with pytest.raises(Collected, match=f"the first {COUNT} writes of 'store' are collected"):
        run.result("store")
    assert kept_writes(run.log.store, [InstanceName("nobody")], OUT).num_rows == 0
