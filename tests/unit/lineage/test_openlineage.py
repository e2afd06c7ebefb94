"""A run as OpenLineage events: what they say, that they follow the spec, and that no pipeline minds where they go."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.numbers import Endless
from tests.unit.lineage.lineage_server import LineageServer
from tests.unit.lineage.openlineage_spec import check
from tests.unit.lineage.pipelines import A1, A2, A3, Each, hourly_sales
from tests.waiting import PATIENCE, until

import logline as ll
from logline.errors import OptionError, PipelineFailed
from logline.lineage.openlineage import facets, transport
from logline.lineage.openlineage.settings import settings
from logline.lineage.openlineage.transport import Sender
from logline.names import InstanceName, PortName
from logline.runtime.control import exporting
from logline.runtime.control.exporting import Tally
from logline.runtime.lives.instances import instances_of
from logline.store.address import open_store

Json = dict[str, Any]


def told(path: Path) -> list[Json]:
    """What is in the file so far; a line that is being written does not count."""
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def kinds(events: list[Json], job: str) -> list[str]:
    return [event["eventType"] for event in events if event["job"]["name"] == job]


@pytest.fixture(autouse=True)
def all_are_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long that takes: a run does not end before."""
    monkeypatch.setattr(exporting, "PATIENCE", PATIENCE)


@pytest.fixture
def server() -> Iterator[LineageServer]:
    with LineageServer().running() as one:
        yield one


def patient(server: LineageServer, **more: Any) -> ll.OpenLineage:
    """A request that took too long would be made again, and counted twice."""
    return ll.OpenLineage(server.url, timeout=timedelta(seconds=PATIENCE), **more)


# ---- what they say --------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["inline", "processes"])
def test_a_run_from_start_to_end(engine: Any, tmp_path: Path) -> None:
    log, file = f"lmdb:{tmp_path / 'log'}", tmp_path / "run.jsonl"
    hourly_sales(A1, A2, A3).run(log, engine=engine, openlineage=f"file:{file}")
    events = told(file)
    jobs = ["sales", "sales.orders", "sales.sold", "sales.hourly", "sales.store"]
    assert [(e["eventType"], e["job"]["name"]) for e in events] == [
        (kind, job) for kind in ("START", "COMPLETE") for job in jobs
    ]
    for event in events:
        check(event)
    ends = {event["job"]["name"]: event for event in events[5:]}
    run_id = ends["sales"]["run"]["runId"]
    assert [ends[job]["run"]["facets"]["parent"]["run"]["runId"] for job in jobs[1:]] == [run_id] * 4
    assert len({event["run"]["runId"] for event in events}) == 5

    (read,), (written,) = ends["sales"]["inputs"], ends["sales"]["outputs"]
    assert read["inputFacets"]["inputStatistics"]["rowCount"] == 6
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 5
    assert written["outputFacets"]["outputStatistics"]["size"] > 0
    made_of = {
        column: [(f["name"], f["field"], f["transformations"][0]["subtype"]) for f in known["inputFields"]]
        for column, known in written["facets"]["columnLineage"]["fields"].items()
    }
    source = "sales.orders.source"
    assert made_of == {
        "window_start": [(source, "date", "TRANSFORMATION")],
        "window_end": [(source, "date", "TRANSFORMATION")],
        "item_id": [(source, "item_id", "IDENTITY")],
        "state": [(source, "state", "IDENTITY")],
        "total": [(source, "amount", "AGGREGATION")],
    }
    assert [f["name"] for f in written["facets"]["schema"]["fields"]] == list(made_of)


def test_the_log_facet_leads_to_the_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = hourly_sales(A1, A2, A3).run("lmdb:log", engine="inline", openlineage="file:run.jsonl")
    end = told(tmp_path / "run.jsonl")[5]
    facet = end["run"]["facets"]["logline_log"]
    assert facet["log"] == f"lmdb:{tmp_path}/log"
    assert facet["logId"] == run.log.log_id
    assert {"port": "hourly.out", "firstSsn": 1, "lastSsn": 3} in facet["ports"]
    assert facet["query"] == f"logline lineage lmdb:{tmp_path}/log hourly:1..3"
    found = subprocess.run(
        [sys.executable, "-m", *facet["query"].split()], check=True, timeout=PATIENCE, capture_output=True, text=True
    )
    assert "orders:1" in found.stdout

    known = json.loads(Path(facets.__file__).with_name("LogRunFacet.json").read_text())
    shape = known["$defs"]["LogRunFacet"]
    assert facets.LOG_FACET == f"{known['$id']}#/$defs/LogRunFacet" == facet["_schemaURL"]
    assert facet.keys() - {"_producer", "_schemaURL"} == shape["properties"].keys()
    assert facet["ports"][0].keys() == shape["properties"]["ports"]["items"]["properties"].keys()


def test_windows_add_up_and_a_stopped_run_is_aborted(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    p = ll.Pipeline("endless")
    numbers = p.source("numbers", Endless())
    numbers.sink("store", ll.sinks.collect())
    p.lineage(keep="1h")
    with p.start("memory:windows", engine="inline", openlineage=ll.OpenLineage(f"file:{file}", every="200ms")) as run:
        until(lambda: kinds(told(file), "endless.numbers").count("RUNNING") > 2)
    events = told(file)
    for event in events:
        check(event)
    assert kinds(events, "endless")[0] == "START"
    assert kinds(events, "endless")[-1] == "ABORT"
    assert set(kinds(events, "endless")[1:-1]) == {"RUNNING"}
    mine = [event for event in events if event["job"]["name"] == "endless.numbers"]
    spans = [port for event in mine for port in event["run"]["facets"]["logline_log"]["ports"]]
    assert spans[0]["firstSsn"] == 1
    assert [one["firstSsn"] for one in spans[1:]] == [one["lastSsn"] + 1 for one in spans[:-1]]
    assert spans[-1]["lastSsn"] == run.status().operators["numbers"].out
    made = [output["outputFacets"] for event in mine for output in event["outputs"]]
    rows = sum(one["outputStatistics"]["rowCount"] for one in made if one)
    assert rows == run.log.read(f"numbers:1..{spans[-1]['lastSsn']}").num_rows


def test_rows_that_were_collected_unseen_are_not_guessed() -> None:
    p = ll.Pipeline("quick")
    p.source("numbers", Counting(2000)).sink("store", ll.sinks.call(lambda *_: None, guarantee="named"))
    store = open_store("memory:quick")
    numbers, out = InstanceName("numbers"), PortName("out")
    tally = Tally(store, {name: part.spec for name, part in instances_of(p.graph(), store.log_id).items()})
    p.run("memory:quick", engine="inline")
    assert 1 not in store.read(numbers).stored(out), "nothing was collected"
    moved = tally.window()[numbers, out]
    assert (moved.first, moved.last, moved.rows) == (1, 2000, None)
    assert moved.nbytes == store.read(numbers).head(out).total
    assert tally.window() == {}


class Counting(Endless):
    """Ends after all."""

    gather = False

    def __init__(self, n: int) -> None:
        self.n = n

    def read(self, partition: str, offset: int | None) -> Iterator[tuple[pa.RecordBatch, int] | None]:
        for n in range(offset or 0, self.n):
            yield pa.record_batch({"n": [n]}), n + 1


def test_files_have_the_names_that_others_know(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"n": [1, 2], "place": [{"x": 1, "y": 2.0}] * 2}), tmp_path / "in" / "a.parquet")
    p = ll.Pipeline("copy")
    copied = p.source("files", ll.sources.parquet(tmp_path / "in")).map_batches("copied", lambda batch: batch)
    copied.sink("store", ll.sinks.parquet(tmp_path / "out"))
    p.run("memory:copy", engine="inline", openlineage=f"file:{tmp_path / 'run.jsonl'}")
    event = told(tmp_path / "run.jsonl")[-4]
    check(event)
    (read,), (written,) = event["inputs"], event["outputs"]
    assert (read["namespace"], read["name"]) == ("file", str(tmp_path / "in"))
    assert (written["namespace"], written["name"]) == ("file", str(tmp_path / "out"))
    assert [f["name"] for f in read["facets"]["schema"]["fields"][1]["fields"]] == ["x", "y"]
    # Nothing is known of what a function does to columns, and nothing is said.
    assert "columnLineage" not in written["facets"]


def test_a_run_that_fails_says_why(tmp_path: Path) -> None:
    def broken(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows:
            raise ValueError("can't reach postgresql://me:hidden@db/sales with password=hidden")
        return batch

    p = ll.Pipeline("broken")
    p.source("numbers", ll.sources.batches([pa.table({"n": [1]})])).map_batches("halved", broken).sink(
        "store", ll.sinks.collect()
    )
    file = tmp_path / "run.jsonl"
    with pytest.raises(PipelineFailed):
        p.run("memory:broken", engine="inline", openlineage=f"file:{file}").wait()
    events = told(file)
    for event in events:
        check(event)
    assert [(e["eventType"], e["job"]["name"]) for e in events[4:]] == [
        ("FAIL", "broken"),
        ("ABORT", "broken.numbers"),
        ("FAIL", "broken.halved"),
        ("ABORT", "broken.store"),
    ]
    error = events[4]["run"]["facets"]["errorMessage"]
    assert "postgresql://me:***@db/sales" in error["message"]
    assert "in broken" in error["stackTrace"]
    assert events[6]["run"]["facets"]["errorMessage"] == error
    assert "errorMessage" not in events[5]["run"]["facets"]
    assert "hidden@" not in file.read_text() and "password=hidden" not in file.read_text()


_JOB = """
import sys
import pyarrow as pa
import logline as ll
from logline.runtime.control import exporting
from tests.unit.lineage.test_openlineage import Counting
from tests.waiting import PATIENCE

exporting.PATIENCE = PATIENCE

class Slow(Counting):
    def read(self, partition, offset):
        for item in super().read(partition, offset):
            yield item
            if item[1] == 5 and sys.argv[1] == "hang":
                while True:
                    yield None

p = ll.Pipeline("killed")
p.source("numbers", Slow(10)).sink("store", ll.sinks.collect())
told = ll.OpenLineage(f"file:{sys.argv[3]}", every="1h")  # no RUNNING, however long this takes
p.run(f"lmdb:{sys.argv[2]}", engine="inline", durability="process", openlineage=told)
"""


def test_a_run_that_was_killed_is_ended_by_the_next_one(tmp_path: Path) -> None:
    log, file = tmp_path / "log", tmp_path / "run.jsonl"
    root = Path(__file__).parents[3]
    job = [sys.executable, "-c", _JOB]
    with subprocess.Popen([*job, "hang", log, file], cwd=root) as first:
        try:
            until(lambda: len(told(file)) == 3 and _taken(log) == 5)
        finally:
            os.kill(first.pid, signal.SIGKILL)
    subprocess.run([*job, "go on", log, file], cwd=root, check=True, timeout=PATIENCE)
    events = told(file)
    for event in events:
        check(event)
    mine = [(e["eventType"], e["run"]["runId"]) for e in events if e["job"]["name"] == "killed"]
    before, after = mine[0][1], mine[-1][1]
    assert before != after
    assert mine == [("START", before), ("ABORT", before), ("START", after), ("COMPLETE", after)]
    assert {e["job"]["name"] for e in events} == {"killed", "killed.numbers", "killed.store"}
    assert sorted(kinds(events, "killed.store")) == ["ABORT", "COMPLETE", "START", "START"]
    went_on = events[-3]["run"]["facets"]["logline_log"]["ports"]
    assert {"port": "numbers.out", "firstSsn": 6, "lastSsn": 10} in went_on
    # A log that has finished runs nothing, and tells nothing.
    subprocess.run([*job, "go on", log, file], cwd=root, check=True, timeout=PATIENCE)
    assert told(file) == events


def _taken(log: Path) -> int:
    if not (log / "log.json").exists():
        return 0
    code = (
        "import sys; from logline.runtime.log.log_status import log_status; "
        "from logline.store.address import find_store; "
        "print(log_status(find_store(sys.argv[1])).operators['store'].taken)"
    )
    found = subprocess.run([sys.executable, "-c", code, f"lmdb:{log}"], check=True, capture_output=True, text=True)
    return int(found.stdout)


def test_a_run_that_was_taken_over_ends_once(tmp_path: Path) -> None:
    def endless() -> ll.Pipeline:
        p = ll.Pipeline("endless")
        p.source("numbers", Endless()).sink("store", ll.sinks.collect())
        return p

    file = tmp_path / "run.jsonl"
    to = ll.OpenLineage(f"file:{file}", every="50ms")
    with endless().start("memory:taken", engine="inline", openlineage=to) as first:
        until(lambda: "RUNNING" in kinds(told(file), "endless"))
        with endless().start("memory:taken", engine="inline", openlineage=to, takeover=True) as second:
            with pytest.raises(ll.errors.TakenOver):
                first.wait(PATIENCE)
            until(lambda: kinds(told(file), "endless")[-1] == "RUNNING")
        second.wait(PATIENCE)
    ends = [(e["run"]["runId"], e["eventType"]) for e in told(file) if e["job"]["name"] == "endless"]
    runs = dict.fromkeys(run for run, _ in ends)
    assert len(runs) == 2
    for run in runs:
        mine = [kind for one, kind in ends if one == run]
        assert (mine.count("START"), mine.count("ABORT"), mine[0]) == (1, 1, "START")


# ---- where they go ----------------------------------------------------------------------------------------


def test_a_server_gets_them_in_order_with_the_key(
    server: LineageServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LINEAGE_KEY", "sesame")
    server.answers = [503, 429, 201, 400]
    to = patient(server, api_key=ll.env("LINEAGE_KEY"), namespace="shop")
    hourly_sales(A1, A2, A3).run("memory:to-server", engine="inline", openlineage=to)
    assert set(server.paths) == {"/api/v1/lineage"}
    assert set(server.keys) == {"Bearer sesame"}
    # Busy: tried again. Refused: left out, and the rest goes on.
    assert len(server.paths) == 12
    jobs = ["sales", "sales.sold", "sales.hourly", "sales.store"]
    jobs += ["sales", "sales.orders", "sales.sold", "sales.hourly", "sales.store"]
    assert [event["job"]["name"] for event in server.events] == jobs
    assert {event["job"]["namespace"] for event in server.events} == {"shop"}
    for event in server.events:
        check(event)
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == 1 and "503" in said[0]
    assert "sesame" not in caplog.text + json.dumps(server.events)


def test_the_variables_of_openlineage(server: LineageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", f"{server.url}/lineage/of/us")
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "sesame")
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "shop")
    hourly_sales(A1).run("memory:variables", engine="inline")
    assert set(server.paths) == {"/lineage/of/us"} and set(server.keys) == {"Bearer sesame"}
    assert {event["job"]["namespace"] for event in server.events} == {"shop"}


def test_the_key_goes_to_nobody_else(server: LineageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A redirect is an answer like any other that is no yes."""
    monkeypatch.setenv("LINEAGE_KEY", "sesame")
    server.answers = [302]
    sender = Sender(patient(server, api_key=ll.env("LINEAGE_KEY")))
    sender.put({"first": 1}, must=True)
    sender.put({"second": 2}, must=True)
    assert sender.close(PATIENCE)
    assert server.events == [{"second": 2}]


def test_nobody_there_does_not_matter(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The source waits until the first try has failed; the end of the run does not wait for another one."""
    read = Each.read

    def late(source: Each, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, int]]:
        until(lambda: "tried again" in caplog.text)
        yield from read(source, partition, offset)

    monkeypatch.setattr(Each, "read", late)
    monkeypatch.setattr(exporting, "PATIENCE", 0.0)
    with LineageServer().running() as gone:
        pass
    run = hourly_sales(A1, A2, A3).run("memory:nobody", engine="inline", openlineage=gone.url)
    assert run.status().phase == "finished"
    assert run.result("store").num_rows == 5
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == 2
    assert "tried again" in said[0] and "10 events of this run were not delivered" in said[1]


def test_when_too_many_wait_start_and_end_are_kept(
    server: LineageServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transport, "MOST", 3)
    server.open.clear()
    sender = Sender(patient(server))
    sender.put({"n": "START"}, must=True)
    assert server.asked.wait(PATIENCE)
    for n in range(5):
        sender.put({"n": n}, must=False)
    sender.put({"n": "COMPLETE"}, must=True)
    server.open.set()
    assert sender.close(PATIENCE)
    assert [event["n"] for event in server.events] == ["START", 0, 1, "COMPLETE"]
    assert "3 events of this run were not delivered" in caplog.text


# ---- settings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ll.OpenLineage("lineage.example.org"), "give 'file:PATH' or the 'http://HOST:PORT'"),
        (lambda: ll.OpenLineage("http://me:hidden@lineage.example.org"), "must not hold a user"),
        (lambda: ll.OpenLineage("http://lineage.example.org?key=hidden"), "must not hold a user"),
        (lambda: ll.OpenLineage("http://lineage.example.org:hidden"), "give 'file:PATH'"),
        (lambda: ll.OpenLineage("http://lineage", api_key="hidden"), "takes ll.env"),  # type: ignore[arg-type]
        (lambda: ll.OpenLineage("file:/nowhere/at/all/run.jsonl"), "in a folder that is there"),
        (lambda: ll.OpenLineage("http://lineage", every="0s"), "more than zero"),
        (lambda: ll.OpenLineage("http://lineage", every="soon"), "openlineage: every"),
        (lambda: settings(ll.OpenLineage("http://lineage", api_key=ll.env("NOT_SET_AT_ALL"))), "NOT_SET_AT_ALL"),
    ],
)
def test_wrong_settings_are_refused_before_anything_runs(make: Callable[[], object], says: str) -> None:
    with pytest.raises(OptionError, match=says) as error:
        make()
    assert "hidden" not in str(error.value)


# ---- the check itself -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spoil",
    [
        lambda e: e["run"].update(runId="not a uuid"),
        lambda e: e.update(eventTime="yesterday"),
        lambda e: e.update(eventType="DONE"),
        lambda e: e.update(more=1),
        lambda e: e.pop("job"),
        lambda e: e["job"].pop("namespace"),
        lambda e: e["job"]["facets"]["jobType"].pop("integration"),
        lambda e: e["job"]["facets"]["jobType"].pop("_producer"),
        lambda e: e["job"]["facets"]["jobType"].update(
            _schemaURL="https://openlineage.io/spec/facets/1-0-0/Other.json"
        ),
        lambda e: e["outputs"][0]["outputFacets"]["outputStatistics"].update(rowCount="5"),
        lambda e: e["outputs"][0]["facets"].update(e["run"]["facets"]),
    ],
)
def test_a_spoilt_event_is_found(spoil: Callable[[Json], object], tmp_path: Path) -> None:
    hourly_sales(A1, A2).run(engine="inline", openlineage=f"file:{tmp_path / 'run.jsonl'}")
    event = told(tmp_path / "run.jsonl")[5]
    check(event)
    spoil(event)
    with pytest.raises((AssertionError, ValueError, TypeError, KeyError)):
        check(event)
