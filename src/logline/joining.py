"""The method of `Stream` that brings two inputs together: `join`."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from logline.errors import GraphError
from logline.everyday import made
from logline.graph.model import NodeOptions
from logline.graph.operator import Duration, Operator
from logline.graph.options import OperatorOptions, resolve
from logline.operators import How, On, StreamJoin, TimeColumns, Within

if TYPE_CHECKING:
    from logline.pipeline import Stream


class JoinOperators:
    """A part of `Stream`."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema: ...

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
