"""A driver for a cluster, with a module and a package beside it that no worker has. What its source may give stands
in a table, so that the test decides how far the pipeline gets."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from tests.waiting import until

from logline.runtime.messages.notes import GROUP_STATUSES
from logline.runtime.status import OperatorStatus

EVENTS = 120

JOB = """
import json, logging, os, sys
import beside
import logline as ll
from logline.runtime.control.supervisor import Supervisor

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
logging.getLogger("py4j").setLevel(logging.ERROR)
Supervisor.silence = 8.0
address = os.environ["SPARK_LOCAL_IP"]
settings = {
    "spark.driver.host": address,
    "spark.driver.bindAddress": address,
    "spark.ui.enabled": False,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.pyspark.python": sys.executable,
    "spark.python.daemon.module": "logline.spark.daemon",
    "spark.executorEnv.LOG": os.environ["LOG"],
    "spark.executorEnv.OUT": os.environ["OUT"],
    "spark.storage.blockManagerHeartbeatTimeoutMs": 10000,
    "spark.executor.heartbeatInterval": "2s",
    "spark.network.timeoutInterval": "1s",
    **json.loads(os.environ.get("SETTINGS", "{}")),
}
spark = ll.session("shop", master=os.environ["MASTER"], **settings)
try:
    run = beside.pipeline().start(ll.env("LOG"), spark=spark)
    status = run.wait(600)
    plain = run.result("plain")["n"].to_pylist()
    print("RESULT", json.dumps({"phase": status.phase, "plain": plain}), flush=True)
except ll.LoglineError as error:
    print("FAILED", str(error).replace(chr(10), " "), flush=True)
spark.stop()
"""

BESIDE = """
import os
import psycopg
import pyarrow as pa
import logline as ll
from shop import doubling


class Paced(ll.Source):
    schema = pa.schema([("n", pa.int64())])
    gather = False

    def read(self, partition, offset):
        n = offset or 0
        while n < EVENTS:
            try:
                with psycopg.connect(os.environ["OUT"], autocommit=True, connect_timeout=5) as db:
                    (allowed,) = db.execute("select allowed from pace").fetchone()
            except psycopg.OperationalError:
                allowed = 0
            while n < allowed:
                n += 1
                yield pa.record_batch({"n": [n]}), n
            yield None


def pipeline():
    p = ll.Pipeline("shop")
    numbers = p.source("numbers", Paced(), rows=1)
    twice = numbers.map_batches("twice", doubling.double)
    sums = twice.window("sums", ll.events(3), agg={"total": ("n", "sum")})
    sums.sink("store", ll.sinks.postgres(ll.env("OUT"), "totals"))
    numbers.sink("plain", ll.sinks.collect())
    return p
""".replace("EVENTS", str(EVENTS))

DOUBLING = """
import pyarrow as pa
import pyarrow.compute as pc
from importlib import resources


def double(batch):
    by = int(resources.files("shop").joinpath("factor.txt").read_text())
    return pa.record_batch({"n": pc.multiply(batch["n"], by)})
"""

FILES = {
    "job.py": JOB,
    "beside.py": BESIDE,
    "shop/__init__.py": "",
    "shop/doubling.py": DOUBLING,
    "shop/factor.txt": "2",
}


def totals(events: int) -> list[int]:
    """What stands in the table once so many events have gone through."""
    return [2 * (3 * k + 1 + 3 * k + 2 + 3 * k + 3) for k in range(events // 3)]


class Story:
    """The pipeline as a test sees it: through the log, which it reads itself."""

    def __init__(self, ask: Callable[..., list[Any]], said: Callable[[], str], log: str) -> None:
        """`ask` asks the database, and `said` is what drivers have printed and logged."""
        self.said = said
        self.allowed = 0
        self.took: dict[str, float] = {}
        """Seconds from a fault until what came after it was in the target; for people."""
        self._ask = ask
        self._log = log
        ask("create table pace (allowed int)")
        ask("insert into pace values (0)")

    def more(self, events: int = 6) -> None:
        """Lets the source go on, and waits until what comes of it is in the target."""
        self.allowed += events
        self._ask(f"update pace set allowed = {self.allowed}")
        until(lambda: self.stored() == totals(self.allowed) or self.failed())

    def after(self, what: str, fault: Callable[[], Any]) -> None:
        """A fault, and on it goes."""
        began = time.monotonic()
        fault()
        self.more()
        self.took[what] = round(time.monotonic() - began, 1)

    def finish(self) -> None:
        """Lets everything through; the result is that of a run without a fault."""
        self.more(EVENTS - self.allowed)
        until(lambda: "RESULT" in self.said() or self.failed())
        result = json.loads(self.said().partition("RESULT")[2].splitlines()[0])
        assert result == {"phase": "finished", "plain": list(range(1, EVENTS + 1))}
        assert self.stored() == totals(EVENTS)

    def failed(self) -> bool:
        """Raises if the run has failed."""
        assert "FAILED" not in self.said(), self.said()
        return False

    def stored(self) -> list[int]:
        """What stands in the target."""
        if self._ask("select to_regclass('totals')") == [(None,)]:
            return []
        return [int(total) for (total,) in self._ask("select total from totals order by total")]

    def life(self, operator: str) -> OperatorStatus:
        """How an operator with a group of its own is, as it wrote down last: host and process among others."""
        query = f"select status from {self._log}.statuses where name = '{operator}'"
        # A life that has just begun tells of no operators.
        return until(lambda: GROUP_STATUSES.decode(bytes(self._ask(query)[0][0])).operators)[operator]
