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
import traceback
from collections.abc import Callable
from typing import Any, assert_never

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import SparkSession

from logline.errors import LogError, PipelineFailed
from logline.graph.shipping import ship
from logline.runtime.hosts.processes import outcome
from logline.runtime.hosts.seam import Ended, Group, Hear
from logline.runtime.messages.commands import KillProcess, WorkerCommand
from logline.runtime.messages.notes import GROUP_STATUSES, GroupStatus, TaskLife, is_cut_off
from logline.runtime.messages.reports import END, LETTERS, Letter, LogLine, Started, StatusReport
from logline.runtime.messages.wire import NotAMessage, encode
from logline.spark.jobs import GroupJob, Job, PartitionJob, frame_source
from logline.spark.jvm import Jvm
from logline.spark.session import JOBS, own_python
from logline.spark.slots import slots_now, use
from logline.spark.source import FrameSource
from logline.spark.task import LIFE, REPORTS, SCHEMA, Order, commands_box, outcomes_of, working_folder
from logline.spark.watchdog import orders_box
from logline.store.lmdb.environment import started
from logline.store.seam import Mailbox, Store

logger = logging.getLogger("logline")
LOOK = 0.5
"""Seconds between two looks at what the tasks report, without a bell."""
MUCH = 1000
"""Reports after which the box is emptied."""
LONG = 20.0
"""Seconds after which a task that has room should have begun: a cold Python takes some."""
GONE = 5.0
"""Seconds that a task has to end when it is killed."""
HEARSAY = 1.0
"""Seconds that Spark has to tell why a task failed."""


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
        folder = working_folder()
        order = Order(
            self.run,
            group.name,
            self._log,
            self._store.log_id,
            ship(dict(group.instances)),
            logger.getEffectiveLevel(),
            os.environ.get("LOGLINE_FAULT", ""),
            tuple(os.path.abspath(p) for p in sys.path if folder or os.path.isabs(p)),
            folder,
        )
        context = self.spark.sparkContext
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


class SparkTenant:
    """One life that the supervisor started: a Spark job, with as many lives of the task as that brings back."""

    def __init__(
        self,
        host: SparkHost,
        group: Group,
        life: int,
        hear: Hear,
        ended: Callable[[Ended], None],
    ) -> None:
        self._host = host
        self._group = group
        self._life = life
        self._hear = hear
        self._ended = ended
        self._newest = life - 1
        self._process: tuple[int, str] | None = None
        self._respawner: tuple[int, str] | None = None
        self._ordered: tuple[int, str] | None = None
        """The process that a watchdog was told to kill last."""
        self._submitted = time.monotonic()
        self._seen = 0.0
        self._lag = 0
        """Events that its operators had not taken when they told of it last."""
        self._job = f"{JOBS}{host.run}-{group.name}-{life}"
        self._thread = threading.Thread(target=self._run, name=f"logline {group.name}", daemon=True)

    def begin(self) -> None:
        """Submits the job, once the host knows this tenant and can hand its reports on."""
        self._thread.start()

    def _run(self) -> None:
        context = self._host.spark.sparkContext
        try:
            work = self._host.job(self._group)
            again = f" (restart {self._life})" if self._life else ""
            names = f"logline: {', '.join(self._group.instances)}{again}"
            context.setJobGroup(self._job, names, interruptOnCancel=True)
            context.setLocalProperty("callSite.short", names)  # the name of its stage
            context.setLocalProperty(LIFE, str(self._life))
            ended = outcome(END.decode(work.run().encode()))
        except NotAMessage as error:
            ended = Ended(error=PipelineFailed(f"the task of {self._group} returned something that is {error}"))
        except PythonException as error:
            # Whatever user code does is an outcome, so this is Spark's own Python that can't even begin.
            ended = Ended(error=PipelineFailed(f"a Spark task can't host {self._group}: {_short(str(error))}"))
        except (Py4JError, PySparkException, OSError) as error:
            ended = self._how(error)
        except BaseException as error:  # nobody waits for an end in vain
            text = f"the job of {self._group} failed: {type(error).__name__}: {error}"
            ended = Ended(error=PipelineFailed(text, traceback=traceback.format_exc()))
        self._process = None
        try:
            self._host.receive()  # what it said and counted up to its end
        finally:
            self._ended(ended)

    def _how(self, error: Exception) -> Ended:
        if gone := self._host.jvm.gone_now():
            return Ended(error=PipelineFailed(gone))
        text = str(error)
        if "cancelled" in text:
            return Ended(how="was cancelled")
        return Ended(how=f"died ({_short(str(error))})")

    # ---- what is heard --------------------------------------------------------------------------------

    def hear(self, letter: Letter) -> None:
        """Hands a report of the group on to the supervisor; a `Started` only if it is of a newer life."""
        match letter.report:
            case LogLine() as line:
                self._hear(line)
            case Started(pid, how):
                if letter.life <= self._newest:
                    return
                first = self._newest < self._life
                self._newest = letter.life
                # A respawner knows how its lives end; where Spark has brought the task back, Spark does.
                how = "" if first else how or f"died{self._why()} and was brought back by Spark"
                if not first:
                    self._show(how)
                self._hear(Started(pid, how))
            case report:
                assert_never(report)

    def _why(self) -> str:
        """Asks Spark why the last task failed; it may learn of that a moment after the next one has begun."""
        nothing: list[str] = []
        failures = self._host.jvm.ask(self._failures, nothing)
        return f" ({_short(failures[-1])})" if failures else ""

    def _failures(self) -> list[str]:
        context: Any = self._host.spark.sparkContext
        tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
        until = time.monotonic() + HEARSAY
        found: list[str] = []
        while not found and time.monotonic() < until:
            stages = [s for job in tracker.getJobIdsForGroup(self._job) for s in tracker.getJobInfo(job).stageIds]
            for stage in stages:
                tasks = store.taskList(stage, 0, MUCH)
                errors = (tasks.apply(i).errorMessage() for i in range(tasks.size()))
                found += [str(error.get()) for error in errors if error.isDefined()]
            time.sleep(HEARSAY / 20)
        return found

    def _show(self, how: str) -> None:
        """Shows a restart in Spark's UI, among the completed jobs. Spark fixes the description of a job when it is
        submitted, so this is a job of its own; it has no partitions, takes no slot, and nobody waits for it."""
        context: Any = self._host.spark.sparkContext
        text = f"logline: {', '.join(self._group.instances)} {how}: restart {self._newest}, lag {self._lag} events"

        def show() -> None:
            context.setJobDescription(text)  # of this thread's jobs
            context._jsc.emptyRDD().count()

        self._host.jvm.ask(show, None, patience=0)

    def look(self, status: GroupStatus, task: TaskLife) -> None:
        """Takes the status that the task has written down, if it is a new one of this job."""
        if task.life < self._life or status.at == self._seen:
            return
        self._seen = status.at
        self._process = (status.pid, task.born)
        self._respawner = task.respawner
        self._lag = sum(operator.lag for operator in status.operators.values())
        if task.life == self._newest:
            self._hear(StatusReport(status.operators, status.quiet))

    @property
    def pid(self) -> int | None:
        """The process of the life: one that the task's Python worker has forked, or that worker itself."""
        return _living(self._process)

    # ---- what is done to it ---------------------------------------------------------------------------

    def tell(self, command: WorkerCommand) -> None:
        """Sends the command through the group's mailbox; the task reads it within a second."""
        self._host.mail(self._group.name).send(encode(command))

    def kill(self) -> None:
        """Orders the watchdog of the task to kill the life; the respawner brings it back, or Spark does, or the job
        fails. If that was ordered before, there is no watchdog to do it: the job is cancelled. Where no process is,
        Spark is at it: after the loss of an executor that takes a while, and a job that is cancelled would have to
        begin anew."""
        process = self._process if self.pid is not None else self._respawner
        if process is None:
            return
        if process == self._ordered and _living(process) is not None:
            self._cancel()
        self._order(process)

    def _order(self, process: tuple[int, str]) -> None:
        self._ordered = process
        with contextlib.suppress(LogError):  # on a full disk, say: then Spark kills it
            self._host.orders(self._group.name).send(encode(KillProcess(*process)))

    def close(self) -> None:
        """Cancels the job first, so that Spark does not bring the worker back. A life goes with its respawner."""
        self._cancel()
        self._thread.join(GONE / 10)
        if self._thread.is_alive() and self._respawner is not None:
            self._order(self._respawner)  # Spark would take its time
        self._thread.join(GONE)

    def _cancel(self) -> None:
        self._host.jvm.ask(lambda: self._host.spark.sparkContext.cancelJobGroup(self._job), None)

    def waits_for(self) -> str:
        """Says that Spark has no room, and who has it, or that the task does not start though there is room."""
        return self._host.jvm.ask(self._no_room, "")

    def _no_room(self) -> str:
        spark = self._host.spark
        there, (own, others) = slots_now(spark), use(spark, self._host.own_jobs)
        if there is not None and own + others >= there:
            has = f"Spark has {there} slots; this pipeline has {own} of them, other jobs have {others}"
            if others:
                return f"{has}. It begins when one of those lets go"
            return f"{has}. It begins when Spark gets another executor, or an operator of this pipeline is done"
        if time.monotonic() - self._submitted > LONG:
            return "Spark has room for it, but its task does not start; Spark's own log may say why"
        return ""


def _living(process: tuple[int, str] | None) -> int | None:
    """Returns the process id, if it still belongs to that process."""
    return process[0] if process is not None and started(process[0]) == process[1] else None


def _short(text: str) -> str:
    """Returns the line of an error that says most."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("An error occurred while calling")]
    telling = [
        line for line in lines if "Fatal Python error" in line or line.startswith(("ModuleNotFound", "Import"))
    ]
    if not telling and "Python worker exited unexpectedly" in text:
        return "its Python process was killed or crashed"
    known = telling or [line for line in lines if "lost" in line] or lines
    return known[0][:300] if known else "without a word"
