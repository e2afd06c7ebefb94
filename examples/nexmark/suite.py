"""All queries with what they read, the pipeline of each, and whether a result is right. An event is a batch.

>>> from examples.nexmark.generator import generate
>>> data = generate(500)
>>> run = pipeline("q7", data).run(engine="inline")
>>> agrees("q7", run.result("store"), data)
True
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from examples.nexmark import queries
from examples.nexmark.answers import answer
from examples.nexmark.generator import DISORDER, SCHEMAS, Data

import logline as ll

AUCTIONS, BIDS, PERSONS = "auctions", "bids", "persons"


@dataclass(frozen=True)
class Query:
    """A query of Nexmark."""

    make: Callable[..., ll.Stream]
    inputs: tuple[str, ...]
    """The streams that it takes, in order."""
    key: tuple[str, ...] = ()
    """The columns that name a row of the result, where later rows take the place of earlier ones."""
    summed: tuple[str, ...] = ()
    """The columns by which windows are added up before they are compared: which ones rows are in is not the same in
    another run."""


QUERIES = {
    "q0": Query(queries.q0, (BIDS,)),
    "q1": Query(queries.q1, (BIDS,)),
    "q2": Query(queries.q2, (BIDS,)),
    "q3": Query(queries.q3, (PERSONS, AUCTIONS)),
    "q4": Query(queries.q4, (AUCTIONS, BIDS)),
    "q5": Query(queries.q5, (BIDS,)),
    "q6": Query(queries.q6, (AUCTIONS, BIDS), key=("seller",)),
    "q7": Query(queries.q7, (BIDS,)),
    "q8": Query(queries.q8, (PERSONS, AUCTIONS)),
    "q9": Query(queries.q9, (AUCTIONS, BIDS), key=("id", "rank")),
    "q11": Query(queries.q11, (BIDS,)),
    "q12": Query(queries.q12, (BIDS,), summed=("bidder",)),
    "q15": Query(queries.q15, (BIDS,)),
    "q18": Query(queries.q18, (BIDS,), key=("bidder", "auction", "rank")),
    "q19": Query(queries.q19, (BIDS,), key=("auction", "rank")),
    "q20": Query(queries.q20, (AUCTIONS, BIDS)),
}


def pipeline(name: str, inputs: Mapping[str, Any], *, rows: int = 1000) -> ll.Pipeline:
    """The sources of a query, the query, and a sink `store`. `inputs` are tables, or what `ll.sources.batches` takes.
    An event has up to so many rows."""
    query, p = QUERIES[name], ll.Pipeline(name)
    streams = []
    for kind in query.inputs:
        given = inputs[kind]
        batches = given.to_batches(max_chunksize=rows) if isinstance(given, pa.Table) else given
        source = ll.sources.batches(batches, schema=SCHEMAS[kind])
        streams.append(p.source(kind, source, rows=rows, time="date_time", lateness=DISORDER))
    query.make(*streams).sink("store", ll.sinks.collect())
    return p


def newest(table: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """The last row of each key: what a sink with `mode="upsert"` holds."""
    keys = zip(*(table[column].to_pylist() for column in key), strict=True)
    return table.take(pa.array({values: place for place, values in enumerate(keys)}.values(), pa.int64()))


def summed(table: pa.Table, by: tuple[str, ...]) -> pa.Table:
    """The sums over all windows."""
    rest = [name for name in table.column_names if name not in (*by, "window_start", "window_end")]
    made = table.group_by(list(by)).aggregate([(name, "sum") for name in rest])
    return made.rename_columns([*by, *rest])


def agrees(name: str, found: pa.Table, data: Data) -> bool:
    """Whether a result has the rows that SQL over the whole tables comes to."""
    return equals(name, found, answer(name, data))


def equals(name: str, found: pa.Table, wanted: pa.Table) -> bool:
    """Whether a result has the rows of an answer, in any order of rows and columns."""
    if not found.num_rows:  # a sink that was not written to knows no columns
        return not wanted.num_rows
    if QUERIES[name].key:
        found = newest(found, QUERIES[name].key)
    if QUERIES[name].summed:
        found = summed(found, QUERIES[name].summed)
    names = found.schema.names
    return sorted(names) == sorted(wanted.schema.names) and _rows(found) == _rows(wanted.select(names))


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))
