"""An operator whose sets merge by chance and are generated while they stay open, with what its image must hold (R32).

An event may belong to two sets, which get the records of even and of odd times. When those merge, the event is a
member twice, with a note each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from logline.engine.codec import instant
from logline.engine.fires import kept_id
from logline.engine.image import Image
from logline.graph.operator import Context, Emit, Event
from logline.names import InsetId, InstanceName
from logline.testing.sim.operators import Count, Ports, SimOperator, every, same
from logline.testing.sim.outside import Violation

_WAIT = timedelta(milliseconds=700)
_PREFIX = 1
"""Ids are (key, number)."""


class Merging(SimOperator):
    """Sets of two keys, several of each. Port `kept` has what was put out while its set stayed open."""

    ports = ("out", "kept")
    State = Count

    def assign(self, event: Event, ctx: Context[Any]) -> Any:
        ctx.state.events += 1
        chance = ctx.random.random
        found: dict[InsetId, Any] = {}
        keys = (0, 1) if chance() < 0.4 else (ctx.random.randint(0, 1),)
        for key in keys:
            mine = self._open_sets(key, ctx)
            if len(mine) > 1 and chance() < 0.6:
                ctx.random.shuffle(mine)
                into, *others = mine[: ctx.random.randint(2, len(mine))]
                ctx.merge(into, *others)
                mine = [inset for inset in mine if inset not in others]
            fresh: InsetId = (key, ctx.state.events)
            inset = ctx.random.choice(mine) if mine and chance() < 0.6 else fresh
            found[inset] = key if len(keys) > 1 else None
        if len(found) == 2 and chance() < 0.5:  # both are of key 0: they may merge later
            found = {(0, -ctx.state.events): 0, (0, ctx.state.events): 1}
        for inset in found:
            self._fire(inset, ctx)
        return found

    def _open_sets(self, key: int, ctx: Context[Any]) -> list[InsetId]:
        mine, everyone = ctx.open_sets((key,)), ctx.open_sets()
        if list(mine) != [inset for inset in everyone if isinstance(inset, tuple) and inset[:_PREFIX] == (key,)]:
            raise Violation(f"OPEN-SETS {self.name}: of key {key} {list(mine)}, of all {list(everyone)}")
        return list(mine)

    def _fire(self, inset: InsetId, ctx: Context[Any]) -> None:
        chance = ctx.random.random()
        if chance < 0.15:
            ctx.fire(inset)
        elif chance < 0.4:
            ctx.fire(inset, after=_WAIT)
        elif chance < 0.55:
            ctx.fire(inset, keep=True)
        elif chance < 0.75:
            ctx.fire(inset, after=_WAIT / 2, keep=True)

    def update(self, inset: InsetId, acc: Any, event: Event) -> Any:
        mine = tuple(r for r in event.batch if event.note is None or r[1] % 2 == event.note)
        return (*(acc or ()), (event.name, mine))

    def merge(self, acc: Any, other: Any) -> Any:
        return (*acc, *other)

    def generate(self, inset: InsetId, acc: Any, ctx: Context[Any]) -> Iterator[Any]:
        if (ctx.cause == "kept") and not ctx.changed:
            raise Violation(f"KEPT {self.name} set {inset}: nothing has joined it since version {ctx.version - 1}")
        records = tuple(r for _, batch in acc for r in batch)
        yield Emit(records, "kept" if ctx.cause == "kept" else "out")  # type: ignore[arg-type]

    def check(self, inputs: Ports, outputs: Ports) -> None:
        """Every record comes out once when its set closes, and before that only what came in."""
        same(self.name, outputs["out"], every(inputs))
        if extra := set(outputs["kept"]) - set(every(inputs)):
            raise Violation(f"KEPT {self.name}: {extra} never came in")


class TellingMerging(Merging):
    """Says what can come of a set, which an earlier record or a merge makes earlier (R30)."""

    def earliest(self, inset: InsetId, acc: Any) -> datetime | None:
        return min((instant(r[1]) for _, batch in acc for r in batch), default=None)


def check_merging(name: InstanceName, image: Image) -> None:
    """A member is in one open set, also after a merge; a timer is of a set that is open."""
    open_sets = [opened for opened in image.sets.values() if opened.cause is None]
    twice = [m for m, n in Counter(m for opened in open_sets for m in opened.members).items() if n > 1]
    if twice:
        raise Violation(f"MERGED {name}: in several open sets are {twice}")
    ids = {opened.id for opened in open_sets}
    for key in image.timers:
        inset = kept_id(key)
        if (key if inset is None else inset) not in ids:
            raise Violation(f"TIMER {name}: {key} is of no open set")
