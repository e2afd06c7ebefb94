"""The rows of an event, cut into runs: of one group each, with no two neighbours further apart than the gap.

A run is what an event gives to a session. Where the runs are is worked out with Arrow for the whole event; what comes
after that is work per run.

    >>> at = pa.array([0, 25, 5, 1, 90], pa.int64())
    >>> batch = pa.record_batch({"user": ["ann", "ann", "bob", "ann", "ann"], "at": at})
    >>> for run in runs_of(batch, at, ["user"], 30):
    ...     print(run.key, run.first, run.last, run.rows)
    ('ann',) 0 25 [0, 2, 3, 1]
    ('ann',) 90 90 [4, 1]
    ('bob',) 5 5 [2, 1]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from logline.graph.operator import Batch
from logline.operators.grouping import Groups, comparable, count_to, reduce

Spans = list[int]
"""Rows of an event: first, how many, first, how many, ..., in their order."""


class Run(NamedTuple):
    """Rows that are in one session, whatever else comes."""

    key: tuple[str | int, ...]
    first: int
    """The least and the greatest time, in ticks."""
    last: int
    rows: Spans
    part: Batch
    """The rows themselves."""


def runs_of(batch: Batch, ticks: pa.Array, by: Sequence[str], gap: int) -> list[Run]:
    """The runs of an event, ordered by group and time. Rows without a time are in none."""
    timed = pc.indices_nonzero(pc.is_valid(ticks)).cast(pa.int64()) if ticks.null_count else None
    if timed is not None:
        batch, ticks = batch.take(timed), ticks.take(timed)
    if not batch.num_rows:
        return []
    keys = [pa.chunked_array([comparable(batch.column(name))]) for name in by]
    groups = Groups.number(keys, batch.num_rows)
    table = pa.table({"g": groups.of, "t": ticks})
    order = pc.sort_indices(table, [("g", "ascending"), ("t", "ascending")]).cast(pa.int64())
    of, times = groups.of.take(order), ticks.take(order)
    apart = pc.pairwise_diff(times)  # of neighbours; one that overflows is further than any gap
    cut = pc.or_(pc.not_equal(pc.pairwise_diff(of), 0), pc.or_(pc.greater(apart, gap), pc.less(apart, 0)))
    starts = pc.indices_nonzero(pc.fill_null(cut, True)).to_pylist()
    ends = [*starts[1:], batch.num_rows]
    names = _names(keys, groups)
    firsts, lasts = (
        times.take(pa.array(starts)).to_pylist(),
        times.take(pa.array([at - 1 for at in ends])).to_pylist(),
    )
    rows = order.to_pylist()
    places = [sorted(rows[start:end]) for start, end in zip(starts, ends, strict=True)]
    if len(places) == 1:
        parts = [batch]
    else:
        arranged = batch.take(pa.array([row for run in places for row in run], pa.int64()))
        parts = [arranged.slice(start, end - start) for start, end in zip(starts, ends, strict=True)]
    if timed is not None:
        kept = timed.to_pylist()
        places = [[kept[row] for row in run] for run in places]
    found = zip(of.take(pa.array(starts)).to_pylist(), firsts, lasts, places, parts, strict=True)
    return [Run(names[group], first, last, spans_of(place), part) for group, first, last, place, part in found]


def _names(keys: Sequence[pa.ChunkedArray], groups: Groups) -> list[tuple[str | int, ...]]:
    """The key of each group as parts of an id."""
    if not keys:
        return [()]
    where = reduce(groups.of, count_to(len(groups.of)), groups.many, "min")
    columns = [_named(key.take(where)) for key in keys]
    return list(zip(*columns, strict=True))


def _named(values: pa.ChunkedArray) -> list[str | int]:
    """Values of a key column as parts of an id: equal ones have equal names, others have others. Null has a name that
    no value of the column has.

    >>> _named(pa.chunked_array([[7, None]])), _named(pa.chunked_array([["7", None]]))
    ([7, 'null'], ['7', 0])
    """
    if pa.types.is_integer(values.type):
        return ["null" if value is None else value for value in values.to_pylist()]
    return [0 if value is None else str(value) for value in values.to_pylist()]


def spans_of(rows: Iterable[int]) -> Spans:
    """Rows in order, as spans.

    >>> spans_of([3, 4, 5, 9])
    [3, 3, 9, 1]
    """
    found: Spans = []
    after = -1
    for row in rows:
        if row == after:
            found[-1] += 1
        else:
            found += (row, 1)
        after = row + 1
    return found


def rows_in(spans: Spans) -> list[int]:
    """The inverse of `spans_of`."""
    return [row for at in range(0, len(spans), 2) for row in range(spans[at], spans[at] + spans[at + 1])]


def taken(batch: Batch, spans: Spans) -> Batch:
    """The rows of an event that the spans name."""
    if len(spans) == 2:
        return batch.slice(*spans)
    return batch.take(pa.array(rows_in(spans), pa.int64()))
