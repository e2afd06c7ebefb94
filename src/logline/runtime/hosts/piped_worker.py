"""A worker process: runs one group, takes commands from one pipe and writes reports to another.

The first message says what to run (`Begin`). The process dies with its driver: the kernel kills it, and it ends
itself when the command pipe closes. If it can't read a message, it reports that as a failure, and the run fails.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from logline.runtime.hosts.pipes import Speaker, listen
from logline.runtime.messages.commands import BEGIN
from logline.runtime.messages.wire import NotAMessage

if TYPE_CHECKING:
    from logline.runtime.lives.inline import InlineEngine


def serve(commands: int, reports: int) -> None:
    """Runs one group until it is over, then ends the process."""
    speaker = Speaker(reports)
    heard = listen(commands)
    from logline.runtime.messages.reports import Failed

    first = next(heard, None)
    if first is None:
        return
    try:
        begin = BEGIN.decode(first)
    except NotAMessage as error:
        speaker.say(Failed(f"a worker process can't begin: what it was sent is {error}"))
        raise
    sys.path[:] = begin.path
    sys.argv[:] = begin.argv
    from logline.errors import LogError
    from logline.runtime.hosts.worker import obey_line, work
    from logline.store.address import find_same

    try:
        store = find_same(begin.log, begin.log_id)
    except LogError as error:
        speaker.say(Failed(str(error)))
        return

    def obey(engine: InlineEngine) -> Callable[[], None]:
        def hear() -> None:
            for line in heard:
                obey_line(engine, line)
            os._exit(1)  # the driver is gone: nobody would know of what happens here

        threading.Thread(target=hear, name="logline-obey", daemon=True).start()
        return lambda: None

    end = work(
        begin.group,
        begin.instances,
        store,
        level=begin.level,
        armed=begin.faults,
        life=begin.life,
        say=speaker.say,
        obey=obey,
    )
    speaker.say(end)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads of user code that hang must not keep the process
