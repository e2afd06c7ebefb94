"""A process beside the lives of a Spark task, which kills one of them when the driver orders it.

    the task's process
      +- its watchdog       reads orders, has nothing else open
      +- a life             works, or hangs

The driver knows that a life hangs, since it hears no report. But it must not kill by a process id: the task may be on
another machine, where the id is that of somebody else. A life that hangs can't read an order either. So each task
forks a watchdog before it does anything else. It reads the box `@watch/GROUP`, and obeys only what is about its
parent or a child of that, by place, process id and start. It ends with the task.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from logline.names import BoxName
from logline.runtime.hosts.parent import call_process, die_with_parent
from logline.runtime.messages.commands import WATCHDOG_ORDERS, KillProcess
from logline.spark.turns import place
from logline.store.address import find_store
from logline.store.processes import started

LOOK, LOOK_FAR = 0.2, 1.0
"""Seconds between two looks for orders: on this host, and over a network. No bell: a watchdog that is killed would
leave its bell behind."""


def orders_box(group: str) -> BoxName:
    """The box from which the watchdogs of a group take their orders."""
    return BoxName(f"@watch/{group}")


@contextlib.contextmanager
def watched(log: str, group: str) -> Iterator[None]:
    """Has a watchdog beside this process and its children for as long as the block lasts."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _watch(parent, log, group)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)  # our child: the id is its own until we have waited for it
        os.waitpid(pid, 0)


def _watch(parent: int, log: str, group: str) -> None:
    """In the forked process; never returns. If there is no log, the lives say so."""
    try:
        die_with_parent(parent)
        call_process("logline-watch")
        for number in os.listdir("/proc/self/fd"):  # Spark's socket among them, which would stay open
            with contextlib.suppress(OSError):
                if int(number) > 2:
                    os.close(int(number))
        store = find_store(log)
        if store is not None:
            box = store.mail(orders_box(group))
            pause = LOOK_FAR if store.traits.reach == "hosts" else LOOK
            while True:
                for order in WATCHDOG_ORDERS.understood(box.receive(), "a driver"):
                    _obey(order, parent)
                time.sleep(pause)
    finally:
        os._exit(0)


def _obey(order: KillProcess, parent: int) -> None:
    known = order.place == place() and started(order.pid) == order.born
    if known and parent in (order.pid, _parent_of(order.pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(order.pid, signal.SIGKILL)


def _parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
