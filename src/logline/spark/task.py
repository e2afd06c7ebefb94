"""A group inside a Spark task: what the Python worker of the task does.

A task inherits no pipes, so it uses the mailboxes of the log: it reads commands from `@group/NAME` and sends reports
to `@reports`. It writes its status down in the log. How it ended (`End`) is the one row that the task returns; an
exception of user code is such an end and no failure of the task, which Spark would try again. So is what keeps a life
from beginning: a folder that is missing, a log that can't be opened or is another one. A life that was fenced off
ends successfully for the same reason (R10).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import msgspec
import pyarrow as pa

from logline.errors import LogError
from logline.graph.shipping import ship
from logline.names import BoxName, LogId, PartitionName
from logline.runtime.hosts.parent import die_with_parent, new_chance
from logline.runtime.hosts.worker import obey_line, work
from logline.runtime.lives.instances import for_partition
from logline.runtime.messages.reports import End, Failed, Letter, LogLine, Report, Started, StatusReport
from logline.runtime.messages.wire import encode
from logline.spark.fitness import unfit_for
from logline.spark.modules import missing_module
from logline.spark.respawn import can_fork, respawn
from logline.spark.turns import Turn, take_turn
from logline.spark.watchdog import watched
from logline.store.address import find_same

if TYPE_CHECKING:
    from logline.runtime.lives.inline import InlineEngine
    from logline.store.seam import Store

REPORTS = BoxName("@reports")
"""The box from which the driver takes the reports of its tasks."""
LIFE = "logline.life"
"""The local property of a Spark job that says how often its group has died before."""
PARTITION = "logline.partition"
"""The local property that says which partition of a DataFrame the job reads; empty if nothing is left to read."""
SCHEMA = "outcome string"
LOOK = 1.0
"""Seconds between two looks for commands without a bell."""


@dataclass(frozen=True)
class Order:
    """What to run, the same for every life of a group."""

    run: str
    group: str
    log: str
    log_id: LogId
    instances: bytes
    level: int
    armed: str
    path: tuple[str, ...]
    """Folders of modules, as the driver has them; none on a master that spans hosts."""
    folder: str
    """The driver's working folder; empty if that is gone, and on a master that spans hosts."""


def commands_box(group: str) -> BoxName:
    """The box from which the task of a group takes its commands."""
    return BoxName(f"@group/{group}")


def outcome_of(order: Order) -> Callable[[Iterable[Any]], Iterator[str]]:
    """The task of a group, for `mapPartitions`."""
    plain, unfit = asdict(order), unfit_for(order.group)

    def logline(records: Iterable[Any]) -> Iterator[str]:
        if end := unfit():
            yield end
            return
        from logline.spark.task import live

        yield live(plain, iter(()))

    return logline


def outcomes_of(order: Order) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The task of a group that reads the partition of a DataFrame, for `mapInArrow`."""
    plain, unfit = asdict(order), unfit_for(order.group)

    def logline(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if end := unfit():
            yield pa.record_batch({"outcome": [end]})
            return
        from logline.spark.task import live

        yield pa.record_batch({"outcome": [live(plain, batches)]})

    return logline


def live(plain: Mapping[str, Any], batches: Iterator[pa.RecordBatch]) -> str:
    """The group in this process, which Spark may use for something else afterwards, until it is over. `batches` are
    the rows of a DataFrame if the group is its source."""
    _die_with_daemon()
    from pyspark import TaskContext

    order = Order(**plain)
    context = TaskContext.get()
    assert context is not None
    life = int(context.getLocalProperty(LIFE) or 0) + context.attemptNumber()
    partition = context.getLocalProperty(PARTITION)
    with watched(order.log, order.group), _surroundings(order):
        end = _no_folder(order) or _missing(order) or _live_here(order, life, partition, batches)
        return encode(end).decode()


def _live_here(order: Order, life: int, partition: str | None, batches: Iterator[pa.RecordBatch]) -> End:
    if partition is None:
        return _live_on(order, life)
    from logline.spark.source import feed

    with feed(batches):  # no other life could go on with the batches of which this one has read some
        return _live(replace(order, instances=_for_partition(order.instances, partition)), life)


def _missing(order: Order) -> Failed | None:
    """Imports the user's modules; the objects are those of no life. A module that is missing here is an end of the
    life: Spark would try a task that fails a hundred times."""
    try:
        pickle.loads(order.instances)
    except ModuleNotFoundError as error:
        return _not_hosted(order, error, missing_module(error))
    except Exception as error:
        return _not_hosted(order, error)
    return None


def _not_hosted(order: Order, error: BaseException, why: str = "") -> Failed:
    """An end that names the group, the machine and the reason."""
    known = isinstance(error, LogError)
    what = why or (str(error) if known else f"{type(error).__name__}: {error}")
    text = f"a Spark task on {socket.gethostname()} can't host {order.group}: {what}"
    return Failed(text, traceback="" if known else traceback.format_exc())


def _live_on(order: Order, life: int) -> End:
    """Runs life after life, until one comes to its end."""
    import logline.spark.warm  # noqa: F401

    if not can_fork():
        return _live(order, life)
    respawner = os.getpid()
    end: End = respawn(lambda before, how: _live(order, life + before, respawner, how))
    return end


def _for_partition(shipped: bytes, partition: str) -> bytes:
    """The source, for a life that can read this partition alone."""
    ((name, instance),) = pickle.loads(shipped).items()
    narrow: bytes = ship({name: for_partition(instance, PartitionName(partition) if partition else None)})
    return narrow


def _live(order: Order, life: int, respawner: int | None = None, how: str = "") -> End:
    """Runs one life in this process. `respawner`: the process that forked it, if one did; `how`: how the life before
    it ended. What the engine does not take for an end of its own is one too: another life would not do better."""
    try:
        return _one_life(order, life, respawner, how)
    except BaseException as error:
        return _not_hosted(order, error)


def _one_life(order: Order, life: int, respawner: int | None, how: str) -> End:
    new_chance()
    store = find_same(order.log, order.log_id)
    box = store.mail(REPORTS)

    def send(life: int, report: Started | LogLine) -> None:
        box.send(encode(Letter(order.run, order.group, life, report)))

    turn = take_turn(store, order.run, order.group, life, respawner or os.getpid(), lambda line: send(life, line))
    task = turn.task

    def say(report: Report) -> None:
        match report:
            case Started():
                send(task.life, msgspec.structs.replace(report, how=how))
            case LogLine():
                send(task.life, report)
            case StatusReport():
                pass  # the driver reads it where `work` writes it down
            case _:
                assert_never(report)

    return work(
        order.group,
        order.instances,
        store,
        level=order.level,
        armed=order.armed,
        life=task.life,
        say=say,
        obey=lambda engine: _obey(store, order.group, engine, turn),
        note=turn.note,
    )


def _obey(store: Store, group: str, engine: InlineEngine, turn: Turn) -> Callable[[], None]:
    """Begins to give the engine the commands from the group's box, and returns a function that ends this. Commands to
    an earlier life of the same run hold too. A life that has lost its turn leaves as one that was fenced off."""
    box = store.mail(commands_box(group))
    bell, over = threading.Event(), threading.Event()
    unlisten = store.on_bell(commands_box(group), bell.set)

    def hear() -> None:
        with contextlib.suppress(LogError):  # the log is gone: the engine finds that too, and says so
            while not over.is_set():
                for line in box.receive():
                    obey_line(engine, line)
                if turn.lost.is_set():
                    engine.abandon()
                    return
                bell.wait(LOOK)
                bell.clear()

    thread = threading.Thread(target=hear, name="logline-obey", daemon=True)
    thread.start()

    def stop() -> None:
        over.set()
        bell.set()
        thread.join()
        unlisten()

    return stop


@contextlib.contextmanager
def _surroundings(order: Order) -> Iterator[None]:
    """The driver's module path, so that modules beside the user's script are found. Afterwards path and working
    folder are what they were."""
    path, folder = list(sys.path), working_folder()
    sys.path.extend(p for p in order.path if p not in path)
    try:
        yield
    finally:
        sys.path[:] = path
        if folder:
            os.chdir(folder)


def _no_folder(order: Order) -> Failed | None:
    """Goes to the driver's working folder: relative paths mean the same as in the script."""
    try:
        if order.folder:
            os.chdir(order.folder)
    except OSError as error:
        why = FileNotFoundError(
            f"it can't work in {order.folder}, the folder in which the driver was started ({error.strerror}). "
            "Bring the folder back, or start the pipeline from another one"
        )
        return _not_hosted(order, why)
    return None


def working_folder() -> str:
    """That of this process; empty if somebody has removed it."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def _die_with_daemon() -> None:
    """A worker would outlive a killed daemon. Not where the JVM itself is the parent: the thread in it that started
    us may end at any time, and the kernel goes by threads."""
    with contextlib.suppress(OSError):
        parent = os.getppid()
        if parent == 1:
            os._exit(1)  # the daemon is gone already
        if b".daemon" in Path(f"/proc/{parent}/cmdline").read_bytes():
            die_with_parent()
            if os.getppid() != parent:
                os._exit(1)
