"""Stores that are dropped without close() are closed by the garbage collector, at any instant, on any thread."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import PATIENCE

from logline.engine.step import Step
from logline.names import InstanceName
from logline.store.lmdb import environment
from logline.store.lmdb.folder import LmdbStore

ORDERS = InstanceName("orders")


class Collecting(dict[Any, Any]):
    """The collector strikes whenever someone looks for an environment."""

    def get(self, key: Any, default: Any = None) -> Any:
        found = super().get(key, default)
        gc.collect()
        return found


def dropped(folder: Path) -> None:
    """A store that only the collector can find, with an environment open."""
    store = LmdbStore(folder)
    journal = store.claim(ORDERS)
    journal.commit(Step(number=1))
    journal.close()
    assert store.read(ORDERS).image().commits == 1
    store.itself = store  # type: ignore[attr-defined]


def in_time(work: Callable[[], None]) -> None:
    done: list[bool] = []

    def all_of_it() -> None:
        work()
        done.append(True)

    thread = threading.Thread(target=all_of_it, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert done, "it hangs, or has failed"


@pytest.mark.parametrize("same", [False, True])
def test_a_store_is_collected_while_another_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    def work() -> None:
        gc.disable()
        try:
            dropped(tmp_path / "one")
            monkeypatch.setattr(environment, "_open", Collecting(environment._open))
            store = LmdbStore(tmp_path / ("one" if same else "two"))
            journal = store.claim(ORDERS)
            journal.commit(Step(number=2 if same else 1))
            journal.close()
            assert store.read(ORDERS).image().commits == (2 if same else 1)
            store.close()
        finally:
            gc.enable()

    in_time(work)
    assert not [path for path in environment._open if tmp_path in path.parents]
