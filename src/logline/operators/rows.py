"""A function per row, for slow calls to the outside: a model, a REST lookup (R9).

Every row is one `ctx.call` of its own: its answer is in the log as soon as it is there, and a crash does not
pay again for rows that were answered. Rate, timeout and retry are inside that call, so that a kept answer
waits for none of them.

    async def score(row, ctx):
        return {"id": row["id"], "score": await model(row["text"], key=ctx.id)}

    orders.map_rows("score", score, schema="id long, score double", concurrency=50, rate="600/min")
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import get_args

import pyarrow as pa

from logline.errors import OptionError, message_of, told
from logline.graph.functions import check_takes
from logline.graph.model import OnError, Retry
from logline.graph.operator import Batch, Context, Duration, Emit, Operator, Reject, SchemaLike
from logline.names import InsetId
from logline.operators.row_answers import Row, plain_answer, plain_rows
from logline.operators.row_calls import ENGINE_ERRORS, Caller, Failed, Slot, call_all, cancelled

RowFn = Callable[[Row, Context[None]], Row | Awaitable[Row | None] | None]


class MapRows(Operator[Batch, None]):
    """Applies a function to each row; the rows of an event leave as one event, in their order."""

    reuses_memory = False
    asks_by_row = True

    def __init__(
        self,
        fn: RowFn,
        schema: pa.Schema,
        *,
        concurrency: int = 1,
        rate: str | None = None,
        timeout: Duration | None = None,
        retry: Retry | None = None,
        on_error: OnError = "stop",
    ) -> None:
        if on_error not in get_args(OnError):
            raise OptionError(f"on_error={on_error!r}: use {', '.join(get_args(OnError))}")
        check_takes(fn, "map_rows", "row", "ctx")
        self.fn = fn
        self.schema = schema
        self.on_error = on_error
        self._calls = Caller(fn, concurrency=concurrency, rate=rate, timeout=timeout, retry=retry)

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        return {"out": self.schema}

    def open(self, ctx: Context[None]) -> None:
        self._calls.open()

    def close(self) -> None:
        self._calls.close()

    async def generate(self, inset: InsetId, acc: Batch, ctx: Context[None]) -> AsyncIterator[Emit | Reject]:
        outcomes = await call_all(self._calls, plain_rows(acc), ctx, partial(self._one, ctx))
        rows = [outcome for outcome in outcomes if isinstance(outcome, dict)]
        if rows:
            yield Emit(pa.RecordBatch.from_pylist(rows, schema=self.schema))
        for index, outcome in enumerate(outcomes):
            if isinstance(outcome, Failed):
                error = outcome.error
                reason = f"{type(error).__name__}: {message_of(error)}"
                yield Reject(acc.slice(index, 1), reason, told(error), rows=(index,))

    async def _one(
        self, ctx: Context[None], index: int, row: Row, slot: Slot, stop: asyncio.Event
    ) -> Row | Failed | None:
        row_ctx = ctx.row(index)

        # The log shows the user's function as the one that was called, with the row as its argument.
        @functools.wraps(self.fn)
        async def ask(row: Row) -> Row | None:
            try:
                kept: Row | None = await self._calls.ask(row, row_ctx, self._check)
                return kept
            except BaseException:
                if self.on_error == "stop":
                    stop.set()  # before the slot is free, or another row would begin
                raise
            finally:
                slot.free()  # the next row need not wait for the commit of this answer

        try:
            answer: Row | None = await row_ctx.call(ask, row)
            return answer
        except ENGINE_ERRORS:
            raise
        except BaseException as error:
            if cancelled(error):
                raise
            if self.on_error == "drop":
                ctx.count("dropped")
                return None
            if self.on_error == "stop":
                error.add_note(f"in row {index} of its event: {row!r:.500}")
                stop.set()  # also when the call itself failed: on an answer that can't be logged, say
            return Failed(error)
        finally:
            row_ctx.give_up()

    def _check(self, answer: object, _: object) -> Row | None:
        return plain_answer(answer, self.schema)
