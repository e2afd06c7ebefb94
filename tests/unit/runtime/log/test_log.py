"""The log as its user reads it, and `preview`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.runtime.taps import IDS, Tap, piped, shared, start
from tests.waiting import PATIENCE

from logline.connectors import sinks, sources
from logline.errors import BadName, Collected, LogError, OptionError, PipelineFailed
from logline.graph.operator import Operator, Reject
from logline.pipeline import Pipeline
from logline.runtime.log.log import Log, open_log


class Picky(Operator[Any, None]):
    """Rejects odd rows."""

    outputs = {"out": IDS}  # noqa: RUF012

    def generate(self, inset: Any, acc: pa.RecordBatch, ctx: Any) -> Iterator[Any]:
        odd = pa.array([n % 2 == 1 for n in acc["id"].to_pylist()])
        if any(odd.to_pylist()):
            yield Reject(acc.filter(odd), "odd")
        yield acc.filter(pa.array([not flag for flag in odd.to_pylist()]))


def picky(*, lineage: bool) -> Log:
    """orders -> even -> store, finished."""
    p = Pipeline("picky")
    batches = [pa.table({"id": [n, n + 2]}) for n in range(3)]
    p.source("orders", sources.batches(batches), rows=2).apply("even", Picky()).sink("store", sinks.collect())
    if lineage:
        p.lineage()  # keeps the events
    run = start(p)
    run.wait(PATIENCE)
    return run.log


def test_reading_events_by_name() -> None:
    log = picky(lineage=True)
    assert log.read("orders:2").to_pylist() == [{"id": 1}, {"id": 3}]
    assert log.read("orders.out:2..3").to_pylist() == [{"id": 1}, {"id": 3}, {"id": 2}, {"id": 4}]
    assert log.read("even:1..3")["id"].to_pylist() == [0, 2, 2, 4]
    assert log.read("even.errors:1")["reason"].to_pylist() == ["odd"]


@pytest.mark.parametrize(
    ("events", "says"),
    [
        (5, "5 does not name an event"),
        ("shop:1", "no operator 'shop'; there are orders, even, store"),
        ("even.late:1", "'even' has no port 'late'; it has out, errors"),
    ],
)
def test_names_of_no_event(events: Any, says: str) -> None:
    with pytest.raises(BadName, match=says):
        picky(lineage=True).read(events)


def test_an_event_that_is_not_there_says_what_is() -> None:
    log = picky(lineage=True)
    with pytest.raises(LogError, match=r"'orders:9' is not in the log: orders.out has put out 1..3$"):
        log.read("orders:9")
    with pytest.raises(LogError, match=r"has put out 1..3; after it comes the end of the stream"):
        log.read("orders:3..4")
    log = picky(lineage=False)
    with pytest.raises(Collected, match=r"orders.out has put out 1..3, and all of them are collected"):
        log.read("orders:1")


def test_before_anything_is_put_out(key: str) -> None:
    p, tap, _ = piped(key)
    with start(p) as run:
        with pytest.raises(LogError, match=r"tap.out has put out nothing yet"):
            run.log.read("tap:1")
        tap.close_it(run)
        run.wait(PATIENCE)


def test_errors_with_their_names() -> None:
    log = picky(lineage=False)
    table = log.errors()
    assert table.column_names[:3] == ["event", "state", "operator"]
    (row,) = table.to_pylist()
    assert (row["event"], row["operator"], row["events"], row["reason"]) == (
        "even.errors:1",
        "even",
        ["orders:2"],
        "odd",
    )
    assert pa.ipc.open_stream(row["data"]).read_all().to_pylist() == [{"id": 1}, {"id": 3}]
    assert log.errors("even") == table
    assert log.errors("store").num_rows == 0
    with pytest.raises(BadName, match="no operator 'shop'"):
        log.errors("shop")


def test_opening_a_log(key: str) -> None:
    p, tap, _ = piped(key)
    with pytest.raises(LogError, match="there is no such log in this process"):
        open_log(f"memory:{key}")
    tap.put(1)
    tap.close_it()
    run = start(p, f"memory:{key}")
    run.wait(PATIENCE)
    log = open_log(f"memory:{key}")
    assert (log.url, log.log_id) == (f"memory:{key}", run.log.log_id)
    assert log.log_id != key  # the same name in another process is another log
    assert repr(log) == f"Log('memory:{key}')"
    with pytest.raises(BadName, match="no table 'events'; there are event_log, event_data"):
        log.table("events")


def test_a_log_that_is_not_in_its_folder(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=f"there is no log at {tmp_path / 'absent'}: check the path"):
        open_log(f"lmdb:{tmp_path / 'absent'}")


def test_the_path_of_a_log_will_do_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    p, tap, _ = piped(key)
    monkeypatch.chdir(tmp_path)
    tap.close_it()
    for name in ("sales.log", "of March"):
        start(p, f"lmdb:{name}").wait(PATIENCE)
        for path in (name, f"./{name}", str(tmp_path / name)):
            assert open_log(path).url == f"lmdb:{path}"
    with pytest.raises(LogError, match=f"there is no log at {tmp_path / 'absent'}: check the path"):
        open_log("absent")
    with pytest.raises(LogError, match="this is not the address of a log") as caught:
        open_log("host=db password=hunter2")
    assert "hunter2" not in str(caught.value)
    for use in (p.check, lambda log: p.start(log, engine="inline"), p.run):
        with pytest.raises(LogError, match=r"did you mean 'lmdb:sales\.log'\?"):
            use("sales.log")


@pytest.mark.parametrize(
    ("log", "says"),
    [
        (Path("/data/log"), "not a PosixPath; did you mean 'lmdb:/data/log'?"),
        (5, "not an int"),
        (None, "not None"),
    ],
)
def test_an_address_is_a_text(log: Any, says: str, key: str) -> None:
    p, _, _ = piped(key)
    for use in (open_log, p.check, lambda log: p.start(log, engine="inline"), p.run):
        if log is None and use is not open_log:
            continue  # a temporary one
        with pytest.raises(OptionError, match=re.escape(f"log is an address such as 'lmdb:PATH', {says}")):
            use(log)


# ---- preview ----------------------------------------------------------------------------------------------


def test_preview_shows_the_first_rows_and_writes_nothing(key: str) -> None:
    Tap(key).put(1, 2, 3)
    doubled = Pipeline("preview").source("tap", Tap(key)).map_batches("double", double)
    assert doubled.preview(2).to_pylist() == [{"id": 2}, {"id": 4}]
    assert doubled.preview().num_rows == 3
    assert shared(key).written == []


def test_preview_of_nothing_has_the_schema(key: str) -> None:
    tap = Pipeline("preview").source("tap", Tap(key))
    assert tap.preview().schema == IDS
    assert tap.preview().num_rows == 0


def test_preview_of_code_that_fails(key: str) -> None:
    Tap(key).put(0)
    stream = Pipeline("preview").source("tap", Tap(key)).map_batches("invert", invert)
    with pytest.raises(PipelineFailed, match="ZeroDivisionError"):
        stream.preview()


def double(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch([pa.array([2 * n for n in batch["id"].to_pylist()], pa.int64())], schema=IDS)


def invert(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch([pa.array([1 // n for n in batch["id"].to_pylist()], pa.int64())], schema=IDS)
