"""Which rows of an event belong to an input set, and which rows of another event came of them.

For a ready-made operator both follow from what it is: a filter passes rows on as they are, a window takes those of
its time, `rebatch` notes which ones it took, `map_rows` has an answer for each. For another one its column
dependencies tell, if it declares any (`depends=`). Otherwise the log knows of events, not of rows: `None` here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, cast

import pyarrow as pa
import pyarrow.compute as pc

from logline.engine import codec
from logline.engine.sets import Answer, Member
from logline.graph.dependencies import Dependency
from logline.graph.record import OperatorRecord
from logline.graph.zones import later
from logline.lineage.joined_rows import JOINS, LATE_PORTS, is_late_set, reach, time_column
from logline.lineage.records import agreeing, applying
from logline.names import InsetId, PortName

Ready = Literal[
    "Filter",
    "Union",
    "Split",
    "CheckRows",
    "SinkOperator",
    "Rebatch",
    "TumblingAggregate",
    "SlidingAggregate",
    "SessionAggregate",
    "TumblingArrivals",
    "SlidingArrivals",
    "SessionArrivals",
    "BlockAggregate",
    "WholeAggregate",
    "MapRows",
    "IntervalJoin",
    "WindowJoin",
    "WholeJoin",
    "Lookup",
    "StreamLookup",
    "Dedup",
    "Top",
    "",
]
LATE = PortName("late")
_MODULES = "logline.operators."
_PASS: Collection[Ready] = ("Filter", "Union", "Split", "CheckRows", "SinkOperator", "Rebatch")
"""They pass rows on as they are."""
_TIMED: Collection[Ready] = ("TumblingAggregate", "SlidingAggregate", "SessionAggregate")
_ARRIVALS: Collection[Ready] = ("TumblingArrivals", "SlidingArrivals", "SessionArrivals")
_GROUP: Collection[Ready] = (*_TIMED, *_ARRIVALS, "BlockAggregate", "WholeAggregate")
"""A row is part of one of theirs, whatever the columns tell."""
_BY_COLUMNS: Collection[Ready] = ("Lookup", "StreamLookup", "Dedup", "Top")
"""Their column dependencies tell all; they are known so that the reason can be said."""
_SPAN = re.compile(r"(?:(\d+) days?, )?(\d+):(\d\d):(\d\d)(?:\.(\d+))?")
_PAIRS = "select i.row as a, o.row as b from i join o on {on}"

Pairs = Mapping[int, Collection[int]]
"""Rows of an event, with the rows of another one that came of each."""


def ready_made(operator: OperatorRecord) -> Ready:
    """The kind of a ready-made operator; empty for another one, and for all of an older log."""
    name = operator.type.rpartition(".")[2]
    known = name in (*_PASS, *_GROUP, *_BY_COLUMNS, *JOINS, "MapRows") and operator.type.startswith(_MODULES)
    return cast(Ready, name) if known else ""


def in_set(
    operator: OperatorRecord, inset: InsetId, note: Any, port: PortName, table: pa.Table, rows: Iterable[int]
) -> set[int]:
    """Those of the rows of an event, which came on this port, that belong to one of the sets it is in."""
    match ready_made(operator):
        case "Rebatch":
            offset, length = note
            return {row for row in rows if offset <= row < offset + length}
        case "SessionAggregate":
            return _in_spans(note, rows)
        case "SessionArrivals":
            return _in_spans(note[1:], rows)  # the time at which the event came is first
        case "TumblingAggregate" | "SlidingAggregate":
            return _in_window(operator, inset, note, table, rows)
        case "IntervalJoin" | "WindowJoin":
            return _in_join(operator, inset, note, port, table, rows)
    return set(rows)


def _in_spans(spans: Sequence[int], rows: Iterable[int]) -> set[int]:
    found = [range(spans[at], spans[at] + spans[at + 1]) for at in range(0, len(spans), 2)]
    return {row for row in rows if any(row in span for span in found)}


def is_late(operator: OperatorRecord, inset: InsetId) -> bool:
    """Whether it is the set of an event's late rows."""
    if ready_made(operator) in JOINS:
        return is_late_set(inset)
    return ready_made(operator) in _TIMED and isinstance(inset, tuple) and inset[:1] == (LATE,)


def _in_window(operator: OperatorRecord, inset: InsetId, note: Any, table: pa.Table, rows: Iterable[int]) -> set[int]:
    parameters = operator.parameters or {}
    late = is_late(operator, inset)
    # Late records are those whose last window had closed: the next one begins a step later.
    size = _timedelta(parameters["step"] if late and "step" in parameters else parameters["size"])
    starts: list[Any] = note if late else [inset]
    spans = [(start, later(start, size, parameters.get("zone"))) for start in starts]
    times = _instants(table.column(parameters["on"]))

    def belongs(time: datetime | None) -> bool:
        if time is None:
            return late
        return any(start <= time < end for start, end in spans)

    return {row for row in rows if belongs(times[row])}


def _in_join(
    operator: OperatorRecord, inset: InsetId, note: int | None, port: PortName, table: pa.Table, rows: Iterable[int]
) -> set[int]:
    parameters = operator.parameters or {}
    column = table.column(time_column(parameters, port))
    times = _instants(column)
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("us"))
    ticks = column.cast(pa.int64()).to_pylist()
    if is_late_set(inset):
        return {row for row in rows if ticks[row] is None or (note is not None and ticks[row] < note)}
    if ready_made(operator) == "IntervalJoin":
        first, end = reach(parameters, inset, port, _timedelta(parameters["every"]))
    else:
        assert isinstance(inset, datetime)
        first, end = inset, later(inset, _timedelta(parameters["size"]), parameters.get("zone"))

    def belongs(time: datetime | None, tick: int) -> bool:
        return time is not None and first <= time < end and (note is None or tick >= note)

    return {row for row in rows if belongs(times[row], ticks[row])}


def has_time(operator: OperatorRecord, port: PortName, table: pa.Table, row: int) -> bool:
    """Whether a row, which came on this port, has a value in the time column."""
    parameters = operator.parameters or {}
    column = time_column(parameters, port) if ready_made(operator) in JOINS else parameters["on"]
    return bool(table.column(column)[row].is_valid)


def _timedelta(text: str) -> timedelta:
    """The inverse of `str(timedelta)`, for what is positive.

    >>> [_timedelta(str(one)) == one for one in (timedelta(hours=1), timedelta(days=2, microseconds=5))]
    [True, True]
    """
    found = _SPAN.fullmatch(text)
    assert found is not None, text
    days, hours, minutes, seconds, micros = (int(part or 0) for part in found.groups())
    return timedelta(days, seconds, micros, 0, minutes, hours)


def _instants(column: pa.ChunkedArray) -> list[datetime | None]:
    """Times of any type as a window takes them: without a zone they are UTC, a date is its midnight."""
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = pc.floor_temporal(column, unit="microsecond")
    times = column.cast(pa.timestamp("us", "UTC")).to_pylist()
    return [None if time is None else time.astimezone(UTC) for time in times]


def depends(
    operator: OperatorRecord, into: PortName, port: PortName, inputs: pa.Schema, outputs: pa.Schema
) -> list[Dependency] | None:
    """The columns in which a row of the output port agrees with the one it came of, which came on the port `into`;
    None if that is not known."""
    ready = ready_made(operator)
    if ready in _PASS or (ready in (*_TIMED, *JOINS) and port in LATE_PORTS):
        return [Dependency(name, name) for name in dict.fromkeys(inputs.names) if name in outputs.names]
    known = applying(operator.depends, into, inputs, outputs)
    return known if known or ready in _GROUP else None


def by_columns(
    db: Any, inputs: pa.Table, rows: Collection[int], outputs: pa.Table, on: Sequence[Dependency]
) -> Pairs:
    """Rows that agree in these columns; with no columns all of them do."""
    if not on:
        return dict.fromkeys(rows, range(outputs.num_rows))
    numbers = sorted(rows)
    found = agreeing(db, inputs.take(pa.array(numbers, pa.int64())), outputs, on, _PAIRS)
    pairs: dict[int, list[int]] = {}
    for at, out in zip(found["a"].to_pylist(), found["b"].to_pylist(), strict=True):
        pairs.setdefault(numbers[at], []).append(out)
    return pairs


def by_answers(answers: Iterable[Answer], rows: Iterable[int]) -> Pairs:
    """Of `map_rows`: the answers of a set, in the order of their rows, are the rows of its one event."""
    gave = answered(answers)
    places = {row: at for at, row in enumerate(sorted(row for row, value in gave.items() if value is not None))}
    return {row: [places[row]] for row in rows if row in places}


def answered(answers: Iterable[Answer]) -> dict[int, Any]:
    """What the function of `map_rows` gave for each row. The row's own call is its first; those that the function
    makes itself come after it."""
    return {answer.row: codec.decode(answer.value) for answer in answers if answer.row >= 0 and answer.n == 0}


def by_notes(members: Iterable[Member], member: Member, rows: Iterable[int]) -> Pairs:
    """Of `rebatch`: what the members of a set gave it, one after the other, is its one event.

    >>> from logline.names import ChannelName, Ssn
    >>> first, second = (Member(ChannelName("a.out>b.in"), Ssn(n), note) for n, note in ((1, (0, 3)), (2, (4, 2))))
    >>> by_notes([first, second], second, [3, 4, 5])
    {4: [3], 5: [4]}
    """
    before = 0
    for one in members:
        offset, length = one.note
        if one[:2] == member[:2]:
            return {row: [before + row - offset] for row in rows if offset <= row < offset + length}
        before += length
    return {}
