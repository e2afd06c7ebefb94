"""The methods of `Stream` that bring two inputs together, `join` and `lookup`, and `table`, a stream as a table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from logline.errors import GraphError, OptionError
from logline.everyday import made
from logline.graph.model import NodeOptions
from logline.graph.operator import Duration, Operator, SchemaLike
from logline.graph.options import OperatorOptions, resolve
from logline.operators import (
    AsOfLookup,
    How,
    Lookup,
    LookupHow,
    LookupTable,
    On,
    StreamJoin,
    StreamLookup,
    TimeColumns,
    Within,
    table_of,
)
from logline.operators.by_key import check_keys, key_columns

if TYPE_CHECKING:
    from logline.pipeline import Stream


class JoinOperators:
    """A part of `Stream`."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema: ...

    @abstractmethod
    def _then(self, name: str, op: Operator[Any, Any], options: NodeOptions) -> Stream: ...

    @abstractmethod
    def _with(self, name: str, op: Operator[Any, Any], other: Stream, options: NodeOptions) -> Stream: ...

    def join(
        self,
        name: str,
        other: Stream,
        *,
        on: On,
        within: Within,
        how: How = "inner",
        time: TimeColumns | None = None,
        every: Duration | None = None,
        suffix: str = "_right",
        lateness: Duration | None = None,
        idle: Duration | None = None,
        **options: Unpack[OperatorOptions],
    ) -> Stream:
        """Joins rows of this stream, the left side, with rows of another one, the right side, that are equal in the
        columns `on`: names of both sides, or a mapping from the left side's names to those of the right side.

        `within=("-5m", "10m")` matches a row with those whose time is from 5 minutes before its own until 10 minutes
        after it. `time` names the event-time columns; `lateness` and `idle` are those of `ll.tumbling`. Matches come
        out for a bucket of time at once, when the watermark has passed all that could match: `every` says how long a
        bucket is, by default as long as the interval. A window in `within` matches the rows of the same window, and
        `ll.whole()` all rows, at the end of the input.

        `how` is "inner", "left", "right", "outer", "semi" or "anti". A row without a match comes out when none can
        come any more. Rows that come too late for that leave on the ports `late` and `late_right`. A column of the
        right side whose name is taken gets the `suffix`.
        """
        resolved = resolve(name, "operator", options)
        if not isinstance(other, JoinOperators):
            raise GraphError(f"operator {name!r}: a stream is joined with a stream, not with {other!r}")
        op = made(
            name,
            StreamJoin,
            self.schema,
            other.schema,
            within,
            on=on,
            how=how,
            time=time,
            every=every,
            suffix=suffix,
            lateness=lateness,
            idle=idle,
        )
        return self._with(name, op, other, resolved)

    def lookup(
        self,
        name: str,
        table: LookupTable | Table,
        *,
        on: On,
        how: LookupHow = "left",
        refresh: Duration | None = None,
        select: Sequence[str] | None = None,
        suffix: str = "_right",
        schema: SchemaLike | None = None,
        as_of: TimeColumns | None = None,
        every: Duration | None = None,
        lateness: Duration | None = None,
        idle: Duration | None = None,
        **options: Unpack[OperatorOptions],
    ) -> Stream:
        """Adds the columns of a table to the rows of this stream, where the columns `on` are equal: names that both
        have, or a mapping from the stream's names to those of the table.

        The table is an Arrow table or a frame, the path of a Parquet or CSV file or of a folder of Parquet files, or
        a function that returns a table. A path or function is read in the worker, at the first event and again when
        the rows are older than `refresh`. `schema` says which columns they have; without it they are looked at now.
        `ll.table(other, key=[...])` is the newest row of each key of another stream.

        `how="left"` passes every row on, "inner" those that match. `select` names the columns to add; a column whose
        name is taken gets the `suffix`. A row that matches several of the table comes out with each.

        With `ll.table`, `as_of="date"` takes the row of the table that was valid at the time of the stream's row: the
        newest one that is not after it, by the event-time columns of both (`as_of=("ordered", "since")` if they have
        other names). Rows come out for a bucket of time at once, when the watermark has passed it: `every` says how
        long one is, a second by default. `lateness` and `idle` are those of `ll.tumbling`.
        """
        resolved = resolve(name, "operator", options)
        timed: dict[str, Any] = {"every": every, "lateness": lateness, "idle": idle}
        self._check_as_of(name, table, as_of, timed)
        how_to: dict[str, Any] = {"on": on, "how": how, "select": select, "suffix": suffix}
        if not isinstance(table, Table):
            if isinstance(table, JoinOperators):
                raise OptionError(
                    f"operator {name!r}: to look up in a stream, name its key: ll.table(stream, key=[...])"
                )
            op = made(name, Lookup, self.schema, made(name, table_of, table, schema), refresh=refresh, **how_to)
            return self._then(name, op, resolved)
        for option, value in (("refresh", refresh), ("schema", schema)):
            if value is not None:
                raise OptionError(f"operator {name!r}: {option}= is for a path or a function: a stream needs none")
        streams: tuple[Any, ...] = (self.schema, table.stream.schema, table.key)
        if as_of is None:
            return self._with(name, made(name, StreamLookup, *streams, **how_to), table.stream, resolved)
        valid = made(name, AsOfLookup, *streams, as_of=as_of, **timed, **how_to)
        return self._with(name, valid, table.stream, resolved)

    @staticmethod
    def _check_as_of(name: str, table: object, as_of: object, timed: Mapping[str, object]) -> None:
        if as_of is not None and not isinstance(table, Table):
            raise OptionError(
                f"operator {name!r}: as_of={as_of!r} is for ll.table(stream, key=[...]): a table or a file does not "
                "say when its rows were valid; leave as_of out, or read the file as a source"
            )
        for option, value in timed.items():
            if as_of is None and value is not None:
                raise OptionError(
                    f"operator {name!r}: {option}= goes with as_of=: a lookup of what is known now waits for nothing"
                )


@dataclass(frozen=True)
class Table:
    """A stream as a table: the newest row of each key. `table` makes one, for `Stream.lookup`."""

    stream: Stream
    key: tuple[str, ...]


def table(stream: Stream, key: Sequence[str]) -> Table:
    """A stream as a table, for `Stream.lookup`: of the rows with the same `key` the one that came last.

    >>> import logline as ll
    >>> p = ll.Pipeline("sales")
    >>> prices = p.source("prices", ll.sources.batches([pa.table({"item": ["tea"], "price": [3]})]))
    >>> orders = p.source("orders", ll.sources.batches([pa.table({"item": ["tea", "jam"]})]))
    >>> orders.lookup("priced", ll.table(prices, key=["item"]), on=["item"])
    Stream('priced': item string, price int64)
    """
    given: object = stream
    if not isinstance(given, JoinOperators):
        raise GraphError(f"ll.table takes a stream, not {stream!r}: lookup() takes tables and files as they are")
    names = key_columns(key, "key")
    check_keys(names, stream.schema, "key")
    return Table(stream, names)
