"""Which file a journal is, and stores that are dropped: the collector closes them at any instant, on any thread."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import PATIENCE

from logline.engine.step import Step
from logline.errors import Fenced
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
    assert not [env for env in environment._open.values() if tmp_path in env.path.parents]


def commits(folder: Path) -> int:
    """As a store that is opened for it sees them."""
    store = LmdbStore(folder)
    try:
        return store.read(ORDERS).image().commits
    finally:
        store.close()


def test_a_log_has_many_spellings(tmp_path: Path) -> None:
    """One file, opened once, whatever it is called."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    store = LmdbStore(tmp_path / "log")
    journal = store.claim(ORDERS)
    journal.commit(Step(number=1))
    for other in (tmp_path / "sub" / ".." / "log", tmp_path / "link" / "log"):
        assert commits(other) == 1
    later = LmdbStore(tmp_path / "link" / "log").claim(ORDERS)
    with pytest.raises(Fenced):
        journal.commit(Step(number=2))
    later.commit(Step(number=2))
    assert store.read(ORDERS).image().commits == 2
    for one in (journal, later, store):
        one.close()


def test_a_log_that_takes_the_place_of_another_is_that_log(tmp_path: Path) -> None:
    """The older one is still open here."""
    for name, number in (("one", 1), ("two", 2)):
        store = LmdbStore(tmp_path / name)
        journal = store.claim(ORDERS)
        for commit in range(1, number + 1):
            journal.commit(Step(number=commit))
        journal.close()
        store.close()
    old = LmdbStore(tmp_path / "one")
    assert old.read(ORDERS).image().commits == 1
    (tmp_path / "one").rename(tmp_path / "away")
    (tmp_path / "two").rename(tmp_path / "one")
    assert commits(tmp_path / "one") == 2
    assert commits(tmp_path / "away") == 1
    old.close()
