"""Which input set is blamed for the death of a process, and which is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from logline.engine.spec import InstanceSpec
from logline.errors import KilledItsProcess
from logline.names import InstanceName, Serial
from logline.runtime.lives.suspects import DEATHS, Suspects, watch
from logline.store.lmdb.folder import LmdbStore
from logline.store.memory import MemoryStore
from logline.store.seam import Store

EAT, DRINK = InstanceName("eat"), InstanceName("drink")
SPECS = [InstanceSpec(name, on_error="divert") for name in (EAT, DRINK)]


@pytest.fixture(params=["memory", "lmdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else LmdbStore(tmp_path / "log", durability="process")


def live(store: Store, life: int = 1) -> Suspects:
    return watch(store, SPECS, life)[EAT]


def begin(suspects: Suspects, name: str, serial: int = 1) -> None:
    suspects.begin(Serial(serial), name, name)


def test_a_set_that_ends_so_many_lives_is_set_aside_once(store: Store) -> None:
    for _ in range(DEATHS):
        begin(live(store), "a")
    suspects = live(store)
    begin(suspects, "b", 2)
    suspects.end(Serial(2))
    with pytest.raises(KilledItsProcess, match="input set 'a' of operator 'eat' killed its process 3 times"):
        begin(suspects, "a")
    begin(suspects, "a")  # retried
    for _ in range(DEATHS - 1):
        begin(live(store), "a")
    with pytest.raises(KilledItsProcess):
        begin(live(store), "a")


def test_another_set_or_one_that_comes_through_begins_anew(store: Store) -> None:
    for _ in range(DEATHS - 1):
        begin(live(store), "a")
    begin(live(store), "b")
    for _ in range(DEATHS - 1):
        begin(live(store), "a")
    suspects = live(store)
    begin(suspects, "a")
    suspects.end(Serial(1))
    assert not live(store).alone
    for _ in range(DEATHS):
        begin(live(store), "a")


def test_a_death_outside_of_any_set_is_not_counted(store: Store) -> None:
    begin(live(store), "a")
    for _ in range(DEATHS):
        assert live(store).alone
    for _ in range(DEATHS - 1):
        begin(live(store), "a")
    with pytest.raises(KilledItsProcess):
        begin(live(store), "a")


def test_of_several_sets_none_is_counted_and_the_next_life_takes_one_at_a_time(store: Store) -> None:
    for _ in range(DEATHS + 1):
        suspects = live(store)
        begin(suspects, "a", 1)
        begin(suspects, "b", 2)
    suspects = live(store)
    assert suspects.alone
    begin(suspects, "a")


def test_it_takes_several_again_once_all_that_were_at_work_are_through(store: Store) -> None:
    suspects = live(store)
    begin(suspects, "a", 1)
    begin(suspects, "b", 2)
    suspects = live(store)
    begin(suspects, "a", 1)
    suspects.end(Serial(1))
    assert suspects.alone
    for _ in range(DEATHS):
        suspects = live(store)
        assert suspects.alone
        begin(suspects, "b", 2)
    suspects = live(store)
    with pytest.raises(KilledItsProcess):
        begin(suspects, "b", 2)
    assert not suspects.alone


def test_one_that_is_left_of_several_is_known(store: Store) -> None:
    suspects = live(store)
    for serial, name in enumerate("abc"):
        begin(suspects, name, serial)
    for serial in (0, 2):
        suspects.end(Serial(serial))
    for _ in range(DEATHS - 1):
        begin(live(store), "b")
    with pytest.raises(KilledItsProcess):
        begin(live(store), "b")


def test_sets_of_two_operators_of_a_process_are_not_counted(store: Store) -> None:
    for _ in range(DEATHS + 1):
        both = watch(store, SPECS, 1)
        begin(both[EAT], "a")
        begin(both[DRINK], "a")
    begin(live(store), "a")


def test_a_life_that_was_fenced_off_was_not_killed(store: Store) -> None:
    for _ in range(DEATHS + 1):
        suspects = live(store)
        begin(suspects, "a")
        suspects.close(in_order=False)
        suspects.end(Serial(1))  # of a thread that is still at it
        begin(suspects, "b")
    assert not live(store).alone


@pytest.mark.parametrize("life", [0, 1])
def test_nothing_stays_of_a_life_in_order_nor_of_a_run_before(life: int, store: Store) -> None:
    for _ in range(DEATHS):
        begin(live(store), "a")
    if life:
        live(store).close(in_order=True)
    else:
        assert watch(store, SPECS, life) == {}
    assert store.crash_hint(EAT).read() == ""
    begin(live(store), "a")


def test_where_it_stops_at_errors_nothing_is_noted(store: Store) -> None:
    assert watch(store, [InstanceSpec(EAT)], 1) == {}
    assert store.crash_hint(EAT).read() == ""


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '["a", "x", [], []]', '["a", 1, "", false]'])
def test_a_note_that_makes_no_sense_is_none(text: str, store: Store) -> None:
    store.crash_hint(EAT).write(text)
    assert not live(store).alone
    assert json.loads(store.crash_hint(EAT).read()) == ["", 0, [], []]
