"""The memory store passes the suite that every log store passes."""

from pathlib import Path

from logline.store.memory import open_memory
from logline.store.seam import Store
from logline.testing.conformance import StoreConformance


class TestMemoryStore(StoreConformance):
    bells_are_reliable = True

    def make_store(self, location: Path) -> Store:
        return open_memory(str(location))
