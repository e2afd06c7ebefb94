"""Why a row is not there: rows that are on their way, failed, or beyond what the log keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.unit.lineage.pipelines import A1, A2, A3, Each, hourly_sales, numbers, run
from tests.unit.lineage.test_retention import Steady
from tests.unit.lineage.verdict_rows import detail, verdicts
from tests.waiting import until

import logline as ll
from logline.errors import BadName, LogError, PipelineFailed
from logline.names import OUT, InstanceName
from logline.runtime.control.error_resolution import Request, resolve_at_rest
from logline.runtime.log.cleaning import clean
from logline.runtime.log.log import Log, open_log


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """The journals of all stores answer alike (`testing.conformance`): one will do."""
    return f"memory:{request.node.name}"


def test_in_an_open_window_and_what_it_waits_for(url: str) -> None:
    log = hourly_sales(A1, A2).run(url, engine="inline", until="now").log
    found = log.explain("hourly", "amount in (5, 100) or (amount = 1 and state = 'Ohio')")
    assert verdicts(found, "source", "row", "what", "inset") == [
        ("orders:1", 0, "arrived", None),
        ("orders:2", 0, "arrived", None),
        ("orders:2", 1, "open", "2025-02-23T11:00:00+00:00#2"),
    ]
    said = found["detail"].to_pylist()[2]
    assert "watermark reaches 2025-02-23T12:00:00+00:00" in said and "it is at 2025-02-23T11:05:00+00:00" in said
    assert "close=True" in said


def test_in_an_open_block_or_rebatch(url: str, tmp_path: Path) -> None:
    p = ll.Pipeline("open")
    rows = p.source("rows", Steady(4, pause_at=3, go=str(tmp_path / "never")))
    few = rows.map_batches("few", lambda batch: batch.slice(0, 1), depends={"n": "n"})
    few.window("blocks", ll.events(2), agg={"n": ("n", "sum")}).sink("store", ll.sinks.collect())
    few.rebatch("by_two", rows=2, within="1h").sink("keep", ll.sinks.collect())
    p.lineage()
    with p.start(url, engine="inline") as running:
        for port in ("blocks", "by_two"):
            want = [("arrived",), ("arrived",), ("open",)]
            until(lambda: verdicts(running.log.explain(port, "true", source="few"), "what") == want)  # noqa: B023
    blocks, by_two = (running.log.explain(port, "n = 2", source="few") for port in ("blocks", "by_two"))
    assert "has all it waits for" in detail(blocks)
    assert "at the latest" in detail(by_two) and "nothing runs on this log now" in detail(by_two)


class Ask:
    """Answers for 1; for what is more it waits until there is a file."""

    def __init__(self, go: Path) -> None:
        self.go = str(go)

    def __call__(self, row: dict[str, Any], ctx: Any) -> dict[str, Any]:
        if row["n"] > 1:
            until(Path(self.go).exists)
        return {"n": row["n"]}


def test_due_and_not_read(url: str, tmp_path: Path) -> None:
    p = ll.Pipeline("slow")
    rows = p.source("rows", Steady(3))
    asked = rows.map_batches("one", lambda batch: batch.slice(0, 2), depends={"n": "n"})
    asked = asked.map_rows("asked", Ask(tmp_path / "go"), schema="n long")
    asked.sink("store", ll.sinks.collect())
    p.lineage(rows, asked)
    with p.start(url, engine="inline") as running:
        log = running.log
        until(lambda: verdicts(log.explain("asked", "n = 2", source="one"), "what")[:1] == [("waiting",)])
        waiting = log.explain("asked", "n = 2", source="one")["detail"].to_pylist()[0]
        assert "is due and not generated" in waiting and "nothing runs" not in waiting
        (tmp_path / "go").touch()
        running.wait()
    assert verdicts(log.explain("asked", "n = 2", source="one"), "what") == [("arrived",)] * 2


def refuses_two(batch: pa.RecordBatch) -> pa.RecordBatch:
    if 2 in batch["n"].to_pylist():
        raise ValueError("two")
    return batch


def test_an_operator_that_stopped_has_not_read_what_follows(url: str) -> None:
    p = ll.Pipeline("stopped")
    rows = p.source("rows", Each(numbers(1), numbers(2), numbers(3)))
    same = rows.map_batches("same", refuses_two, depends={"n": "n"})
    same.sink("store", ll.sinks.collect())
    p.lineage(rows, same)
    with pytest.raises(PipelineFailed):
        run(p, url)
    found = open_log(url).explain("same", "n > 1")
    assert verdicts(found) == [("rows:2", 0, "unread", "same"), ("rows:3", 0, "unread", "same")]
    said = found["detail"].to_pylist()[1]
    assert "'same' has not read rows:3 yet" in said and "run the pipeline" in said


def test_not_read_by_the_source(url: str) -> None:
    ended = run(hourly_sales(A1, A2, A3), url).log.explain("hourly", "amount = 77")
    assert verdicts(ended) == [("orders", None, "unread", "orders")]
    assert "in orders:1..3, and 'orders' has ended" in detail(ended)
    log = hourly_sales(A1, A2, A3).run(f"{url}2", engine="inline", until="now").log
    assert "has not been read yet" in detail(log.explain("hourly", "amount = 77"))


# ---- errors -----------------------------------------------------------------------------------------------------


def failing(folder: Path, *, rows: bool) -> ll.Pipeline:
    """2 fails until there is a file `fixed`: its row alone, or the event with it."""

    def one(row: dict[str, Any], ctx: Any) -> dict[str, Any]:
        if row["n"] == 2 and not (folder / "fixed").exists():
            raise ValueError("two is refused")
        return {"n": row["n"]}

    def whole(batch: pa.RecordBatch) -> list[dict[str, Any]]:
        return [one(row, None) for row in batch.to_pylist()]

    p = ll.Pipeline("failing")
    source = p.source("rows", Each(numbers(1, 2), numbers(3)))
    if rows:
        made = source.map_rows("made", one, schema="n long", on_error="divert")
    else:
        made = source.map_batches(
            "made", lambda b: pa.Table.from_pylist(whole(b), b.schema), schema="n long", on_error="divert",
            depends={"n": "n"},
        )  # fmt: skip
    made.filter("small", pc.field("n") < 3).sink("store", ll.sinks.collect())
    p.lineage()
    return p


@pytest.mark.parametrize("rows", [True, False])
def test_diverted_retried_dropped(rows: bool, tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path}/log"
    log = run(failing(tmp_path, rows=rows), url).log
    beside = "arrived" if rows else "diverted"
    found = log.explain("small", "true")
    assert verdicts(found, "what", "operator", "event") == [
        (beside, "small" if rows else "made", "small:1" if rows else "made.errors:1"),
        ("diverted", "made", "made.errors:1"),
        ("filtered", "small", None),
    ]
    said = found["detail"].to_pylist()[1]
    assert "ValueError: two is refused" in said and "logline errors LOG retry made.errors:1" in said
    resolve_at_rest(log.store, [Request("retry", "made.errors:1")])
    assert verdicts(log.explain("small", "n = 2"), "what", "operator") == [("waiting", "made")]
    run(failing(tmp_path, rows=rows), url)  # fails again: a new error
    (again,) = log.errors()["event"].to_pylist()
    assert verdicts(log.explain("small", "n = 2"), "what", "event") == [("diverted", again)]
    (tmp_path / "fixed").touch()
    resolve_at_rest(log.store, [Request("retry", again)])
    run(failing(tmp_path, rows=rows), url)
    assert verdicts(log.explain("small", "n = 2"), "what", "operator") == [("arrived", "small")]


@pytest.mark.parametrize("rows", [True, False])
def test_an_error_that_was_dropped(rows: bool, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    log = run(failing(tmp_path, rows=rows), f"memory:{request.node.name}").log
    resolve_at_rest(log.store, [Request("drop", "made.errors:1")])
    found = log.explain("small", "n = 2")
    assert verdicts(found, "what", "operator", "event") == [("dropped", "made", "made.errors:1")]
    assert "that error was dropped" in detail(found)
    assert verdicts(log.explain("made.errors", "n = 2"), "what", "event") == [("arrived", "made.errors:1")]


# ---- beyond the log ---------------------------------------------------------------------------------------------


def test_without_a_scope_it_says_what_to_do(url: str) -> None:
    log = run(hourly_sales(A1, A2, A3, scope=False), url).log
    clean(log.store)
    found = log.explain("hourly", "amount = 5")
    assert verdicts(found) == [("orders", None, "collected", "orders")]
    assert "has none of orders:1..3" in detail(found)
    assert "p.lineage('orders', 'hourly')" in detail(found)


def test_where_a_scope_ends(url: str) -> None:
    p = hourly_sales(A1, A2, A3, scope=False)
    p.lineage("orders", "sold")
    found = run(p, url).log.explain("hourly", "amount = 5")
    assert verdicts(found) == [("orders:1", 0, "untraced", "hourly")]
    assert "p.lineage('sold', 'hourly')" in detail(found)


def test_beyond_the_retention(tmp_path: Path) -> None:
    log = run(hourly_sales(A1, A2, A3, keep="1us"), f"lmdb:{tmp_path}/log").log

    def explained() -> list[tuple[Any, ...]]:
        clean(log.store)
        return verdicts(log.explain("hourly", "amount = 5"))

    until(lambda: explained() == [("orders", None, "collected", "orders")])
    assert "longer keep=" in detail(log.explain("hourly", "amount = 5"))


def test_what_came_of_it_is_beyond_the_retention(url: str) -> None:
    """The rows are kept for another scope. That nothing is found of them does not mean that nothing came of them."""
    p = ll.Pipeline("forgetful")
    rows = p.source("rows", Each(numbers(1), numbers(2)))
    same = rows.filter("same", pc.field("n") > 0)
    same.sink("store", ll.sinks.collect())
    other = rows.filter("other", pc.field("n") > 1)
    other.sink("keep", ll.sinks.collect())
    p.lineage(rows, other, keep="7d")
    p.lineage(rows, same, keep="1us")
    log = run(p, url).log

    def is_gone() -> bool:
        clean(log.store)
        return not log.store.read(InstanceName("same")).stored(OUT)

    until(is_gone)
    found = log.explain("same", "true")
    assert verdicts(found) == [("rows:1", 0, "collected", "same"), ("rows:2", 0, "collected", "same")]
    assert verdicts(log.explain("other", "true"), "what") == [("filtered",), ("arrived",)]


def test_questions_that_have_no_answer(url: str) -> None:
    log: Log = run(hourly_sales(A1, A2, A3), url).log
    with pytest.raises(BadName, match="there is no operator 'nobody'"):
        log.explain("nobody", "amount = 5")
    with pytest.raises(BadName, match=r"can't be followed from 'hourly' to 'sold'; from orders, sold they can"):
        log.explain("sold", "true", source="hourly")
    with pytest.raises(LogError, match=r"no source has the columns .*total.*: name a port with source="):
        log.explain("hourly", "total = 5")
