"""The local host: groups as processes on this machine, started with spawn.

The death of a process is seen at once, by the end of its report pipe.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import cloudpickle

from logline.errors import PipelineFailed
from logline.runtime.hosting import Ended, Group, Hear, Order
from logline.runtime.wire import Speaker, listen

logger = logging.getLogger("logline")


class ProcessHost:
    """Starts `logline.runtime.worker` for each life."""

    patient = False

    def __init__(self, log: str) -> None:
        """`log` is the address of the log, as any process understands it."""
        self._log = log

    def start(self, group: Group, life: int, hear: Hear, ended: Callable[[Ended], None]) -> ProcessTenant:
        """A new process."""
        first = {
            "path": sys.path,
            "log": self._log,
            "level": logger.getEffectiveLevel(),
            "group": group.name,
            "faults": os.environ.get("LOGLINE_FAULT", ""),
            "life": life,
            "parts": base64.b64encode(cloudpickle.dumps(group.parts)).decode(),
        }
        return ProcessTenant(first, hear, ended)


class ProcessTenant:
    """One process, and the thread that feeds it, hears it and sees it die."""

    def __init__(self, first: dict[str, Any], hear: Hear, ended: Callable[[Ended], None]) -> None:
        commands_in, commands_out = os.pipe()
        reports_in, reports_out = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "logline.runtime.worker", str(commands_in), str(reports_out), str(os.getpid())],
            pass_fds=(commands_in, reports_out),
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C is for the driver, which stops its workers in order
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
        os.close(commands_in)
        os.close(reports_out)
        self._speaker = Speaker(commands_out)
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
        code = self.process.wait()
        self._speaker.close()
        ended(outcome(last) if last is not None else Ended(how=how_it_ended(code)))

    @property
    def pid(self) -> int | None:
        """The process."""
        return self.process.pid if self.process.returncode is None else None

    def tell(self, order: Order) -> None:
        """Over its pipe."""
        self._speaker.say(do=order)

    def kill(self) -> None:
        """SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """A killed process is gone at once."""
        self.kill()
        self.process.wait()

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
