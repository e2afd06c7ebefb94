"""A source whose own code blocks: what it gave before is not kept back, and what it gives later is not lost."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.waiting import PATIENCE, until

import logline as ll
from logline.names import OUT, InstanceName

FIRST = 5


class Blocking(ll.Source):
    """Five batches, then its code does not return until there is a file `go`; then something else happens."""

    schema = pa.schema([("n", pa.int64())])

    def __init__(self, folder: Path, then: str, *, gather: bool) -> None:
        self.folder = folder
        self.then = then
        self.gather = gather
        self.failed = False

    def read(self, partition: str, offset: int | None) -> Iterator[Any]:
        for n in range(offset or 0, 2 * FIRST):
            if n == FIRST:
                self.block()
                if self.then == "end":
                    return
                if self.then == "nothing":
                    yield None
            yield pa.record_batch({"n": [n]}), n + 1

    def block(self) -> None:
        until((self.folder / "go").exists)
        if self.then == "fail" and not self.failed:
            self.failed = True
            raise OSError("not now")


class Queue(Blocking):
    """Its messages are gone once they are confirmed."""

    destructive = True

    def read(self, partition: str, offset: int | None) -> Iterator[Any]:
        for n in range(2 * FIRST):
            if n == FIRST:
                self.block()
            if not (self.folder / str(n)).exists():
                yield pa.record_batch({"n": [n]}), n

    def confirm(self, partition: str, ids: Any) -> None:
        for n in ids:
            (self.folder / str(n)).touch()


def numbers(run: ll.Run) -> list[int]:
    table = run.result("store")
    return table["n"].to_pylist() if table.num_columns else []


@pytest.mark.parametrize("engine", ["inline", "processes"])
@pytest.mark.parametrize(
    ("source", "then", "gather"),
    [
        (Blocking, "more", False),
        (Blocking, "more", True),
        (Blocking, "nothing", False),
        (Blocking, "end", True),
        (Blocking, "fail", False),
        (Queue, "more", False),
    ],
)
def test_what_came_before_is_shown_within_a_while(
    source: Any, then: str, gather: bool, engine: Any, tmp_path: Path
) -> None:
    p = ll.Pipeline("blocking")
    read = p.source("numbers", source(tmp_path, then, gather=gather), retry=ll.Retry(attempts=3, wait="1ms"))
    read.sink("store", ll.sinks.collect())
    with p.start(f"lmdb:{tmp_path / 'log'}", engine=engine, durability="process") as run:
        until(lambda: len(numbers(run)) == FIRST)  # although the source has not returned
        (tmp_path / "go").touch()
        assert run.wait(PATIENCE).phase == "finished"
        assert numbers(run) == list(range(FIRST if then == "end" else 2 * FIRST))


@pytest.mark.parametrize("engine", ["inline", "processes"])
@pytest.mark.parametrize("drain", [False, True])
@pytest.mark.parametrize("source", [Blocking, Queue])
def test_it_does_not_hold_up_a_stop(source: Any, drain: bool, engine: Any, tmp_path: Path) -> None:
    """What its code gives afterwards is dropped, and read again by the next run (R9)."""

    def start() -> ll.Run:
        p = ll.Pipeline("blocking")
        p.source("numbers", source(tmp_path, "more", gather=False)).sink("store", ll.sinks.collect())
        return p.start(f"lmdb:{tmp_path / 'log'}", engine=engine, durability="process")

    with start() as run:
        until(lambda: len(numbers(run)) == FIRST)
        assert run.stop(drain=drain, timeout=PATIENCE).phase == "stopped"
        assert numbers(run) == list(range(FIRST))
    (tmp_path / "go").touch()
    with start() as run:
        assert run.wait(PATIENCE).phase == "finished"
        assert numbers(run) == list(range(2 * FIRST))


class Steady(ll.Source):
    """Has always more, at its own pace."""

    schema = Blocking.schema
    gather = False

    def read(self, partition: str, offset: int | None) -> Iterator[Any]:
        n = offset or 0
        while True:
            time.sleep(0.001)
            yield pa.record_batch({"n": [n]}), (n := n + 1)


@pytest.mark.parametrize("engine", ["inline", "processes"])
def test_what_it_gave_flows_out_before_a_drained_run_stops(engine: Any, tmp_path: Path) -> None:
    p = ll.Pipeline("steady")
    steady = p.source("numbers", Steady(), within="1ms")
    for name in ("one", "two", "three"):
        steady = steady.map_batches(name, lambda batch: batch)
    steady.sink("store", ll.sinks.collect())
    with p.start(f"lmdb:{tmp_path / 'log'}", engine=engine, durability="process") as run:
        until(lambda: len(numbers(run)) > 10)
        assert run.stop(drain=True, timeout=PATIENCE).phase == "stopped"
        count = run.log.store.read(InstanceName("numbers")).head(OUT).last
        assert numbers(run) == list(range(count))


class Wrong(Blocking):
    """Good rows, then such as make no event; then it ends, raises or blocks."""

    def read(self, partition: str, offset: int | None) -> Iterator[Any]:
        yield pa.record_batch({"n": [1]}), 1
        yield pa.record_batch({"m": ["not what was said"]}), 2
        if self.then == "block":
            self.block()
        if self.then == "raise":
            raise OSError("another mistake, which comes too late")


class WrongQueue(Wrong):
    destructive = True


@pytest.mark.parametrize("source", [Wrong, WrongQueue])
@pytest.mark.parametrize("gather", [False, True])
@pytest.mark.parametrize("then", ["end", "raise", "block"])
def test_rows_that_make_no_event_are_told(source: Any, gather: bool, then: str, tmp_path: Path) -> None:
    """Whoever makes the event of them: it is the source's mistake."""
    p = ll.Pipeline("wrong")
    p.source("numbers", source(tmp_path, then, gather=gather)).sink("store", ll.sinks.collect())
    with p.start(engine="inline") as run:
        wanted = (
            "OSError: another mistake" if gather and then == "raise" and source is Wrong else "SchemaError: .*'n'"
        )
        with pytest.raises(ll.PipelineFailed, match=f"operator 'numbers' failed: {wanted}"):
            run.wait(PATIENCE)
        (tmp_path / "go").touch()


class Given(ll.Source):
    """Yields what it was given, and has the partitions that it was given."""

    schema = pa.schema([("n", pa.int64()), ("m", pa.int64())])

    def __init__(self, item: Any, partitions: Any = ("0",)) -> None:
        self.item = item
        self.names = partitions

    def partitions(self) -> Any:
        return 1 // 0 if self.names is None else self.names

    def read(self, partition: str, offset: int | None) -> Iterator[Any]:
        yield self.item


BATCH = pa.record_batch({"n": [1], "m": [2]})


@pytest.mark.parametrize(
    ("item", "what"),
    [(BATCH, "a RecordBatch"), ((BATCH,), "a tuple of 1"), ((BATCH, 1, 2), "a tuple of 3"), (7, "an int")],
)
def test_a_batch_comes_with_its_offset(item: Any, what: str) -> None:
    p = ll.Pipeline("wrong")
    numbers = p.source("numbers", Given(item))
    says = rf"read\(\) of source Given must yield \(batch, offset\) or None, and it yielded {what}$"
    with pytest.raises(ll.PipelineFailed, match=re.compile(says, re.MULTILINE)):
        p.start(engine="inline").wait(PATIENCE)
    with pytest.raises(ll.PipelineFailed, match=re.compile(says, re.MULTILINE)):
        numbers.preview()


@pytest.mark.parametrize(
    ("partitions", "says"),
    [
        (None, "failed: ZeroDivisionError"),
        (5, r"gave 5: return a list of names, as in \['0'\]"),
        ("abc", r"gave 'abc': return a list of names, as in \['0'\]"),
        ([1], "gave 1 among its names: a partition is named by a text"),
        (["a", "b", "a"], "gave 'a' twice"),
    ],
)
def test_partitions_have_names_of_their_own(partitions: Any, says: str) -> None:
    p = ll.Pipeline("wrong")
    numbers = p.source("numbers", Given((BATCH, 1), partitions))
    for use in (lambda: p.start(engine="inline"), numbers.preview):
        with pytest.raises(ll.errors.ConnectorError, match=rf"source 'numbers': partitions\(\) of Given {says}"):
            use()
