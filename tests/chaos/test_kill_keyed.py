"""An operator with a state per key is killed again and again: the totals of its keys are those of a calm run."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.waiting import PATIENCE, until

import logline as ll
from logline.graph.connector import Source

EVENTS, KEYS, KILLS = 120, 7, 6


class Numbers(Source):
    """An event per number; after each part of them it waits until a file is there."""

    schema = pa.schema({"n": pa.int64(), "key": pa.int64()})
    replayable = True

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def partitions(self) -> list[str]:
        return ["0"]

    def read(self, partition: str, offset: Any) -> Iterator[Any]:
        at = 0 if offset is None else offset
        while at < EVENTS:
            part = at // (EVENTS // KILLS)
            if part and not (Path(self.folder) / f"go {part}").exists():
                yield None
                continue
            rows = [(at * 3 + i, (at + i) % KEYS) for i in range(3)]
            at += 1
            yield pa.record_batch({"n": [n for n, _ in rows], "key": [k for _, k in rows]}), at


@dataclass
class Total:
    total: int = 0
    events: int = 0


def add(batch: pa.RecordBatch, ctx: ll.KeyContext[Total]) -> pa.Table:
    ctx.state.total += sum(batch["n"].to_pylist())
    ctx.state.events += 1
    return pa.table({"key": [ctx.key[0]], "total": [ctx.state.total]})


def wanted() -> dict[int, int]:
    found: Counter[int] = Counter()
    for at in range(EVENTS):
        for i in range(3):
            found[(at + i) % KEYS] += at * 3 + i
    return dict(found)


def test_kills_lose_and_repeat_nothing_of_a_key(tmp_path: Path) -> None:
    p = ll.Pipeline("totals")
    numbers = p.source("numbers", Numbers(str(tmp_path)), rows=3, within="0s")
    totals = numbers.stateful("totals", add, by=["key"], state=Total, schema="key long, total long")
    totals.sink("store", ll.sinks.collect())
    with p.start(f"lmdb:{tmp_path}/log", engine="processes") as run:
        for part in range(1, KILLS):
            reached = part * (EVENTS // KILLS)
            until(lambda reached=reached: run.status().operators["totals"].taken >= reached)  # type: ignore[misc]
            pid = run.pid("totals")
            (tmp_path / f"go {part}").touch()
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
        run.wait(PATIENCE)
        assert run.status().operators["totals"].restarts >= 1
        states = {row["key"]: row["total"] for row in run.log.state("totals").to_pylist()}
        rows = run.result("store").to_pylist()
    assert states == wanted()
    last = {row["key"]: row["total"] for row in rows}
    assert last == wanted()
    assert len(rows) == EVENTS * 3  # each key once per event, and no event twice
