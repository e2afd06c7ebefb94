"""A worker process: the instances of one group, on the same loop as the inline engine.

    python -m logline.runtime.worker COMMANDS REPORTS      (numbers of inherited pipes)

The first command carries what to run. The process dies with its driver: by the kernel's hand where that is known
(Linux), and when the command pipe closes.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import gc
import logging
import os
import signal
import sys
import threading
from dataclasses import asdict
from typing import Any

from logline.runtime.wire import Speaker, listen

HEARTBEAT = 0.5
"""Seconds between two reports; their own thread makes them, so that slow user code does not delay them."""
SWITCH = 0.0002
"""Seconds after which a busy thread lets others run: reads and writes have threads of their own, and with Python's
default of 5 ms each of their turns would cost that much while the loop is busy."""
GARBAGE = 50_000
"""New objects after which Python looks for cycles."""
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Asks the kernel for a SIGKILL when the driver's thread that made us is gone."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class _Forward(logging.Handler):
    """What operators log reaches the driver."""

    def __init__(self, speaker: Speaker) -> None:
        super().__init__()
        self._speaker = speaker

    def emit(self, record: logging.LogRecord) -> None:
        self._speaker.say(log=[record.name, record.levelno, record.getMessage()])


def serve(commands: int, reports: int) -> None:
    """Runs one group until it is over."""
    die_with_parent()
    speaker = Speaker(reports)
    heard = listen(commands)
    first = next(heard, None)
    if first is None:
        return
    sys.path[:] = first["path"]
    import cloudpickle

    from logline.runtime.inline import InlineEngine
    from logline.store import faults
    from logline.store.address import open_store
    from logline.store.lmdb import environment

    environment.worker_process = True
    sys.setswitchinterval(SWITCH)
    # An event makes a few dozen small objects and no cycles: looking for those after every 700 objects costs
    # several percent. What is imported by now stays for good.
    gc.freeze()
    gc.set_threshold(GARBAGE)
    faults.arm(first["faults"], first["life"])
    logger = logging.getLogger("logline")
    logger.setLevel(first["level"])
    logger.addHandler(_Forward(speaker))
    parts = cloudpickle.loads(base64.b64decode(first["parts"]))
    store = open_store(first["log"])
    engine = InlineEngine(parts, store)
    over = threading.Event()

    def obey() -> None:
        for message in heard:
            engine.command(message["do"])
        os._exit(1)  # the driver is gone: nobody would know of what happens here

    def beat() -> None:
        while not over.wait(HEARTBEAT):
            report()

    def report() -> None:
        status = engine.status()
        quiet = engine.quiet()
        plain = {n: _plain(asdict(o)) for n, o in status.operators.items()}
        speaker.say(status=plain, quiet=quiet)
        store.put_status(first["group"], {"pid": os.getpid(), "phase": status.phase, "operators": plain})

    for work in (obey, beat):
        threading.Thread(target=work, name=f"logline-{work.__name__}", daemon=True).start()
    speaker.say(started=os.getpid())
    engine.run()
    over.set()
    report()
    error = engine.error
    speaker.say(
        over=engine.phase,
        left=[str(name) for name, host in engine.hosts.items() if host.over == "left"],
        error=None if error is None else [error.args[0], error.operator, error.event, error.traceback],
    )
    store.close()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads of user code that hang must not keep the process


def _plain(status: dict[str, Any]) -> dict[str, Any]:
    return {**status, "counters": dict(status["counters"])}


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))
