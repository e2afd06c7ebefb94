"""Compares the views of a log in PostgreSQL with the tables that Python makes of the same log."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pyarrow as pa
from tests.postgres import Database

from logline.lineage.queries import lineage_edges
from logline.runtime.log.error_states import error_states
from logline.runtime.log.log_status import log_status
from logline.store.footprints import checkpoints_table
from logline.store.seam import Store
from logline.store.tables import TABLES, record_in

Rows = list[tuple[Any, ...]]


def log_url(postgres: Database) -> str:
    """The address of a log in that schema."""
    return f"{postgres.bare}&log={postgres.schema}"


def _sorted(rows: Rows) -> Rows:
    return sorted(rows, key=repr)


def table(store: Store, name: str) -> Rows:
    """A table of the log, as Python makes it."""
    if name == "lineage_edges":
        made = lineage_edges(store)
    else:
        made = {**TABLES, "checkpoints": checkpoints_table}[name](store, record_in(store))
    return _sorted([tuple(row.values()) for row in made.to_pylist()])


def view(postgres: Database, name: str) -> Rows:
    """The same, as the database has it."""
    return _sorted([tuple(row) for row in postgres.ask(f"select * from {name}")])


def check_views(postgres: Database, store: Store) -> dict[str, Rows]:
    """Compares all views row by row, and returns the tables that are equal."""
    found = {name: table(store, name) for name in (*TABLES, "lineage_edges", "checkpoints")}
    for name, expected in found.items():
        if name != "event_data":
            assert view(postgres, name) == expected, name
    got = [(*row[:6], _batch(row[6], row[7], row[3])) for row in view(postgres, "event_data")]
    assert _by_name(got) == _by_name([(*row[:6], _batch(row[6], 0, row[3])) for row in found["event_data"]])
    states = [(e.event, e.operator, e.state, *_said(e.output)) for e in error_states(store, settled=True)]
    assert view(postgres, "errors") == _sorted(states)
    _check_status(postgres, store)
    return found | {"errors": _sorted(states)}


def _by_name(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: str(row[0]))


def _batch(body: bytes | None, first: int, rows: int) -> pa.Table | None:
    return None if body is None else pa.ipc.open_stream(body).read_all().slice(first, rows)


def _said(output: Any) -> tuple[str | None, str | None]:
    (row,) = output.payload.select(["inset", "reason"]).to_pylist()
    return row["inset"], row["reason"]


def _check_status(postgres: Database, store: Store) -> None:
    known = log_status(store)
    columns = ["taken", "out", "lag", "open_sets", "in_flight", "written", "pending", "restarts", "errors"]
    columns += ["checkpoints", "replay", "extent", "late", "keys"]
    expected = [
        (name, known.phase, *(getattr(one, column) for column in columns)) for name, one in known.operators.items()
    ]
    assert postgres.ask(f"select operator, phase, {', '.join(columns)} from status") == expected
    times = dict(postgres.ask("select operator, watermark from status"))
    shown = {name: "" if at is None else str(at.astimezone(UTC)) for name, at in times.items()}
    assert shown == {name: one.watermark for name, one in known.operators.items()}
