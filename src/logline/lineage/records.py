"""Lineage of records: a trace refined through the column dependencies of its operators (LOG.io Example 11).

An event is a batch, and its lineage are batches. Where an operator's dependencies are known, of an input event only
the records that agree with a chosen output record can have made it. Without dependencies all of them can.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from logline.errors import Collected
from logline.graph.dependencies import Dependency
from logline.lineage.sql import as_table, database, matching
from logline.lineage.tables import FOUND, found_table
from logline.lineage.trace import Link, Trace
from logline.lineage.view import Event, LogView, Port, name_of
from logline.names import ERRORS, PortName, Ssn

RECORDS = pa.schema([*FOUND, ("row", pa.int64()), ("record", pa.string())])
CONDITIONS = {"same": "i.{0} is not distinct from o.{0}", "from": "i.{0} >= o.{0}", "until": "i.{0} < o.{0}"}


class Chosen:
    """The records of each event of a trace that belong to the lineage of the records asked for."""

    def __init__(self, view: LogView, found: Trace, where: str | None) -> None:
        self._view = view
        self._found = found
        self._tables: dict[Event, pa.Table | None] = {}
        self._ask(event for event, header in found.headers.items() if header is not None)
        self.rows: dict[Event, set[int]] = {event: self._asked(event, where) for event in found.asked}
        self.by_way: dict[tuple[Event, Event | None], set[int]] = {
            (event, None): set(rows) for event, rows in self.rows.items()
        }
        """The same by the event that they were found from: each way to an event has records of its own."""
        nexts: dict[Event, list[Link]] = {}
        for link in found.links:
            nexts.setdefault(link.of, []).append(link)
        # In the order of the stream, or against it: all ways to an event are known before it is passed on.
        with database() as self._db:
            for event in sorted(found.depths, key=self._order, reverse=found.direction == "backward"):
                for link in nexts.get(event, ()):
                    agreeing = self._agreeing(link)
                    self.by_way.setdefault((link.event, link.of), set()).update(agreeing)
                    self.rows.setdefault(link.event, set()).update(agreeing)

    def _order(self, event: Event) -> tuple[int, bool, int]:
        """Senders before receivers; what an instance rejected before what came of it when it was retried."""
        instance, port, ssn = event
        return self._view.rank[instance], port != ERRORS, ssn if port == ERRORS else 0

    def table(self, event: Event) -> pa.Table | None:
        """The records of an event; None if it is collected."""
        if event not in self._tables:
            self._tables[event] = None
            with suppress(Collected):
                self._pick(event[:2], [event[2]])
        return self._tables[event]

    def _ask(self, events: Iterable[Event]) -> None:
        """The records of all these events, with one question for each port: a log may be far away."""
        ports: dict[Port, list[Ssn]] = defaultdict(list)
        for instance, out, ssn in events:
            ports[instance, out].append(ssn)
        for port, ssns in ports.items():
            with suppress(Collected):  # one of them just now: `table` asks for each
                self._pick(port, ssns)

    def _pick(self, port: Port, ssns: Sequence[Ssn]) -> None:
        picked = self._view.reader(port[0]).pick(port[1], ssns)
        self._tables |= {(*port, output.ssn): pa.Table.from_batches([output.payload]) for output in picked}

    def sample(self, event: Event, rows: Sequence[int] | None, most: int) -> tuple[list[dict[str, Any]], int]:
        """A few records of an event, or of these rows of it, and how many there are."""
        table = self.table(event)
        if table is None:
            return [], 0
        chosen = range(table.num_rows) if rows is None else rows
        return table.take(pa.array(chosen[:most], pa.int64())).to_pylist(), len(chosen)

    def _asked(self, event: Event, where: str | None) -> set[int]:
        table = self.table(event)
        if table is None:
            return set()
        return set(range(table.num_rows) if where is None else matching(table, where, event[:2]))

    def _agreeing(self, link: Link) -> set[int]:
        known, wanted = self.table(link.of), self.table(link.event)
        if known is None or wanted is None:
            return set()
        known = known.take(pa.array(sorted(self.rows[link.of]), pa.int64()))
        backward = self._found.direction == "backward"
        inputs, outputs = (wanted, known) if backward else (known, wanted)
        found = "select i.row from i semi join o on {on}" if backward else "select o.row from o semi join i on {on}"
        chosen: set[int] = set()
        for port in self._view.ports_between(link.event if backward else link.of, link.operator):
            depends = _depends(self._view, link, port, inputs.schema, outputs.schema)
            if not known.num_rows or not depends:
                return set(range(wanted.num_rows)) if known.num_rows else set()
            chosen.update(agreeing(self._db, inputs, outputs, depends, found)["row"].to_pylist())
        return chosen


def _depends(
    view: LogView, link: Link, port: PortName, inputs: pa.Schema, outputs: pa.Schema
) -> Sequence[Dependency]:
    """The column dependencies that tell which records of one event agree with those of the other."""
    if ERRORS in (link.event[1], link.of[1]):
        return []  # an error holds rows, and its own columns tell nothing of them
    if link_is_changed(view, link):
        return []  # its columns are not those that the operator took
    return applying(view.operator(link.operator).depends, port, inputs, outputs)


def link_is_changed(view: LogView, link: Link) -> bool:
    """Whether ephemeral operators were on the way from the one event to the operator that made the other."""
    sent = {link.event[:2], link.of[:2]}
    return any(c.name in view.changed and view.sender(c.name) in sent for c in view.inputs(link.operator))


def applying(known: Iterable[Dependency], port: PortName, inputs: pa.Schema, outputs: pa.Schema) -> list[Dependency]:
    """Those that tell records of two schemas apart, of which one comes on this input port."""
    mine = [d for d in known if d.how in CONDITIONS and d.port in (None, port)]
    return [d for d in mine if d.out in outputs.names and d.into in inputs.names]


def agreeing(db: Any, inputs: pa.Table, outputs: pa.Table, depends: Sequence[Dependency], query: str) -> pa.Table:
    """A query on input records `i` and output records `o`, which have their numbers as `row`; `{on}` in it is the
    condition that two of them agree."""
    db.register("i", _columns(inputs, [d.into for d in depends]))
    db.register("o", _columns(outputs, [d.out for d in depends]))
    conditions = " and ".join(CONDITIONS[d.how].format(f"c{at}") for at, d in enumerate(depends))
    return as_table(db.sql(query.format(on=f"({conditions})")))


def _columns(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """These columns under names of ours, with the number of each row: SQL would take `id` and `ID` for one."""
    numbers = pa.array(range(table.num_rows), pa.int64())
    columns = {f"c{at}": table.column(name) for at, name in enumerate(names)}
    return pa.table({**columns, "row": numbers})


def records_table(view: LogView, found: Trace, where: str | None, to: Port | None) -> pa.Table:
    """One row per way and record; of an event that is collected one row without a record."""
    chosen = Chosen(view, found, where)
    events = {name_of(event): event for event in found.depths}
    rows: list[dict[str, Any]] = []
    for row in found_table(found, to).to_pylist():
        event = events.get(row["event"])
        table = None if event is None else chosen.table(event)
        if event is None or table is None:
            rows.append(row)
            continue
        for number in sorted(chosen.by_way[event, events.get(row["of"])]):
            record = table.slice(number, 1).to_pylist()[0]
            rows.append({**row, "row": number, "record": json.dumps(record, default=str)})
    return pa.Table.from_pylist(rows, schema=RECORDS)
