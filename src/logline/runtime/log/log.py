"""The log as its user reads it: tables, events, errors, lineage. It works while the pipeline runs, and after.

log = ll.open_log("memory:sales")
log.table("event_log")
log.read("hourly:12..40")
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from logline.engine.spec import write_port
from logline.errors import BadName, Collected, LogError
from logline.graph.instances import expand
from logline.graph.record import graph_of, ids_in
from logline.graph.secrets import Secret
from logline.lineage import queries
from logline.names import (
    EventRange,
    InstanceName,
    LogId,
    Ssn,
    TargetName,
    parse_called,
    parse_events,
    port_name,
)
from logline.runtime.log.error_states import error_states, errors_table, rows_table
from logline.runtime.log.keyed import state_table
from logline.store.address import address_of, as_text, find_store, no_log, shown
from logline.store.footprints import checkpoints_table
from logline.store.seam import Reader, Store
from logline.store.tables import TABLES, one_table, record_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


VERSIONS = pa.schema(
    [
        ("version", pa.string()),
        ("since", pa.timestamp("us", "UTC")),
        ("port", pa.string()),
        ("first", pa.int64()),
        ("last", pa.int64()),
    ]
)


class Log:
    """What a pipeline has logged: tables, events, errors, lineage.

    >>> import logline as ll
    >>> p = ll.Pipeline("sales")
    >>> orders = p.source("orders", ll.sources.batches([pa.table({"n": [1, 2]}), pa.table({"n": [3]})]), rows=2)
    >>> def double(batch):
    ...     return pa.table({"n": [2 * n for n in batch["n"].to_pylist()]})
    >>> doubled = orders.map_batches("doubled", double, schema="n long")
    >>> doubled.sink("store", ll.sinks.collect())
    >>> p.lineage()                                  # keeps the events after the run
    >>> log = p.run("memory:log-example", engine="inline").log
    >>> log.find("doubled", "n = 6")
    ['doubled:2']
    >>> log.backward("doubled:2", to="orders")["event"].to_pylist()
    ['orders:2']
    >>> log.read("orders:2").to_pylist()
    [{'n': 3}]
    >>> ll.open_log("memory:log-example").sql("select max(n) as most from orders").to_pylist()
    [{'most': 3}]
    """

    def __init__(self, store: Store, url: str | None) -> None:
        self.store = store
        self.url = "memory:" if url is None else url
        """Where it is; `memory:` for a temporary one."""

    @property
    def log_id(self) -> LogId:
        """The id of this log, which no other log has; it is part of every write id."""
        return self.store.log_id

    def __repr__(self) -> str:
        return f"Log({shown(self.url)!r})"

    def table(self, name: str) -> pa.Table:
        """One of LOG.io's tables: event_log, event_data, read_action, state, event_lineage; or lineage_edges, or
        checkpoints: what the log has of each input set, and what recovery would have to read of it."""
        if name == "lineage_edges":
            return queries.lineage_edges(self.store)
        if name == "checkpoints":
            return checkpoints_table(self.store, record_in(self.store))
        make = TABLES.get(name)
        if make is None:
            raise BadName(f"there is no table {name!r}; there are {', '.join(TABLES)}, lineage_edges, checkpoints")
        return make(self.store, record_in(self.store))

    def read(self, events: str) -> pa.Table:
        """The records of an event or of a run of events: `orders:17`, `hourly.late:3`, `hourly:12..40`. The name of a
        port, `orders`, stands for all of its events that the log holds; a PartialData warns if that is not all."""
        asked: object = events
        if isinstance(asked, str) and ":" not in asked:
            return queries.port_records(self.store, events)
        wanted = parse_events(events)
        record = record_in(self.store)
        expansion = expand(graph_of(record))
        instance = expansion.find(wanted.called)
        ports = record.operators[expansion.operator_of(instance)].outputs
        if wanted.port not in ports:
            raise BadName(f"{wanted.called!r} has no port {wanted.port!r}; it has {', '.join(ports)}")
        reader = self.store.read(instance)
        ssns = [Ssn(ssn) for ssn in range(wanted.first, wanted.last + 1)]
        if wanted.last > reader.head(wanted.port).last:
            raise LogError(_not_there(events, wanted, reader))
        try:
            found = reader.pick(wanted.port, ssns)
        except Collected:
            raise Collected(_not_there(events, wanted, reader)) from None
        found = [output for output in found if output.kind != "watermark"]  # of which only operators know
        if any(output.mark for output in found):
            raise LogError(f"{_not_there(events, wanted, reader)}; after it comes the end of the stream")
        return one_table([output.payload for output in found])

    def find(self, port: str, where: str, *, limit: int = 100) -> list[str]:
        """The newest events of a port with a record for which an SQL condition is true.

        `log.find("orders", "item_id = 'BZ234'")` gives the names of events, the newest first.
        """
        return queries.find(self.store, port, where, limit)

    def backward(
        self, event: queries.Asked, *, to: str | None = None, where: str | None = None, records: bool = False
    ) -> pa.Table:
        """What events were made of, back to the sources, wherever a lineage scope captures it.

        `event` is `hourly:12`, `hourly:12..40`, `hourly` (all that the log has of the port), or a list of such. With
        `to` only the events of that port are listed. `where`, an SQL condition, chooses among the records of the
        events asked for. `records=True` refines the answer to records, through the operators' column dependencies.
        The columns are described in `logline.lineage.tables`; `ends` says why a lineage does not go on.
        """
        return queries.lineage(self.store, event, "backward", to=to, where=where, records=records)

    def forward(
        self, event: queries.Asked, *, to: str | None = None, where: str | None = None, records: bool = False
    ) -> pa.Table:
        """What was made of events, up to the sinks; the arguments and columns are those of `backward`."""
        return queries.lineage(self.store, event, "forward", to=to, where=where, records=records)

    def explain(self, port: str, where: str, *, source: str | None = None) -> pa.Table:
        """Why a row is not there: what became of the rows of the sources for which an SQL condition is true, on their
        way to a port (or to a sink). `log.explain("hourly", "item_id = 'BZ234'")` has a row for each way that each of
        them went: it arrived, was filtered, is late, on a port `errors`, in an open set, not read yet, and so on.

        `source` is the port whose rows are followed, if not those of all sources. Ready-made operators are followed
        row by row, others through `depends=`; otherwise `level` is `event`. The columns are described in
        `logline.lineage.verdicts`.
        """
        return queries.explain(self.store, port, where, source)

    def calls(self, event: queries.Asked) -> pa.Table:
        """The answers that `ctx.call` got while events were made: the reads that are part of their lineage (R9)."""
        return queries.calls(self.store, event)

    def sql(self, query: str) -> pa.Table:
        """A query on the five tables, on `lineage_edges`, `checkpoints`, and on the records of ports.

        `log.sql("select item_id, count(*) from orders group by all")`; a port has the column `_event` with the name
        of each record's event (`__event` if it has an `_event` of its own), and `"hourly.late"` is written in double
        quotes. Times are in UTC.
        """
        return queries.query(self.store, query)

    def errors(self, operator: str | None = None, *, rows: bool = False, settled: bool = False) -> pa.Table:
        """The events on ports `errors`, dead letters: rejected rows and diverted sets, each with its name and state.

        A state is `waiting` or `being retried`; with `settled` also `retried`, `failed again` or `dropped`, as far as
        the log still has the event. `rows=True` gives the rows themselves, as the operator took them; the errors of
        operators that take different columns are asked for one operator at a time.
        """
        found = list(error_states(self.store, operator, settled=settled))
        return rows_table(found) if rows else errors_table(self.store, found)

    def state(self, operator: str, key: Any = None) -> pa.Table:
        """The states of an operator's keys, as they are committed: the columns of the key, then the fields of its
        state. With `key`, a value or a tuple of them, that key alone: `log.state("fraud", "4711")`."""
        return state_table(self.store, operator, key)

    def versions(self, operator: str) -> pa.Table:
        """Which version of an operator's code made which of its events: a row per version and output port that it has
        put something out on, with the time when the version was first started. `first` and `last` are SSNs."""
        record = record_in(self.store)
        expansion = expand(graph_of(record))
        instance = expansion.find(parse_called(operator))
        known = record.versions.get(ids_in(record)[expansion.operator_of(instance)], ())
        reader = self.store.read(instance)
        rows = []
        for at, one in enumerate(known):
            later = known[at + 1].after if at + 1 < len(known) else None
            for port in record.operators[expansion.operator_of(instance)].outputs:
                first = one.after.get(port, 0) + 1
                last = reader.head(port).last if later is None else later.get(port, 0)
                if first <= last:
                    since = datetime.fromtimestamp(one.at, UTC)
                    rows.append({"version": one.version, "since": since, "port": port, "first": first, "last": last})
        return pa.Table.from_pylist(rows, VERSIONS)

    def frame(self, spark: SparkSession, port: str, *, names: bool = False) -> DataFrame:
        """The records of a port's events as a DataFrame, `log.frame(spark, "hourly.out")`: what the log holds when
        Spark reads it, in the executors. `names` adds the columns `event_id` and `ssn`."""
        from logline.spark.frames import frame  # Spark is an extra

        return frame(self.store, self.url, spark, port, names=names)


def open_log(url: str | Secret) -> Log:
    """Opens the log at that address, while its pipeline runs or after; the path of its folder will do. Raises
    LogError if there is none."""
    url = address_of(as_text(url))
    store = find_store(url)
    if store is None:
        raise no_log(url)
    return Log(store, url)


def kept_writes(store: Store, instances: Iterable[InstanceName], target: TargetName) -> pa.Table:
    """The write actions of these instances on a target, which stay in the log (`Sink.kept`), as far as they are known
    to be done."""
    port = write_port(target)
    batches: list[pa.RecordBatch] = []
    for instance in instances:
        reader = store.read(instance)
        image = reader.outline()
        if image.head(port).base > 1:
            raise Collected(
                f"the first {image.head(port).base - 1} writes of {instance!r} are collected: "
                "the sink did not keep them when they were made"
            )
        done = [Ssn(number) for number in range(1, image.written.get(target, 0) + 1)]
        batches += (write.payload for write in reader.pick(port, done))
    return one_table(batches) if batches else pa.table({})


def _not_there(events: str, wanted: EventRange, reader: Reader) -> str:
    """Says which events of the port there are."""
    port = port_name(wanted.called, wanted.port)
    image = reader.outline()
    last = image.head(wanted.port).last - image.marks
    stored = [ssn for ssn in reader.stored(wanted.port) if ssn <= last]
    if not last:
        return f"{events!r} is not in the log: {port} has put out nothing yet"
    if not stored:
        return f"{events!r} is not in the log: {port} has put out 1..{last}, and all of them are collected"
    if len(stored) == last:
        return f"{events!r} is not in the log: {port} has put out 1..{last}"
    whole = len(stored) == last - stored[0] + 1
    kept = f"{stored[0]}..{last}" if whole else f"{len(stored)} of {stored[0]}..{last}"
    return (
        f"{events!r} is not in the log: {port} has put out 1..{last}, and the log still has {kept}; "
        "the others are collected, since nothing needs them any more"
    )
