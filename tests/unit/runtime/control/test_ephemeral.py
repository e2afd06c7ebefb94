"""Ephemeral operators (R24): nothing of them is logged, and everything comes out as if it were."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import logline as ll
from logline.errors import DefinitionError, GraphError, OptionError, PipelineChanged, PipelineFailed
from logline.graph.operator import BatchOperator, Reject

RIDES: dict[str, Any] = {"policy": "ephemeral", "deterministic": True}
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
LINES = [pa.table({"line": [f"{n},{n % 3}"], "at": [NOON + timedelta(minutes=10 * n)]}) for n in range(20)]
PARSED = "n long, item long, at timestamp"


def parse(batch: pa.RecordBatch) -> pa.RecordBatch:
    pairs = [line.split(",") for line in batch["line"].to_pylist()]
    columns = [pa.array([int(pair[at]) for pair in pairs], pa.int64()) for at in (0, 1)]
    return pa.record_batch([*columns, batch["at"]], names=["n", "item", "at"])


def sales(*, lines: list[pa.Table] = LINES, rides: dict[str, Any] = RIDES, fn: Any = parse) -> ll.Pipeline:
    """Two ephemeral operators before a window and a sink; of the first events they make nothing."""
    p = ll.Pipeline("sales")
    source = p.source("lines", ll.sources.batches(lines), rows=1)
    large = source.map_batches("parse", fn, schema=PARSED, **rides).filter("large", pc.field("n") >= 5, **rides)
    window = ll.tumbling("1h", on="at")
    large.window("hourly", window, by=["item"], agg={"total": ("n", "sum")}).sink("totals", ll.sinks.collect())
    large.sink("rows", ll.sinks.collect())
    p.lineage()
    return p


def rows(table: pa.Table) -> list[Any]:
    return sorted(table.to_pylist(), key=str)


# ---- what comes out -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["inline", "processes"])
def test_the_results_are_those_of_logged_operators(tmp_path: Path, engine: Literal["inline", "processes"]) -> None:
    logged = sales(rides={}).run(f"lmdb:{tmp_path}/logged", engine="inline")
    run = sales().run(f"lmdb:{tmp_path}/log", engine=engine)
    for sink in ("totals", "rows"):
        assert rows(run.result(sink)) == rows(logged.result(sink)) != []
    status = run.status()
    assert set(status.operators) == {"lines", "hourly", "totals", "rows"}
    assert status.ephemeral == {"parse": ("hourly", "rows"), "large": ("hourly", "rows")}
    assert "parse is ephemeral: it runs in hourly, rows" in str(status)
    written = status.operators["rows"].targets["out"].written
    assert written == 15  # what came to nothing is no write
    assert set(run.log.table("event_log")["send_op"].to_pylist()) <= {"lines", "hourly", "rows", "totals", None}


@pytest.mark.parametrize("victim", ["lines", "hourly", "totals", "rows"])
def test_a_crash_at_any_event_changes_nothing(victim: str) -> None:
    calm = ll.testing.run(sales(), {"lines": LINES})
    for at in range(0, len(LINES), 3):
        script = [*LINES[:at], ll.testing.CRASH(victim), *LINES[at:]]
        assert ll.testing.run(sales(), {"lines": script}) == calm


def test_several_batches_of_one_event_are_one(tmp_path: Path) -> None:
    def halves(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield batch.slice(0, 1)
        yield batch.slice(1)

    p = ll.Pipeline("halves")
    source = p.source("numbers", ll.sources.batches([pa.table({"n": [1, 2, 3]}), pa.table({"n": [4, 5]})]), rows=3)
    source.map_batches("split", halves, **RIDES).window(
        "blocks", ll.events(1), agg={"sum": ("n", "sum"), "rows": ("n", "count")}
    ).sink("store", ll.sinks.collect())
    found = p.run(f"lmdb:{tmp_path}/log", engine="inline").result("store").select(["sum", "rows"])
    assert found.to_pylist() == [{"sum": 6, "rows": 3}, {"sum": 9, "rows": 2}]


def test_each_port_has_its_own_items(tmp_path: Path) -> None:
    p = ll.Pipeline("ways")
    source = p.source("numbers", ll.sources.batches([pa.table({"n": [1, 2, 3]})]))
    ways = source.split("by", options=RIDES, odd=pc.field("n") != 2, even=pc.field("n") == 2)  # type: ignore[arg-type]
    for name, stream in ways.items():
        stream.sink(f"to_{name}", ll.sinks.collect())
    run = p.run(f"lmdb:{tmp_path}/log", engine="inline")
    assert [run.result(f"to_{name}")["n"].to_pylist() for name in ("odd", "even")] == [[1, 3], [2]]


def test_event_time_comes_through(tmp_path: Path) -> None:
    """The last events come to nothing, and what they say of time closes the windows all the same."""
    p = ll.Pipeline("timed")
    source = p.source("lines", ll.sources.batches(LINES), rows=1, time="at")
    few = source.map_batches("parse", parse, schema=PARSED, **RIDES).filter("few", pc.field("n") < 6, **RIDES)
    few.window("hourly", ll.tumbling("1h", on="at"), agg={"n": ("n", "sum")}).sink("store", ll.sinks.collect())
    run = p.run(f"lmdb:{tmp_path}/log", engine="inline", until="now")
    assert run.result("store")["n"].to_pylist() == [15]


def test_a_writes_rows_are_those_that_it_took(tmp_path: Path) -> None:
    """A sink's write may be logged by the name of the event that it passes on: here the event has other rows."""
    target = tmp_path / "rows.db"

    def pipeline(fails: bool) -> ll.Pipeline:
        p = ll.Pipeline("writing")
        source = p.source("lines", ll.sources.batches(LINES[:3]), rows=1)
        sink = ll.sinks.sqlite(str(target) if not fails else str(tmp_path / "gone" / "rows.db"), "rows")
        source.map_batches("parse", parse, schema=PARSED, **RIDES).sink("store", sink, retry=ll.Retry(attempts=1))
        return p

    with pytest.raises(PipelineFailed):
        pipeline(fails=True).run(f"lmdb:{tmp_path}/log", engine="inline")
    run = pipeline(fails=False).run(f"lmdb:{tmp_path}/log", engine="inline")
    assert run.status().operators["store"].written == 3
    import sqlite3

    assert sorted(sqlite3.connect(target).execute("select n, item from rows")) == [(0, 0), (1, 1), (2, 2)]


# ---- what is told -------------------------------------------------------------------------------------------------


def test_an_error_names_the_operator_and_the_event(tmp_path: Path) -> None:
    def fragile(batch: pa.RecordBatch) -> pa.RecordBatch:
        if "7,1" in batch["line"].to_pylist():
            raise ValueError("seven")
        return parse(batch)

    with pytest.raises(PipelineFailed, match=r"on lines:8: ValueError: in operator 'parse', which is eph.*: seven"):
        sales(fn=fragile).run(f"lmdb:{tmp_path}/log", engine="inline")
    run = sales().run(f"lmdb:{tmp_path}/log", engine="inline")  # mended, it goes on
    assert run.result("rows").num_rows == 15


def test_what_would_have_to_be_logged_is_an_error(tmp_path: Path) -> None:
    class Rejecting(BatchOperator):
        outputs = {"out": "n long"}  # noqa: RUF012

        def each(self, batch: pa.RecordBatch) -> Iterator[Any]:
            yield Reject(batch, "no")

    p = ll.Pipeline("rejecting")
    source = p.source("numbers", ll.sources.batches([pa.table({"n": [1]})]))
    source.apply("no", Rejecting(), **RIDES).sink("store", ll.sinks.collect())
    with pytest.raises(PipelineFailed, match=r"'no' is ephemeral and yielded a Reject.*leave policy"):
        p.run(f"lmdb:{tmp_path}/log", engine="inline")


def test_lineage_leads_to_the_events_that_are_logged(tmp_path: Path) -> None:
    log = sales().run(f"lmdb:{tmp_path}/log", engine="inline").log
    first = log.backward("hourly:1", to="lines")
    assert first["event"].to_pylist() == ["lines:6"]  # the others of that hour came to nothing
    records = log.backward("hourly:1", to="lines", records=True)
    assert records.num_rows == 1
    assert log.explain("hourly", "line = '2,2'")["what"].to_pylist() == ["filtered"]
    assert log.explain("hourly", "line = '6,0'").select(["what", "level"]).to_pylist() == [
        {"what": "arrived", "level": "event"}  # which row came of which is not in the log
    ]


def test_check_says_how_each_operator_survives() -> None:
    found = sales().check()
    assert found.policies["parse"] == "ephemeral: logs nothing, runs in hourly, rows and is applied again with them"
    assert "parse" not in found.groups
    assert "policies" in str(found)


# ---- a pipeline that changes --------------------------------------------------------------------------------------


def hours(run: ll.Run) -> list[Any]:
    return sorted((r["window_start"].hour, r["item"], r["total"]) for r in run.result("totals").to_pylist())


def changed(batch: pa.RecordBatch) -> pa.RecordBatch:
    made = parse(batch)
    return made.set_column(0, "n", pc.multiply(made["n"], 10))


def test_changed_code_is_refused_while_sets_are_open_that_it_feeds(tmp_path: Path) -> None:
    log = f"lmdb:{tmp_path}/log"
    sales(lines=LINES[:9]).run(log, engine="inline", until="now")  # the window of one o'clock stays open
    with pytest.raises(PipelineChanged, match=r"'hourly' took of lines.out came by 'parse'.*not done.*fresh="):
        sales(fn=changed).run(log, engine="inline")
    assert sales(fn=changed).check(log).can_resume is False
    run = sales().run(log, engine="inline")
    assert hours(run) == hours(sales().run(f"lmdb:{tmp_path}/calm", engine="inline"))


def test_changed_code_is_accepted_when_nothing_is_open(tmp_path: Path) -> None:
    log = f"lmdb:{tmp_path}/log"
    sales(lines=LINES[:9]).run(log, engine="inline", until="now", close=True)
    run = sales(fn=changed).run(log, engine="inline", until="now", close=True)
    found = {row["n"] for row in run.result("rows").to_pylist()}
    assert found == {5, 6, 7, 8, *(10 * n for n in range(9, 20))}


@pytest.mark.parametrize("first", [RIDES, {}])
def test_an_operator_may_become_ephemeral_and_logged_again(tmp_path: Path, first: dict[str, Any]) -> None:
    """In the log that is a removal and an insertion: each event takes the one way or the other."""
    log = f"lmdb:{tmp_path}/log"
    sales(lines=LINES[:9], rides=first).run(log, engine="inline", until="now", close=True)
    run = sales(rides={} if first else RIDES).run(log, engine="inline", until="now", close=True)
    assert sorted(row["n"] for row in run.result("rows").to_pylist()) == list(range(5, 20))


@pytest.mark.parametrize("then", ["logged", "behind another", "gone"])
def test_a_way_that_open_sets_have_taken_must_stay(tmp_path: Path, then: str) -> None:
    """Members are read again as they are logged: without the function they would be something else."""

    def ten(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"n": pc.multiply(batch["n"], 10)})

    def pipeline(count: int, way: str) -> ll.Pipeline:
        p = ll.Pipeline("ways")
        tables = [pa.table({"n": [n]}) for n in range(1, count + 1)]
        stream = p.source("numbers", ll.sources.batches(tables), rows=1)
        if way == "behind another":
            stream = stream.map_batches("before", same)
        if way != "gone":
            stream = stream.map_batches("ten", ten, **({} if way == "logged" else RIDES))
        stream.window("pairs", ll.events(2), agg={"n": ("n", "sum")}).sink("store", ll.sinks.collect())
        return p

    log = f"lmdb:{tmp_path}/log"
    pipeline(3, "rides").run(log, engine="inline", until="now")
    with pytest.raises(PipelineChanged, match=r"'pairs' took of numbers.out came by 'ten'.*not done"):
        pipeline(4, then).run(log, engine="inline")
    run = pipeline(4, "rides").run(log, engine="inline")
    assert run.result("store")["n"].to_pylist() == [30, 70]


def test_mended_code_that_makes_the_same_of_what_was_taken_says_so(tmp_path: Path) -> None:
    """It raised while sets were open: to run it as it was is no way out."""

    def fragile(batch: pa.RecordBatch) -> pa.RecordBatch:
        if "3,0" in batch["line"].to_pylist():
            raise ValueError("three")
        return parse(batch)

    def pipeline(fn: Any, lines: list[pa.Table], **options: Any) -> ll.Pipeline:
        p = ll.Pipeline("mended")
        source = p.source("lines", ll.sources.batches(lines), rows=1)
        parsed = source.map_batches("parse", fn, schema=PARSED, **RIDES, **options)
        parsed.window("pairs", ll.events(2), agg={"n": ("n", "sum")}).sink("store", ll.sinks.collect())
        return p

    log = f"lmdb:{tmp_path}/log"
    pipeline(fragile, LINES[:3]).run(log, engine="inline", until="now")
    with pytest.raises(PipelineFailed, match="three"):
        pipeline(fragile, LINES[:4]).run(log, engine="inline")
    with pytest.raises(PipelineChanged, match="say so by the version that it had") as refused:
        pipeline(parse, LINES[:4]).run(log, engine="inline")
    version = str(refused.value).partition("parse: version='")[2].partition("'")[0]
    run = pipeline(parse, LINES[:4], version=version).run(log, engine="inline")
    assert run.result("store")["n"].to_pylist() == [1, 5]


def test_a_rename_is_no_other_code(tmp_path: Path) -> None:
    def pipeline(name: str, lines: list[pa.Table]) -> ll.Pipeline:
        p = ll.Pipeline("renamed")
        source = p.source("lines", ll.sources.batches(lines), rows=1)
        parsed = source.map_batches(name, parse, schema=PARSED, **RIDES)
        parsed.window("pairs", ll.events(2), agg={"n": ("n", "sum")}).sink("store", ll.sinks.collect())
        return p

    log = f"lmdb:{tmp_path}/log"
    pipeline("parse", LINES[:3]).run(log, engine="inline", until="now")
    run = pipeline("read", LINES[:4]).run(log, engine="inline")
    assert run.result("store")["n"].to_pylist() == [1, 5]


def test_a_rerun_takes_the_functions_on_the_way_along(tmp_path: Path) -> None:
    log = f"lmdb:{tmp_path}/log"
    sales().run(log, engine="inline")
    assert sales().rerun(log, "hourly:1").same
    assert not sales(fn=changed).rerun(log, "hourly:1").same


def test_records_of_what_came_by_it_stay_as_they_are_when_it_is_gone(tmp_path: Path) -> None:
    log = f"lmdb:{tmp_path}/log"
    sales(lines=LINES[:9]).run(log, engine="inline", until="now", close=True)
    found = ll.open_log(log).backward("hourly:1", to="lines", records=True)
    sales(lines=LINES[:9], rides={}).run(log, engine="inline", until="now", close=True)
    assert ll.open_log(log).backward("hourly:1", to="lines", records=True).equals(found)
    assert found.num_rows


# ---- what is refused ----------------------------------------------------------------------------------------------


def numbers(p: ll.Pipeline) -> Any:
    return p.source("numbers", ll.sources.batches([pa.table({"n": [1]})]))


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


class Opening(BatchOperator):
    outputs = {"out": "n long"}  # noqa: RUF012

    def open(self, ctx: Any) -> None:
        self.model = 1

    def each(self, batch: pa.RecordBatch) -> Iterator[Any]:
        yield batch


@pytest.mark.parametrize(
    ("define", "said"),
    [
        (lambda s: s.map_batches("op", same, policy="ephemeral"), "say deterministic=True"),
        (lambda s: s.map_batches("op", same, **RIDES, on_error="divert"), "can't have on_error="),
        (lambda s: s.map_batches("op", same, **RIDES, retry=ll.Retry(attempts=2)), "can't have retry="),
        (lambda s: s.map_rows("op", lambda row, ctx: row, schema="n long", **RIDES), "more than a function of one"),
        (lambda s: s.window("op", ll.events(2), agg={"n": ("n", "sum")}, **RIDES), "more than a function of one"),
        (lambda s: s.union("op", s.map_batches("m", same), **RIDES), "several inputs"),
        (lambda s: s.apply("op", Opening(), **RIDES), r"defines open\(\)"),
        (lambda s: s.sink("op", ll.sinks.collect(), **RIDES), "a write is logged before it is made"),
    ],
)
def test_what_could_not_be_exact_is_refused(define: Any, said: str) -> None:
    with pytest.raises((OptionError, DefinitionError), match=said):
        define(numbers(ll.Pipeline("refused")))


def test_a_source_is_not_ephemeral() -> None:
    with pytest.raises(OptionError, match="what it has read is logged"):
        ll.Pipeline("p").source("s", ll.sources.batches([pa.table({"n": [1]})]), policy="ephemeral")  # type: ignore[arg-type]


def test_two_ways_to_one_port_are_refused() -> None:
    p = ll.Pipeline("ways")
    source = numbers(p)
    source.map_batches("a", same, **RIDES).union("all", source).sink("store", ll.sinks.collect())
    with pytest.raises(GraphError, match=r"by two ways.*'a' and directly"):
        p.check()


def test_one_that_leads_nowhere_is_refused() -> None:
    p = ll.Pipeline("nowhere")
    numbers(p).map_batches("a", same, **RIDES)
    with pytest.raises(GraphError, match="'a' is ephemeral and connected to nothing"):
        p.check()


def test_its_errors_port_and_a_scope_that_ends_there_are_refused() -> None:
    p = ll.Pipeline("ends")
    made = numbers(p).map_batches("a", same, **RIDES)
    made.sink("store", ll.sinks.collect())
    made["errors"].sink("letters", ll.sinks.collect())
    p.lineage("numbers", "a")
    with pytest.raises(DefinitionError, match=r"(?s)no port 'errors'.*lineage: the target a.out is ephemeral"):
        p.check()


def test_a_preview_shows_what_it_makes() -> None:
    made = numbers(ll.Pipeline("seen")).map_batches("a", same, **RIDES)
    assert made.preview().to_pylist() == [{"n": 1}]
