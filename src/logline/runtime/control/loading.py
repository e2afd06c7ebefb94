"""While a file is loaded for its pipeline, the file itself must start nothing: `logline check` moves no data, and
`logline run` starts the pipeline once, on its own log.

    with nothing_starts():
        module = load(path)          # p.run() in it raises StartedWhileLoading
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class StartedWhileLoading(BaseException):
    """A file starts a pipeline while it is loaded. Not an Exception, so that the file does not catch it."""

    def __init__(self, pipeline: object) -> None:
        super().__init__()
        self.pipeline = pipeline


_loading = ContextVar("loading", default=False)


@contextmanager
def nothing_starts() -> Iterator[None]:
    """Whoever starts a pipeline in here gets StartedWhileLoading."""
    before = _loading.set(True)
    try:
        yield
    finally:
        _loading.reset(before)


def refuse_start(pipeline: object) -> None:
    """Called where a pipeline is started."""
    if _loading.get():
        raise StartedWhileLoading(pipeline)
