"""Whether all that is logged was taken: what a run asks its log before it says that nobody has anything to do."""

from __future__ import annotations

from collections.abc import Iterable

from logline.engine.spec import InstanceSpec
from logline.names import Ssn
from logline.store.seam import Store


def all_taken(store: Store, specs: Iterable[InstanceSpec]) -> list[Ssn] | None:
    """The last event of every channel into these instances, or None while one of them has something to take. If two
    looks are the same, and all have said in between that they rest, nothing has moved."""
    heads = []
    for spec in specs:
        for channel in spec.inputs:
            taken = store.read(channel.receiver).taken(channel.name).position.ssn
            heads.append(store.read(channel.sender).head(channel.out).last)
            if taken < heads[-1]:
                return None
    return heads
