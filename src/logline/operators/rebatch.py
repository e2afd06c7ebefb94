"""Events of another size: exactly `rows` records each, or fewer once `within` has passed.

An event may be split over several sets. The note on each membership says which rows belong to it, so that
recovery rebuilds a set without asking `assign` again (R5).

    3 + 4 + 2 rows, rebatched to 4:   1: first (0, 3), second (0, 1)    2: second (1, 3), third (0, 1) ...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

import msgspec
import pyarrow as pa

from logline.errors import OptionError
from logline.graph.durations import duration
from logline.graph.operator import Context, Dependency, Duration, Emit, Event, Operator, SchemaLike
from logline.names import InsetId
from logline.operators.checks import at_least_one
from logline.operators.gathered import Gathered
from logline.operators.saving import batches_to_bytes, read_gathered
from logline.operators.tables import same_columns


class Filling(msgspec.Struct):
    """The set that is being filled."""

    number: int = 0
    rows: int = 0
    opened: datetime | None = None


class Rebatch(Operator[Gathered, Filling]):
    """Joins and splits events into ones of `rows` records; what is `within` old leaves with fewer."""

    reuses_memory = False

    State = Filling

    def __init__(self, rows: int, within: Duration) -> None:
        self.rows = at_least_one(rows, "rows")
        self.within = duration(within)
        if self.within <= timedelta(0):
            raise OptionError(f"within={within!r}: the time must be positive")

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        return {"out": inputs["in"]}

    def dependencies(self, inputs: Mapping[str, pa.Schema]) -> Iterable[Dependency]:
        return same_columns(inputs["in"])

    def parameters(self) -> Mapping[str, object]:
        return {"rows": self.rows}

    def assign(self, event: Event, ctx: Context[Filling]) -> Mapping[InsetId, tuple[int, int]]:
        total = event.batch.num_rows
        if not total:
            return {}
        now = ctx.now()
        notes: dict[InsetId, tuple[int, int]] = {}
        offset = 0
        while offset < total:
            filling = self._next(ctx, now)
            length = min(self.rows - filling.rows, total - offset)
            notes[filling.number] = (offset, length)
            filling.rows += length
            offset += length
            if filling.rows == self.rows:
                ctx.fire(filling.number)
                filling.rows = 0  # full, whatever size the next run wants
            elif filling.opened is not None:
                # With every event: should the timer have come and the wall clock not have got there, this event
                # opens the set anew (R7) and must not wait in it without a timer.
                ctx.fire(filling.number, after=filling.opened + self.within - now)
        return notes

    def _next(self, ctx: Context[Filling], now: datetime) -> Filling:
        filling = ctx.state
        late = filling.opened is None or now - filling.opened >= self.within
        if late:
            ctx.fire(filling.number)  # before the next one, also if the wall clock was set forward
        elif filling.opened is not None:
            filling.opened = min(filling.opened, now)  # the wall clock was set back: what is left is not more
        # A full set has no rows in the state. In older logs it has, maybe more than `rows` of this run.
        if late or filling.rows == 0 or filling.rows >= self.rows:
            filling.number += 1
            filling.rows = 0
            filling.opened = now
        return filling

    def update(self, inset: InsetId, acc: Gathered | None, event: Event) -> Gathered:
        offset, length = event.note
        return Gathered.after(acc, event.batch.slice(offset, length))

    def generate(self, inset: InsetId, acc: Gathered, ctx: Context[Filling]) -> Iterator[Emit]:
        yield Emit(acc.table())

    def encode(self, acc: Gathered) -> bytes:
        return batches_to_bytes(acc.batches())

    def decode(self, data: bytes) -> Gathered:
        found = read_gathered(data)
        assert found is not None, "a set has members, and each a batch"
        return found
