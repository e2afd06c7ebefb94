"""Where worker processes are born: a process of its own that imports what every worker needs, and forks.

    python -m logline.runtime.hosts.fork_server LINE DRIVER      (number of an inherited socket; a process id)

A fork takes some milliseconds, the imports of an interpreter half a second: an operator that was killed is back that
much sooner. The user's process is never forked, whatever threads and locks it has; this one is started with spawn,
runs no user code, starts no thread and opens no log. It dies with its driver, and its children with it, by the
kernel's hand.

Over the line come the pipes of the next worker, or whom to kill; back goes how each one was born and how it ended.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
import warnings
from typing import Any

from logline.runtime.hosts.parent import call_process, die_with_parent, new_chance
from logline.runtime.hosts.piped_worker import serve

_ALWAYS = ("lmdb", "pyarrow.compute", "logline.runtime.hosts.worker")


class ForkServer:
    """The loop: one thing after the other, on one thread."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._poll = select.poll()
        self._poll.register(line, select.POLLIN)
        self._children: dict[int, tuple[int, int]] = {}
        """By the descriptor that tells their end: number and process id."""

    def run(self) -> None:
        """Until the driver hangs up; whoever lives then dies with us."""
        while True:
            for fd, _ in self._poll.poll():
                if fd in self._children:
                    self._reap(fd)
                elif not self._hear():
                    return

    def _hear(self) -> bool:
        data, pipes, _, _ = socket.recv_fds(self._line, 1 << 16, 2)
        if not data:
            return False
        message = json.loads(data)
        if "kill" in message:
            for number, pid in self._children.values():  # not reaped yet: the pid is still theirs
                if number == message["kill"]:
                    os.kill(pid, signal.SIGKILL)
        else:
            self._fork(message["number"], message["name"], pipes)
        return True

    def _fork(self, number: int, name: str, pipes: list[int]) -> None:
        here = os.getpid()
        try:
            pid = os.fork()
            if pid == 0:
                _live(here, name, *pipes)
        except OSError as error:
            self._say(number=number, failed=str(error))
            return
        finally:
            for pipe in pipes:
                os.close(pipe)
        end = os.pidfd_open(pid)
        self._children[end] = (number, pid)
        self._poll.register(end, select.POLLIN)
        self._say(number=number, pid=pid)

    def _reap(self, end: int) -> None:
        number, pid = self._children.pop(end)
        self._poll.unregister(end)
        os.close(end)
        _, status = os.waitpid(pid, 0)
        self._say(number=number, code=os.waitstatus_to_exitcode(status))

    def _say(self, **message: Any) -> None:
        with contextlib.suppress(OSError):  # the driver is gone: the next look at the line shows it
            self._line.send(json.dumps(message).encode())


def _live(server: int, name: str, commands: int, reports: int) -> None:
    """The child. It never returns to the loop."""
    try:
        die_with_parent(server)
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
    """Imports, then waits for work."""
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
        ForkServer(end).run()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
