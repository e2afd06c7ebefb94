"""The local host: runs each group as a process on this machine, which the fork server forks.

The driver learns of the death of a process from the fork server, whose child it is. The end of its report pipe says
less: a process that user code has forked may hold the pipe open.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import assert_never

from logline.graph.shipping import ship
from logline.names import LogId
from logline.runtime.hosts.pipes import Speaker, listen
from logline.runtime.hosts.seam import Ended, Group, Hear
from logline.runtime.messages.commands import Begin, WorkerCommand
from logline.runtime.messages.forks import FORK_ANSWERS, Exited, Fork, Forked, Kill, NotForked
from logline.runtime.messages.reports import REPORTS_AND_END, End, Failed, LogLine, Over, Started, StatusReport
from logline.runtime.messages.wire import encode
from logline.store.descriptors import disown, own

logger = logging.getLogger("logline")
PATIENCE = 5.0
"""Seconds that a killed process has to be gone."""
WARM = ("logline.operators", "logline.connectors", "pyarrow.parquet", "pandas")
"""Imported for the workers in advance if the driver has them. pyarrow imports pandas for the first array that it
makes of Python objects: without this, in every life anew."""


class ProcessHost:
    """Starts a process for each life."""

    patient = False

    def __init__(self, log: str, log_id: LogId) -> None:
        """`log` is the address of the log, as any process understands it; `log_id` is which one that is."""
        self._log = log
        self._log_id = log_id
        self._line: _ForkLine | None = None

    def start(self, group: Group, life: int, hear: Hear, ended: Callable[[Ended], None]) -> ProcessTenant:
        """Starts a process. Called on one thread, which outlives it."""
        begin = Begin(
            path=list(sys.path),
            argv=list(sys.argv),
            log=self._log,
            log_id=self._log_id,
            level=logger.getEffectiveLevel(),
            group=group.name,
            faults=os.environ.get("LOGLINE_FAULT", ""),
            life=life,
            instances=ship(group.instances),
        )
        if self._line is None or self._line.over:
            self._line = _ForkLine()
        return ProcessTenant(self._line, begin, hear, ended)

    def hears(self) -> bool:
        """Always: reports come through pipes."""
        return True

    def broken(self) -> str:
        """Returns nothing: a fork server that died is started again."""
        return ""

    def close(self) -> None:
        """Ends the fork server, and with it every process that lives."""
        if self._line is not None:
            self._line.close()


class _ForkLine:
    """The driver's end of the line to a fork server: asks for processes and learns how they ended."""

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        own(self._line.fileno())
        warm = [name for name in WARM if name in sys.modules]
        with theirs:
            self._server = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "logline.runtime.hosts.fork_server",
                    str(theirs.fileno()),
                    str(os.getpid()),
                    *warm,
                ],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C is for the driver, which stops its workers in order
                env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            )
        self.over = False
        self._lock = threading.Lock()
        self._born: list[ProcessTenant] = []
        self._listener = threading.Thread(target=self._listen, name="logline-line", daemon=True)
        self._listener.start()

    def ask(self, tenant: ProcessTenant, name: str, pipes: tuple[int, int]) -> int:
        """Has a process made, and returns its number, which `kill` takes."""
        with self._lock:
            number = len(self._born)
            self._born.append(tenant)
        try:
            socket.send_fds(self._line, [encode(Fork(number, name))], pipes)
        except OSError:  # the fork server was killed just now, maybe before this one was on the list
            tenant.gone("was not started: the process that starts the workers was killed")
        return number

    def kill(self, number: int) -> None:
        """Has the fork server kill the process: it knows whether the process id is still that process."""
        with contextlib.suppress(OSError):
            self._line.send(encode(Kill(number)))

    def _listen(self) -> None:
        for answer in FORK_ANSWERS.understood(iter(self._receive, b""), "the process that starts the workers"):
            tenant = self._born[answer.number]
            match answer:
                case Forked():
                    tenant.pid = answer.pid
                case NotForked():
                    tenant.gone(f"could not be started: {answer.reason}")
                case Exited():
                    tenant.gone(how_it_ended(answer.code))
                case _:
                    assert_never(answer)
        self._server.wait()
        with self._lock:
            disown(self._line.fileno())
            self._line.close()
            self.over = True
            born = list(self._born)
        for tenant in born:
            tenant.gone("was killed with the process that starts the workers")

    def _receive(self) -> bytes:
        try:
            return self._line.recv(1 << 16)
        except OSError:
            return b""

    def close(self) -> None:
        """Hangs up: the fork server ends its children, what they have forked, and itself."""
        with contextlib.suppress(OSError):  # it is gone
            self._line.shutdown(socket.SHUT_RDWR)
        self._listener.join(PATIENCE)
        if self._listener.is_alive():
            self._server.kill()
            self._listener.join(PATIENCE)


class ProcessTenant:
    """One process, and the thread that feeds it, hears it and sees it die."""

    def __init__(self, line: _ForkLine, begin: Begin, hear: Hear, ended: Callable[[Ended], None]) -> None:
        self.pid: int | None = None
        self._line = line
        self._group = begin.group
        self._how = ""
        self._gone = threading.Event()
        self._going = threading.Lock()
        self._no_more = own(os.eventfd(0, os.EFD_CLOEXEC))
        """Readable when the process is gone."""
        commands_in, commands_out = os.pipe()
        reports_in, reports_out = os.pipe()
        self._speaker = Speaker(commands_out)
        self._number = line.ask(self, begin.group, (commands_in, reports_out))
        os.close(commands_in)
        os.close(reports_out)
        threading.Thread(target=self._attend, args=(begin, reports_in, hear, ended), daemon=True).start()

    def _attend(self, begin: Begin, reports: int, hear: Hear, ended: Callable[[Ended], None]) -> None:
        self._speaker.say(begin)
        last: End | None = None
        for message in REPORTS_AND_END.understood(
            listen(reports, self._no_more), f"the process of group {self._group}"
        ):
            match message:
                case Started() | StatusReport() | LogLine():
                    hear(message)
                case Over() | Failed():
                    last = message
                case _:
                    assert_never(message)
        os.close(reports)
        self._gone.wait()
        with self._going:
            disown(self._no_more)
            os.close(self._no_more)
        self._speaker.close()
        ended(outcome(last) if last is not None else Ended(how=self._how))

    def gone(self, how: str) -> None:
        """Notes that there is no process, or no more. Only the first call counts."""
        with self._going:
            if not self._gone.is_set():
                self.pid = None
                self._how = how
                os.eventfd_write(self._no_more, 1)
                self._gone.set()

    @property
    def may_live(self) -> bool:
        """Until its end is known."""
        return self.pid is not None

    def tell(self, command: WorkerCommand) -> None:
        """Writes the command to the process's pipe."""
        self._speaker.say(command)

    def kill(self) -> None:
        """Has the fork server send a SIGKILL."""
        self._line.kill(self._number)

    def close(self) -> None:
        """Kills the process and waits until it is gone, which takes a moment."""
        if not self._gone.is_set():
            self.kill()
            self._gone.wait(PATIENCE)

    def waits_for(self) -> str:
        """Returns nothing: a process has room as long as the machine has."""
        return ""


def how_it_ended(code: int) -> str:
    """Says an exit code in words."""
    return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"


def outcome(end: End) -> Ended:
    """Turns a worker's last report into what the supervisor wants to know."""
    match end:
        case Failed():
            return Ended(error=end.error())
        case Over():
            return Ended(over=end.way)
        case _:
            assert_never(end)
