"""The methods of `Stream` for everyday work on rows: select, compute, split, explode, check."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import pyarrow as pa

from logline.errors import LoglineError, OptionError
from logline.graph.model import NodeOptions
from logline.graph.operator import Operator, SchemaLike
from logline.graph.options import OperatorOptions, resolve
from logline.graph.schemas import schema as read_schema
from logline.operators import (
    CheckRows,
    Computation,
    Explode,
    FlatFn,
    FlatMapRows,
    OnFail,
    Select,
    Split,
    WithColumns,
)
from logline.operators.shaping import REST

if TYPE_CHECKING:
    from logline.pipeline import Stream

M = TypeVar("M")


class EverydayOperators:
    """A part of `Stream`."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema: ...

    @abstractmethod
    def _then(self, name: str, op: Operator[Any, Any], options: NodeOptions) -> Stream: ...

    def select(self, name: str, sql: str, **options: Unpack[OperatorOptions]) -> Stream:
        """Applies SQL to each event by itself: columns, as in "item, amount * 2 as twice where amount > 3", or a
        whole "select ... from input". DuckDB runs it, in this process and without access to files."""
        return self._then(name, made(name, Select, sql), resolve(name, "operator", options))

    def with_columns(self, name: str, *, options: OperatorOptions | None = None, **columns: Computation) -> Stream:
        """Adds columns, or replaces those of the same name. Each is an Arrow expression, an SQL text, or a function
        of the batch; all of them see the columns of the input."""
        return self._then(name, made(name, WithColumns, columns), resolve(name, "operator", options or {}))

    def split(
        self, name: str, *, options: OperatorOptions | None = None, **where: Computation
    ) -> Mapping[str, Stream]:
        """Puts each row on the port of the first condition that is true for it; the others are on port `rest`.

        Returns the ports by name. A condition is an Arrow expression, an SQL text, or a function of the batch.
        """
        first = self._then(name, made(name, Split, where), resolve(name, "operator", options or {}))
        return {port: first[port] for port in (*where, REST)}

    def flat_map_rows(
        self, name: str, fn: FlatFn, *, schema: SchemaLike, **options: Unpack[OperatorOptions]
    ) -> Stream:
        """Applies `fn(row)` to each row. It returns any number of rows, as a list or a generator, or None."""
        resolved = resolve(name, "operator", options)
        if resolved.retry is not None and resolved.on_error != "stop":
            raise OptionError(f"operator {name!r}: option retry: rows are set aside one by one here: take map_rows")
        op = made(name, FlatMapRows, fn, made(name, read_schema, schema), resolved.on_error)
        return self._then(name, op, resolved)

    def explode(self, name: str, column: str, *, outer: bool = False, **options: Unpack[OperatorOptions]) -> Stream:
        """Makes a row for each element of a column of lists. Rows without elements are left out, unless `outer`: then
        they have a null."""
        return self._then(name, made(name, Explode, column, outer), resolve(name, "operator", options))

    def check_rows(
        self,
        name: str,
        *,
        on_fail: OnFail = "divert",
        options: OperatorOptions | None = None,
        **rules: Computation,
    ) -> Stream:
        """Passes on the rows for which all rules are true. A rule is an Arrow expression, an SQL text, or a function
        of the batch; null is not true.

        Other rows go to port `errors` with the names of the rules as the reason ("divert"), are left out ("drop"), go
        on with the others ("count"), or end the run ("stop"). The counter `failed_RULE` has how many there were.
        """
        return self._then(name, made(name, CheckRows, rules, on_fail), resolve(name, "operator", options or {}))


def made(name: str, make: Callable[..., M], *args: Any, what: str = "operator", **more: Any) -> M:
    """Calls `make`, and puts the operator's name before what it finds wrong."""
    try:
        return make(*args, **more)
    except LoglineError as error:
        raise type(error)(f"{what} {name!r}: {error}") from error
