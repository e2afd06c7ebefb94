"""Runs of events that are generated as they are taken in: by map, filter, union and sinks."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.numbers import Waiting
from tests.waiting import until

import logline as ll
from logline.engine.spec import InstanceSpec
from logline.names import InstanceName, LogId, PortName
from logline.operators import Union
from logline.runtime.lives.instances import instances_of

COUNT = 40
BAD = 17


def numbers(p: ll.Pipeline) -> ll.Stream:
    return p.source("numbers", ll.sources.batches([pa.table({"id": [n]}) for n in range(COUNT)]), rows=1)


class Once:
    """Fails when it sees one of them, so many times."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.seen: list[int] = []

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        (number,) = batch["id"].to_pylist()
        self.seen.append(number)
        if number == BAD and self.left:
            self.left -= 1
            raise OSError("not now")
        return batch


def test_one_that_fails_is_tried_again_in_its_place() -> None:
    once = Once(2)
    p = ll.Pipeline("applied")
    mapped = numbers(p).map_batches("map", once, schema="id long", retry=ll.Retry(attempts=3, wait="1ms"))
    mapped.sink("store", ll.sinks.collect())
    run = p.run(engine="inline")
    assert run.result("store")["id"].to_pylist() == list(range(COUNT))
    assert sorted(once.seen) == sorted([*range(COUNT), BAD, BAD])


def test_one_that_fails_for_good_is_named_and_the_log_goes_on(tmp_path: Path) -> None:
    def pipeline(times: int) -> ll.Pipeline:
        p = ll.Pipeline("applied")
        numbers(p).map_batches("map", Once(times), schema="id long").sink("store", ll.sinks.collect())
        return p

    with pytest.raises(
        ll.PipelineFailed, match=f"operator 'map' failed on numbers:{BAD + 1}: OSError: not now"
    ) as told:
        pipeline(1).run(f"lmdb:{tmp_path}/log", engine="inline")
    assert told.value.event == f"numbers:{BAD + 1}"
    assert 'raise OSError("not now")' in told.value.traceback
    run = pipeline(0).run(f"lmdb:{tmp_path}/log", engine="inline")
    assert run.result("store")["id"].to_pylist() == list(range(COUNT))


def test_what_is_made_is_committed_while_more_is_made() -> None:
    """However much waits: who comes after it need not wait for all of it, and a crash does not lose it."""
    visible: list[int] = []
    runs: list[ll.Run] = []

    def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
        until(lambda: runs)
        time.sleep(0.02)  # several runs of it take longer than a commit waits for company
        visible.append(len(runs[0].log.store.read(InstanceName("map")).stored(PortName("out"))))
        return batch

    p = ll.Pipeline("applied")
    numbers(p).map_batches("map", slow, schema="id long").sink("store", ll.sinks.collect())
    runs.append(p.start(engine="inline"))
    runs[0].wait()
    assert visible[-1] > 0


RUNS: list[ll.Run] = []
SEEN: list[int] = []


def stopping(batch: pa.RecordBatch) -> pa.RecordBatch:
    until(lambda: RUNS)
    if not SEEN:
        RUNS[0]._engine.command("stop")  # type: ignore[union-attr]
    SEEN.append(batch["id"][0].as_py())
    return batch


def test_a_run_does_not_keep_the_others_waiting() -> None:
    """Nor those who say that it is to stop."""
    p = ll.Pipeline("applied")
    source = p.source("numbers", ll.sources.batches([pa.table({"id": [n]}) for n in range(1000)]), rows=1)
    source.map_batches("map", stopping, schema="id long").sink("store", ll.sinks.collect())
    RUNS.append(p.start(engine="inline"))
    RUNS[0].wait()
    assert len(SEEN) < 100


def specs(**options: Any) -> dict[str, InstanceSpec]:
    p = ll.Pipeline("applied")
    source = numbers(p)
    even = source.filter("even", pc.field("id") < COUNT, **options)
    mapped = source.map_batches("map", lambda batch: batch, schema="id long", **options)
    even.union("both", mapped, **options).sink("store", ll.sinks.collect())
    return {str(name): part.spec for name, part in instances_of(p.graph(), LogId("log")).items()}


def test_where_each_set_has_to_be_known_none_are() -> None:
    assert {name for name, spec in specs().items() if spec.plain} == {"even", "map", "both", "store"}
    assert {name for name, spec in specs(concurrency=2).items() if spec.plain} == {"store"}
    assert {name for name, spec in specs(on_error="divert").items() if spec.plain} == {"store"}


class Even(ll.BatchOperator):
    """Rejects odd numbers until there is a file `fixed`."""

    outputs = {"out": "n long"}  # noqa: RUF012

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def each(self, batch: Any) -> Any:
        if batch["n"][0].as_py() % 2 and not (self.folder / "fixed").exists():
            yield ll.Reject(batch, "odd")
        else:
            yield batch


def test_rejected_rows_are_known_by_their_event_and_can_be_retried(tmp_path: Path) -> None:
    p = ll.Pipeline("applied")
    source = p.source("numbers", Waiting(tmp_path, 6), rows=1)
    source.apply("even", Even(tmp_path)).sink("store", ll.sinks.collect())
    with p.start(f"lmdb:{tmp_path}/log", engine="inline") as run:
        until(lambda: run.log.errors().num_rows == 3)
        found = run.log.errors()
        assert found["events"].to_pylist() == [["numbers:2"], ["numbers:4"], ["numbers:6"]]
        assert found["inset"].to_pylist() == ["numbers:2", "numbers:4", "numbers:6"]
        (tmp_path / "fixed").touch()
        assert all(run.retry(name) for name in found["event"].to_pylist())
        until(lambda: run.log.errors().num_rows == 0)
        (tmp_path / "go").touch()
        run.wait()
        assert sorted(run.result("store")["n"].to_pylist()) == list(range(6))


class Counted(Union):
    """Says more than what `each` does."""

    def generate(self, inset: Any, acc: Any, ctx: ll.Context[None]) -> Any:
        ctx.count("unions")
        yield acc


def test_a_subclass_with_a_generate_of_its_own_is_asked_set_by_set() -> None:
    p = ll.Pipeline("applied")
    numbers(p).apply("union", Counted()).sink("store", ll.sinks.collect())
    assert p.run(engine="inline").status().operators["union"].counters == {"unions": COUNT}


def test_an_operator_of_ones_own_is_asked_set_by_set() -> None:
    asked = []

    class Own(ll.Operator[Any, None]):
        outputs = {"out": "id long"}  # noqa: RUF012

        def generate(self, inset: Any, acc: Any, ctx: ll.Context[None]) -> Any:
            asked.append((inset, ctx.id))
            yield acc

    p = ll.Pipeline("applied")
    numbers(p).apply("own", Own()).sink("store", ll.sinks.collect())
    p.run(engine="inline")
    assert [inset for inset, _ in asked] == [f"numbers:{n + 1}" for n in range(COUNT)]
    assert len({id for _, id in asked}) == COUNT
