"""What a life of a group imports sooner or later: importing this module imports it.

A process that forks lives, or workers for them, does so first, so that a life that follows a crash imports nothing
but the user's own modules. Nothing here opens a log or a connection: neither may be carried over a fork.
"""

from __future__ import annotations

import contextlib

import pyspark.worker  # noqa: F401

import logline.connectors
import logline.operators
import logline.runtime.control.supervisor
import logline.store.lmdb.folder
from logline.spark.respawn import close_archives

with contextlib.suppress(ImportError):  # an extra
    import psycopg  # noqa: F401

    import logline.store.postgres.store  # noqa: F401
with contextlib.suppress(ImportError):  # Arrow looks for it when it first makes an array of Python's own values
    import pandas  # type: ignore[import-untyped]  # noqa: F401
    import pyarrow.pandas_compat  # noqa: F401

close_archives()  # before the daemon freezes what it has
