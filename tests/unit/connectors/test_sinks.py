"""collect() is positioned: each number once, in order, in every life; call() calls. test_parquet has parquet()."""

from __future__ import annotations

import gc
from threading import Thread

import cloudpickle
import pyarrow as pa
import pytest

from logline.connectors import sinks
from logline.connectors.sinks import call, collect
from logline.errors import GuaranteeError, LogError, OptionError


def batch(*ids):
    return pa.record_batch({"id": list(ids)})


def opened(sink, scope="log/store/out"):
    sink.open(scope)
    return sink


def ids(sink):
    return sink.table()["id"].to_pylist()


def test_each_number_is_applied_once():
    sink = opened(collect())
    assert sink.guarantee == "positioned"
    assert sink.position() == 0
    for number in (1, 1, 2, 1, 2):
        sink.write(batch(number), number, f"store:{number}")
    assert ids(sink) == [1, 2]
    assert sink.position() == 2


def test_what_another_process_wrote_is_only_in_the_log():
    """A second life, in a process of its own, went on after the first one here; `run.result` has all of it."""
    sink = opened(collect())
    sink.write(batch(1), 1, "store:1")
    sink.write(batch(3), 3, "store:3")
    assert sink.position() == 3
    with pytest.raises(LogError, match=r"run\.result"):
        sink.table()
    assert sink.kept


def test_a_copy_that_arrives_in_another_process_keeps_nothing():
    sink = collect()
    shipped = cloudpickle.dumps(sink)
    del sink  # as good as another process
    gc.collect()
    life = opened(cloudpickle.loads(shipped))
    life.write(batch(1), 1, "store:1")
    assert life.position() == 1
    assert life._here.batches == []
    with pytest.raises(LogError, match=r"run\.result"):
        life.table()


def test_a_shipped_copy_writes_to_the_same_place():
    sink = collect()
    for number in (1, 2):
        life = opened(cloudpickle.loads(cloudpickle.dumps(sink)))
        assert life.position() == number - 1
        life.write(batch(number), number, f"store:{number}")
    assert ids(sink) == [1, 2]


def test_a_fresh_log_is_not_mistaken_for_an_old_one():
    sink = collect()
    opened(sink, "first").write(batch(1), 1, "a")
    assert opened(sink, "second").position() == 0
    sink.write(batch(2), 1, "b")
    assert opened(sink, "first").position() == 1
    assert ids(sink) == [1, 2]


def test_zombie_and_heir_at_once():
    sink = collect()
    lives = [opened(cloudpickle.loads(cloudpickle.dumps(sink))) for _ in range(4)]

    def write(life):
        for number in range(1, 101):
            life.write(batch(number), number, f"store:{number}")

    threads = [Thread(target=write, args=(life,)) for life in lives]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ids(sink) == list(range(1, 101))


def test_two_sinks_keep_apart_and_leave_nothing_behind():
    one, two = opened(collect()), opened(collect())
    one.write(batch(1), 1, "a")
    assert two.table().num_rows == 0
    keys = {one._key, two._key}
    del one, two
    gc.collect()
    assert not keys & set(sinks._stores)


def test_call_calls():
    seen = []
    sink = call(lambda *args: seen.append(args), guarantee="named")
    sink.write(batch(1), 1, "store:1")
    assert sink.guarantee == "named"
    assert seen == [(batch(1), 1, "store:1")]
    assert call(print).guarantee == "at_least_once"


def test_call_refuses_what_it_can_not_promise():
    with pytest.raises(GuaranteeError, match=r"position\(\)"):
        call(print, guarantee="positioned")
    with pytest.raises(OptionError, match="use positioned, guarded"):
        call(print, guarantee="exactly_once")  # type: ignore[arg-type]

    async def fn(batch, number, write_id): ...

    with pytest.raises(OptionError, match="plain function"):
        call(fn)
    with pytest.raises(
        OptionError, match=r"call\(\) calls its function with \(batch, number, write_id\), and <lambda>"
    ):
        call(lambda batch: None)  # type: ignore[arg-type, misc]
