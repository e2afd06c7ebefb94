"""Session windows: records of a group that are not further apart than a gap belong together (R32).

An input set is a session of one group. Its id is a label: the group's key, and the time at which the session began
when it was opened; a record from before it does not change the label. How far a session reaches is part of its event
state, where `assign` looks it up. A record between two sessions makes them one, by `ctx.merge`.

A session closes when the watermark has passed its end, the last record's time plus the gap. To reach it is not
enough: a record exactly a gap after the last one still belongs to the session.

    clicks.window("visits", ll.session_window("30m", on="at"), by=["user"], agg={"clicks": ("url", "count")})
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa

from logline.graph.operator import Batch, Context, Dependency, Emit, Event, Operator, SchemaLike
from logline.names import InsetId
from logline.operators.aggregates import Aggregates, Parts, grouped
from logline.operators.bounds import END, START, bounded, check_time_column, with_bounds
from logline.operators.event_time import TimeAxis, earlier
from logline.operators.late import LATE, LateRecords
from logline.operators.session_runs import Run, Spans, rows_in, runs_of, spans_of, taken
from logline.operators.windows import Session

SESSION = "session"
"""What the ids of sessions begin with."""
_TICK = timedelta(microseconds=1)
_LAST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Open:
    """The event state of a session."""

    axis: TimeAxis
    first: int
    last: int
    parts: Parts


class _Span(NamedTuple):
    """A session that is open, or a run that looks for one."""

    first: int
    last: int
    inset: InsetId | None
    run: Run | None


class _Memo:
    """The runs of the last event. No part of what the operator is."""

    __slots__ = ("axis", "batch", "parts", "runs")

    def __init__(self) -> None:
        self.batch: Batch | None = None
        self.axis: TimeAxis | None = None
        self.runs: list[Run] = []
        self.parts: dict[tuple[int, ...], Batch] = {}

    def __reduce__(self) -> tuple[type[_Memo], tuple[()]]:
        return _Memo, ()


class SessionAggregate(Operator[Open | Batch, None]):
    """One output event per session: its bounds, the group's columns, the aggregates."""

    reuses_memory = False
    untimed = (LATE,)
    moves_members = True

    def __init__(self, window: Session, aggregates: Aggregates) -> None:
        self.window = window
        self.aggregates = aggregates
        assert window.on is not None
        self.on = window.on
        self.time = {"in": self.on}
        self.lateness = window.lateness
        self.idle = window.idle
        self._late = LateRecords()
        self._memo = _Memo()

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        schema = inputs["in"]
        check_time_column(schema, self.on)
        bound = TimeAxis.of(schema.field(self.on).type, self.window.gap).type
        return {"out": bounded(self.aggregates, schema, bound), LATE: schema}

    def dependencies(self, inputs: Mapping[str, pa.Schema]) -> Iterable[Dependency]:
        bounds = [Dependency(START, self.on, "from"), Dependency(END, self.on, "until")]
        return [*bounds, *grouped(self.aggregates)]

    def parameters(self) -> Mapping[str, object]:
        # The groups are part of the ids: with others, nobody would find the sessions that are open.
        return {"gap": self.window.gap, "on": self.on, "by": ", ".join(self.aggregates.by)}

    def passes(self, watermark: datetime) -> datetime:
        """A record that is a gap old may still begin a session, or join one."""
        return earlier(watermark, self.window.gap)

    def earliest(self, inset: InsetId, acc: Open | Batch) -> datetime | None:
        """Where the session begins by now. The label does not tell: an earlier record leaves it as it is."""
        return acc.axis.instant(acc.first) if isinstance(acc, Open) else None

    # ---- which session a record is in ------------------------------------------------------------------

    def assign(self, event: Event, ctx: Context[None]) -> Mapping[InsetId, Any]:
        axis, runs = self._runs(event.batch)
        sets: dict[InsetId, Any] = {}
        late: list[int] = []
        for key, mine in groupby(runs, key=lambda run: run.key):
            for together in _together(ctx.open_sets((SESSION, *key)), mine, axis.size):
                self._join(together, axis, ctx, sets, late)
        column = event.batch.column(self.on)
        if column.null_count:
            late += [row for row, there in enumerate(column.is_valid().to_pylist()) if not there]
        if late:
            sets[LATE, event.name] = spans_of(sorted(late))
            ctx.fire((LATE, event.name))
        return sets

    def _join(
        self, together: list[_Span], axis: TimeAxis, ctx: Context[None], sets: dict[InsetId, Any], late: list[int]
    ) -> None:
        """Sessions and runs that are one session now."""
        runs = [span.run for span in together if span.run is not None]
        if not runs:
            return
        known = [span.inset for span in together if span.inset is not None]
        end = axis.instant(max(span.last for span in together) + axis.size)
        rows = [row for run in runs for row in rows_in(run.rows)]
        if known:
            into = known[0]
            if len(known) > 1:
                ctx.merge(into, *known[1:])
        elif ctx.watermark is not None and end < ctx.watermark:
            late += rows
            return
        else:
            into = (SESSION, *runs[0].key, axis.instant(runs[0].first))
        # The note holds what `update` can't know: which rows of the event are of this session.
        sets[into] = runs[0].rows if len(runs) == 1 else spans_of(sorted(rows))
        ctx.fire(into, at=min(end, _LAST - _TICK) + _TICK, clock="event")

    def _runs(self, batch: Batch) -> tuple[TimeAxis, list[Run]]:
        memo = self._memo
        axis = self._axis(batch)
        memo.batch = batch
        memo.runs = runs_of(batch, axis.ticks(batch.column(self.on)), self.aggregates.by, axis.size)
        memo.parts = {tuple(run.rows): run.part for run in memo.runs}
        return axis, memo.runs

    def _axis(self, batch: Batch) -> TimeAxis:
        kind, known = batch.schema.field(self.on).type, self._memo.axis
        if known is None or known.type != kind:
            known = self._memo.axis = TimeAxis.of(kind, self.window.gap)
        return known

    # ---- what it comes to ------------------------------------------------------------------------------

    def update(self, inset: InsetId, acc: Open | Batch | None, event: Event) -> Open | Batch:
        rows: Spans = event.note
        assert isinstance(inset, tuple)
        if inset[0] == LATE:
            return taken(event.batch, rows)
        # `assign` has just cut the event into its runs; in a recovery it was another life that did.
        part = self._memo.parts.get(tuple(rows)) if self._memo.batch is event.batch else None
        if part is None:
            part = taken(event.batch, rows)
        axis = self._axis(event.batch)
        ticks = axis.ticks(part.column(self.on)).to_pylist()
        first, last = min(ticks), max(ticks)
        if not isinstance(acc, Open):
            return Open(axis, first, last, self.aggregates.add(None, part))
        parts = self.aggregates.add(acc.parts, part)
        return Open(axis, min(first, acc.first), max(last, acc.last), parts)

    def merge(self, acc: Open | Batch, other: Open | Batch) -> Open:
        assert isinstance(acc, Open) and isinstance(other, Open)
        first, last = min(acc.first, other.first), max(acc.last, other.last)
        return Open(acc.axis, first, last, self.aggregates.joined(acc.parts, other.parts))

    def generate(self, inset: InsetId, acc: Open | Batch, ctx: Context[None]) -> Iterator[Emit]:
        if not isinstance(acc, Open):
            yield from self._late.leave(acc, self.on, ctx)
            return
        made = self.aggregates.result(acc.parts)
        yield Emit(with_bounds(made, acc.axis.type, acc.first, acc.last + acc.axis.size))


def _together(known: Mapping[InsetId, Open], runs: Iterable[Run], gap: int) -> Iterator[list[_Span]]:
    """Which of the open sessions and new runs of one group are one session: those that no gap parts. Of each, the
    session that was opened first comes first."""
    place = {inset: at for at, inset in enumerate(known)}
    spans = [_Span(one.first, one.last, inset, None) for inset, one in known.items()]
    spans += [_Span(run.first, run.last, None, run) for run in runs]
    spans.sort(key=lambda span: span[:2])
    found: list[_Span] = []
    reach = 0
    for span in spans:
        if found and span.first - reach > gap:
            yield sorted(found, key=lambda one: -1 if one.inset is None else place[one.inset])
            found = []
        reach = span.last if not found else max(reach, span.last)
        found.append(span)
    if found:
        yield sorted(found, key=lambda one: -1 if one.inset is None else place[one.inset])
