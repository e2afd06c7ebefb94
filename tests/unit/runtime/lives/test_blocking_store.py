"""A store whose calls go over a network: one life that waits for it does not hold up the others on the loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.runtime.taps import Bucket, Tap, shared
from tests.waiting import PATIENCE

from logline.names import InstanceName
from logline.pipeline import Pipeline
from logline.runtime.lives.inline import InlineEngine
from logline.runtime.lives.instances import instances_of
from logline.store.memory import MemoryStore
from logline.store.seam import Call, StoreTraits

ALL: frozenset[Call] = frozenset({"claim", "commit", "read"})


class Gates:
    """Calls of a store that a test holds back."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._shut: set[tuple[Call, str]] = set()
        self._waiting: list[tuple[Call, str]] = []
        self.threads: set[tuple[Call, str]] = set()
        """Who called what."""

    def pass_through(self, call: Call, instance: str) -> None:
        with self._changed:
            self.threads.add((call, threading.current_thread().name))
            self._waiting.append((call, instance))
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: (call, instance) not in self._shut, PATIENCE)
            self._waiting.remove((call, instance))

    def shut(self, call: Call, instance: str) -> None:
        with self._changed:
            self._shut.add((call, instance))

    def open(self) -> None:
        with self._changed:
            self._shut.clear()
            self._changed.notify_all()

    def wait_for(self, call: Call, instance: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: (call, instance) in self._waiting, PATIENCE)


class Remote(MemoryStore):
    """Everything that is asked of a journal passes a gate."""

    def __init__(self, gates: Gates) -> None:
        super().__init__()
        self.traits = StoreTraits("hosts", ALL)
        self.gates = gates

    def claim(self, instance: InstanceName) -> Any:
        self.gates.pass_through("claim", instance)
        journal = super().claim(instance)
        commit = journal.commit

        def gated(step: Any) -> None:
            self.gates.pass_through("commit", instance)
            commit(step)

        journal.commit = gated  # type: ignore[method-assign]
        return journal

    def read(self, instance: InstanceName) -> Any:
        return Gated(super().read(instance), lambda: self.gates.pass_through("read", instance))


class Gated:
    """A reader of which every call passes a gate."""

    def __init__(self, reader: Any, gate: Callable[[], None]) -> None:
        self._reader = reader
        self._gate = gate

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._reader, name)

        def call(*args: Any, **options: Any) -> Any:
            self._gate()
            return method(*args, **options)

        return call


class Two:
    """Two pipelines in one engine that have nothing to do with each other, on such a store."""

    def __init__(self, key: str) -> None:
        self.gates = Gates()
        self.store = Remote(self.gates)
        p = Pipeline("two")
        self.taps: dict[str, Tap] = {}
        self.buckets: dict[str, Bucket] = {}
        for name in ("a", "b"):
            self.taps[name], self.buckets[name] = Tap(key + name), Bucket(key + name)
            p.source(f"tap-{name}", self.taps[name]).sink(f"store-{name}", self.buckets[name])
        self.engine = InlineEngine(instances_of(p.graph(), self.store.log_id), self.store)
        self.thread = threading.Thread(target=self.engine.run, name="loop")

    def put(self, name: str, *ids: int) -> None:
        self.taps[name].put(*ids)
        self.store.ring(InstanceName(f"tap-{name}"))

    def wait_for(self, name: str, *ids: int) -> None:
        shared(self.taps[name].key).wait_for(lambda: shared(self.taps[name].key).written == list(ids))

    def written(self, name: str) -> list[int]:
        return shared(self.taps[name].key).written


@pytest.fixture
def two(key: str) -> Iterator[Two]:
    made = Two(key)
    yield made
    made.gates.open()
    for name, tap in made.taps.items():
        tap.close_it()
        made.store.ring(InstanceName(f"tap-{name}"))
    made.thread.join(PATIENCE)
    assert not made.thread.is_alive()
    assert made.engine.error is None, made.engine.error
    assert made.engine.phase == "finished"


@pytest.mark.parametrize(
    ("call", "instance"), [("read", "tap-a"), ("commit", "tap-a"), ("commit", "store-a"), ("claim", "store-a")]
)
def test_one_that_waits_for_the_store_does_not_hold_up_the_other(two: Two, call: Call, instance: str) -> None:
    two.gates.shut(call, instance)
    two.thread.start()
    two.put("a", 1)
    two.gates.wait_for(call, instance)
    two.put("b", 1, 2, 3)
    two.wait_for("b", 1, 2, 3)
    assert two.written("a") == []
    two.gates.open()
    two.wait_for("a", 1)


def test_the_loop_itself_calls_nothing_that_blocks(two: Two) -> None:
    two.thread.start()
    two.put("a", *range(10))
    two.wait_for("a", *range(10))
    assert {call for call, _ in two.gates.threads} == ALL
    assert not any(thread == "loop" for _, thread in two.gates.threads)


def test_a_life_that_is_restarted_in_its_claim_is_not_fenced_off_by_it(two: Two) -> None:
    """The claim of the old life lands first: late, it would end the new one."""
    two.gates.shut("claim", "store-a")
    two.thread.start()
    two.put("a", 1)
    two.gates.wait_for("claim", "store-a")
    restarted = threading.Event()
    two.engine.restart(InstanceName("store-a"), restarted.set)
    two.put("b", 1)
    two.wait_for("b", 1)
    assert not restarted.is_set()
    two.gates.open()
    assert restarted.wait(PATIENCE)
    two.wait_for("a", 1)
    assert two.store.read(InstanceName("store-a")).incarnation() == 2
