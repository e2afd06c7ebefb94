"""A worker process: one group, which hears and reports over pipes.

    python -m logline.runtime.worker COMMANDS REPORTS DRIVER      (numbers of inherited pipes; a process id)

The first command carries what to run. The process dies with its driver: by the kernel's hand where that is known
(Linux), and when the command pipe closes.
"""

from __future__ import annotations

import base64
import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from logline.runtime.parent import die_with_parent
from logline.runtime.wire import Speaker, listen

if TYPE_CHECKING:
    from logline.runtime.inline import InlineEngine


def serve(commands: int, reports: int, driver: int) -> None:
    """Runs one group until it is over."""
    die_with_parent(driver)  # before anything that takes time: a driver may be killed meanwhile
    speaker = Speaker(reports)
    heard = listen(commands)
    first = next(heard, None)
    if first is None:
        return
    sys.path[:] = first["path"]
    from logline.runtime.working import work
    from logline.store.address import open_store

    def obey(engine: InlineEngine) -> Callable[[], None]:
        def hear() -> None:
            for message in heard:
                engine.command(message["do"])
            os._exit(1)  # the driver is gone: nobody would know of what happens here

        threading.Thread(target=hear, name="logline-obey", daemon=True).start()
        return lambda: None

    outcome = work(
        first["group"],
        base64.b64decode(first["parts"]),
        open_store(first["log"]),
        level=first["level"],
        armed=first["faults"],
        life=first["life"],
        say=speaker.say,
        obey=obey,
    )
    speaker.say(**outcome)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads of user code that hang must not keep the process


if __name__ == "__main__":
    serve(*(int(argument) for argument in sys.argv[1:4]))
