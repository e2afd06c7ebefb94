"""The fork server: a process that imports what every worker needs, and forks the workers.

    python -m logline.runtime.hosts.fork_server LINE DRIVER      (number of an inherited socket; a process id)

A fork takes some milliseconds, the imports of an interpreter half a second: an operator that was killed is back that
much sooner. The user's process is never forked, whatever threads and locks it has; this one is started with spawn,
runs no user code, starts no thread and opens no log. When its driver dies the kernel tells it, and it kills the
workers with all that their user code has forked. Should it die itself, the kernel kills the workers.

Over the line the driver asks for the next worker, with its pipes, or says which one to kill; the server answers with
each process that it made and how that one ended (`runtime/messages/forks.py`). A request that it can't read ends it
with a traceback: the driver is of the same version, so there is nothing sensible to do instead.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
import traceback
import warnings
from typing import assert_never

from logline.runtime.hosts.parent import call_process, die_with_parent, new_chance
from logline.runtime.hosts.piped_worker import serve
from logline.runtime.messages.forks import FORK_REQUESTS, Exited, Fork, ForkAnswer, Forked, Kill, NotForked
from logline.runtime.messages.wire import encode
from logline.store.descriptors import own

_ALWAYS = ("pyarrow.compute", "logline.runtime.hosts.worker", "logline.store.address", "logline.store.lmdb.folder")
"""What every worker imports. Its log is in a folder: a log in memory never leaves its process."""


class ForkServer:
    """Serves one driver: handles requests and the ends of processes one after the other, on one thread."""

    def __init__(self, line: socket.socket, gone: int) -> None:
        self._line, self._gone = line, gone
        own(line.fileno())
        self._poll = select.poll()
        self._poll.register(line, select.POLLIN)
        self._poll.register(gone, select.POLLIN)
        self._children: dict[int, tuple[int, int]] = {}
        """Number and process id, by the descriptor that becomes readable when the process ends."""

    def run(self) -> None:
        """Serves until the driver hangs up, or is gone. Then kills the processes that live, with their groups."""
        try:
            self._serve()
        finally:
            for _, pid in self._children.values():  # not reaped yet: the numbers are still theirs
                _kill_group(pid)

    def _serve(self) -> None:
        while True:
            for fd, _ in self._poll.poll():
                if fd in self._children:
                    self._reap(fd)
                elif fd == self._gone or not self._hear():
                    return

    def _hear(self) -> bool:
        data, pipes, _, _ = socket.recv_fds(self._line, 1 << 16, 2)
        if not data:
            return False
        match request := FORK_REQUESTS.decode(data):
            case Fork():
                self._fork(request, pipes)
            case Kill():
                for number, pid in self._children.values():  # not reaped yet: the pid is still theirs
                    if number == request.number:
                        os.kill(pid, signal.SIGKILL)
            case _:
                assert_never(request)
        return True

    def _fork(self, request: Fork, pipes: list[int]) -> None:
        here = os.getpid()
        try:
            pid = os.fork()
            if pid == 0:
                _live(here, request.name, *pipes)
        except OSError as error:
            self._say(NotForked(request.number, str(error)))
            return
        finally:
            for pipe in pipes:
                os.close(pipe)
        end = os.pidfd_open(pid)
        self._children[end] = (request.number, pid)
        self._poll.register(end, select.POLLIN)
        self._say(Forked(request.number, pid))

    def _reap(self, end: int) -> None:
        number, pid = self._children.pop(end)
        self._poll.unregister(end)
        os.close(end)
        _kill_group(pid)  # the group's number is not free until the wait
        _, status = os.waitpid(pid, 0)
        self._say(Exited(number, os.waitstatus_to_exitcode(status)))

    def _say(self, answer: ForkAnswer) -> None:
        with contextlib.suppress(OSError):  # the driver is gone: the next look at the line shows it
            self._line.send(encode(answer))


def _kill_group(pid: int) -> None:
    """Kills what the user code of a worker has forked and left behind, and the worker if it lives. Nobody else would
    end these, and they may act as if the life were not over."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it has not come to its `setsid`: no group yet
        os.killpg(pid, signal.SIGKILL)


def _live(server: int, name: str, commands: int, reports: int) -> None:
    """Runs a worker in the forked process. Never returns to the server's loop."""
    try:
        die_with_parent(server)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        call_process(name)
        os.setsid()
        for fd in (commands, reports):
            os.set_inheritable(fd, False)
        new_chance()
        serve(commands, reports)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def main(line: int, driver: int, *modules: str) -> None:
    """Imports what workers need, then serves the driver at the other end of the socket `line`."""
    die_with_parent(driver)  # before anything that takes time: a driver may be killed meanwhile
    for name in (*_ALWAYS, *modules):
        with contextlib.suppress(ImportError):  # whoever needs it will say so
            importlib.import_module(name)
    # Libraries for linear algebra have threads from the start, and know what a fork is.
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    gc.collect()
    gc.freeze()  # the children share these pages as long as nobody touches them
    with socket.socket(fileno=line) as end:
        end.set_inheritable(False)
        ForkServer(end, _when_gone(driver)).run()


def _when_gone(driver: int) -> int:
    """A descriptor that can be read when the driver is gone. From now on the kernel tells that by a SIGTERM."""
    gone, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakeup)
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    die_with_parent(driver, signal.SIGTERM)
    return gone


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
