"""What lies in a journal of the embedded log, row by row."""

from __future__ import annotations

import lmdb

from logline.names import InstanceName
from logline.store.lmdb import environment, rows
from logline.store.lmdb.folder import LmdbStore


def opened(store: LmdbStore, instance: InstanceName) -> environment.Environment:
    """The journal's file, as it is open here."""
    return environment._open[environment.file_of(store.folder / "journals" / instance)]


def rows_of(store: LmdbStore, instance: InstanceName, table: str) -> int:
    """How many rows of a table there are."""
    # Another process would see the same; LMDB opens a file once in a process, so it is asked through what is open.
    env: lmdb.Environment = opened(store, instance)._env
    with env.begin() as txn, txn.cursor() as cursor:
        return sum(key.startswith(rows.kind(table)) for key in cursor.iternext(keys=True, values=False))
