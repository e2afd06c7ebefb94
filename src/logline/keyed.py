"""The methods of `Stream` with a state per key: stateful, dedup, top."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from logline.errors import OptionError
from logline.everyday import made
from logline.graph.model import NodeOptions
from logline.graph.operator import Duration, Operator, SchemaLike
from logline.graph.options import OperatorOptions, RowOptions, resolve
from logline.graph.schemas import schema as read_schema
from logline.operators import Dedup, StatefulFn, Top, stateful

if TYPE_CHECKING:
    from logline.pipeline import Stream


class KeyedOperators:
    """A part of `Stream`."""

    @abstractmethod
    def _then(self, name: str, op: Operator[Any, Any], options: NodeOptions) -> Stream: ...

    def stateful(
        self,
        name: str,
        fn: StatefulFn[Any],
        *,
        by: Sequence[str],
        state: type,
        schema: SchemaLike,
        ttl: Duration | None = None,
        time: str | None = None,
        migrate: Callable[[Any], Any] | None = None,
        **options: Unpack[RowOptions],
    ) -> Stream:
        """Calls `fn(batch, ctx)`, a `def` or an `async def`, for each key of an event. It returns a table or None.

        `ctx.state` is the key's state, of type `state`, built without arguments at first. What the function changes
        in it is logged with what it returns. A key is the values of the columns `by`. Up to `concurrency` keys of one
        event are at work at once; events come one after the other. `ctx.timer` has the function called later with an
        empty batch. A key that was not called for `ttl` is forgotten: by the event-time column `time` if there is
        one, else by the wall clock. `migrate` makes a state of one that an earlier type logged, given as a dict.
        """
        resolved = _in_order(name, resolve(name, "stateful", options))
        declared = made(name, read_schema, schema)
        op = made(name, stateful, fn, declared, resolved, by=by, state=state, ttl=ttl, time=time, migrate=migrate)
        # A key is tried again by itself, and keys of one event are at work at once, not events.
        return self._then(name, op, replace(resolved, retry=None, concurrency=1))

    def dedup(
        self,
        name: str,
        *,
        by: Sequence[str],
        within: Duration | None = None,
        time: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> Stream:
        """Passes on the first row of each key, the values of the columns `by`.

        With `within` a row is passed on again if that much time has passed since the last one that was: by the
        event-time column `time` if there is one, else by the wall clock. Keys are forgotten after that time.
        """
        resolved = _in_order(name, resolve(name, "operator", options))
        return self._then(name, made(name, Dedup, by, within, time), resolved)

    def top(
        self, name: str, n: int, *, by: Sequence[str], order: str | Sequence[str], **options: Unpack[OperatorOptions]
    ) -> Stream:
        """Keeps the best `n` rows of each key, by the columns of `order`: "price desc, at".

        After an event it puts out the lists of the keys whose list has changed, whole, with the column `rank` from
        1 on. Write them with `mode="upsert"` by key and rank.
        """
        resolved = _in_order(name, resolve(name, "operator", options))
        return self._then(name, made(name, Top, n, by, order), resolved)


def _in_order(name: str, options: NodeOptions) -> NodeOptions:
    if not options.ordered:
        raise OptionError(
            f"operator {name!r}: option ordered=False is refused: an event sees the states that the last one left"
        )
    return options
