"""Spark as a host: each life of a group is a Spark job with one long-running task.

Three layers bring a group back. The task's own process forks the next life at once (`respawn.py`). If that process is
killed, Spark runs the task again within the same job, as long as `spark.task.maxFailures` allows. In both cases the
new life reports `Started`, and that is how the driver knows of the death of the last one. A job that failed all the
same is submitted again by the supervisor.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from logline.errors import LogError
from logline.graph.shipping import ship
from logline.runtime.hosts.seam import Ended, Group, Hear
from logline.runtime.messages.notes import GROUP_STATUSES, is_cut_off
from logline.runtime.messages.reports import LETTERS
from logline.runtime.messages.wire import NotAMessage
from logline.spark.jobs import GroupJob, Job, PartitionJob, frame_source
from logline.spark.jvm import Jvm
from logline.spark.modules import send_modules
from logline.spark.refusals import one_host
from logline.spark.session import JOBS, own_python
from logline.spark.source import FrameSource
from logline.spark.task import REPORTS, SCHEMA, Order, commands_box, outcomes_of, working_folder
from logline.spark.tenant import SparkTenant
from logline.spark.watchdog import orders_box
from logline.store.seam import Mailbox, Store

logger = logging.getLogger("logline")
LOOK = 0.5
"""Seconds between two looks at what the tasks report, without a bell."""
MUCH = 1000
"""Reports after which the box is emptied."""
DEAF = 3.0
"""Seconds without a look after which reports do not come through: the log's server is away."""


class _NoTraces(logging.Filter):
    """Py4J tells the root logger of each call that a dead JVM did not answer, with a traceback; a run that ends for
    that says so itself."""

    def filter(self, record: logging.LogRecord) -> bool:
        return f"{os.sep}py4j{os.sep}" not in record.pathname


_no_traces = _NoTraces()


def _hush(spark: SparkSession) -> None:
    """For good: the session outlives a run. The server of PySpark's accumulators prints a traceback, too, if the JVM
    dies while it speaks."""
    logging.getLogger().addFilter(_no_traces)
    server: Any = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda request, address: None


class SparkHost:
    """Starts a job for each life, and takes the reports of their tasks."""

    patient = True

    def __init__(self, spark: SparkSession, store: Store, log: str, run: str) -> None:
        self.spark = spark
        self.run = run
        self.own_jobs = f"{JOBS}{run}-", f"{JOBS}sql", f"{JOBS}warm-up"
        """How the groups of those jobs begin that are this run's, or that Logline runs beside it."""
        self._store = store
        self._log = log
        self._jobs: dict[str, Job] = {}
        self._tenants: dict[str, SparkTenant] = {}
        self._box = store.mail(REPORTS)
        self._box.drop()
        self._hearing = threading.Lock()
        self._received = 0
        self._unreadable: dict[str, bytes] = {}
        """Statuses that can't be read, by group; each is told once."""
        self._bell, self._over = threading.Event(), threading.Event()
        self._unlisten = store.on_bell(REPORTS, self._bell.set)
        self._making = threading.Lock()
        _hush(spark)
        self.jvm = Jvm(spark)
        self._looked = time.monotonic()
        self._thread = threading.Thread(target=self._listen, name="logline-spark", daemon=True)
        self._thread.start()

    def start(self, group: Group, life: int, hear: Hear, ended: Callable[[Ended], None]) -> SparkTenant:
        """Submits the group's job on a thread of its own."""
        self.mail(group.name).drop()  # a life before may have been told to end; what holds for this one is told again
        if group.name not in self._tenants:
            self.orders(group.name).drop()
        tenant = SparkTenant(self, group, life, hear, ended)
        self._tenants[group.name] = tenant
        tenant.begin()
        return tenant

    def hears(self) -> bool:
        """Not while the server of the log is away."""
        return time.monotonic() - self._looked < DEAF

    def broken(self) -> str:
        """Says so if the JVM is gone."""
        return self.jvm.gone()

    def job(self, group: Group) -> Job:
        """The job of a group, for all its lives. May wait for the JVM."""
        with self._making:
            if group.name not in self._jobs:
                self._jobs[group.name] = self._job(group)
            return self._jobs[group.name]

    def _job(self, group: Group) -> Job:
        context = self.spark.sparkContext
        shared = one_host(context.master)
        if not shared and not self._jobs:  # once in a run
            send_modules(context)
        folder = working_folder() if shared else ""
        order = Order(
            self.run,
            group.name,
            self._log,
            self._store.log_id,
            ship(dict(group.instances)),
            logger.getEffectiveLevel(),
            os.environ.get("LOGLINE_FAULT", ""),
            tuple(os.path.abspath(p) for p in sys.path if shared and (folder or os.path.isabs(p))),
            folder,
        )
        with own_python(context):
            plain = GroupJob(context, order)
            if (instance := frame_source(group)) is None:
                return plain
            assert isinstance(instance.source, FrameSource)
            return PartitionJob(instance.source.frame.tasks(outcomes_of(order), SCHEMA), instance, self._store, plain)

    def mail(self, group: str) -> Mailbox:
        """The box from which the task of a group takes its commands."""
        return self._store.mail(commands_box(group))

    def orders(self, group: str) -> Mailbox:
        """The box from which the watchdogs of a group's tasks take their orders."""
        return self._store.mail(orders_box(group))

    def _listen(self) -> None:
        while not self._over.is_set():
            self.receive()
            self._looked = time.monotonic()
            self._bell.wait(LOOK)
            self._bell.clear()

    def receive(self) -> None:
        """Reads what the tasks have sent, and the statuses that they have written down. If the log is gone, there is
        nothing to read: the supervisor ends the run."""
        with self._hearing, contextlib.suppress(LogError):
            lines = self._box.receive()
            self._received += len(lines)
            for letter in LETTERS.understood(lines, "a Spark task"):
                tenant = self._tenants.get(letter.group)
                if letter.run == self.run and tenant is not None:
                    tenant.hear(letter)
            if self._received > MUCH:  # only log lines could be lost here; how a life ended is in the job's result
                self._received = 0
                self._box.drop()
            for group, data in self._store.statuses().items():
                if group in self._tenants:
                    self._look(group, data)

    def _look(self, group: str, data: bytes) -> None:
        if is_cut_off(data):
            return
        try:
            status = GROUP_STATUSES.decode(data)
        except NotAMessage as error:
            if self._unreadable.get(group) != data:  # it lies there until the group writes its next one
                self._unreadable[group] = data
                logger.error("what is written down for %s in the log is %s", group, error)
            return
        if status.task is not None and status.task.run == self.run:
            self._tenants[group].look(status, status.task)

    def close(self) -> None:
        """Ends the listening and drops the mail, when no life is left."""
        self.jvm.close()
        self._over.set()
        self._bell.set()
        self._thread.join()
        self._unlisten()
        self._box.drop()
        for group in self._tenants:
            self.mail(group).drop()
            self.orders(group).drop()
