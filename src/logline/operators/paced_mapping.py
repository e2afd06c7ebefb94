"""`map_batches` with an `async def`, with a `rate` or with a `timeout`: one call per batch, on an event loop.

Plain functions without either are applied in runs, without a loop (`MapBatches`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, cast

import pyarrow as pa

from logline.graph.functions import check_takes, is_async_function, is_async_generator
from logline.graph.model import NodeOptions
from logline.graph.operator import Batch, Context, Emit, Operator, SchemaLike, Tabular
from logline.names import InsetId
from logline.operators.mapping import AsyncMapFn, MapBatches, MapFn, tables_of
from logline.operators.row_calls import Caller


class PacedMapBatches(Operator[Batch, None]):
    """Applies a function, `def` or `async def`, to each batch; every table it makes is an event of its own."""

    def __init__(
        self,
        fn: MapFn | AsyncMapFn,
        schema: pa.Schema,
        *,
        concurrency: int = 1,
        rate: str | None = None,
        timeout: timedelta | None = None,
    ) -> None:
        check_takes(fn, "map_batches", "batch")
        self.fn = fn
        self.schema = schema
        # One try: the engine tries the whole event again, as `retry` says.
        self._calls = Caller(_of_batch(fn), concurrency=concurrency, rate=rate, timeout=timeout)

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        return {"out": self.schema}

    def open(self, ctx: Context[None]) -> None:
        self._calls.open()

    def close(self) -> None:
        self._calls.close()

    async def generate(self, inset: InsetId, acc: Batch, ctx: Context[None]) -> AsyncIterator[Emit]:
        made: list[Tabular] = await self._calls.ask(acc, ctx, lambda tables, _: tables)
        for table in made:
            yield Emit(table)


def map_batches(fn: MapFn | AsyncMapFn, schema: pa.Schema, options: NodeOptions) -> Operator[Any, Any]:
    """The operator that applies this function with these options."""
    if options.rate is None and options.timeout is None and not is_async_function(fn):
        return MapBatches(cast("MapFn", fn), schema)
    return PacedMapBatches(fn, schema, concurrency=options.concurrency, rate=options.rate, timeout=options.timeout)


def waited_for(fn: Callable[..., Any]) -> Callable[[Batch], Any]:
    """The function as a plain one, for a single call: on a loop and a thread of its own, since a notebook has a loop
    already."""
    if not is_async_function(fn):
        return fn
    made = _of_batch(fn)

    def called(batch: Batch) -> Any:
        with ThreadPoolExecutor(1) as threads:
            return threads.submit(lambda: asyncio.run(made(batch, None))).result()

    return called


def _of_batch(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a caller calls it, with all tables that it makes."""
    if is_async_generator(fn):

        async def gathered(batch: Batch, ctx: Context[None]) -> list[Tabular]:
            return [table async for made in fn(batch) for table in tables_of(made)]

        return gathered
    if is_async_function(fn):

        async def awaited(batch: Batch, ctx: Context[None]) -> list[Tabular]:
            return list(tables_of(await fn(batch)))

        return awaited

    def called(batch: Batch, ctx: Context[None]) -> list[Tabular]:
        return list(tables_of(fn(batch)))

    return called
