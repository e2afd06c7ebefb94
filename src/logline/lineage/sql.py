"""SQL over a log, by DuckDB in memory: on its tables, on the events of a port, on the records of one event.

Nothing but the log can be read: a query has no access to files, networks or the variables of the caller. Times are in
UTC, whatever the zone of the machine is.

SQL does not tell `id` from `ID`. Where a query means one of two names that differ in nothing else, it is refused. The
columns that are added here take a name that the user's columns leave free.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, islice
from typing import Any

import pyarrow as pa

from logline.engine.events import Output
from logline.errors import Collected, LogError
from logline.lineage.partial import announce_partial
from logline.lineage.tables import edges
from logline.lineage.view import Event, LogView, Port, name_of, port_text
from logline.names import Ssn, port_name
from logline.store.footprints import checkpoints_table
from logline.store.tables import TABLES, one_table

CHUNK = 64
"""Events whose records are looked at together."""
EVENT = "_event"
"""The column with the name of a record's event."""
_NAME_APART = "name them apart in the pipeline"


@contextmanager
def database() -> Iterator[Any]:
    import duckdb

    connection = duckdb.connect(":memory:", config={"enable_external_access": "false"})
    try:
        connection.execute("set python_enable_replacements = false")
        connection.execute("set TimeZone = 'UTC'")  # a date begins at midnight there, as windows have it
        connection.execute("set lock_configuration = true")
        yield connection
    except duckdb.Error as error:
        text = str(error).partition("\n")[0]
        raise LogError(f"the query can't be answered: {text}") from None
    finally:
        connection.close()


def names(view: LogView) -> Mapping[str, Callable[[], pa.Table]]:
    """What a query can be made on: the five tables, `lineage_edges`, `checkpoints`, and each port with its records.

    A port has the columns of its events and `_event`, the name of the event. `hourly.late` is written
    `"hourly.late"`, in double quotes. A port whose short name is that of a table is written in full: `"state.out"`.
    """
    found: dict[str, Callable[[], pa.Table]] = {
        "lineage_edges": lambda: edges(view),
        "checkpoints": lambda: checkpoints_table(view.store, view.record),
    }
    for name, make in TABLES.items():
        found[name] = lambda make=make: make(view.store, view.record)  # type: ignore[misc]
    tables = {_folded(name) for name in found}
    for instance in view.instances:
        for out in view.operator(instance).outputs:
            port = (instance, out)
            for text in {port_text(port), port_name(*port)}:
                if _folded(text) not in tables:
                    found[text] = lambda port=port: records(view, port)  # type: ignore[misc]
    return found


def query(view: LogView, text: str) -> pa.Table:
    """One statement. Only tables that the text mentions are made."""
    known = names(view)
    mentioned = [name for name in known if re.search(_mention(name), text, re.IGNORECASE)]
    _check_folded(mentioned, "the tables {} of the log", "rename one of the operators")
    with database() as db:
        for name in mentioned:
            table = known[name]()
            _check_folded(table.column_names, f"the columns {{}} of {name}", _NAME_APART)
            db.register(name, table)
        result = db.sql(text)
        if result is None:
            raise LogError("the query gives no rows: a log is read, not changed; begin with select")
        return as_table(result)


def _mention(name: str) -> str:
    return rf"(?<![\w.]){re.escape(name)}(?![\w.])"


def _folded(name: str) -> str:
    """The name as SQL compares it."""
    return "".join(letter.lower() if letter.isascii() else letter for letter in name)


def _check_folded(given: Iterable[str], what: str, do: str) -> None:
    """Refuses names that SQL takes for one."""
    known: dict[str, str] = {}
    for name in given:
        other = known.setdefault(_folded(name), name)
        if other != name:
            both = what.format(f"{other!r} and {name!r}")
            raise LogError(f"{both} differ in case alone, and SQL does not tell them apart: {do}, or use log.read()")


def free_name(wanted: str, taken: Iterable[str]) -> str:
    """A name for a column beside these: the one that is wanted, after as many underscores as it takes.

    >>> free_name("_event", ["n", "_Event"])
    '__event'
    """
    known = {_folded(name) for name in taken}
    while _folded(wanted) in known:
        wanted = f"_{wanted}"
    return wanted


def as_table(result: Any) -> pa.Table:
    found = result.to_arrow_table()
    assert isinstance(found, pa.Table)
    return found


def records(view: LogView, port: Port) -> pa.Table:
    """The records of a port that are in the log, with the name of each one's event. Warns if some are gone."""
    announce_partial(view, port)
    tables = []
    for output in (output for chunk in _chunks(view, port, reverse=False) for output in chunk):
        event = pa.repeat(pa.scalar(name_of((port[0], port[1], output.ssn))), output.rows)
        table = pa.Table.from_batches([output.payload])
        tables.append(table.append_column(free_name(EVENT, table.column_names), event))
    if not tables:
        return pa.table({EVENT: pa.array([], pa.string())})
    return one_table([batch for table in tables for batch in table.to_batches()])


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
    return [output for output in found if not output.mark]


def find(view: LogView, port: Port, where: str, limit: int) -> list[Event]:
    """The newest events of a port with a record for which the condition is true."""
    return [(*port, output.ssn) for output, _ in islice(hits(view, port, where, reverse=True), limit)]


def hits(view: LogView, port: Port, where: str, *, reverse: bool = False) -> Iterator[tuple[Output, list[int]]]:
    """The events of a port with records for which the condition is true, and the numbers of these; the oldest event
    first, or the newest."""
    for chunk in _chunks(view, port, reverse=reverse):
        found = matching(one_table([o.payload for o in chunk]), where, port)
        ends = list(accumulate(output.rows for output in chunk))
        by_event: dict[int, list[int]] = {}
        for row in found:
            by_event.setdefault(bisect_right(ends, row), []).append(row)
        for at in sorted(by_event):
            before = ends[at] - chunk[at].rows
            yield chunk[at], [row - before for row in by_event[at]]


def matching(table: pa.Table, where: str, port: Port) -> list[int]:
    """The numbers of the rows of this port for which the condition is true."""
    alike = Counter(map(_folded, table.column_names))
    for name in (name for name in table.column_names if alike[_folded(name)] > 1):
        if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", where, re.IGNORECASE):
            _check_folded(table.column_names, f"the columns {{}} of {port_text(port)}", _NAME_APART)
        table = table.drop_columns([name])  # it is not asked for
    number = free_name("_row", table.column_names)
    with database() as db:
        db.register("records", table.append_column(number, pa.array(range(table.num_rows), pa.int64())))
        return list(as_table(db.sql(f"select {number} from records where ({where}\n)"))[number].to_pylist())
