"""One life of a group as the supervisor sees it: a Spark job, with as many lives of its task as that brings back."""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, PythonException

from logline.errors import LogError, PipelineFailed
from logline.runtime.hosts.processes import outcome
from logline.runtime.hosts.seam import Ended, Group, Hear
from logline.runtime.messages.commands import KillProcess, WorkerCommand
from logline.runtime.messages.notes import GroupStatus, TaskLife
from logline.runtime.messages.reports import END, Letter, LogLine, Started, StatusReport
from logline.runtime.messages.wire import NotAMessage, encode
from logline.spark.fitness import hopeless
from logline.spark.session import JOBS
from logline.spark.slots import slots_now, use
from logline.spark.task import LIFE
from logline.spark.turns import is_alive, place

if TYPE_CHECKING:
    from logline.spark.host import SparkHost

LONG = 20.0
"""Seconds after which a task that has room should have begun: a cold Python takes some."""
GONE = 5.0
"""Seconds that a task has to end when it is killed."""
HEARSAY = 1.0
"""Seconds that Spark has to tell why a task failed."""
MANY = 1000
"""Tasks of a job whose failures are looked at."""


NOTHING: list[tuple[str, str]] = []


class _Process(NamedTuple):
    """A process of a task, wherever that is."""

    pid: int
    born: str
    place: str


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
        self._process: _Process | None = None
        self._respawner: _Process | None = None
        self._ordered: _Process | None = None
        """The process that a watchdog was told to kill last."""
        self._submitted = time.monotonic()
        self._seen = 0.0
        self._hopeless = ""
        """Why no task of the job can ever begin."""
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
            why = self._hopeless or self._unfit(str(error), "")
            ended = Ended(error=PipelineFailed(why or f"a Spark task can't host {self._group}: {_short(str(error))}"))
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
        if why := self._hopeless or self._unfit(text, ""):
            return Ended(error=PipelineFailed(why))
        if "cancelled" in text:
            return Ended(how="was cancelled")
        return Ended(how=f"died ({_short(str(error))})")

    def _unfit(self, text: str, host: str) -> str:
        """What to say of a failure that comes again in every task, where its Python is not fit for one."""
        why = hopeless(text)
        at = f" on {host}" if host else ""
        return f"a Spark task{at} can't host {self._group}: {why}" if why else ""

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
        failures = self._host.jvm.ask(self._awaited_failures, NOTHING)
        return f" ({_short(failures[-1][1])})" if failures else ""

    def _awaited_failures(self) -> list[tuple[str, str]]:
        until = time.monotonic() + HEARSAY
        while not (found := self._failures()) and time.monotonic() < until:
            time.sleep(HEARSAY / 20)
        return found

    def _failures(self) -> list[tuple[str, str]]:
        """The failures of its tasks so far, as Spark tells them: host and text."""
        told = [(task, task.errorMessage()) for task in self._tasks()]
        return [(str(task.host()), str(error.get())) for task, error in told if error.isDefined()]

    def _tasks(self) -> list[Any]:
        context: Any = self._host.spark.sparkContext
        tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
        stages = [s for job in tracker.getJobIdsForGroup(self._job) for s in tracker.getJobInfo(job).stageIds]
        lists = [store.taskList(stage, 0, MANY) for stage in stages]
        return [tasks.apply(i) for tasks in lists for i in range(tasks.size())]

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
        if task.life < max(self._life, self._newest) or status.at == self._seen:
            return  # an older life is one that was cut off and does not know yet that it is over
        self._seen = status.at
        self._process = _Process(status.pid, task.born, task.place)
        self._respawner = _Process(*task.respawner, task.place)
        self._lag = sum(operator.lag for operator in status.operators.values())
        if task.life == self._newest:
            self._hear(StatusReport(status.operators, status.quiet))

    @property
    def pid(self) -> int | None:
        """The process of the life, if it is on this machine: one that the task's Python worker has forked, or that
        worker itself. The status of an operator names the host and the process of any."""
        process = self._process
        here = process is not None and process.place == place() and is_alive(process.pid, process.born)
        return process.pid if process is not None and here else None

    @property
    def may_live(self) -> bool:
        """Not if its process is of this machine and gone, nor if Spark has no task for it."""
        return self._may_be(self._process)

    def _may_be(self, process: _Process | None) -> bool:
        if process is None:
            return False
        if process.place == place():
            return is_alive(process.pid, process.born)
        return self._host.jvm.ask(lambda: any(str(task.status()) == "RUNNING" for task in self._tasks()), True)

    # ---- what is done to it ---------------------------------------------------------------------------

    def tell(self, command: WorkerCommand) -> None:
        """Sends the command through the group's mailbox; the task reads it within a second."""
        self._host.mail(self._group.name).send(encode(command))

    def kill(self) -> None:
        """Orders the watchdog of the task to kill the life; the respawner brings it back, or Spark does, or the job
        fails. If that was ordered before, there is no watchdog to do it: the job is cancelled. Where no process is,
        Spark is at it: after the loss of an executor that takes a while, and a job that is cancelled would have to
        begin anew."""
        process = self._process if self.may_live else self._respawner
        if process is None:
            return
        if process == self._ordered and self._may_be(process):
            self._cancel()
        self._order(process)

    def _order(self, process: _Process) -> None:
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
        """Says that Spark has no room, and who has it, or that the task does not start though there is room. Ends the
        job if no task of it can ever begin: Spark would try a hundred times."""
        self._hopeless = self._host.jvm.ask(self._why_never, "")
        if self._hopeless:
            self._cancel()
            return ""
        return self._host.jvm.ask(self._no_room, "")

    def _why_never(self) -> str:
        failures = [(host, text) for host, text in self._failures() if hopeless(text)]
        return self._unfit(failures[-1][1], failures[-1][0]) if failures else ""

    def _no_room(self) -> str:
        spark = self._host.spark
        there, (own, others) = slots_now(spark), use(spark, self._host.own_jobs)
        if own + others >= there:
            has = f"Spark has {there} slots; this pipeline has {own} of them, other jobs have {others}"
            if others:
                return f"{has}. It begins when one of those lets go"
            return f"{has}. It begins when Spark gets another executor, or an operator of this pipeline is done"
        if time.monotonic() - self._submitted > LONG:
            return "Spark has room for it, but its task does not start; Spark's own log may say why"
        return ""


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
