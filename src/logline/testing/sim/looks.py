"""Looks at journals that the checks of a simulated run repeat: most journals have not changed since the last one."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar, cast

from logline.engine.image import Image
from logline.names import InstanceName
from logline.store.memory import MemoryStore
from logline.store.memory_rows import MemoryRows

T = TypeVar("T")


class Looks:
    """What was found in the journals, for as long as it holds. Nobody may change what is given out."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._found: dict[tuple[InstanceName, Hashable], tuple[MemoryRows, int, object]] = {}

    def once(self, name: InstanceName, what: Hashable, look: Callable[[], T]) -> T:
        """What this look at a journal gives, which is made again only if the journal has changed."""
        rows = self._store.look(name).rows
        known = self._found.get((name, what))
        if known is not None and known[0] is rows and known[1] == rows.changes:
            return cast(T, known[2])
        found = look()
        self._found[name, what] = (rows, rows.changes, found)
        return found

    def image(self, name: InstanceName) -> Image:
        """The image of a journal."""
        return self.once(name, "image", self._store.read(name).image)
