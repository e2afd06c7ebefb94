"""Aggregates over blocks of n events, in order of arrival (LOG.io Examples 2 and 3).

The global state counts; the id of an input set is the number of its block: 1 for the first n events, 2 for
the next n, and so on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa

from logline.graph.operator import Context, Dependency, Emit, Event, Operator, SchemaLike
from logline.names import InsetId
from logline.operators.aggregates import Reduction, grouped
from logline.operators.windows import Events


class Block(msgspec.Struct):
    """The block that is being filled."""

    number: int = 0
    seen: int = 0
    opened: datetime | None = None
    """Only kept when the block has a time limit: a policy may log every look at the clock."""
    n: int = 0
    """How many events it takes: whether it is full does not depend on the `n` of a later run. 0 in older logs."""


class BlockAggregate(Operator[Any, Block]):
    """One output event per block: the group's columns and the aggregates."""

    reuses_memory = False

    State = Block

    def __init__(self, window: Events, aggregates: Reduction[Any]) -> None:
        self.window = window
        self.aggregates = aggregates

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        return {"out": self.aggregates.output(inputs["in"])}

    def dependencies(self, inputs: Mapping[str, pa.Schema]) -> Iterable[Dependency]:
        return grouped(self.aggregates)

    def parameters(self) -> Mapping[str, object]:
        return {"n": self.window.n}

    def assign(self, event: Event, ctx: Context[Block]) -> Sequence[InsetId]:
        block, within = ctx.state, self.window.within
        now = None if within is None else ctx.now()
        if now is not None and block.opened is not None:
            block.opened = min(block.opened, now)  # the wall clock was set back: what is left is not more
        over = self._over(block, now)
        if over:
            ctx.fire(block.number)  # before the next one, also if the wall clock was set forward
        if block.number == 0 or block.seen >= (block.n or self.window.n) or over:
            block.number += 1
            block.seen = 0
            block.n = self.window.n
            block.opened = now
        block.seen += 1
        if block.seen == self.window.n:
            ctx.fire(block.number)
        elif within is not None and now is not None and block.opened is not None:
            # With every event: should the timer have come and the wall clock not have got there, this event opens
            # the set anew (R7) and must not wait in it without a timer.
            ctx.fire(block.number, after=block.opened + within - now)
        return [block.number]

    def _over(self, block: Block, now: datetime | None) -> bool:
        within = self.window.within
        if within is None or now is None or block.opened is None:
            return False
        return now - block.opened >= within

    def update(self, inset: InsetId, acc: Any, event: Event) -> Any:
        return self.aggregates.add(acc, event.batch)

    def generate(self, inset: InsetId, acc: Any, ctx: Context[Block]) -> Iterator[Emit]:
        made = self.aggregates.result(acc)
        if made.num_rows:  # a block of empty events has no groups
            yield Emit(made)

    def encode(self, acc: Any) -> bytes:
        return self.aggregates.encode(acc)

    def decode(self, data: bytes) -> Any:
        return self.aggregates.decode(data)

    def layout(self) -> str:
        return f"{super().layout()} {self.aggregates.layout()}".lstrip()
