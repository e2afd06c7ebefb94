"""A copy of a log in a folder, journal by journal (`store/copying.py`)."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from logline.errors import LogError
from logline.names import LogId
from logline.store.lmdb import rows as sealed
from logline.store.lmdb.environment import Environment
from logline.store.lmdb.events import sealed_runs, sealed_schemas
from logline.store.lmdb.files import read_json, write_aside
from logline.store.lmdb.folders import make_folder
from logline.store.lmdb.rows import LmdbRows
from logline.store.marks import Mark
from logline.store.packing import Packer, Schemas
from logline.store.rows import Row
from logline.store.seam import Lying

MARK = "mark.json"
ROWS, RUNS = 5000, 100
"""Rows, and runs of events, in one transaction."""


def read_mark(folder: Path) -> Mark | None:
    """What the log in that folder says of itself."""
    found = read_json(folder / MARK)
    return None if found is None else Mark(found["kind"], found["other"])


def write_mark(folder: Path, mark: Mark | None) -> None:
    """Replaces what the log in that folder says of itself; None takes it away."""
    if mark is None:
        (folder / MARK).unlink(missing_ok=True)
    else:
        write_aside(folder / MARK, mark._asdict())


def clear_for_copy(folder: Path, log_id: LogId, mark: Mark) -> None:
    """Makes the folder, with its mark before anything else. What is left of an earlier copy of the same log goes."""
    about, known = read_json(folder / "log.json"), read_mark(folder)
    again = known is not None and known.kind == "unfinished" and (about is None or about["log_id"] == log_id)
    if about is not None and not again:
        raise LogError(f"there is a log in {folder}: give the copy a folder of its own")
    if again:
        shutil.rmtree(folder)
    if folder.exists() and any(folder.iterdir()):
        raise LogError(f"{folder} is not empty: give the copy a folder of its own")
    make_folder(folder)
    write_mark(folder, mark)


def restore(env: Environment, rows: Iterable[Row], events: Iterable[Lying]) -> None:
    """Writes a journal, in several transactions: nobody can open the log before it is whole."""
    rest = iter(rows)
    while some := list(islice(rest, ROWS)):
        with env.write() as txn:
            table = LmdbRows(txn)
            for row in some:
                table.put(row.table, row.key, row.value)
    schemas: Schemas = {}
    runs = iter(events)
    while found := list(islice(runs, RUNS)):
        with env.write() as txn:
            for visible, staged in found:
                packer = Packer(schemas)
                packed = packer.together(visible, ()) + packer.alone(staged)
                sealed.put_all(txn, (*sealed_schemas(packer), *sealed_runs(packed)))
                schemas |= packer.fresh
