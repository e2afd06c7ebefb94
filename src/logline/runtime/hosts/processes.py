"""The local host: groups as processes on this machine, forked by the fork server.

The death of a process is seen at once, by the end of its report pipe.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from logline.errors import PipelineFailed
from logline.graph.shipping import ship
from logline.runtime.hosts.pipes import Speaker, listen
from logline.runtime.hosts.seam import Ended, Group, Hear, Order

logger = logging.getLogger("logline")
PATIENCE = 5.0
"""Seconds that a killed process has to be gone."""
WARM = ("logline.operators", "logline.connectors", "pyarrow.parquet", "pandas")
"""Imported for the workers in advance if the driver has them. pyarrow imports pandas for the first array that it
makes of Python objects: without this, in every life anew."""


class ProcessHost:
    """Has a process for each life."""

    patient = False

    def __init__(self, log: str) -> None:
        """`log` is the address of the log, as any process understands it."""
        self._log = log
        self._line: _ForkLine | None = None

    def start(self, group: Group, life: int, hear: Hear, ended: Callable[[Ended], None]) -> ProcessTenant:
        """A new process; called on one thread, which outlives it."""
        first = {
            "path": sys.path,
            "argv": sys.argv,
            "log": self._log,
            "level": logger.getEffectiveLevel(),
            "group": group.name,
            "faults": os.environ.get("LOGLINE_FAULT", ""),
            "life": life,
            "instances": base64.b64encode(ship(group.instances)).decode(),
        }
        if self._line is None or self._line.over:
            self._line = _ForkLine()
        return ProcessTenant(self._line, first, hear, ended)

    def close(self) -> None:
        """No more lives."""
        if self._line is not None:
            self._line.close()


class _ForkLine:
    """This side of a fork server: asks for processes and learns how they ended."""

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
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
        """Has a process made; its number is for `kill`."""
        with self._lock:
            number = len(self._born)
            self._born.append(tenant)
        try:
            socket.send_fds(self._line, [json.dumps({"number": number, "name": name}).encode()], pipes)
        except OSError:  # the fork server was killed just now, maybe before this one was on the list
            tenant.gone("was not started: the process that starts the workers was killed")
        return number

    def kill(self, number: int) -> None:
        """Through the fork server, which knows whether the process id is still that process."""
        with contextlib.suppress(OSError):
            self._line.send(json.dumps({"kill": number}).encode())

    def _listen(self) -> None:
        while data := self._receive():
            message = json.loads(data)
            tenant = self._born[message["number"]]
            if "pid" in message:
                tenant.pid = message["pid"]
            elif "failed" in message:
                tenant.gone(f"could not be started: {message['failed']}")
            else:
                tenant.gone(how_it_ended(message["code"]))
        self._server.wait()
        with self._lock:
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
        """Ends it, and whoever lives."""
        self._server.kill()
        self._listener.join(PATIENCE)


class ProcessTenant:
    """One process, and the thread that feeds it, hears it and sees it die."""

    def __init__(self, line: _ForkLine, first: dict[str, Any], hear: Hear, ended: Callable[[Ended], None]) -> None:
        self.pid: int | None = None
        self._line = line
        self._how = ""
        self._gone = threading.Event()
        commands_in, commands_out = os.pipe()
        reports_in, reports_out = os.pipe()
        self._speaker = Speaker(commands_out)
        self._number = line.ask(self, first["group"], (commands_in, reports_out))
        os.close(commands_in)
        os.close(reports_out)
        threading.Thread(target=self._attend, args=(first, reports_in, hear, ended), daemon=True).start()

    def _attend(self, first: dict[str, Any], reports: int, hear: Hear, ended: Callable[[Ended], None]) -> None:
        self._speaker.say(**first)
        last: dict[str, Any] | None = None
        for message in listen(reports):
            if "over" in message:
                last = message
            else:
                hear(message)
        os.close(reports)
        self._gone.wait()
        self._speaker.close()
        ended(outcome(last) if last is not None else Ended(how=self._how))

    def gone(self, how: str) -> None:
        """There is no process, or no more."""
        if not self._gone.is_set():
            self.pid = None
            self._how = how
            self._gone.set()

    def tell(self, order: Order) -> None:
        """Over its pipe."""
        self._speaker.say(do=order)

    def kill(self) -> None:
        """SIGKILL."""
        self._line.kill(self._number)

    def close(self) -> None:
        """A killed process is gone at once."""
        if not self._gone.is_set():
            self.kill()
            self._gone.wait(PATIENCE)

    def waits_for(self) -> str:
        """A process has room as long as the machine has."""
        return ""


def how_it_ended(code: int) -> str:
    """A process's exit code in words."""
    return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"


def outcome(last: dict[str, Any]) -> Ended:
    """What a worker said last."""
    if last.get("error"):
        text, operator, event, trace = last["error"]
        return Ended(error=PipelineFailed(text.split("\n\n")[0], operator=operator, event=event, traceback=trace))
    return Ended(over=last["over"])
