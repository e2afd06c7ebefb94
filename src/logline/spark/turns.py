"""Whose turn it is: a life of a Spark task begins when the one before it is over, and tells where it is.

Spark may start a second attempt of a task while the first still works: by speculation, or because it believes an
executor lost that lives. A claim would fence the first one off (R10): safe, but no help. So the second one stands by
for as long as the first reports. It takes its turn as soon as the first says that it is over, or has been
silent for a few seconds. Where process ids can be compared, a first one that was killed is known at once.

A life that could not report for so long, because its host was cut off, say, looks first whether another has taken its
turn. Then it writes nothing down any more, and leaves.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from logline.runtime.control.supervisor import Supervisor, back_off
from logline.runtime.messages.notes import GROUP_STATUSES, GroupStatus, TaskLife, is_cut_off
from logline.runtime.messages.reports import LogLine
from logline.runtime.messages.wire import NotAMessage, encode
from logline.runtime.status import AT_WORK
from logline.store.postgres.host import host_id
from logline.store.processes import started
from logline.store.seam import Store

SILENT = 3.0
"""Seconds without a new status after which a life elsewhere counts as gone. It writes two a second."""
LOOK = 0.25
"""Seconds between two looks of a standby."""

Tell = Callable[[LogLine], None]


def place() -> str:
    """Where a process id of ours means something: a host, and there a namespace of ids. Containers may have the name
    of their host, and ids of their own."""
    return f"{host_id()} {os.readlink('/proc/self/ns/pid')}"


class Turn:
    """The turn of one life: what is known of it, and the status that it keeps in the log."""

    def __init__(self, store: Store, group: str, task: TaskLife) -> None:
        self.task = task
        self.lost = threading.Event()
        """Another life has taken its turn."""
        self._store = store
        self._group = group
        self._written = time.monotonic()

    def note(self, status: GroupStatus) -> None:
        """Writes the status down, unless it is another's turn by now. That can only be after a silence."""
        if time.monotonic() - self._written > SILENT - 1 and not self.lost.is_set() and self._replaced():
            self.lost.set()
        if not self.lost.is_set():
            self._store.put_status(self._group, encode(msgspec.structs.replace(status, task=self.task)))
            self._written = time.monotonic()

    def _replaced(self) -> bool:
        status = last_status(self._store, self._group, lambda _: None)
        if status is None or status.task is None:
            return False
        known = status.task
        return known.began > self.task.began if known.run != self.task.run else known.life > self.task.life


def take_turn(store: Store, run: str, group: str, life: int, respawner: int, tell: Tell) -> Turn:
    """Waits until no other life of the group works, and writes down that this one begins. Waits a while more if lives
    before it died young: neither a respawner nor Spark's own retries make a pause."""
    young = 0
    before = _stand_by(store, run, group, tell)
    last = None if before is None or before.phase in ("stopped", "finished") else before.task
    if last is not None and last.run == run:  # it died
        life = max(life, last.life + 1)  # after a respawner that was killed, Spark knows nothing of its lives
        # By the wall clock: the life before may have been on another machine. Set back, it makes no life young.
        if 0 <= time.time() - last.began < Supervisor.soon:
            young = last.young + 1
    task = TaskLife(
        run=run,
        life=life,
        born=started(os.getpid()),
        respawner=(respawner, started(respawner)),
        began=time.time(),
        young=young,
        place=place(),
    )
    store.put_status(group, encode(GroupStatus(os.getpid(), "running", {}, False, time.time(), task)))
    time.sleep(back_off(young))
    return Turn(store, group, msgspec.structs.replace(task, began=time.time()))


def _stand_by(store: Store, run: str, group: str, tell: Tell) -> GroupStatus | None:
    """Returns what the group has written down last, once nobody of this run writes any more."""
    seen: list[GroupStatus] = []
    since = time.monotonic()
    while True:
        status = last_status(store, group, tell)
        if status is None or not _may_live(status, run):
            return status
        if not seen or status != seen[-1]:
            since = time.monotonic()
            seen.append(status)
            if len(seen) == 2:  # it was not the last word of one that died
                text = f"a second task of {group} stands by on {host_id()}: process {status.pid} still works"
                tell(LogLine("logline", logging.INFO, text))
        elif time.monotonic() - since >= SILENT:
            return status
        time.sleep(LOOK)


def _may_live(status: GroupStatus, run: str) -> bool:
    """Whether a life of this run wrote it that may still be there."""
    task = status.task
    if task is None or task.run != run or status.phase not in AT_WORK:
        return False
    return task.place != place() or is_alive(status.pid, task.born)


def is_alive(pid: int, born: str) -> bool:
    """Whether the process of this place that was started then is there, and not only waits to be buried."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] not in "ZX" and fields[19] == born


def last_status(store: Store, group: str, tell: Tell) -> GroupStatus | None:
    """What the group wrote down last, in this run or an earlier one. `tell` takes a word about what can't be read."""
    data = store.statuses().get(group)
    if data is None or is_cut_off(data):
        return None
    try:
        return GROUP_STATUSES.decode(data)
    except NotAMessage as error:
        tell(LogLine("logline", logging.ERROR, f"what is written down for {group} in the log is {error}"))
        return None
