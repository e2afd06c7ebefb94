"""A run: the pipeline at work on a thread of this process, as its user holds it.

    with pipeline.start("memory:sales", engine="inline") as run:
        run.wait()
        print(run.status())

Leaving the `with` stops the pipeline; its log stays, and another run on the log goes on from there.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa

from logline.errors import BadName, LogError, LogGone, OptionError, PipelineFailed, TakenOver, reason_of
from logline.graph.durations import duration
from logline.graph.ephemeral import rides
from logline.graph.model import Graph
from logline.graph.operator import Duration, Tabular
from logline.lineage.openlineage.settings import OpenLineage
from logline.names import InstanceName, OperatorName, TargetName
from logline.planned import missing
from logline.runtime.control.engine import Engine
from logline.runtime.control.error_resolution import Request, chosen, parse_error, resolve_at_rest
from logline.runtime.control.exporting import export
from logline.runtime.control.fixed_rows import fixed_rows
from logline.runtime.control.live_resolution import LiveErrors
from logline.runtime.control.remote_control import RemoteControl
from logline.runtime.lives.instances import Instance, find, of_operator
from logline.runtime.log.log import Log, kept_writes
from logline.runtime.status import OperatorStatus, Status, logged_status
from logline.store.address import shown

logger = logging.getLogger("logline")


class Run:
    """One run of a pipeline, as `Pipeline.start` returns it. It is a context manager that stops the run at its end.

    >>> import pyarrow as pa, logline as ll
    >>> p = ll.Pipeline("sales")
    >>> p.source("orders", ll.sources.batches([pa.table({"n": [1, 2]})])).sink("store", ll.sinks.collect())
    >>> with p.start(engine="inline") as run:
    ...     status = run.wait()
    >>> status.phase, status.operators["store"].taken, run.result("store").to_pylist()
    ('finished', 1, [{'n': 1}, {'n': 2}])
    """

    def __init__(
        self,
        graph: Graph,
        instances: Mapping[InstanceName, Instance],
        log: Log,
        engine: Engine | None,
        openlineage: OpenLineage | None = None,
    ) -> None:
        """`engine` is None for a log whose pipeline has finished: there is nothing to run, and nothing to export."""
        self.log = log
        self._graph = graph
        self._instances = instances
        self._engine = engine
        self._errors = None if engine is None else LiveErrors(engine, log.store)
        self._openlineage = openlineage
        self._over = threading.Event()
        self._raised = False
        self._last: Status | None = None
        """How it was when it was over."""
        self._taken_over: TakenOver | None = None
        if engine is None:
            self._over.set()
        else:
            work = threading.Thread(
                target=self._work, args=(engine, self._errors), name=f"logline {graph.name}", daemon=True
            )
            work.start()

    def _work(self, engine: Engine, errors: LiveErrors) -> None:
        """Runs the engine, and closes what is beside it. Whatever goes wrong, the run is over in the end: nobody
        waits in vain, and the lease is free."""
        store, to = self.log.store, self._openlineage
        closing: list[Callable[[], None]] = []
        try:
            try:
                closing.append(RemoteControl(engine, store, self._instances, errors).close)
                if to is not None:
                    exporter = export(to, self._graph, self._instances, store, self.log.url, engine)
                    if exporter is not None:
                        closing.append(exporter.close)
            except BaseException:
                engine.abandon()  # it closes what it has when it runs
                engine.run()
                raise
            engine.run()
            self._notice_takeover(engine)
        except BaseException as error:
            engine.phase = "failed"
            if engine.error is None:
                engine.error = PipelineFailed.of_engine(error)
        finally:
            if engine.lease is not None:
                closing.append(engine.lease.release)
            for close in closing:
                _call(close)
            with contextlib.suppress(LogError):  # the log may be the reason for the end
                self._last = engine.status()
            self._over.set()

    def _notice_takeover(self, engine: Engine) -> None:
        """A run that was stopped has the lease until here."""
        lease = engine.lease
        if engine.phase == "stopped" and engine.error is None and lease is not None and not lease.held():
            self._taken_over = TakenOver(
                f"pipeline {self._graph.name!r}: another run has taken the log {shown(self.log.url)} over, and goes "
                "on with it; this one ended"
            )

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if kind is None and not self._raised:
            self._raise_failure()  # nobody has heard of it yet

    if not TYPE_CHECKING:  # a type checker and an editor see what there is

        def __getattr__(self, name):
            raise missing("Run", name, f"'Run' object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"Run({self._graph.name!r}, {self.status().phase})"

    # ---- waiting and looking --------------------------------------------------------------------------

    def wait(self, timeout: Duration | float | None = None) -> Status:
        """Waits until the pipeline has finished or was stopped, and returns its last status.

        Raises TimeoutError if it takes longer than `timeout` (seconds, or "5m"), PipelineFailed with operator, event
        and the user's own traceback if an operator failed, and TakenOver if another run has taken the log over.
        """
        if not self._is_over(_seconds(timeout)):
            raise TimeoutError(f"pipeline {self._graph.name!r} still runs after {timeout}; it goes on")
        self._raise_failure()
        return self.status()

    def _is_over(self, timeout: float | None) -> bool:
        """Waits in slices: a Ctrl-C that comes just before the lock is waited for is seen only after it."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._over.is_set():
            left = _SLICE if until is None else min(_SLICE, until - time.monotonic())
            if left <= 0:
                return False
            self._over.wait(left)
        return True

    def _raise_failure(self) -> None:
        error = self._taken_over if self._engine is None else self._engine.error or self._taken_over
        if error is not None:
            self._raised = True
            raise error

    def status(self) -> Status:
        """How the run is at this moment: its phase, and for each operator how far it is. Of a run that is over and
        whose log is gone: how it was at its end."""
        if self._engine is not None:
            try:
                status = replace(self._engine.status(), ephemeral=rides(self._graph))
                return replace(status, error=str(self._taken_over)) if self._taken_over is not None else status
            except LogError:
                if self._last is None:
                    return Status(self._engine.phase, {}, reason_of(self._engine.error))
                return self._last
        store = self.log.store
        operators = {str(p.called): logged_status(store, p.spec, OperatorStatus()) for p in self._instances.values()}
        return Status("finished", operators, ephemeral=rides(self._graph))

    # ---- commands -------------------------------------------------------------------------------------

    def stop(self, *, drain: bool = False, timeout: Duration | float = "30s") -> Status:
        """Ends the run in order, and returns its last status. Open sets stay open in the log.

        No call, row, read or write is begun any more. Those under way come to their end, and the answers of calls
        are logged: the next run does not ask for them again. With `drain` only the sources stop, and the run ends
        when all that they read has flowed out.

        What has not ended after `timeout` is dropped as by a crash: nothing that is logged is lost, and another run
        goes on. A Ctrl-C meanwhile drops it at once.
        """
        engine = self._engine
        if engine is not None and not self._over.is_set():
            engine.command("drain" if drain else "stop")
            try:
                in_time = self._is_over(_seconds(timeout))
            except BaseException:
                self._abandon(engine)
                raise
            if not in_time and not self._abandon(engine):
                raise TimeoutError(f"pipeline {self._graph.name!r} does not stop: user code in it does not return")
        return self.status()

    def _abandon(self, engine: Engine) -> bool:
        """Drops what is under way; whether the run is over."""
        engine.abandon()
        return self._is_over(_LAST_WORD)

    def pid(self, operator: str) -> int | None:
        """The id of the process in which an operator lives now; None if it has no life."""
        name = self._known(operator)
        return None if self._engine is None or self._over.is_set() else self._engine.pid(name)

    def restart(self, operator: str) -> None:
        """Drops the operator's life as a crash would, and begins a new one, while the others go on."""
        name = self._known(operator)
        engine = self._engine
        if engine is None or self._over.is_set():
            raise LogError(f"the run is over: {operator!r} can't be restarted; start the pipeline again")
        done = threading.Event()
        engine.restart(name, done.set)
        while not done.wait(_SLICE) and not self._over.is_set():
            pass  # the run may end before it hears of it

    def _known(self, operator: str) -> InstanceName:
        """The instance that a user names, `hourly` or `hourly/2`."""
        return find(self._instances, operator)

    def retry(
        self, errors: str | Iterable[str] | None = None, *, data: Tabular | None = None, ask: bool = False
    ) -> list[str]:
        """Generates diverted sets, or rejected rows, once more: `run.retry("enrich.errors:3")`, several of them, or
        without a name all that wait. Returns the names of those that are retried now; others were before.

        `data` are rows to take instead of the error's, with the columns that the operator takes; the log says that
        they were given by hand. What `ctx.call` was answered before is not asked again, unless `ask` says so.

        The operators begin a new life for it. Before, their calls in flight come to their end, so that none is made
        twice; what has none after 30 seconds is dropped. If this run is over, the next run does it.
        """
        names = chosen(self.log.store, errors)
        fixed = None
        if data is not None:
            if len(names) != 1 or not isinstance(errors, str):
                raise OptionError(
                    'retry(data=...) takes rows for one error: run.retry("enrich.errors:3", data=table)'
                )
            parse_error(self.log.store, errors)
            fixed = fixed_rows(self.log.store, errors, data)
        return self._resolve([Request("retry", name, ask, fixed) for name in names])

    def drop(self, errors: str | Iterable[str] | None = None) -> list[str]:
        """Drops events on ports `errors`, which the log keeps until then: one, several, or without a name all that
        wait. Returns the names of those that are dropped now."""
        return self._resolve([Request("drop", name) for name in chosen(self.log.store, errors)])

    def _resolve(self, requests: Sequence[Request]) -> list[str]:
        if self._errors is not None and not self._over.is_set():
            done = self._errors.resolve(requests)
            if done is not None:
                return done
            self._is_over(None)
        return resolve_at_rest(self.log.store, requests)

    def result(self, sink: str) -> pa.Table:
        """What a `collect()` sink has got so far, from all runs on this log and all processes; without columns before
        the first write. `sink` is the operator's name, or `operator.target`."""
        name, _, target = sink.partition(".")
        node = self._graph.nodes.get(OperatorName(name))
        targets = {} if node is None else node.targets
        if not target and len(targets) == 1:
            (target,) = targets
        found = targets.get(TargetName(target))
        if found is None or not found.kept:
            kept = [
                str(n.name) if len(n.targets) == 1 else f"{n.name}.{t}"
                for n in self._graph.nodes.values()
                for t, s in n.targets.items()
                if s.kept
            ]
            raise BadName(
                f"{sink!r} is not a sink whose result can be had; "
                + (f"there are {', '.join(kept)}" if kept else "only sinks.collect() keeps one, and there is none")
            )
        instances = [one.spec.name for one in of_operator(self._instances, OperatorName(name))]
        return kept_writes(self.log.store, instances, TargetName(target))


def _call(close: Callable[[], None]) -> None:
    """What fails to close must not keep the rest from it."""
    try:
        close()
    except LogGone as error:
        logger.debug("a run did not close as it should: %s", error)  # that is why it ended
    except BaseException:
        logger.warning("a run did not close as it should; what is logged stays logged", exc_info=True)


_SLICE = 0.1
"""Seconds that a wait lasts at most before it looks up."""
_LAST_WORD = 5.0
"""Seconds that a run which was dropped has to let go of its threads."""


def _seconds(timeout: Duration | float | None) -> float | None:
    if timeout is None or isinstance(timeout, int | float):
        return timeout
    return duration(timeout).total_seconds()
