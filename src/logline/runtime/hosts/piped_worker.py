"""A worker process: one group, which hears and reports over pipes.

The first command carries what to run. The process dies with its driver: by the kernel's hand, and when the command
pipe closes.
"""

from __future__ import annotations

import base64
import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from logline.runtime.hosts.pipes import Speaker, listen

if TYPE_CHECKING:
    from logline.runtime.lives.inline import InlineEngine


def serve(commands: int, reports: int) -> None:
    """Runs one group until it is over."""
    speaker = Speaker(reports)
    heard = listen(commands)
    first = next(heard, None)
    if first is None:
        return
    sys.path[:] = first["path"]
    sys.argv[:] = first["argv"]
    from logline.runtime.hosts.worker import work
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
        base64.b64decode(first["instances"]),
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
