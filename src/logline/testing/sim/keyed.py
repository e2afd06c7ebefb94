"""An operator with a state per key in the simulator, and what must hold of it (R31).

Its state is the list of a key's records that have come out since the key was last emptied. So the states in the image
are a fold over the committed outputs, whatever failed, was cut off or was tried again before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from logline.engine import codec
from logline.engine.image import Image
from logline.engine.keyed import KEY, KeyState, decode_key, fired_id
from logline.graph.key_states import plain_state
from logline.graph.operator import Context, Event, Reject
from logline.names import InsetId
from logline.testing.sim.operators import Ports, SimOperator, every, same, split
from logline.testing.sim.outside import Violation
from logline.testing.sim.plain import Record, Records

KEYS = 3
FULL = 3
"""Records of a key with which it is forgotten."""


def key_of(record: Record) -> int:
    return record[1] % KEYS


class KeyedLists(SimOperator):
    """Gathers the names of records by key until there are enough, or until a timer comes. Some records are rejected
    by chance, some tries fail after they have changed a state."""

    Keyed = list[str]

    def __init__(self) -> None:
        self.failed: set[InsetId] = set()

    def passes(self, watermark: datetime) -> datetime | None:
        return None  # a mark has a key where records have a time

    def generate(self, inset: InsetId, acc: Any, ctx: Context[Any]) -> Iterator[Any]:
        if acc is None:
            yield self._fired(inset, ctx)
            return
        out: list[Record] = []
        for record in acc:
            if ctx.random.random() < 0.1:
                yield Reject((record,), "by chance")  # type: ignore[arg-type]
            else:
                out += self._one(record, ctx)
        if ctx.random.random() < 0.2:
            raise OSError("after it has changed states")
        yield from split(tuple(out), ctx)

    def _one(self, record: Record, ctx: Context[Any]) -> Iterable[Record]:
        key = (key_of(record),)
        state = [*(ctx.keys.get(key) or ()), record[0]]
        if len(state) < FULL:
            ctx.keys.set(key, state)
            self._wait(record, ctx)
            return [record]
        ctx.keys.delete(key)
        ctx.keys.cancel_timer(key)
        return [record, self._mark(key[0], "full", len(state))]

    def _wait(self, record: Record, ctx: Context[Any]) -> None:
        key, wait = (key_of(record),), timedelta(milliseconds=700)
        if ctx.random.random() < 0.5:
            ctx.keys.timer(key, at=ctx.now() + wait, clock="wall")
        else:
            ctx.keys.timer(key, after=wait)

    def _fired(self, inset: Any, ctx: Context[Any]) -> Records:
        key = inset[:1]
        state = ctx.keys.get(key)
        if state is None:
            raise Violation(f"TIMER {self.name} of key {key}, which has no state")
        ctx.keys.delete(key)
        if inset not in self.failed and ctx.random.random() < 0.2:
            self.failed.add(inset)
            raise OSError("not the first time")
        return (self._mark(key[0], ctx.cause, len(state)),)

    def _mark(self, key: int, why: str, many: int) -> Record:
        return f"{self.name}/{why}/{many}", key

    def is_mark(self, record: Record) -> bool:
        return record[0].startswith(f"{self.name}/")

    def check(self, inputs: Ports, outputs: Ports) -> None:
        same(self.name, [r for r in every(outputs) if not self.is_mark(r)], every(inputs))

    def check_states(self, outputs: Iterable[Record], keyed: Mapping[bytes, KeyState], image: Image) -> None:
        """After every commit: the states are those that its outputs tell of, each with a timer that will empty it."""
        wanted: dict[int, list[str]] = {}
        for record in outputs:
            state = wanted.setdefault(key_of(record), [])
            if self.is_mark(record):
                if int(record[0].rpartition("/")[2]) != len(state):
                    raise Violation(f"KEYED {self.name} {record}, and before it came {state}")
                state.clear()
            else:
                state.append(record[0])
        found = {decode_key(raw): plain_state(state.value) for raw, state in keyed.items()}
        if found != {(key,): state for key, state in wanted.items() if state}:
            raise Violation(f"KEYED {self.name} has {found}, its outputs tell of {wanted}")
        due = {opened.id[:1] for opened in image.sets.values() if not opened.members and isinstance(opened.id, tuple)}
        for key in found:
            if (KEY, *key) not in image.timers and key not in due:
                raise Violation(f"KEYED {self.name} key {key} has no timer")
        if image.ended and found:
            raise Violation(f"KEYED {self.name} has ended with {found}")


class TimedKeyedLists(KeyedLists):
    """The same with timers of the event clock."""

    time = {"in": "t"}  # noqa: RUF012

    def _wait(self, record: Record, ctx: Context[Any]) -> None:
        ctx.keys.timer((key_of(record),), at=codec.instant(record[1] + 3))

    def _fired(self, inset: Any, ctx: Context[Any]) -> Records:
        if ctx.watermark is None or inset != fired_id((KEY, inset[0]), codec.micros(inset[-1])):
            raise Violation(f"TIMER {self.name} {inset} at {ctx.watermark}")
        if ctx.watermark < inset[-1]:
            raise Violation(f"TIMER {self.name} {inset} comes early, at {ctx.watermark}")
        return super()._fired(inset, ctx)


class KeyedSets(KeyedLists):
    """The same of input sets of several events. They go one at a time, in the order in which they are due, and each
    one sees what those before it have made. Timers of sets and of keys do not get mixed up."""

    def assign(self, event: Event, ctx: Context[Any]) -> Any:
        group, wait = ctx.random.randint(0, 1), timedelta(milliseconds=500)
        chance = ctx.random.random()
        if chance < 0.3:
            ctx.fire(group)
        elif chance < 0.6:
            ctx.fire(group, after=wait)
        else:
            ctx.fire(group, at=ctx.now() + wait, after=2 * wait, clock="wall")
        return [group]

    def update(self, inset: InsetId, acc: Any, event: Event) -> Any:
        return (*(acc or ()), (event.name, event.batch))

    def generate(self, inset: InsetId, acc: Any, ctx: Context[Any]) -> Iterator[Any]:
        if acc is None:
            yield self._fired(inset, ctx)
            return
        out = tuple(made for _, batch in acc for record in batch for made in self._one(record, ctx))
        if inset not in self.failed and ctx.random.random() < 0.2:
            self.failed.add(inset)
            raise OSError("after it has changed states")
        yield from split(out, ctx)
