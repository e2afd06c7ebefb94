"""Operators of simulated pipelines: non-deterministic on purpose, each with a check of what must hold anyway.

`check(inputs, outputs)` gets the records that ever were on each input and output port; whatever the operator
decided by chance, every record must have come out exactly once (or where the operator says).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from logline.engine import codec
from logline.graph.operator import BatchOperator, Context, Emit, Event, Operator, Reject, Write
from logline.names import InsetId
from logline.testing.sim.outside import PaidService, Violation
from logline.testing.sim.plain import Record, Records

Ports = Mapping[str, list[Record]]


def same(where: str, got: Iterable[Any], want: Iterable[Any]) -> None:
    """Raises a Violation unless both hold the same records equally often, in any order."""
    a, b = Counter(got), Counter(want)
    if a != b:
        raise Violation(f"EXACTLY-ONCE {where}: extra {dict(a - b)}, missing {dict(b - a)}")


def every(inputs: Ports) -> list[Record]:
    """All records on all input ports."""
    return [record for records in inputs.values() for record in records]


class SimOperator(Operator[Any, Any]):
    """The base: all that comes in goes out on the given ports."""

    ports: tuple[str, ...] = ("out",)
    name = ""

    def check(self, inputs: Ports, outputs: Ports) -> None:
        """By default: everything goes out once, over all ports together."""
        same(self.name, every(outputs), every(inputs))


def split(records: Records, ctx: Context[Any]) -> Iterator[Records]:
    """One or two events, by chance, sometimes with an empty one."""
    at = ctx.random.randint(0, len(records))
    if ctx.random.random() < 0.5:
        yield records
        return
    yield records[:at]
    yield records[at:]


class Pick(SimOperator):
    """Stateless: drops a fixed quarter of the records, splits the rest by chance."""

    def generate(self, inset: InsetId, acc: Any, ctx: Context[Any]) -> Iterator[Any]:
        kept = tuple(r for r in acc if r[1] % 4 != 3)
        if kept or ctx.random.random() < 0.2:
            yield from split(kept, ctx)

    def check(self, inputs: Ports, outputs: Ports) -> None:
        same(self.name, every(outputs), [r for r in every(inputs) if r[1] % 4 != 3])


class Straight(SimOperator, BatchOperator):
    """Stateless, by the batch alone: runs of events go through at once. Now and then it fails for a moment."""

    def __init__(self) -> None:
        self.asked: set[Records] = set()

    def each(self, batch: Any) -> Any:
        if batch not in self.asked and sum(at for _, at in batch) % 4 == 1:
            self.asked.add(batch)
            raise OSError("not the first time")
        kept = tuple(r for r in batch if r[1] % 4 != 3)
        return (kept,) if kept else ()

    def check(self, inputs: Ports, outputs: Ports) -> None:
        same(self.name, every(outputs), [r for r in every(inputs) if r[1] % 4 != 3])


class Choosy(SimOperator):
    """Stateless: rejects records by chance; another try may take them."""

    def generate(self, inset: InsetId, acc: Any, ctx: Context[Any]) -> Iterator[Any]:
        liked = [ctx.random.random() < 0.7 for _ in acc]
        yield tuple(r for r, good in zip(acc, liked, strict=True) if good)
        for record, good in zip(acc, liked, strict=True):
            if not good:
                yield Reject((record,), "by chance")  # type: ignore[arg-type]


@dataclass
class Count:
    """A global state that counts the events taken in; the world checks it against the positions."""

    events: int = 0
    fired: int = 0


class Blocks(SimOperator):
    """Two input sets per event, fired by a later event; one of the two asks a paid service (Algorithm 4)."""

    ports = ("a", "b")
    State = Count
    size = 3

    def __init__(self, service: PaidService) -> None:
        self.service = service

    def assign(self, event: Event, ctx: Context[Any]) -> Any:
        state = ctx.state
        block = state.events // self.size
        state.events += 1
        while state.fired < block:  # edge-triggered: only the event that opens a block fires the one before
            ctx.fire(("a", state.fired))
            ctx.fire(("b", state.fired))
            state.fired += 1
        second = block if ctx.random.random() < 0.7 else block + 1
        return [("a", block), ("b", second)]

    def update(self, inset: InsetId, acc: Any, event: Event) -> Any:
        return (*(acc or ()), (event.name, event.batch))

    def generate(self, inset: Any, acc: Any, ctx: Context[Any]) -> Iterator[Any]:
        records = tuple(r for _, batch in acc for r in batch)
        if inset[0] == "a":
            token, _ = ctx.call(self.service.ask, ctx.id)
            if token != ctx.id:
                raise Violation(f"WRONG-ANSWER {token} used for {ctx.id}")
        for part in split(records, ctx):
            yield Emit(part, inset[0])  # type: ignore[arg-type]

    def check(self, inputs: Ports, outputs: Ports) -> None:
        same(f"{self.name}.a", outputs["a"], every(inputs))
        same(f"{self.name}.b", outputs["b"], every(inputs))


class Pairs(SimOperator):
    """Two inputs; random groups; ready when two events are together. Level-triggered, by `ready`."""

    inputs = ("left", "right")
    State = Count

    def assign(self, event: Event, ctx: Context[Any]) -> Any:
        ctx.state.events += 1
        return [ctx.random.randint(0, 1)]

    def update(self, inset: InsetId, acc: Any, event: Event) -> Any:
        return (*(acc or ()), (event.name, event.batch))

    def ready(self, inset: InsetId, acc: Any, ctx: Context[Any]) -> bool:
        return len(acc) >= 2

    def generate(self, inset: InsetId, acc: Any, ctx: Context[Any]) -> Iterator[Any]:
        ctx.state.events += 1000  # a copy: only `assign` may change the state (R6)
        yield from split(tuple(r for _, batch in acc for r in batch), ctx)


class Windows(SimOperator):
    """An event clock: records of one event spread over windows; late ones leave on their own port."""

    ports = ("out", "late")
    untimed = ("late",)
    time = {"in": "t"}  # noqa: RUF012
    State = Count
    size = 4
    in_time = False
    """Whether its source promises that no record comes late."""

    def passes(self, watermark: datetime) -> datetime:
        return codec.instant(codec.micros(watermark) // self.size * self.size)

    def earliest(self, inset: InsetId, acc: Any) -> datetime | None:
        return codec.instant(inset * self.size) if isinstance(inset, int) else None

    def assign(self, event: Event, ctx: Context[Any]) -> Any:
        ctx.state.events += 1
        closed = -1 if ctx.watermark is None else codec.micros(ctx.watermark)
        found: dict[InsetId, Any] = {}
        for window in sorted({r[1] // self.size for r in event.batch}):
            end = (window + 1) * self.size
            if end <= closed:
                found["late", event.name] = [*found.get(("late", event.name), []), window]
                ctx.fire(("late", event.name))
            else:
                found[window] = None
                ctx.fire(window, at=codec.instant(end))
        return found

    def update(self, inset: InsetId, acc: Any, event: Event) -> Any:
        windows = [inset] if event.note is None else event.note
        return (*(acc or ()), (event.name, tuple(r for r in event.batch if r[1] // self.size in windows)))

    def generate(self, inset: InsetId, acc: Any, ctx: Context[Any]) -> Iterator[Any]:
        records = tuple(r for _, batch in acc for r in batch)
        if isinstance(inset, int) and any(r[1] // self.size != inset for r in records):
            raise Violation(f"WINDOW {inset} has {records}")
        if isinstance(inset, int):
            yield Emit((self._mark(inset), *records), "out")  # type: ignore[arg-type]
        else:
            yield Emit(records, "late")  # type: ignore[arg-type]

    def _mark(self, window: int) -> Record:
        return f"{self.name}/window{window}", window * self.size

    def check(self, inputs: Ports, outputs: Ports) -> None:
        """A window that was closed never opens again: the event clock does not go back in a crash."""
        marks = [r for r in outputs["out"] if r[0].startswith(f"{self.name}/window")]
        if len(set(marks)) != len(marks):
            raise Violation(f"WINDOW {self.name} was closed twice: {marks}")
        if self.in_time and outputs["late"]:
            raise Violation(f"LATE {self.name} has closed windows without {outputs['late']}")
        same(self.name, every(outputs), [*every(inputs), *marks])


class Patient(SimOperator):
    """Gathers until a time on the wall clock (a timer in the image)."""

    State = Count

    def assign(self, event: Event, ctx: Context[Any]) -> Any:
        if ctx.state.events % 3 == 0:
            wait = timedelta(milliseconds=700)
            if ctx.random.random() < 0.5:
                ctx.fire("bag", at=ctx.now() + wait, clock="wall")
            else:
                ctx.fire("bag", after=wait)
        ctx.state.events += 1
        return {"bag": len(event.batch)} if event.batch else []

    def update(self, inset: InsetId, acc: Any, event: Event) -> Any:
        if event.note != len(event.batch):
            raise Violation(f"NOTE {event.note} for {event.batch}")
        return (*(acc or ()), (event.name, event.batch))

    def generate(self, inset: InsetId, acc: Any, ctx: Context[Any]) -> Iterator[Any]:
        yield tuple(r for _, batch in acc for r in batch)


class Rows(SimOperator):
    """Stateless and async, several sets at once, paid answers per row, one row after the other or all at once. Some
    tries are given up midway."""

    def __init__(self, service: PaidService) -> None:
        self.service = service

    async def generate(self, inset: InsetId, acc: Any, ctx: Context[Any]) -> AsyncIterator[Any]:
        rows = [ctx.row(index) for index in range(len(acc))]
        if ctx.random.random() < 0.5:
            await asyncio.gather(*(self._one(record, row) for record, row in zip(acc, rows, strict=True)))
            yield tuple(acc)
            return
        for record, row in zip(acc, rows, strict=True):
            await self._one(record, row)
            yield (record,)

    async def _one(self, record: Record, row: Context[Any]) -> None:
        if row.random.random() < 0.3:
            await self._give_up(row, turns=row.random.randint(0, 2))
        mine = row.again()
        for wanted in (row.id, f"{row.id}, more")[: 1 + record[1] % 2]:  # some ask twice
            token, _ = await mine.call(self.service.ask, wanted)
            if token != wanted:
                raise Violation(f"WRONG-ANSWER {token} used for {wanted}")

    async def _give_up(self, row: Context[Any], turns: int) -> None:
        """A try that takes too long: before it asks, or while it waits until its answer is committed."""
        first = row.again()
        asking = asyncio.ensure_future(first.call(self.service.ask, row.id))
        for _ in range(turns):
            await asyncio.sleep(0)
        first.give_up()
        asking.cancel()


class Unspeakable(Exception):
    """Nobody can say what it is."""

    def __str__(self) -> str:
        raise SystemExit(4)


RAISED: list[type[BaseException]] = [
    ValueError,
    OSError,
    SystemExit,
    KeyboardInterrupt,
    GeneratorExit,
    asyncio.CancelledError,
    Unspeakable,
]
"""What user code raises, and asyncio, generators and executors treat each in a way of its own."""
NO_SETS = (7, "0", [object()], {0: object()})
"""What `assign` may not return."""


class Flaky(SimOperator):
    """Raises now and then: in `generate` (retried, then diverted), sometimes in `assign` or `update`. Now and then
    `assign` returns what names no set, or a note that can't be logged."""

    State = Count

    def assign(self, event: Event, ctx: Context[Any]) -> Any:
        ctx.state.events += 1
        if ctx.random.random() < 0.1:
            ctx.state.events += 100  # must be undone
            if event.ssn % 3 == 0:
                return NO_SETS[event.ssn % len(NO_SETS)]
            raise RAISED[event.ssn % len(RAISED)]
        return [ctx.random.randint(0, 1)]

    def update(self, inset: InsetId, acc: Any, event: Event) -> Any:
        if any(r[1] % 7 == 6 for r in event.batch):
            raise RAISED[event.ssn % len(RAISED)]
        return (*(acc or ()), (event.name, event.batch))

    def ready(self, inset: InsetId, acc: Any, ctx: Context[Any]) -> bool:
        return len(acc) >= 2

    def generate(self, inset: InsetId, acc: Any, ctx: Context[Any]) -> Iterator[Any]:
        if ctx.random.random() < 0.3:
            raise RAISED[sum(at for _, batch in acc for _, at in batch) % len(RAISED)]
        yield tuple(r for _, batch in acc for r in batch)


class FlakyAsync(Flaky):
    """The same in a coroutine, before and after it has put something out."""

    async def generate(self, inset: InsetId, acc: Any, ctx: Context[Any]) -> AsyncIterator[Any]:  # type: ignore[override]
        raising = RAISED[sum(at for _, batch in acc for _, at in batch) % len(RAISED)]
        for _, batch in acc:
            if ctx.random.random() < 0.2:
                raise raising
            yield batch
            await asyncio.sleep(0)


class Dropper(Flaky):
    """The same, but what fails for good is dropped."""

    def check(self, inputs: Ports, outputs: Ports) -> None:
        extra = Counter(every(outputs)) - Counter(every(inputs))
        if extra or outputs["errors"]:
            raise Violation(f"EXACTLY-ONCE {self.name}: extra {dict(extra)}, errors {outputs['errors']}")


class Mirror(SimOperator):
    """A writer in the middle that reads what it may have written itself: R9's last sentence."""

    def __init__(self, service: PaidService, written: Any) -> None:
        self.service = service
        self.written = written
        """A function that tells how many writes the target has applied."""
        self.logged: Any = None
        """Set by the world: how many writes this life has numbered so far."""

    def generate(self, inset: InsetId, acc: Any, ctx: Context[Any]) -> Iterator[Any]:
        seen = ctx.call(self.look)
        yield tuple(acc)
        yield Write((*acc, (f"seen{seen}", 0)), "mirror")  # type: ignore[arg-type]

    def check(self, inputs: Ports, outputs: Ports) -> None:
        same(f"{self.name}.out", outputs["out"], every(inputs))
        written = [r for r in outputs["@mirror"] if not r[0].startswith("seen")]
        same(f"{self.name} -> mirror", written, every(inputs))

    def look(self) -> int:
        """What the outside shows, against what was logged before."""
        seen: int = self.written()
        if self.logged is not None and seen < self.logged():
            raise Violation(f"STALE-READ {seen} writes visible, {self.logged()} were logged before")
        return seen


class Deliver(SimOperator, BatchOperator):
    """A sink that passes on what comes, in runs (ADR 0022)."""

    ports = ()

    def each(self, batch: Any) -> Any:
        return (Write(batch, "store"),)

    def check(self, inputs: Ports, outputs: Ports) -> None:
        same(self.name, outputs["@store"], every(inputs))


class Store(SimOperator):
    """A sink: every event is a write, sometimes two."""

    ports = ()

    def generate(self, inset: InsetId, acc: Any, ctx: Context[Any]) -> Iterator[Any]:
        for part in split(tuple(acc), ctx):
            yield Write(part, "store")  # type: ignore[arg-type]

    def check(self, inputs: Ports, outputs: Ports) -> None:
        same(self.name, outputs["@store"], every(inputs))
