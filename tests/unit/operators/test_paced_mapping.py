"""map_batches with async functions, a rate or a timeout; and with pandas."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import logline as ll
from logline.errors import OptionError, PipelineFailed
from logline.operators import MapBatches, PacedMapBatches

ROWS = [pa.table({"n": [n], "text": [f"t{n}"]}) for n in range(4)]


async def doubled(batch: pa.RecordBatch) -> pa.Table:
    await asyncio.sleep(0)
    return pa.table({"n": [2 * n for n in batch["n"].to_pylist()]})


async def each(batch: pa.RecordBatch) -> AsyncIterator[pa.Table]:
    for n in batch["n"].to_pylist():
        yield pa.table({"n": pa.array([n], pa.int64())})
        yield pa.table({"n": pa.array([-n], pa.int64())})
    if not batch.num_rows:
        yield pa.table({"n": pa.array([], pa.int64())})


class Tripled:
    async def __call__(self, batch: pa.RecordBatch) -> pa.Table:
        return pa.table({"n": pa.array([3 * n for n in batch["n"].to_pylist()], pa.int64())})


def run(fn: Any, **options: Any) -> list[int]:
    p = ll.Pipeline("paced")
    rows = p.source("rows", ll.sources.batches(ROWS), rows=1)
    rows.map_batches("mapped", fn, **options).sink("store", ll.sinks.collect())
    return p.run(engine="inline").result("store")["n"].to_pylist()  # type: ignore[no-any-return]


def test_an_async_function_is_awaited() -> None:
    assert run(doubled, schema="n long") == [0, 2, 4, 6]
    assert run(Tripled()) == [0, 3, 6, 9]  # probed: its schema is not given
    assert run(each, concurrency=3) == [0, 0, 1, -1, 2, -2, 3, -3]


def test_a_notebook_has_a_loop_already() -> None:
    async def cell() -> list[int]:
        return run(Tripled())

    assert asyncio.run(cell()) == [0, 3, 6, 9]


def test_a_rate_is_kept_for_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many batches as may begin in a minute, evenly spread: the waits are written down, and not waited for."""
    waits: list[float] = []
    sleep = asyncio.sleep

    async def noted(delay: float, result: Any = None) -> Any:
        waits.append(delay)
        return await sleep(0, result)

    monkeypatch.setattr("logline.operators.row_calls.asyncio.sleep", noted)
    threads = set()

    def plain(batch: pa.RecordBatch) -> pa.RecordBatch:
        threads.add(threading.current_thread().name)
        return batch.select(["n"])

    assert run(plain, rate="60/min") == [0, 1, 2, 3]
    assert [round(wait) for wait in waits] == [0, 1, 2, 3]
    assert "MainThread" in threads and len(threads) == 2  # probed here, called where it may block


def test_a_timeout_ends_a_try() -> None:
    async def hangs(batch: pa.RecordBatch) -> pa.RecordBatch:
        await asyncio.sleep(3600)
        return batch

    with pytest.raises(PipelineFailed, match="a call took longer than 10ms"):
        run(hangs, schema="n long, text string", timeout="10ms")


def test_plain_functions_go_the_fast_way() -> None:
    p = ll.Pipeline("plain")
    rows = p.source("rows", ll.sources.batches(ROWS))
    ops = [rows.map_batches("plain", lambda b: b), rows.map_batches("paced", lambda b: b, rate="5/s")]
    kinds = [type(p.graph().nodes[op.operator].op) for op in ops]
    assert kinds == [MapBatches, PacedMapBatches]
    with pytest.raises(OptionError, match=r"operator 'two': map_batches calls its function with \(batch\)"):
        rows.map_batches("two", lambda a, b: a)  # type: ignore[arg-type]


def test_a_pandas_function_needs_no_schema_and_its_index_stays_out() -> None:
    def odd(batch: pa.RecordBatch) -> Any:
        frame = batch.to_pandas()
        return frame[frame["n"] % 2 == 1]  # its index is not 0, 1, 2, ... any more

    p = ll.Pipeline("pandas")
    rows = p.source("rows", ll.sources.batches([pa.concat_tables(ROWS)]))
    kept = rows.map_batches("odd", odd)
    assert kept.schema == pa.schema({"n": pa.int64(), "text": pa.string()})
    kept.sink("store", ll.sinks.collect())
    assert p.run(engine="inline").result("store").to_pylist() == [{"n": 1, "text": "t1"}, {"n": 3, "text": "t3"}]


class Words(ll.Source):
    schema = "n long, word string"

    def read(self, partition: str, offset: Any) -> Any:
        if offset is None:
            yield pa.record_batch({"n": [1], "word": ["a"]}), 1


def test_a_source_may_say_its_schema_as_text(tmp_path: Path) -> None:
    p = ll.Pipeline("words")
    words = p.source("words", Words())
    assert words.schema == pa.schema({"n": pa.int64(), "word": pa.string()})
    assert words.preview().to_pylist() == [{"n": 1, "word": "a"}]
    words.sink("store", ll.sinks.collect())
    assert p.run(f"lmdb:{tmp_path / 'log'}", engine="inline").result("store").num_rows == 1
    Words.schema = "n lnog"
    try:
        with pytest.raises(ll.LoglineError, match=r"source 'wrong': .*lnog"):
            p.source("wrong", Words())
    finally:
        Words.schema = "n long, word string"
