"""What a worker does, whatever process it is in: the instances of one group, on the same loop as the inline engine.

How it hears commands and makes reports differs (pipes in `runtime/hosts/piped_worker.py`, mail in a Spark task), so
both come from outside.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from logline.runtime.lives.inline import InlineEngine
from logline.store import faults
from logline.store.lmdb import environment
from logline.store.seam import Store

HEARTBEAT = 0.5
"""Seconds between two reports; their own thread makes them, so that slow user code does not delay them."""
SWITCH = 0.0002
"""Seconds after which a busy thread lets others run: reads and writes have threads of their own, and with Python's
default of 5 ms each of their turns would cost that much while the loop is busy."""
GARBAGE = 50_000
"""New objects after which Python looks for cycles."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
MEMORY = 64 << 20
"""Bytes of freed memory that a worker keeps. Runs of events come and go in buffers of some hundred KB: handed back to
the kernel each time, they cost page faults, a sixth of the time of a busy worker."""

Say = Callable[..., object]


class _Forward(logging.Handler):
    """What operators log reaches the driver."""

    def __init__(self, say: Say) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(log=[record.name, record.levelno, record.getMessage()])


def _keep_memory() -> None:
    with contextlib.suppress(OSError, AttributeError):  # another C library than glibc
        tune = ctypes.CDLL(None).mallopt
        tune(_M_MMAP_THRESHOLD, MEMORY // 2)  # 32 MiB is as much as glibc takes
        tune(_M_TRIM_THRESHOLD, MEMORY)


def work(
    group: str,
    instances: bytes,
    store: Store,
    *,
    level: int,
    armed: str,
    life: int,
    say: Say,
    obey: Callable[[InlineEngine], Callable[[], None]],
    about: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Runs one group until it is over, and says how that came. Nothing of it stays in the process, but for how that
    keeps memory.

    What `obey` returns ends the hearing. `about` goes with every status. The log is closed in the end.
    """
    logger = logging.getLogger("logline")
    before = sys.getswitchinterval(), logger.level, gc.get_threshold()
    forward = _Forward(say)
    over = threading.Event()
    environment.worker_process = True
    faults.arm(armed, life)
    sys.setswitchinterval(SWITCH)
    # An event makes a few dozen small objects and no cycles: looking for those after every 700 objects costs
    # several percent. What is imported by now stays for good.
    gc.freeze()
    gc.set_threshold(GARBAGE)
    _keep_memory()
    logger.setLevel(level)
    logger.addHandler(forward)
    try:
        engine = InlineEngine(pickle.loads(instances), store, life=life, whole=False)

        def report() -> None:
            status = engine.status()
            quiet = engine.drained()
            plain = {n: {**asdict(o), "counters": dict(o.counters)} for n, o in status.operators.items()}
            say(status=plain, quiet=quiet)
            known = {"pid": os.getpid(), "phase": status.phase, "operators": plain, "quiet": quiet, "at": time.time()}
            store.put_status(group, {**known, **(about or {})})

        def beat() -> None:
            while not over.wait(HEARTBEAT):
                report()

        heartbeat = threading.Thread(target=beat, name="logline-beat", daemon=True)
        heartbeat.start()
        unhear = obey(engine)
        try:
            say(started=os.getpid())
            engine.run()
        finally:
            over.set()
            heartbeat.join()
            unhear()
        report()
        error = engine.error
        ways = {host.over for host in engine.hosts.values()} if engine.phase == "stopped" else set()
        return {
            "over": next((way for way in ("fenced", "handed") if way in ways), engine.phase),
            "error": None if error is None else [error.args[0], error.operator, error.event, error.traceback],
        }
    finally:
        logger.removeHandler(forward)
        environment.worker_process = False
        sys.setswitchinterval(before[0])
        logger.setLevel(before[1])
        gc.set_threshold(*before[2])
        gc.unfreeze()  # else what each life of a process that is used again leaves would pile up
        store.close()
