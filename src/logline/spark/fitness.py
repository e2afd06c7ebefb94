"""Whether the Python of a Spark task can host a life: it must have Logline, in the version of the driver.

The check is shipped whole, since the Python that lacks Logline must run it. What it finds is an end of the life, not
a failure of the task: Spark would try the task a hundred times.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from logline.runtime.messages.reports import Failed
from logline.runtime.messages.wire import encode

_CHOOSE = "choose another one with PYSPARK_PYTHON or spark.pyspark.python"
_HOPELESS = {
    r"different version: (\S+) than that in driver: (\d[.\d]*)": "its Python is {}, the driver's {}: take the same",
    r'Cannot run program "([^"]+)"': "it has no Python {}: install it there",
    r"No module named '?((?:logline|pyspark)[\w.]*)": "its Python has no module {}: install it there",
}
"""How Spark's own failures of a Python that is not fit for tasks read, and what to say of them."""


def hopeless(text: str) -> str:
    """What to say of a failure of a task that comes again each time, because of its Python; empty for others.

    >>> hopeless("Python in worker has different version: 3.12 than that in driver: 3.11, PySpark cannot run")[:52]
    "its Python is 3.12, the driver's 3.11: take the same"
    """
    for pattern, said in _HOPELESS.items():
        if found := re.search(pattern, text):
            return f"{said.format(*found.groups())}. Or {_CHOOSE}"
    return ""


def unfit_for(group: str) -> Callable[[], str]:
    """A function for the task of a group. Returns the end (`End`) that says why no life can begin; empty if one can.

    It uses nothing of this module but what it is given here: Spark ships such a function by value."""

    def version() -> str:
        import os
        import sys
        from importlib import metadata

        # Not in archives: the search would leave them open, and a process that has something open forks no lives.
        folders = [path for path in sys.path if os.path.isdir(path)]
        return next((found.version for found in metadata.distributions(name="logline", path=folders)), "")

    template = encode(Failed("")).decode()
    ours = version()  # none if it runs from a folder of sources

    def unfit() -> str:
        import json
        import socket
        import sys

        theirs = version()
        try:
            import logline.spark.task  # noqa: F401

            if theirs == ours or not theirs or not ours:
                return ""
        except Exception as error:
            theirs = f"{theirs or 'none'} ({type(error).__name__}: {error})"
        text = (
            f"a Spark task on {socket.gethostname()} can't host {group}: of Logline its Python ({sys.executable}) "
            f"has {theirs}, and the driver has {ours or 'a folder of sources'}. Install the driver's there, or "
            "choose another Python with PYSPARK_PYTHON or spark.pyspark.python"
        )
        return json.dumps({**json.loads(template), "text": text})

    return unfit
