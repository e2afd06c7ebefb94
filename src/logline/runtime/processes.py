"""The local host: groups as processes on this machine, started with spawn and restarted when they die.

Supervision: the death of a process is seen at once, by the end of its report pipe; a process that makes no report
for a while hangs, and is killed. A life that was fenced off ends quietly and is no failure (R10). Repeated crashes
back off; a group that dies again and again without getting anywhere stops the pipeline.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import cloudpickle

from logline.errors import PipelineFailed
from logline.names import InstanceName
from logline.runtime.inline import sweep
from logline.runtime.parts import Parts
from logline.runtime.status import OperatorStatus, Phase, Status
from logline.runtime.wire import Speaker, listen
from logline.store.seam import Lease, Store

logger = logging.getLogger("logline")
TICK = 0.2


@dataclass
class Worker:
    """One process and what is known of it."""

    group: str
    parts: dict[InstanceName, Parts]
    process: subprocess.Popen[bytes] | None = None
    speaker: Speaker | None = None
    started: float = 0.0
    heard: float = 0.0
    status: dict[str, Any] = field(default_factory=dict)
    quiet: bool = False
    restarts: int = 0
    crashes: int = 0
    """In a row."""
    retry_at: float | None = None
    over: str | None = None


class ProcessEngine:
    """Runs each group in a process of its own. The same surface as the inline engine's."""

    silence = 15.0
    """Seconds without a report after which a process counts as hanging."""
    crashes = 12
    """Deaths in a row, each soon after the last, that stop the pipeline."""
    soon = 5.0
    """Seconds of life below which a death counts as soon after the last."""

    def __init__(
        self,
        groups: Mapping[str, Mapping[InstanceName, Parts]],
        store: Store,
        url: str,
        lease: Lease | None = None,
    ) -> None:
        self.store = store
        self.lease = lease
        self.phase: Phase = "running"
        self.error: PipelineFailed | None = None
        self._url = url
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stop_asked = False
        self._swept = 0.0
        self.workers = {name: Worker(name, dict(parts)) for name, parts in groups.items()}

    # ---- from any thread ------------------------------------------------------------------------------

    def command(self, kind: Literal["stop", "drain"]) -> None:
        """`stop`: every life ends in order. `drain`: sources stop reading, and it stops when all is quiet."""
        self._events.put(lambda: self._tell(kind))

    def abandon(self) -> None:
        """Kills every process; what is logged stays logged."""
        self._events.put(self._abandon)

    def restart(self, instance: InstanceName, done: Callable[[], None]) -> None:
        """Kills the process of the instance's group; a new one is started. Then calls `done`."""

        def kill() -> None:
            for worker in self.workers.values():
                if instance in worker.parts and worker.process is not None:
                    worker.process.send_signal(signal.SIGKILL)
            done()

        self._events.put(kill)

    def pid(self, instance: InstanceName) -> int | None:
        """The process that hosts an instance now."""
        for worker in self.workers.values():
            if instance in worker.parts and worker.process is not None:
                return worker.process.pid
        return None

    def status(self) -> Status:
        """The run at this moment; numbers are as old as the last report."""
        operators: dict[str, OperatorStatus] = {}
        for worker in self.workers.values():
            for name in worker.parts:
                known = OperatorStatus(**worker.status.get(name, {}))
                fields = {k: getattr(known, k) for k in OperatorStatus.__dataclass_fields__}
                operators[str(name)] = OperatorStatus(**{**fields, "restarts": worker.restarts})
        return Status(self.phase, operators, str(self.error).splitlines()[0] if self.error else "")

    # ---- the loop -------------------------------------------------------------------------------------

    def run(self) -> None:
        """Returns when the run is over; `phase` and `error` say how."""
        try:
            for worker in self.workers.values():
                self._start(worker)
            while self.phase in ("running", "draining"):
                with contextlib.suppress(queue.Empty):
                    self._events.get(timeout=TICK)()
                self._look_around()
        except BaseException as error:
            if self.error is None:
                self.phase = "failed"
                self.error = PipelineFailed(f"the engine failed: {type(error).__name__}: {error}")
            raise
        finally:
            self._abandon_processes()

    def _start(self, worker: Worker) -> None:
        commands_in, commands_out = os.pipe()
        reports_in, reports_out = os.pipe()
        worker.process = subprocess.Popen(
            [sys.executable, "-m", "logline.runtime.worker", str(commands_in), str(reports_out)],
            pass_fds=(commands_in, reports_out),
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C is for the driver, which stops its workers in order
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
        os.close(commands_in)
        os.close(reports_out)
        worker.speaker = Speaker(commands_out)
        worker.started = worker.heard = time.monotonic()
        worker.quiet, worker.retry_at = False, None
        first = {
            "path": sys.path,
            "log": self._url,
            "level": logger.getEffectiveLevel(),
            "group": worker.group,
            "faults": os.environ.get("LOGLINE_FAULT", ""),
            "life": worker.restarts,
            "parts": base64.b64encode(cloudpickle.dumps(worker.parts)).decode(),
        }
        threading.Thread(
            target=self._attend, args=(worker, worker.process, worker.speaker, first, reports_in), daemon=True
        ).start()

    def _attend(
        self, worker: Worker, process: subprocess.Popen[bytes], speaker: Speaker, first: dict[str, Any], reports: int
    ) -> None:
        """A thread for each process: feeds it, hears it, and sees it die."""
        speaker.say(**first)
        last: dict[str, Any] = {}
        for message in listen(reports):
            if "over" in message:
                last = message
            self._events.put(lambda message=message: self._hear(worker, process, message))  # type: ignore[misc]
        os.close(reports)
        process.wait()
        speaker.close()
        self._events.put(lambda: self._ended(worker, process, last))

    def _hear(self, worker: Worker, process: subprocess.Popen[bytes], message: dict[str, Any]) -> None:
        if worker.process is not process:
            return
        worker.heard = time.monotonic()
        if "status" in message:
            worker.status = message["status"]
            worker.quiet = message["quiet"]
        elif "log" in message:
            name, level, text = message["log"]
            logging.getLogger(name).log(level, "%s", text)
        elif "started" in message and self.phase == "draining" and worker.speaker is not None:
            worker.speaker.say(do="drain")

    def _ended(self, worker: Worker, process: subprocess.Popen[bytes], last: dict[str, Any]) -> None:
        if worker.process is not process:
            return
        worker.process = worker.speaker = None
        if last.get("error"):
            text, operator, event, trace = last["error"]
            self._fail(PipelineFailed(text.split("\n\n")[0], operator=operator, event=event, traceback=trace))
        elif last.get("over") in ("finished", "stopped"):
            worker.over = last["over"]
            if last["over"] == "stopped" and not self._stop_asked:
                logger.info("group %s was fenced off and ended", worker.group)
        elif self._stop_asked:
            worker.over = "stopped"
        else:
            self._crashed(worker, process.returncode)

    def _crashed(self, worker: Worker, code: int) -> None:
        worker.restarts += 1
        lived = time.monotonic() - worker.started
        worker.crashes = worker.crashes + 1 if lived < self.soon else 1
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        if worker.crashes >= self.crashes:
            names = ", ".join(worker.parts)
            self._fail(
                PipelineFailed(
                    f"the process of {names} {how}, {worker.crashes} times in a row: it does not get anywhere",
                    operator=next(iter(worker.parts)),
                )
            )
            return
        logger.warning("the process of group %s %s: it is started again", worker.group, how)
        wait = 0.0 if worker.crashes < 3 else min(0.05 * 2 ** (worker.crashes - 3), self.soon / 2)
        worker.retry_at = time.monotonic() + wait

    def _fail(self, error: PipelineFailed) -> None:
        if self.error is None:
            self.error = error
        self.phase = "failed"

    def _look_around(self) -> None:
        now = time.monotonic()
        for worker in self.workers.values():
            if worker.retry_at is not None and now >= worker.retry_at and not self._stop_asked:
                self._start(worker)
            elif worker.process is not None and now - worker.heard > self.silence:
                logger.warning("the process of group %s makes no report: it is killed", worker.group)
                worker.heard = now
                worker.process.send_signal(signal.SIGKILL)
        if self.lease is not None and not self.lease.held():
            logger.warning("another run has taken the log over: this one ends")
            self._abandon()
        elif self.phase in ("running", "draining"):
            self._settle(now)

    def _settle(self, now: float) -> None:
        done = [w for w in self.workers.values() if w.over is not None]
        if len(done) == len(self.workers):
            self.phase = "finished" if all(w.over == "finished" for w in done) else "stopped"
        elif self.phase == "draining" and not self._stop_asked and self._drained():
            self._tell("stop")
        if now - self._swept > 1.0:
            self._swept = now
            for worker in done:
                for parts in worker.parts.values():
                    if parts.spec.collect and self.store.read(parts.spec.name).image().left:
                        sweep(parts, self.store)

    def _drained(self) -> bool:
        """Every process is quiet, and nobody has anything to take."""
        if not all(w.quiet or w.over is not None for w in self.workers.values()):
            return False
        for worker in self.workers.values():
            for parts in worker.parts.values():
                for channel in parts.spec.inputs:
                    taken = self.store.read(channel.receiver).needs(channel.name).position.ssn
                    if taken < self.store.read(channel.sender).head(channel.out).last:
                        return False
        return True

    def _tell(self, kind: Literal["stop", "drain"]) -> None:
        if kind == "drain" and self.phase == "running":
            self.phase = "draining"
        if kind == "stop":
            self._stop_asked = True
        for worker in self.workers.values():
            worker.quiet = False
            if worker.speaker is not None:
                worker.speaker.say(do=kind)
            elif kind == "stop" and worker.over is None:
                worker.over = "stopped"

    def _abandon(self) -> None:
        self._stop_asked = True
        self._abandon_processes()
        if self.phase in ("running", "draining"):
            self.phase = "stopped"

    def _abandon_processes(self) -> None:
        for worker in self.workers.values():
            if worker.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    worker.process.send_signal(signal.SIGKILL)
                worker.process.wait()
