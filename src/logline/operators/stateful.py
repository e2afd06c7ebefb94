"""A function per key and event, with a state per key (R31, ADR 0041).

    def check(batch, ctx):
        ctx.state.spent += sum(batch["amount"].to_pylist())
        return batch if ctx.state.spent > 1000 else None

    orders.stateful("fraud", check, by=["card"], state=Card, schema="card string, amount long")

Each event is an input set. `generate` calls the function once for each key in it, and puts out what they made as one
event, in the order in which the keys first appear. The new states are part of the same step. When the timer of a key
comes, the function is called for that key alone, with an empty batch.

A plain function without retries, `rate`, `timeout` or `concurrency` is called on the engine's own thread. Other ones
are called as `map_rows` does it, several keys at once (`PacedStateful`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias, TypeVar, get_args

import pyarrow as pa

from logline.errors import OptionError, told
from logline.graph.durations import duration
from logline.graph.functions import check_takes, is_async_function
from logline.graph.model import NodeOptions, OnError, Retry
from logline.graph.operator import Batch, Context, Dependency, Duration, Emit, Operator, Reject, SchemaLike, Tabular
from logline.graph.schemas import to_batches
from logline.names import InsetId
from logline.operators.by_key import RowsByKey, check_keys, key_columns, parameters_of, typed_key
from logline.operators.key_context import KeyContext
from logline.operators.row_calls import ENGINE_ERRORS, Caller, Failed, Slot, call_all, cancelled

S = TypeVar("S")
StatefulFn = Callable[[Batch, KeyContext[S]], Tabular | Awaitable[Tabular | None] | None]
"""`fn(batch, ctx)`, a `def` or an `async def`: the rows of one key in one event, and the context of that key."""
_Item = tuple[Any, Batch]
_Made: TypeAlias = "pa.RecordBatch | None"


class Stateful(Operator[Batch, None]):
    """Calls a function for each key of an event, one after the other."""

    def __init__(
        self,
        fn: StatefulFn[Any],
        schema: pa.Schema,
        *,
        by: Iterable[str],
        state: type,
        ttl: Duration | None = None,
        time: str | None = None,
        migrate: Callable[[Any], Any] | None = None,
        on_error: OnError = "stop",
    ) -> None:
        if on_error not in get_args(OnError):
            raise OptionError(f"on_error={on_error!r}: use {', '.join(get_args(OnError))}")
        check_takes(fn, "stateful", "batch", "ctx")
        if not isinstance(state, type):
            raise OptionError(f"state={state!r}: give the type of a key's state, a dataclass or msgspec.Struct")
        if ttl is not None and duration(ttl).total_seconds() <= 0:
            raise OptionError(f"ttl={ttl!r}: the time must be positive")
        if migrate is not None:
            check_takes(migrate, "migrate", "state")
        self.fn = fn
        self.schema = schema
        self.by = key_columns(by)
        self.Keyed = state
        self.ttl = ttl
        self.migrate = migrate
        self.time = {} if time is None else {"in": time}
        self.on_error = on_error
        self.input = pa.schema([])

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        self.input = inputs["in"]
        check_keys(self.by, self.input)
        return {"out": self.schema}

    def dependencies(self, inputs: Mapping[str, pa.Schema]) -> Iterable[Dependency]:
        """Rows that have the key's columns come from rows of that key, as far as their event had them."""
        same = [name for name in self.by if name in self.schema.names]
        return [
            Dependency(name, name) for name in same if self.schema.field(name).type == inputs["in"].field(name).type
        ]

    def parameters(self) -> Mapping[str, object]:
        return parameters_of(self.by)

    def generate(self, inset: InsetId, acc: Batch | None, ctx: Context[None]) -> Iterator[Emit | Reject]:
        outcomes: list[_Made | Failed] = []
        items = self._items(inset, acc)
        for index, (key, batch) in enumerate(items):
            mine = self._context(ctx, index, key, fired=acc is None)
            try:
                outcomes.append(self._checked(self.fn(batch, mine), mine))
            except ENGINE_ERRORS:
                raise
            except BaseException as error:
                outcomes.append(self._failed(error, key, fired=acc is None))
                if self.on_error == "stop":
                    raise
        yield from self._made(items, outcomes, ctx)

    def _items(self, inset: InsetId, acc: Batch | None) -> list[_Item]:
        if acc is None:  # the key's timer has come: the id is the key, and the time that was waited for
            assert isinstance(inset, tuple)
            return [(typed_key(inset[:-1], self.by, self.input), pa.RecordBatch.from_pylist([], schema=self.input))]
        rows = RowsByKey.of(acc, self.by)
        return list(zip(rows.keys, rows.parts(acc), strict=True))

    def _context(self, ctx: Context[None], index: int, key: Any, *, fired: bool) -> KeyContext[Any]:
        touch = self.ttl is not None
        return KeyContext(ctx.row(index), ctx.keys, key, self.Keyed, touch=touch, fired=fired)  # type: ignore[arg-type]

    def _checked(self, made: Any, ctx: KeyContext[Any]) -> _Made:
        """What the function returned, as rows of the schema; its state counts if these are right."""
        batch = None if made is None else to_batches(made, self.schema, "what the function returned")[0]
        ctx.save()
        return batch

    def _failed(self, error: BaseException, key: Any, *, fired: bool) -> Failed:
        """A key by itself: its state is as it was. What a timer came for has no rows to reject: its set fails."""
        if self.on_error == "stop":
            error.add_note(f"for the key {key!r}")
        if fired:
            raise error
        return Failed(error)

    def _made(
        self, items: list[_Item], outcomes: Iterable[_Made | Failed], ctx: Context[None]
    ) -> Iterator[Emit | Reject]:
        batches: list[pa.RecordBatch] = []
        rejected: list[Reject] = []
        for index, outcome in enumerate(outcomes):
            if isinstance(outcome, Failed):
                error = outcome.error
                if self.on_error == "drop":
                    ctx.count("dropped")
                else:
                    reason = f"{type(error).__name__}: {error}"
                    rejected.append(Reject(items[index][1], reason, told(error), rows=(index,)))
            elif outcome is not None and outcome.num_rows:
                batches.append(outcome)
        if batches:
            yield Emit(pa.concat_batches(batches) if len(batches) > 1 else batches[0])
        yield from rejected


class PacedStateful(Stateful):
    """Calls a function, `def` or `async def`, for several keys of an event at once, with retries by key."""

    def __init__(
        self,
        fn: StatefulFn[Any],
        schema: pa.Schema,
        *,
        concurrency: int = 1,
        rate: str | None = None,
        timeout: Duration | None = None,
        retry: Retry | None = None,
        **more: Any,
    ) -> None:
        super().__init__(fn, schema, **more)
        self._calls = Caller(fn, concurrency=concurrency, rate=rate, timeout=timeout, retry=retry)

    def open(self, ctx: Context[None]) -> None:
        self._calls.open()

    def close(self) -> None:
        self._calls.close()

    async def generate(self, inset: InsetId, acc: Batch | None, ctx: Context[None]) -> AsyncIterator[Emit | Reject]:  # type: ignore[override]
        items = self._items(inset, acc)
        outcomes = await call_all(self._calls, items, ctx, partial(self._one, ctx, acc is None))
        for made in self._made(items, outcomes, ctx):
            yield made

    async def _one(
        self, ctx: Context[None], fired: bool, index: int, item: _Item, slot: Slot, stop: asyncio.Event
    ) -> _Made | Failed:
        key, batch = item
        mine = self._context(ctx, index, key, fired=fired)
        try:
            return await self._calls.ask(batch, mine, self._checked)
        except ENGINE_ERRORS:
            raise
        except BaseException as error:
            if cancelled(error):
                raise
            if self.on_error == "stop":
                stop.set()
            return self._failed(error, key, fired=fired)
        finally:
            mine.give_up()


def stateful(fn: StatefulFn[Any], schema: pa.Schema, options: NodeOptions, **more: Any) -> Stateful:
    """The operator that calls this function with these options."""
    more["on_error"] = options.on_error
    paced = (options.rate, options.timeout, options.retry)
    if options.concurrency == 1 and not any(paced) and not is_async_function(fn):
        return Stateful(fn, schema, **more)
    return PacedStateful(
        fn,
        schema,
        concurrency=options.concurrency,
        rate=options.rate,
        timeout=options.timeout,
        retry=options.retry,
        **more,
    )
