"""An operator runs again on exactly the set that made an event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.lineage.pipelines import A1, A2, A3, Each, Pair, hourly_sales, numbers, run

from logline.connectors import sinks
from logline.errors import BadName, LogError
from logline.graph.operator import Batch, Context, Emit, Operator
from logline.names import InsetId
from logline.pipeline import Pipeline


def test_the_same_code_gives_the_same(tmp_path: Any) -> None:
    url = f"lmdb:{tmp_path}/log"
    p = hourly_sales(A1, A2, A3)
    run(p, url)
    for event, members in (("hourly:1", ["sold:1", "sold:2"]), ("hourly:2", ["sold:2"]), ("sold:3", ["orders:3"])):
        found = p.rerun(url, event)
        assert found.same, found.differences()
        assert found.members == members
        assert found.version[0] == found.version[1]


def test_a_set_of_several_ports(key: str) -> None:
    p = Pipeline("pairs")
    left, right = (p.source(name, Each(*(numbers(n) for n in range(4)))) for name in ("left", "right"))
    p.operator("pair", Pair(), {"in1": left, "in2": right}).sink("store", sinks.collect())
    p.lineage()
    run(p, f"memory:{key}")
    assert all(p.rerun(f"memory:{key}", f"pair:{ssn}").same for ssn in range(1, 5))


def doubled(factor: int) -> Pipeline:
    p = Pipeline("doubled")
    source = p.source("source", Each(numbers(1, 2), numbers(3)))
    source.map_batches(
        "twice", lambda batch: pa.table({"n": [factor * n for n in batch["n"].to_pylist()]}), schema="n long"
    ).sink("store", sinks.collect())
    p.lineage()
    return p


def test_changed_code_shows_what_changes(key: str) -> None:
    run(doubled(2), f"memory:{key}")
    found = doubled(3).rerun(f"memory:{key}", "twice:1")
    assert not found.same
    assert found.version[0] != found.version[1]
    assert found.differences() == ["out - n: 2", "out - n: 4", "out + n: 3", "out + n: 6"]


asked: list[int] = []


def outside(n: int) -> int:
    asked.append(n)
    return n * 10 + len(asked)


class Asks(Operator[Batch, None]):
    outputs = {"out": "n long"}  # noqa: RUF012

    def __init__(self, times: int = 1) -> None:
        self.times = times

    def generate(self, inset: InsetId, acc: Batch, ctx: Context[None]) -> Iterator[Emit]:
        answers = [ctx.call(outside, n) for n in acc["n"].to_pylist() * self.times]
        yield Emit(pa.record_batch({"n": answers}))


def asking(times: int = 1) -> Pipeline:
    p = Pipeline("asking")
    p.source("source", Each(numbers(1, 2), numbers(3))).apply("asks", Asks(times)).sink("store", sinks.collect())
    p.lineage()
    return p


def test_the_outside_is_not_asked_again(key: str) -> None:
    asked.clear()
    run(asking(), f"memory:{key}")
    before = list(asked)
    found = asking().rerun(f"memory:{key}", "asks:1")
    assert found.same
    assert found.answers == 2
    assert asked == before
    with pytest.raises(LogError, match="call 3 has no answer in the log"):
        asking(times=2).rerun(f"memory:{key}", "asks:1")
    assert asked == before
    assert not asking().rerun(f"memory:{key}", "asks:1", ask=True).same  # it answers otherwise now
    assert len(asked) == len(before) + 2


async def by_row(row: dict[str, Any], ctx: Context[None]) -> dict[str, Any]:
    return {"n": row["n"], "price": outside(row["n"])}


def test_rows_are_answered_from_the_log_too(key: str) -> None:
    p = Pipeline("rows")
    source = p.source("source", Each(numbers(1, 2)))
    source.map_rows("priced", by_row, schema="n long, price long").sink("store", sinks.collect())
    p.lineage()
    run(p, f"memory:{key}")
    before = list(asked)
    found = p.rerun(f"memory:{key}", "priced:1")
    assert found.same
    assert asked == before
    assert (found.rows_run, found.rows_kept) == (0, 2)
    again = p.rerun(f"memory:{key}", "priced:1", ask=True)
    assert (again.rows_run, again.rows_kept, len(asked)) == (2, 0, len(before) + 2)


def test_a_changed_function_of_rows_is_run_around_the_answers_of_its_calls(key: str) -> None:
    asked.clear()

    def priced(fn: Any) -> Pipeline:
        p = Pipeline("rows")
        source = p.source("source", Each(numbers(1, 2)))
        source.map_rows("priced", fn, schema="n long, price long").sink("store", sinks.collect())
        p.lineage()
        return p

    def price(row: dict[str, Any], ctx: Context[None]) -> dict[str, Any]:
        return {"n": row["n"], "price": ctx.call(outside, row["n"])}

    async def fixed(row: dict[str, Any], ctx: Context[None]) -> dict[str, Any]:
        return {"n": row["n"], "price": -await ctx.call(outside, row["n"])}

    def more(row: dict[str, Any], ctx: Context[None]) -> dict[str, Any]:
        return {"n": row["n"], "price": ctx.call(outside, row["n"]) + ctx.call(outside, 7)}

    run(priced(price), f"memory:{key}")
    before = list(asked)
    assert priced(price).rerun(f"memory:{key}", "priced:1").same
    found = priced(fixed).rerun(f"memory:{key}", "priced:1")
    assert (found.rows_run, found.rows_kept, found.answers) == (2, 0, 2)
    assert found.differences() == [
        "out - n: 1, price: 11",
        "out - n: 2, price: 22",
        "out + n: 1, price: -11",
        "out + n: 2, price: -22",
    ]
    with pytest.raises(LogError, match=r"call 3 in row \d has no answer in the log"):
        priced(more).rerun(f"memory:{key}", "priced:1")
    assert asked == before


def test_user_code_that_raises_is_seen_as_it_is(key: str) -> None:
    run(doubled(2), f"memory:{key}")
    broken = Pipeline("doubled")

    def fail(batch: Batch) -> Batch:
        raise ZeroDivisionError("here")

    broken.source("source", Each(numbers(1))).map_batches("twice", fail, schema="n long").sink(
        "store", sinks.collect()
    )
    with pytest.raises(ZeroDivisionError, match="here"):
        broken.rerun(f"memory:{key}", "twice:1")


def test_what_can_not_be_run_again_is_said(key: str) -> None:
    p = hourly_sales(A1, A2, A3)
    url = f"memory:{key}"
    run(p, url)
    with pytest.raises(LogError, match="was read by the source 'orders'"):
        p.rerun(url, "orders:1")
    with pytest.raises(BadName, match="names 3 events"):
        p.rerun(url, "hourly:1..3")
    with pytest.raises(LogError, match="has no operator 'hourly' to run again"):
        doubled(2).rerun(url, "hourly:1")
    bare = hourly_sales(A1, A2, A3, scope=False)
    run(bare, f"{url}-bare")
    with pytest.raises(LogError, match=r"no lineage scope captures|is not in the log"):
        bare.rerun(f"{url}-bare", "hourly:3")
