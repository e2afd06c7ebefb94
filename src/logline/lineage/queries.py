"""The lineage questions of `Log`, one function each. Each takes the store, and keeps nothing for the next."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from logline.errors import OptionError
from logline.graph.record import schema_of
from logline.lineage import sql
from logline.lineage.explain import explain as follow_rows
from logline.lineage.levels import Levels
from logline.lineage.records import Chosen, records_table
from logline.lineage.tables import calls as calls_table
from logline.lineage.tables import edges, found_table
from logline.lineage.trace import Direction, Trace, trace
from logline.lineage.view import Event, LogView, name_of
from logline.store.seam import Store

Asked = str | Iterable[str]
"""An event (`hourly:12`), a run of events (`hourly:12..40`), all events of a port (`hourly`), or several of them."""


def follow(view: LogView, asked: Asked, direction: Direction, *, to: str | None, where: str | None) -> Trace:
    """The trace of the events asked for; with `where`, of those of them with a record for which it is true."""
    target = None if to is None else view.port(to)
    return trace(view, _chosen(view, asked, where), direction, target)


def _chosen(view: LogView, asked: Asked, where: str | None) -> list[Event]:
    if where is None:
        return view.events(asked)
    found: list[Event] = []
    levels = Levels(view)
    for text in [asked] if isinstance(asked, str) else asked:
        if ":" in text:
            events = view.events(text)
            levels.ask_headers(events)
            alone = Chosen(view, Trace("backward", events, headers={e: levels.headers[e] for e in events}), where)
            found += [event for event in events if alone.rows[event]]
        else:
            found += reversed(sql.find(view, view.port(text), where, 1 << 30))
    return list(dict.fromkeys(found))


def lineage(
    store: Store, asked: Asked, direction: Direction, *, to: str | None, where: str | None, records: bool
) -> pa.Table:
    """Answers `Log.backward` and `Log.forward`: a row for each way by which an event was found."""
    view = LogView(store)
    found = follow(view, asked, direction, to=to, where=where)
    return found_as_table(view, found, to=to, where=where, records=records)


def found_as_table(view: LogView, found: Trace, *, to: str | None, where: str | None, records: bool) -> pa.Table:
    """A trace as a table: of events, or of records."""
    target = None if to is None else view.port(to)
    return records_table(view, found, where, target) if records else found_table(found, target)


def find(store: Store, port: str, where: str, limit: int) -> list[str]:
    """Answers `Log.find`: the names of at most `limit` events of a port with a record that meets the condition."""
    if limit < 1:
        raise OptionError(f"find(limit={limit}): ask for at least one event")
    view = LogView(store)
    return [name_of(event) for event in sql.find(view, view.port(port), where, limit)]


def explain(store: Store, port: str, where: str, source: str | None) -> pa.Table:
    """Answers `Log.explain`: what became of the rows of the sources for which the condition is true."""
    return follow_rows(LogView(store), port, where, source)


def query(store: Store, text: str) -> pa.Table:
    """Answers `Log.sql`: the result of one DuckDB query that sees nothing but the log."""
    return sql.query(LogView(store), text)


def port_records(store: Store, port: str) -> pa.Table:
    """Answers `Log.read` of a port: the records of all of its events that the log holds."""
    view = LogView(store)
    found = sql.records(view, asked := view.port(port))
    if not found.num_rows:
        return schema_of(view.record, *asked).empty_table()
    return found.select(found.column_names[:-1])  # without the name of the event, which comes last


def lineage_edges(store: Store) -> pa.Table:
    """The table `lineage_edges`: a row for each pair of an output event and an event it was made of."""
    return edges(LogView(store))


def calls(store: Store, asked: Asked) -> pa.Table:
    """Answers `Log.calls`: what the outside answered to the calls that made these events."""
    view = LogView(store)
    return calls_table(view, view.events(asked))
