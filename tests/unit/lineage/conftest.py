from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["memory", "lmdb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh log of each kind."""
    return f"memory:{request.node.name}" if request.param == "memory" else f"lmdb:{tmp_path}/log"
