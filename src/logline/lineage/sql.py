"""SQL over a log, by DuckDB in memory: on its tables, on the events of a port, on the records of one event.

Nothing but the log can be read: a query has no access to files, networks or the variables of the caller.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from logline.engine.events import Output
from logline.errors import Collected, LogError
from logline.lineage.tables import edges
from logline.lineage.view import Event, LogView, Port, name_of, port_text
from logline.names import Ssn
from logline.store.tables import TABLES

CHUNK = 64
"""Events whose records are looked at together."""
EVENT = "_event"
"""The column with the name of a record's event."""


@contextmanager
def database() -> Iterator[Any]:
    import duckdb

    connection = duckdb.connect(":memory:", config={"enable_external_access": "false"})
    try:
        connection.execute("set python_enable_replacements = false")
        connection.execute("set lock_configuration = true")
        yield connection
    except duckdb.Error as error:
        text = str(error).partition("\n")[0]
        raise LogError(f"the query can't be answered: {text}") from None
    finally:
        connection.close()


def names(view: LogView) -> Mapping[str, Callable[[], pa.Table]]:
    """What a query can be made on: the five tables, `lineage_edges`, and each port with its records.

    A port has the columns of its events and `_event`, the name of the event. `hourly.late` is written
    `"hourly.late"`, in double quotes.
    """
    found: dict[str, Callable[[], pa.Table]] = {"lineage_edges": lambda: edges(view)}
    for name, make in TABLES.items():
        found[name] = lambda make=make: make(view.store, view.record)  # type: ignore[misc]
    for instance in view.expansion.instances:
        for out in view.operator(instance).outputs:
            port = (instance, out)
            found.setdefault(port_text(port), lambda port=port: records(view, port))  # type: ignore[misc]
    return found


def query(view: LogView, text: str) -> pa.Table:
    """One statement. Only tables that the text mentions are made."""
    with database() as db:
        for name, make in names(view).items():
            if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", text, re.IGNORECASE):
                db.register(name, make())
        result = db.sql(text)
        if result is None:
            raise LogError("the query gives no rows: a log is read, not changed; begin with select")
        return as_table(result)


def as_table(result: Any) -> pa.Table:
    found = result.to_arrow_table()
    assert isinstance(found, pa.Table)
    return found


def records(view: LogView, port: Port) -> pa.Table:
    """The records of a port that are in the log, with the name of each one's event."""
    tables = []
    for output in (output for chunk in _chunks(view, port, reverse=False) for output in chunk):
        event = pa.repeat(pa.scalar(name_of((port[0], port[1], output.ssn))), output.rows)
        tables.append(pa.Table.from_batches([output.payload]).append_column(EVENT, event))
    return pa.concat_tables(tables) if tables else pa.table({EVENT: pa.array([], pa.string())})


def _chunks(view: LogView, port: Port, *, reverse: bool) -> Iterator[list[Output]]:
    reader = view.reader(port[0])
    stored = sorted(reader.stored(port[1]), reverse=reverse)
    for at in range(0, len(stored), CHUNK):
        found = _pick(view, port, stored[at : at + CHUNK])
        if found:
            yield found


def _pick(view: LogView, port: Port, ssns: Sequence[Ssn]) -> list[Output]:
    """Those that are still there; without the end."""
    reader = view.reader(port[0])
    try:
        found = list(reader.pick(port[1], ssns))
    except Collected:  # since the look at what is stored
        found = []
        for ssn in ssns:
            try:
                found += reader.pick(port[1], [ssn])
            except Collected:
                continue
    return [output for output in found if not output.end]


def find(view: LogView, port: Port, where: str, limit: int) -> list[Event]:
    """The newest events of a port with a record for which the condition is true."""
    found: list[Event] = []
    for chunk in _chunks(view, port, reverse=True):
        ssns = pa.concat_arrays([pa.repeat(pa.scalar(o.ssn, pa.int64()), o.rows) for o in chunk])
        table = pa.Table.from_batches([o.payload for o in chunk]).append_column("_ssn", ssns)
        hits = matching(table, where)["_ssn"].unique().to_pylist()
        found += [(port[0], port[1], Ssn(ssn)) for ssn in sorted(hits, reverse=True)]
        if len(found) >= limit:
            break
    return found[:limit]


def matching(table: pa.Table, where: str) -> pa.Table:
    """The rows for which the condition is true."""
    with database() as db:
        db.register("records", table)
        return as_table(db.sql(f"select * from records where ({where}\n)"))
