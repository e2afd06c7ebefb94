"""Dead letters: the events on ports `errors`, what became of each, and their rows.

    waiting          until somebody retries or drops it; the log keeps it (R12)
    being retried    its set, or its rows, are due; the next run does it if none runs
    retried          what came of it came out
    failed again     it was retried, and what failed is a new error
    dropped          somebody let go of it

What is settled is collected like any other event. Until then it is there, and as long as a lineage scope keeps it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Literal, NamedTuple

import pyarrow as pa

from logline.engine.clock import WATERMARK
from logline.engine.codec import watermark_instant
from logline.engine.error_resolution import on_their_way
from logline.engine.events import Output
from logline.errors import BadName, LogError
from logline.graph.instances import InstanceNode, expand
from logline.graph.model import ERRORS_SCHEMA
from logline.graph.record import graph_of
from logline.lineage.trace import trace
from logline.lineage.view import LogView, name_of
from logline.names import ERRORS, LATE, Called, OperatorName, event_name
from logline.runtime.lives.dead_letters import rows_of
from logline.store.seam import Reader, Store
from logline.store.tables import record_in

State = Literal["waiting", "being retried", "retried", "failed again", "dropped"]


class ErrorState(NamedTuple):
    """One event on a port `errors`."""

    event: str
    operator: OperatorName
    state: State
    output: Output

    @property
    def has_rows(self) -> bool:
        """Whether it carries rows: a set of events with different columns does not."""
        return bool(self.output.payload.column("data")[0].is_valid)


def error_states(store: Store, operator: str | None = None, *, settled: bool = False) -> Iterator[ErrorState]:
    """The errors in the log, by operator; with `settled` those too that were retried or dropped."""
    record = record_in(store)
    if operator is not None and operator not in record.operators:
        raise BadName(f"there is no operator {operator!r}; there are {', '.join(record.operators)}")
    for name, instance in expand(graph_of(record)).instances.items():
        if operator in (None, instance.operator) and ERRORS in record.operators[instance.operator].outputs:
            yield from _of_instance(store.read(name), instance, settled)


def _of_instance(reader: Reader, instance: InstanceNode, settled: bool) -> Iterator[ErrorState]:
    image = reader.image()
    retried = on_their_way(image, instance.name)
    for output in reader.pick(ERRORS, reader.stored(ERRORS)):
        outcome = image.resolved.get(output.ssn)
        if output.mark or outcome == "mark" or (outcome is not None and not settled):
            continue
        state: State = outcome or ("being retried" if output.ssn in retried else "waiting")
        yield ErrorState(event_name(instance.called, ERRORS, output.ssn), instance.operator, state, output)


def errors_table(store: Store, found: list[ErrorState]) -> pa.Table:
    """A row for each error: its name and state, what the event says (`ERRORS_SCHEMA`), what of it came too late."""
    tables = [ERRORS_SCHEMA.empty_table(), *(pa.Table.from_batches([one.output.payload]) for one in found)]
    names, states = ([getattr(one, field) for one in found] for field in ("event", "state"))
    late = [_late_events(store, one.event) if one.state == "retried" else [] for one in found]
    return (
        pa.concat_tables(tables)
        .add_column(0, "event", pa.array(names, pa.string()))
        .add_column(1, "state", pa.array(states, pa.string()))
        .append_column("late", pa.array(late, pa.list_(pa.string())))
    )


def _late_events(store: Store, error: str) -> list[str]:
    """What came of an error too late, as far as lineage is captured: its windows were out."""
    view = LogView(store)
    return [name_of(event) for event in trace(view, view.events(error), "forward").depths if event[1] == LATE]


def rows_table(found: list[ErrorState]) -> pa.Table:
    """A row for each row of the errors, as their operator took it, with `_event`, `_state`, `_operator`, `_inset` and
    `_reason` before it. Those of operators that take other columns can't be in one table."""
    tables: dict[OperatorName, list[pa.Table]] = {}
    for one in found:
        if one.has_rows:
            tables.setdefault(one.operator, []).append(_with_error(one))
    joined = {operator: _joined(operator, parts) for operator, parts in tables.items()}
    schemas = [table.schema for table in joined.values()]
    if any(not schema.equals(schemas[0]) for schema in schemas):
        raise LogError(
            f"the errors of {', '.join(joined)} have rows with different columns: "
            f"choose one operator, as in log.errors({str(next(iter(joined)))!r}, rows=True)"
        )
    return pa.concat_tables(joined.values()) if joined else _HEAD.empty_table()


_HEAD = pa.schema([(f"_{name}", pa.string()) for name in ("event", "state", "operator", "inset", "reason")])


def _with_error(one: ErrorState) -> pa.Table:
    rows = pa.Table.from_batches([rows_of(one.output.payload)])
    (error,) = one.output.payload.select(["inset", "reason"]).to_pylist()
    values = (one.event, one.state, one.operator, error["inset"], error["reason"])
    for at, (name, value) in enumerate(zip(_HEAD.names, values, strict=True)):
        while name in rows.column_names:  # a column of the user's
            name = f"_{name}"
        rows = rows.add_column(at, name, pa.repeat(pa.scalar(str(value)), rows.num_rows))
    return rows


def _joined(operator: str, parts: list[pa.Table]) -> pa.Table:
    try:
        return pa.concat_tables(parts, promote_options="permissive")
    except pa.ArrowException as error:
        raise LogError(
            f"the errors of {operator!r} have rows whose columns don't fit together ({error}): "
            "read them one by one, with `logline show LOG EVENT`"
        ) from error


def windows_out(store: Store, operator: str) -> dict[Called, datetime]:
    """What is downstream of an operator and has a port `late`, and the end of the last of its windows that is out:
    what a retry puts out for those is late."""
    record = record_in(store)
    expansion = expand(graph_of(record))
    down = {OperatorName(operator.partition("/")[0])}
    found: dict[Called, datetime] = {}
    for name, instance in expansion.instances.items():  # senders before receivers
        if not any(expansion.operator_of(channel.sender) in down for channel in expansion.into(name)):
            continue
        down.add(instance.operator)
        watermark = store.read(name).outline().clock.get(WATERMARK) if name in store.instances() else None
        if LATE in record.operators[instance.operator].outputs and watermark is not None:
            size = span_of((record.operators[instance.operator].parameters or {}).get("size", ""))
            found[instance.called] = watermark_instant(watermark - watermark % size if size else watermark)
    return found


_SPAN = re.compile(r"(?:(\d+) days?, )?(\d+):(\d\d):(\d\d)(?:\.(\d{6}))?")


def span_of(text: str) -> int:
    """The size of a window in microseconds, from the text that the log has of it; 0 if it is none. Windows are
    counted from 1970, so that a watermark in the middle of one is out of those before it only.

    >>> span_of("1 day, 1:00:00"), span_of("0:00:00.250000"), span_of("10")
    (90000000000, 250000, 0)
    """
    found = _SPAN.fullmatch(text)
    if found is None:
        return 0
    days, hours, minutes, seconds, micros = (int(part or 0) for part in found.groups())
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000_000 + micros
