"""The embedded log passes the suite that every log store passes."""

from pathlib import Path

from logline.store.lmdb.folder import LmdbStore
from logline.store.seam import Store
from logline.testing.conformance import StoreConformance


class TestLmdbStore(StoreConformance):
    bells_are_reliable = False

    def make_store(self, location: Path) -> Store:
        return LmdbStore(location, durability="process")
