"""A loop's queue: what other threads put and what bells ring wakes it, and nothing is missed."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.waiting import PATIENCE

from logline.names import InstanceName
from logline.runtime.lives.arrivals import Arrivals
from logline.store.lmdb.folder import LmdbStore

HOURLY = InstanceName("hourly")


def test_an_item_wakes_a_loop_that_sleeps() -> None:
    arrivals: Arrivals[int] = Arrivals()
    taken: list[int] = []

    def loop() -> None:
        while len(taken) < 2000:
            arrivals.wait(PATIENCE)
            taken.extend(arrivals.take())

    thread = threading.Thread(target=loop)
    thread.start()
    for n in range(2000):  # each may come just before, while or after the loop falls asleep
        arrivals.put(n)
    thread.join(PATIENCE)
    assert taken == list(range(2000))
    arrivals.close()


def test_a_bell_wakes_it_too(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "log", durability="process")
    arrivals: Arrivals[str] = Arrivals()
    stop = arrivals.listen(store.bell(HOURLY), lambda: "bell")

    def ring() -> None:
        for _ in range(3):
            store.ring(HOURLY)

    ringing = threading.Thread(target=ring)
    ringing.start()
    arrivals.wait(PATIENCE)
    ringing.join()
    assert set(arrivals.take()) == {"bell"}
    stop()
    assert list((tmp_path / "log" / "bells").iterdir()) == []
    store.ring(HOURLY)  # nobody hears it
    assert arrivals.take() == []
    arrivals.close()
    store.close()


def test_what_is_put_after_the_end_does_no_harm() -> None:
    arrivals: Arrivals[int] = Arrivals()
    arrivals.close()
    arrivals.put(1)
    arrivals.close()


def test_a_newer_bell_takes_over(tmp_path: Path) -> None:
    """The old one must not take the new one's socket down."""
    store = LmdbStore(tmp_path / "log", durability="process")
    old, new = store.bell(HOURLY), store.bell(HOURLY)
    old.close()
    arrivals: Arrivals[str] = Arrivals()
    stop = arrivals.listen(new, lambda: "bell")
    store.ring(HOURLY)
    assert arrivals.take() == ["bell"]
    stop()
    arrivals.close()
    store.close()
