"""Aggregates over all events: one input set, which is generated at the end, and before it if the window says so.

A set that is put out before the end is kept open (`ctx.fire(keep=True)`): each version is made of an input set of its
own, with all events so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from logline.graph.operator import Context, Dependency, Emit, Event, Operator, SchemaLike
from logline.names import InsetId
from logline.operators.aggregates import Reduction, grouped
from logline.operators.bounds import bounded, with_version
from logline.operators.saving import pack, unpack
from logline.operators.windows import Whole

ALL = "all"
"""The id of the set."""


class Running(NamedTuple):
    """The event state: how many events came, and the parts of the aggregates."""

    events: int
    """Those with rows."""
    parts: Any


class WholeAggregate(Operator[Running, None]):
    """The group's columns and the aggregates, of all events; with a version if there are several."""

    reuses_memory = False

    def __init__(self, aggregates: Reduction[Any], window: Whole | None = None) -> None:
        self.aggregates = aggregates
        self.window = window or Whole()
        self.moves_members = self.window.versions

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        return {"out": bounded(self.aggregates, inputs["in"], None, versions=self.window.versions)}

    def dependencies(self, inputs: Mapping[str, pa.Schema]) -> Iterable[Dependency]:
        return grouped(self.aggregates)

    def assign(self, event: Event, ctx: Context[None]) -> Sequence[InsetId]:
        every, events = self.window.every, self.window.events
        if not event.batch.num_rows:  # it changes nothing, so it makes no version
            return [] if self.window.versions and ALL in ctx.open_sets() else [ALL]
        if every is not None:
            ctx.fire(ALL, after=every, keep=True)
        if events is not None:
            known: Running | None = ctx.open_sets().get(ALL)
            if ((0 if known is None else known.events) + 1) % events == 0:
                ctx.fire(ALL, keep=True)
        return [ALL]

    def update(self, inset: InsetId, acc: Running | None, event: Event) -> Running:
        events, parts = acc or (0, None)
        return Running(events + (event.batch.num_rows > 0), self.aggregates.add(parts, event.batch))

    def generate(self, inset: InsetId, acc: Running, ctx: Context[None]) -> Iterator[Emit]:
        if not ctx.changed:
            return  # the end, and the last version has all
        made = self.aggregates.result(acc.parts)
        if made.num_rows:  # empty events have no groups
            yield Emit(with_version(made, ctx.version, 0) if self.window.versions else made)

    def encode(self, acc: Running) -> bytes:
        return pack((acc.events, self.aggregates.encode(acc.parts)))

    def decode(self, data: bytes) -> Running:
        events, parts = unpack(data)
        return Running(events, self.aggregates.decode(parts))

    def layout(self) -> str:
        return f"{super().layout()} {self.aggregates.layout()}".lstrip()
