"""Drives one operator by hand: the phases in the engine's order, without the engine.

With `crashes=True` the operator loses its volatile state after every event and before every generation:
the event state is made anew from the members and their notes, as recovery does it (R5), and the global state
goes through its encoding.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from logline.engine import codec
from logline.graph.durations import duration
from logline.graph.operator import Context, Duration, Emit, Event, Operator, Write, is_stateless
from logline.graph.schemas import schema, to_batches

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class FakeContext(Context[Any]):
    """Answers what the operators ask for; keeps what they said."""

    def __init__(self, state: Any = None, answers: dict[Any, Any] | None = None, row: int = -1) -> None:
        self.state = state
        self.random = Random(0)
        self.log = logging.getLogger("test")
        self.id = f"set/{row}"
        self.cause = "fired"
        self.watermark: datetime | None = None
        self.clock = NOON
        self.fires: list[tuple[Any, datetime | None, str]] = []
        self.counts: Counter[str] = Counter()
        self.answers: dict[Any, Any] = {} if answers is None else answers
        self._row = row
        self._calls = 0

    def now(self) -> datetime:
        return self.clock

    def fire(
        self,
        inset: Any,
        *,
        at: datetime | None = None,
        after: str | timedelta | None = None,
        clock: str = "event",
        keep: bool = False,
    ) -> None:
        if after is not None:
            at, clock = self.clock + duration(after), "wall"
        self.fires.append((codec.check_inset(inset), at, clock))

    def open_sets(self, prefix: tuple[Any, ...] | None = None) -> dict[Any, Any]:
        raise AssertionError("drive it with ll.testing.drive: this context holds no sets")

    def merge(self, into: Any, *others: Any) -> None:
        raise AssertionError("drive it with ll.testing.drive: this context holds no sets")

    def ended(self, port: str = "in") -> bool:
        return False

    def count(self, metric: str, n: int = 1) -> None:
        self.counts[metric] += n

    def row(self, index: int) -> FakeContext:
        return FakeContext(self.state, self.answers, index)

    def again(self, waits: Any = None) -> FakeContext:
        found = FakeContext(self.state, self.answers, self._row)
        found._calls = self._calls
        return found

    async def pause(self, wait: Duration | Awaitable[Any] = "0s") -> Any:
        return await (wait if isinstance(wait, Awaitable) else asyncio.sleep(duration(wait).total_seconds()))

    def give_up(self) -> None:
        """Nothing here goes on after its try."""

    def call(self, fn: Callable[..., Any], *args: Any, key: object = None) -> Any:
        self._calls += 1
        at = (self._row, self._calls, fn.__qualname__, codec.digest(list(args)))
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # on a thread of its own: the call blocks
            return asyncio.run(self._keep(at, fn, args))
        return self._keep(at, fn, args)

    async def _keep(self, at: Any, fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if at not in self.answers:
            made = fn(*args)
            self.answers[at] = codec.encode(await made if inspect.isawaitable(made) else made)
        return codec.decode(self.answers[at])


class Harness:
    """One operator with one input channel."""

    def __init__(self, op: Operator[Any, Any], schema_in: pa.Schema, *, crashes: bool = False) -> None:
        self.op = op
        self.crashes = crashes
        self.outputs = {port: schema(like) for port, like in op.schemas({"in": schema_in}).items()}
        self.ctx = FakeContext(op.State() if op.State else None)
        self.sets: dict[Any, list[Event]] = {}
        self.accs: dict[Any, Any] = {}
        self.timers: dict[Any, tuple[datetime, str]] = {}
        self.made: dict[str, list[pa.RecordBatch]] = defaultdict(list)
        self.generated: list[Any] = []
        self.writes: list[Write] = []
        self.ssn = 0
        op.open(self.ctx)

    def send(self, batch: pa.RecordBatch) -> Harness:
        self.ssn += 1
        event = Event("src", "out", self.ssn, "in", batch)  # type: ignore[arg-type]
        if is_stateless(self.op):
            self._collect(self.op.generate(event.name, batch, self.ctx))
            return self
        ids = self.op.assign(event, self.ctx)
        notes = dict(ids) if isinstance(ids, Mapping) else dict.fromkeys(ids)
        for inset, note in notes.items():
            member = event.with_note(codec.decode(codec.encode(note)))
            self.sets.setdefault(inset, []).append(member)
            before = self.accs.get(inset)
            self.op.update(inset, before, member)  # an update that is not pure would count twice
            self.accs[inset] = self.op.update(inset, before, member)
        fires, self.ctx.fires = self.ctx.fires, []
        for inset, at, clock in fires:
            if at is None:
                self._generate(inset)
            else:
                self.timers[inset] = (at, clock)
        self._move_clock(batch)
        self._crash()
        return self

    def advance(self, by: timedelta) -> Harness:
        self.ctx.clock += by
        self._ring("wall", self.ctx.clock)
        return self

    def end(self) -> Harness:
        for inset in list(self.sets):
            self._generate(inset)
        return self

    def out(self, port: str = "out") -> list[list[dict[str, Any]]]:
        """The events of a port, each as its rows."""
        return [batch.to_pylist() for batch in self.made[port]]

    def _move_clock(self, batch: pa.RecordBatch) -> None:
        for column in self.op.time.values():
            greatest = pc.max(batch[column].cast(pa.timestamp("us", "UTC"), safe=False)).as_py()
            if greatest is not None:
                moved = greatest.astimezone(UTC) - self.op.lateness
                self.ctx.watermark = max(self.ctx.watermark or moved, moved)
                self._ring("event", self.ctx.watermark)

    def _ring(self, clock: str, now: datetime) -> None:
        come = sorted((at, str(i), i) for i, (at, kind) in self.timers.items() if kind == clock and at <= now)
        for _, _, inset in come:
            self._generate(inset)

    def _generate(self, inset: Any) -> None:
        self.timers.pop(inset, None)
        if inset not in self.sets:
            return
        self._crash()
        acc = self.accs.pop(inset)
        del self.sets[inset]
        self.generated.append(inset)
        self._collect(self.op.generate(inset, acc, self.ctx))

    def _collect(self, made: Any) -> None:
        for item in made:
            if isinstance(item, Write):
                self.writes.append(item)
            else:
                item = item if isinstance(item, Emit) else Emit(item)
                self.made[item.port] += to_batches(item.data, self.outputs[item.port], item.port)

    def _crash(self) -> None:
        if not self.crashes:
            return
        if self.op.State is not None:
            self.ctx.state = msgspec.msgpack.decode(msgspec.msgpack.encode(self.ctx.state), type=self.op.State)
        for inset, members in self.sets.items():
            acc = None
            for member in members:
                acc = self.op.update(inset, acc, member)
            self.accs[inset] = acc


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self._now = max(self._now, self._scheduled[0]._when)  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def run_rows(
    op: Operator[Any, Any],
    *batches: pa.RecordBatch,
    ctx: FakeContext | None = None,
    loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> list[list[Any]]:
    """Generates all batches at once, each as a set of its own; what each set yielded."""
    ctx = FakeContext() if ctx is None else ctx

    async def one(number: int, batch: pa.RecordBatch) -> list[Any]:
        mine = ctx if len(batches) == 1 else FakeContext()
        return [item async for item in op.generate(number, batch, mine)]  # type: ignore[union-attr]

    async def everything() -> list[list[Any]]:
        return await asyncio.gather(*(one(n, batch) for n, batch in enumerate(batches)))

    op.open(ctx)
    with asyncio.Runner(loop_factory=loop) as runner:
        made = runner.run(everything())
    op.close()
    return made
