"""Dead letters as their reader has them: states, rows, rows fixed by hand, answers that were paid for, late rows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.waiting import PATIENCE

import logline as ll
from logline.errors import BadName, LogError, OptionError, SchemaError
from logline.names import InstanceName
from logline.runtime.log.error_states import windows_out


def zips(folder: Path, *, scope: bool = True) -> ll.Pipeline:
    """Rows whose zip is no number are rejected, until there is a file `lenient`."""

    def number(row: dict[str, Any], ctx: Any) -> dict[str, Any]:
        if (folder / "lenient").exists():
            return {"id": row["id"], "zip": 0}
        return {"id": row["id"], "zip": int(row["zip"])}

    p = ll.Pipeline("zips")
    table = pa.table({"id": [1, 2, 3, 4], "zip": ["69190", "x", "10115", "y"]})
    people = p.source("people", ll.sources.batches([table]))
    numbers = people.map_rows("numbers", number, schema="id long, zip long", on_error="divert")
    numbers.sink("store", ll.sinks.collect())
    if scope:
        p.lineage()
    return p


def ran(p: ll.Pipeline, folder: Path) -> ll.Run:
    return p.run(f"lmdb:{folder / 'log'}", engine="inline")


def states(run: ll.Run, *, settled: bool = True) -> dict[str, str]:
    found = run.log.errors(settled=settled)
    return dict(zip(found["event"].to_pylist(), found["state"].to_pylist(), strict=True))


def stored(run: ll.Run) -> list[tuple[int, int]]:
    return sorted((row["id"], row["zip"]) for row in run.result("store").to_pylist())


def test_each_error_has_a_state(tmp_path: Path) -> None:
    run = ran(zips(tmp_path), tmp_path)
    assert states(run) == {"numbers.errors:1": "waiting", "numbers.errors:2": "waiting"}
    assert run.retry("numbers.errors:1") == ["numbers.errors:1"] and run.retry("numbers.errors:1") == []
    assert run.drop("numbers.errors:2") == ["numbers.errors:2"]
    assert states(run) == {"numbers.errors:1": "being retried", "numbers.errors:2": "dropped"}
    assert states(run, settled=False) == {"numbers.errors:1": "being retried"}
    run = ran(zips(tmp_path), tmp_path)  # it fails again: a new error, behind the end that was taken back
    (new,) = states(run, settled=False)
    assert states(run) == {"numbers.errors:1": "failed again", "numbers.errors:2": "dropped", new: "waiting"}
    (tmp_path / "lenient").touch()
    assert run.retry() == [new]
    run = ran(zips(tmp_path), tmp_path)
    assert states(run)[new] == "retried" and states(run, settled=False) == {}
    assert stored(run) == [(1, 69190), (2, 0), (3, 10115)]


class Rejecting(ll.Operator[pa.RecordBatch, None]):
    """Rejects the rows that are negative, often none. Fails without rows, until there is a file `lenient`."""

    outputs = {"out": "n long"}  # noqa: RUF012

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def generate(self, inset: Any, acc: pa.RecordBatch, ctx: Any) -> Iterator[Any]:
        if not acc.num_rows and not (self.folder / "lenient").exists():
            raise ValueError("no rows")
        negative = pc.less(acc["n"], 0)
        yield ll.Reject(acc.filter(negative), "negative")
        yield acc.filter(pc.invert(negative))


class RejectingLater(Rejecting):
    async def generate(self, inset: Any, acc: pa.RecordBatch, ctx: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        for made in super().generate(inset, acc, ctx):
            yield made


@pytest.mark.parametrize("kind", [Rejecting, RejectingLater])
def test_no_rows_are_no_error_and_a_retry_of_none_comes_to_an_end(kind: type[Rejecting], tmp_path: Path) -> None:
    def pipeline() -> ll.Pipeline:
        p = ll.Pipeline("rejects")
        tables = [pa.table({"n": pa.array(rows, pa.int64())}) for rows in ([1, 2], [3, -4], [])]
        numbers = p.source("numbers", ll.sources.batches(tables), rows=2, within="0s")
        numbers.apply("checked", kind(tmp_path), on_error="divert").sink("store", ll.sinks.collect())
        return p

    run = ran(pipeline(), tmp_path)
    found = run.log.errors()
    assert found["reason"].to_pylist() == ["negative", "ValueError: no rows"]
    (tmp_path / "lenient").touch()
    run.retry(found["event"][1].as_py())
    run = ran(pipeline(), tmp_path)
    assert run.log.errors()["reason"].to_pylist() == ["negative"]
    assert run.result("store")["n"].to_pylist() == [1, 2, 3]


def test_several_are_retried_or_dropped_under_one_claim(tmp_path: Path) -> None:
    run = ran(zips(tmp_path), tmp_path)
    lives = run.log.store.read(InstanceName("numbers")).incarnation()
    (tmp_path / "lenient").touch()
    assert run.retry(["numbers.errors:2", "numbers.errors:1"]) == ["numbers.errors:2", "numbers.errors:1"]
    assert run.log.store.read(InstanceName("numbers")).incarnation() == lives + 1
    assert run.retry() == [] and run.drop() == []
    run = ran(zips(tmp_path), tmp_path)
    assert stored(run) == [(1, 69190), (2, 0), (3, 10115), (4, 0)]
    assert run.status().open_errors == 0


def test_rows_are_read_as_rows(tmp_path: Path) -> None:
    run = ran(zips(tmp_path), tmp_path)
    rows = run.log.errors("numbers", rows=True).to_pylist()
    assert [(row["_event"], row["_state"], row["_operator"], row["id"], row["zip"]) for row in rows] == [
        ("numbers.errors:1", "waiting", "numbers", 2, "x"),
        ("numbers.errors:2", "waiting", "numbers", 4, "y"),
    ]
    assert rows[0]["_reason"].startswith("ValueError: invalid literal")
    assert run.drop() == ["numbers.errors:1", "numbers.errors:2"]
    assert run.log.errors(rows=True).num_rows == 0
    assert run.log.errors(rows=True, settled=True)["_state"].to_pylist() == ["dropped", "dropped"]
    with pytest.raises(BadName, match="there is no operator 'nobody'; there are people, numbers, store"):
        run.log.errors("nobody", rows=True)


def test_rows_of_different_columns_are_asked_for_by_operator() -> None:
    def fails(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise ValueError("no")

    p = ll.Pipeline("two")
    for name, table in (("a", pa.table({"_event": [1]})), ("b", pa.table({"n": [1], "_state": ["mine"]}))):
        read = p.source(f"read_{name}", ll.sources.batches([table]))
        read.map_batches(f"map_{name}", fails, schema="n long", on_error="divert")
    log = p.run("memory:two-schemas", engine="inline").log
    with pytest.raises(
        LogError, match=r"map_a, map_b have rows with different columns: .* log.errors\('map_a', rows=T"
    ):
        log.errors(rows=True)
    (row,) = log.errors("map_a", rows=True).to_pylist()
    assert (row["__event"], row["_event"]) == ("map_a.errors:1", 1)
    (row,) = log.errors("map_b", rows=True).to_pylist()
    assert (row["__state"], row["_state"]) == ("waiting", "mine")


def test_rows_are_fixed_by_hand_and_the_log_says_so(tmp_path: Path) -> None:
    run = ran(zips(tmp_path), tmp_path)
    fixed = pa.table({"zip": ["20095"], "id": pa.array([2], pa.int32())})  # in another order, with a narrower integer
    assert run.retry("numbers.errors:1", data=fixed) == ["numbers.errors:1"]
    assert run.retry("numbers.errors:1", data=fixed) == [] and run.drop("numbers.errors:1") == []
    (given,) = [name for name in states(run) if name not in ("numbers.errors:1", "numbers.errors:2")]
    assert states(run) == {"numbers.errors:1": "being retried", "numbers.errors:2": "waiting", given: "being retried"}
    run = ran(zips(tmp_path), tmp_path)
    assert stored(run) == [(1, 69190), (2, 20095), (3, 10115)]
    assert states(run) == {"numbers.errors:1": "retried", "numbers.errors:2": "waiting", given: "retried"}
    (told,) = [row for row in run.log.errors(settled=True).to_pylist() if row["event"] == given]
    assert told["reason"].startswith("rows given by hand instead of numbers.errors:1 (") and " UTC" in told["reason"]
    (out,) = run.log.find("numbers", "zip = 20095")
    back = run.log.backward(out).to_pylist()
    found = {(row["event"], row["ends"]) for row in back if "!" not in row["event"]}  # calls are named so
    assert found == {(out, None), (given, "by hand"), ("numbers.errors:1", None), ("people:1", "source")}
    assert out in run.log.forward("numbers.errors:1")["event"].to_pylist()
    assert zips(tmp_path).rerun(f"lmdb:{tmp_path / 'log'}", out).same


def test_rows_that_were_given_may_fail_too(tmp_path: Path) -> None:
    run = ran(zips(tmp_path, scope=False), tmp_path)
    run.drop("numbers.errors:2")
    assert run.retry("numbers.errors:1", data=pa.table({"id": [2], "zip": ["still not"]}))
    run = ran(zips(tmp_path, scope=False), tmp_path)
    (row,) = run.log.errors(rows=True).to_pylist()
    assert (row["id"], row["zip"], row["_state"]) == (2, "still not", "waiting")
    assert run.retry(row["_event"], data=pa.table({"id": [2, 5], "zip": ["1", "2"]}))  # one row may become two
    assert stored(ran(zips(tmp_path, scope=False), tmp_path)) == [(1, 69190), (2, 1), (3, 10115), (5, 2)]


def test_rows_for_a_diverted_event(tmp_path: Path) -> None:
    def halve(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"n": [2 // n for n in batch["n"].to_pylist()]})

    def pipeline() -> ll.Pipeline:
        p = ll.Pipeline("halves")
        numbers = p.source("numbers", ll.sources.batches([pa.table({"n": [1]}), pa.table({"n": [0]})]), rows=1)
        numbers.map_batches("halves", halve, schema="n long", on_error="divert").sink("store", ll.sinks.collect())
        return p

    run = ran(pipeline(), tmp_path)
    assert run.retry("halves.errors:1", data=pa.table({"n": [2]})) == ["halves.errors:1"]
    run = ran(pipeline(), tmp_path)
    assert run.result("store")["n"].to_pylist() == [2, 1] and run.status().open_errors == 0


def test_what_can_not_be_put_in_place_of_rows_says_so(tmp_path: Path) -> None:
    run = ran(zips(tmp_path), tmp_path)
    with pytest.raises(
        SchemaError, match=r"the rows for numbers.errors:1: the column 'zip' is missing: expected the col"
    ):
        run.retry("numbers.errors:1", data=pa.table({"id": [1]}))
    with pytest.raises(
        SchemaError, match="the column 'zip' has type int64, expected string: cast it, or look at what"
    ):
        run.retry("numbers.errors:1", data=pa.table({"id": [1], "zip": [5]}))
    with pytest.raises(OptionError, match="takes rows for one error"):
        run.retry(data=pa.table({"id": [1], "zip": ["5"]}))
    p = ll.Pipeline("windows")
    at = datetime(2026, 1, 1)
    rows = p.source("rows", ll.sources.batches([pa.table({"at": [at], "n": [1]})]))
    rows.apply("sums", Breaks(), on_error="divert")
    run = p.run("memory:no-rows-for-windows", engine="inline")
    with pytest.raises(LogError, match=r"the rows of sums\.errors:1 can't be replaced: 'sums' gathers events"):
        run.retry("sums.errors:1", data=pa.table({"at": [at], "n": [1]}))
    assert states(run) == {"sums.errors:1": "waiting"}


class Breaks(ll.Operator[int, None]):
    outputs = {"out": "n long"}  # noqa: RUF012

    def assign(self, event: ll.Event, ctx: Any) -> list[str]:
        ctx.fire("all")
        return ["all"]

    def update(self, inset: Any, acc: int | None, event: ll.Event) -> int:
        return (acc or 0) + int(event.batch.num_rows)

    def generate(self, inset: Any, acc: int, ctx: Any) -> Any:
        raise ValueError("never")


# ---- calls that were paid for (R9) --------------------------------------------------------------------------------


def paid(folder: Path) -> ll.Pipeline:
    """Two questions for each row. The second fails for id 2 until there is a file `up`, and kills its process if
    there is a file `kill`. Each one that is asked is written down."""

    def ask(question: str, id: int) -> str:
        with (folder / "asked").open("a") as file:
            file.write(f"{question} {id}\n")
        if question == "price" and id == 2:
            if (folder / "kill").exists():
                os.kill(os.getpid(), signal.SIGKILL)
            if not (folder / "up").exists():
                raise ConnectionError("the service is down")
        return f"{question} of {id}"

    def quote(row: dict[str, Any], ctx: Any) -> dict[str, Any]:
        name = ctx.call(ask, "name", row["id"])
        return {"name": name, "price": ctx.call(ask, "price", row["id"])}

    p = ll.Pipeline("paid")
    rows = p.source("rows", ll.sources.batches([pa.table({"id": [1, 2, 3]})]))
    rows.map_rows("quotes", quote, schema="name string, price string", on_error="divert").sink(
        "store", ll.sinks.collect()
    )
    return p


def asked(folder: Path) -> dict[str, int]:
    lines = (folder / "asked").read_text().splitlines()
    return {line: lines.count(line) for line in lines}


def test_a_retried_row_asks_only_for_what_was_not_answered(tmp_path: Path) -> None:
    """After a finish, and with a kill -9 while it is retried."""
    run = ran(paid(tmp_path), tmp_path)
    assert run.status().phase == "finished" and run.status().open_errors == 1
    once = {"name 1": 1, "price 1": 1, "name 2": 1, "price 2": 1, "name 3": 1, "price 3": 1}
    assert asked(tmp_path) == once
    assert run.retry() == ["quotes.errors:1"]
    (tmp_path / "kill").touch()
    code = "import sys, pathlib; from tests.unit.runtime.control.test_dead_letters import *; "
    code += "ran(paid(pathlib.Path(sys.argv[1])), pathlib.Path(sys.argv[1]))"
    child = subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=PATIENCE, check=False)
    assert child.returncode == -signal.SIGKILL
    (tmp_path / "kill").unlink()
    run = ran(paid(tmp_path), tmp_path)  # down still: a new error, which has the answer too
    assert states(run, settled=False) == {"quotes.errors:4": "waiting"}
    assert run.retry(ask=False) == ["quotes.errors:4"]
    (tmp_path / "up").touch()
    run = ran(paid(tmp_path), tmp_path)
    assert asked(tmp_path) == {**once, "price 2": 4}
    assert {"name": "name of 2", "price": "price of 2"} in run.result("store").to_pylist()


def test_a_retry_asks_everything_again_if_told_to(tmp_path: Path) -> None:
    run = ran(paid(tmp_path), tmp_path)
    (tmp_path / "up").touch()
    assert run.retry("quotes.errors:1", ask=True)
    ran(paid(tmp_path), tmp_path)
    assert asked(tmp_path)["name 2"] == 2


class Calls(ll.Operator[Any, None]):
    """Asks twice, or with other questions in another order once there is a file `mended`."""

    outputs = {"out": "said string"}  # noqa: RUF012

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def ask(self, question: str) -> str:
        with (self.folder / "asked").open("a") as file:
            file.write(f"{question}\n")
        return f"{question}!"

    def generate(self, inset: Any, acc: pa.RecordBatch, ctx: Any) -> Any:
        if not (self.folder / "mended").exists():
            ctx.call(self.ask, "a"), ctx.call(self.ask, "b"), ctx.call(self.ask, "b")
            raise ValueError("wrong questions")
        said = [ctx.call(self.ask, question) for question in ("new", "b", "a", "b", "b")]
        yield pa.record_batch({"said": [" ".join(said)]})


def test_code_that_was_mended_may_ask_other_things(tmp_path: Path) -> None:
    """A diverted set keeps its answers; they are found by the question, each once."""

    def pipeline() -> ll.Pipeline:
        p = ll.Pipeline("mended")
        rows = p.source("rows", ll.sources.batches([pa.table({"id": [1]})]))
        rows.apply("calls", Calls(tmp_path), on_error="divert").sink("store", ll.sinks.collect())
        return p

    run = ran(pipeline(), tmp_path)
    assert (tmp_path / "asked").read_text().split() == ["a", "b", "b"]
    (tmp_path / "mended").touch()
    assert run.retry()
    run = ran(pipeline(), tmp_path)
    assert run.result("store")["said"].to_pylist() == ["new! b! a! b! b!"]
    assert (tmp_path / "asked").read_text().split() == ["a", "b", "b", "new", "b"]


# ---- late rows ----------------------------------------------------------------------------------------------------


def test_a_row_whose_window_is_out_is_late_and_said_to_be(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def check(row: dict[str, Any], ctx: Any) -> dict[str, Any]:
        if row["n"] == 2 and not (tmp_path / "lenient").exists():
            raise ValueError("two")
        return row

    def pipeline() -> ll.Pipeline:
        p = ll.Pipeline("late")
        table = pa.table({"at": [datetime(2026, 1, 1, hour) for hour in (1, 2, 3)], "n": [1, 2, 3]})
        rows = p.source("rows", ll.sources.batches([table]))
        checked = rows.map_rows("checked", check, schema="at timestamp_ntz, n long", on_error="divert")
        hourly = checked.window("hourly", ll.tumbling("1h", on="at"), agg={"total": ("n", "sum")})
        hourly.sink("store", ll.sinks.collect())
        hourly["late"].sink("late", ll.sinks.collect())
        p.lineage()
        return p

    run = ran(pipeline(), tmp_path)
    assert run.result("store")["total"].to_pylist() == [1, 3]
    (tmp_path / "lenient").touch()
    assert {name: at.hour for name, at in windows_out(run.log.store, "checked").items()} == {"hourly": 4}
    assert run.retry() == ["checked.errors:1"]
    with caplog.at_level("INFO", logger="logline"):
        run = ran(pipeline(), tmp_path)
    said = caplog.text
    assert run.result("store")["total"].to_pylist() == [1, 3]
    assert run.result("late").to_pylist() == [{"at": datetime(2026, 1, 1, 2), "n": 2}]
    (error,) = run.log.errors(settled=True).to_pylist()
    assert (error["state"], error["late"]) == ("retried", ["hourly.late:3"])  # 1 and 2 are marks: end, reopened
    assert run.log.read("hourly.late:3").num_rows == 1
    assert said.count("1 records are late: their windows are out. They are on port 'late'") == 1


def test_a_window_is_out_when_the_watermark_has_reached_its_end(tmp_path: Path) -> None:
    """Not all that is before the watermark: the window around it is open."""
    p = ll.Pipeline("late")
    table = pa.table({"at": [datetime(2026, 1, 1, 1), datetime(2026, 1, 2, 3, 20)], "n": [1, 2]})
    checked = p.source("rows", ll.sources.batches([table])).map_batches("checked", lambda batch: batch)
    for name, size in (("hourly", "1h"), ("daily", "1d")):
        checked.window(name, ll.tumbling(size, on="at"), agg={"total": ("n", "sum")})
    run = p.run(f"lmdb:{tmp_path / 'log'}", engine="inline", until="now")
    found = windows_out(run.log.store, "checked")
    assert {name: (at.day, at.hour, at.minute) for name, at in found.items()} == {
        "hourly": (2, 3, 0),
        "daily": (2, 0, 0),
    }
