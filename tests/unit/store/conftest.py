"""What tests of the embedded log begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from logline.store.lmdb.folder import LmdbStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LmdbStore]:
    """A fresh log."""
    opened = LmdbStore(tmp_path / "log", durability="process")
    yield opened
    opened.close()
