"""Changed code on all input sets that a log still has, compared with what came out then."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import logline as ll
from logline.errors import BadName
from logline.runtime.log.regression import Compared, rerun_since

ASKED: list[int] = []


def ask(n: int) -> int:
    ASKED.append(n)
    return 10 * n


def made(log: str, version: str, name: str = "scored", plus: int = 0, odd: int = 0, **options: Any) -> ll.Pipeline:
    def score(row: dict[str, Any], ctx: Any) -> dict[str, Any]:
        if row["n"] == odd:
            raise ValueError("an odd one")
        return {"n": ctx.call(ask, row["n"]) + (plus if row["n"] > 2 else 0)}

    p = ll.Pipeline("scores")
    tables = [pa.table({"n": [n]}) for n in (1, 2, 3, 4)]
    rows = p.source("rows", ll.sources.batches(tables), rows=1)
    rows.map_rows(name, score, schema="n long", version=version, **options).sink("store", ll.sinks.collect())
    p.lineage()
    return p


def last(log: str, p: ll.Pipeline, version: str, **options: Any) -> Compared:
    *_, found = rerun_since(ll.open_log(log).store, p.graph(), version, **options)
    return found


def test_sets_that_come_out_otherwise_are_found_and_nothing_is_asked() -> None:
    log = "memory:regression"
    made(log, "1").run(log, engine="inline")
    ASKED.clear()
    same = last(log, made(log, "2"), "1")
    assert (same.operator, same.total, same.same, same.different) == ("scored", 4, 4, 0)
    changed = last(log, made(log, "2", plus=1), "1")
    assert (changed.same, changed.different) == (2, 2)
    assert changed.shown[0] == ("scored:3", ["out - n: 30", "out + n: 31"])
    fails = last(log, made(log, "2", odd=2), "1", operator="scored", limit=3)
    assert (fails.total, fails.same, fails.different) == (3, 2, 1)
    assert fails.shown == [("scored:2", ["ValueError: an odd one"])]
    renamed = last(log, made(log, "2", name="points", was="scored"), "1")
    assert (renamed.operator, renamed.same) == ("scored", 4)
    assert ASKED == []
    with pytest.raises(BadName, match=r"no operator has had the version '7'; there are .*1"):
        last(log, made(log, "2"), "7")
