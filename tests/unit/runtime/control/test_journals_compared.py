"""A start compares the journals of a log (R14), while lives of the run that it takes over may still commit (R10)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import pyarrow as pa
import pytest

import logline as ll
from logline.engine.events import Collection, Position
from logline.engine.sets import Member
from logline.engine.step import Step
from logline.errors import LogError
from logline.names import OUT, ChannelName, InstanceName, Serial, Ssn
from logline.runtime.control.launch import _check_journals
from logline.runtime.lives.instances import Instance, instances_of
from logline.store.memory import MemoryStore
from logline.store.seam import Store
from logline.testing.conformance.model import Scribe, step_of

CHANNEL = ChannelName("orders.out>store.in")
ONE = Serial(1)


class Racing:
    """A log that changes after each look at one of its journals."""

    def __init__(self, store: Store, *changes: Callable[[], object]) -> None:
        self._store = store
        self._changes = list(changes)

    def read(self, instance: InstanceName) -> Any:
        return _Look(self._store.read(instance), self._changes)


class _Look:
    def __init__(self, reader: Any, changes: list[Callable[[], object]]) -> None:
        self._reader = reader
        self._changes = changes

    def __getattr__(self, name: str) -> Any:
        def look(*given: Any) -> Any:
            found = getattr(self._reader, name)(*given)
            if self._changes:
                self._changes.pop(0)()
            return found

        return look


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def instances(store: MemoryStore) -> Mapping[InstanceName, Instance]:
    p = ll.Pipeline("sales")
    p.source("orders", ll.sources.batches([pa.table({"n": [1]})])).sink("store", ll.sinks.collect())
    return instances_of(p.graph(), store.log_id)


@pytest.fixture
def sender(store: MemoryStore) -> Scribe:
    return Scribe(store, InstanceName("orders"))


@pytest.fixture
def receiver(store: MemoryStore) -> Scribe:
    return Scribe(store, InstanceName("store"))


def compare(store: Any, instances: Mapping[InstanceName, Instance]) -> None:
    _check_journals(cast("Store", store), instances)


def test_both_go_on_between_two_looks(
    store: MemoryStore, instances: Mapping[InstanceName, Instance], sender: Scribe, receiver: Scribe
) -> None:
    sender.commit(sender.emit(1))

    def go_on() -> None:
        sender.commit(sender.emit(1))
        receiver.commit(Step(positions={CHANNEL: Position(Ssn(2), 20)}))

    compare(Racing(store, go_on), instances)


def test_a_member_is_let_go_of_between_two_looks(
    store: MemoryStore, instances: Mapping[InstanceName, Instance], sender: Scribe, receiver: Scribe
) -> None:
    sender.commit(sender.emit(2))
    begun = Step(positions={CHANNEL: Position(Ssn(1), 10)})
    begun.open(ONE, "H", [Member(CHANNEL, Ssn(1))])
    receiver.commit(begun)

    def let_go() -> None:
        receiver.commit(step_of(done=[ONE]))
        sender.commit(Step(collected={OUT: Collection(Ssn(2), frozenset())}))

    compare(Racing(store, let_go), instances)


def test_what_nobody_has_sent_is_still_found(
    store: MemoryStore, instances: Mapping[InstanceName, Instance], sender: Scribe, receiver: Scribe
) -> None:
    """However often the receiver goes on meanwhile."""
    sender.commit(sender.emit(1))
    receiver.commit(Step(positions={CHANNEL: Position(Ssn(2), 20)}))
    on = [lambda n=n: receiver.commit(Step(positions={CHANNEL: Position(Ssn(n), 10 * n)})) for n in (3, 4)]
    with pytest.raises(LogError, match="the log is damaged"):
        compare(Racing(store, *on), instances)
