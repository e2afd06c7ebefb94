"""A log that is copied to another store is the same log there, and only one of the two goes on."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.numbers import Waiting
from tests.unit.graph.graphs import graph, middle, source
from tests.unit.lineage import test_retried as retried
from tests.unit.lineage.pipelines import A1, A2, A3, hourly_sales
from tests.unit.runtime.taps import Threes
from tests.unit.store.byhand import ByHand
from tests.unit.store.test_tables import CHANNEL, event, taken
from tests.unit.store.views import check_views, log_url, table
from tests.waiting import PATIENCE, until

import logline as ll
from logline.engine import codec
from logline.engine.events import Collection
from logline.engine.progress import Progress
from logline.engine.sets import Member
from logline.engine.step import Step
from logline.errors import LogError, LogInUse
from logline.names import InstanceName, PartitionName, PortName, Serial, Ssn
from logline.store.address import find_store, open_store
from logline.store.copying import copy_log
from logline.store.layout import BY_NAME, JOURNAL
from logline.store.marks import Mark
from logline.store.reader import RowsReader
from logline.store.seam import Store
from logline.store.tables import TABLES
from logline.testing.conformance.model import step_of

KINDS = ["memory", "lmdb", "postgresql", "servers"]


class Places:
    """Addresses of logs that are not there yet."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        self.request = request
        self.folder = folder
        self.made = self.logs = 0
        self.stores: list[Store] = []

    def fresh(self, kind: str) -> str:
        self.made += 1
        if kind == "servers":  # two schemas of one are two servers here
            return f"{self.fresh('postgresql')} {self.fresh('postgresql')}"
        if kind == "postgresql":
            database = self.request.getfixturevalue("postgres")
            self.logs += 1
            return log_url(database) if self.logs == 1 else f"{database.bare}&log={database.schema}_{self.logs}"
        return f"lmdb:{self.folder}/log{self.made}" if kind == "lmdb" else f"memory:{self.folder.name}-{self.made}"

    def open(self, url: str) -> Store:
        self.stores.append(open_store(url))
        return self.stores[-1]


@pytest.fixture
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Places]:
    made = Places(request, tmp_path)
    yield made
    for store in made.stores:
        store.close()


def about(store: Store) -> tuple[Any, ...]:
    return store.log_id, store.meta(), dict(store.statuses())


def journals(store: Store) -> dict[InstanceName, tuple[Any, ...]]:
    """All rows and events of all journals, with their images."""
    return {instance: _journal(store.read(instance)) for instance in store.instances()}


def _journal(reader: Any) -> tuple[Any, ...]:
    with reader.look() as (rows, events):
        known = {t.name: sorted(rows.scan(t), key=repr) for t in BY_NAME.values() if t is not JOURNAL}
        lying = {
            port: [
                o._replace(payload=None if o.payload is None else o.payload.to_pylist())
                for run in events.lying(port)
                for o in run
            ]
            for port in {PortName("out"), *(key[0] for key, _ in known["heads"])}
        }
    return known, _counting(reader, lying), reader.image()


def _counting(reader: RowsReader, lying: dict[PortName, list[Any]]) -> dict[PortName, list[Any]]:
    heads = {port: reader.head(port) for port in lying}
    return {p: [o for o in all_ if o.ssn >= heads[p].base or o.ssn in heads[p].pinned] for p, all_ in lying.items()}


def copied(places: Places, url: str, *kinds: str) -> None:
    """Moves a log from store to store, and compares what is there."""
    for kind in kinds:
        there = places.fresh(kind)
        copy_log(url, there)
        before, after = places.open(url), places.open(there)
        assert about(after) == about(before)
        assert journals(after) == journals(before)
        for instance in before.instances():
            assert after.read(instance).incarnation() == before.read(instance).incarnation()
        url = there


@pytest.mark.parametrize(
    "kinds", [("lmdb", "postgresql", "servers", "lmdb"), ("memory", "lmdb", "lmdb"), ("postgresql", "memory")]
)
def test_errors_sets_and_lineage_are_the_same_there(places: Places, kinds: tuple[str, ...], tmp_path: Path) -> None:
    first = places.fresh(kinds[0])
    run = retried.finished(tmp_path, first, scope=True)
    names = [name for name in (*TABLES, "lineage_edges") if name != "event_data"]  # `copied` compares events
    asked = {name: table(run.log.store, name) for name in names}
    ports = ("chosen", "sums", "twice")
    lineage = {(port, way): getattr(run.log, way)(port) for port in ports for way in ("backward", "forward")}
    run.log.store.close()
    copied(places, first, *kinds[1:])
    last = places.stores[-1]
    assert {name: table(last, name) for name in asked} == asked
    log = ll.Log(last, None)
    assert {(port, way): getattr(log, way)(port) for port, way in lineage} == lineage


@pytest.mark.parametrize("kinds", [("lmdb", "postgresql", "memory", "servers", "postgresql", "lmdb")])
def test_staged_rows_open_sets_and_pinned_events_are_there_too(places: Places, kinds: tuple[str, ...]) -> None:
    numbers = source("orders")
    assert numbers.source is not None
    numbers.source.replayable = False
    first = places.fresh(kinds[0])
    store = open_store(first)
    log = ByHand(store, graph([numbers, middle("hourly", op=Threes("c"))], "orders>hourly"), orders={"0": "SELECT 1"})
    log.commit("orders", outputs=[event(n)._replace(headers={"a": n}) for n in range(1, 100)])
    step = Step()
    step.open(Serial(1), ("b", 7), [Member(CHANNEL, Ssn(3), "note"), Member(CHANNEL, Ssn(70))])
    log.commit("hourly", positions=taken(99), opened=step.sets.opened)
    log.commit("orders", collected={PortName("out"): Collection(Ssn(90), frozenset({Ssn(3), Ssn(70)}))})
    read = {PartitionName("0"): Progress(1, "complete", codec.encode(9), Ssn(102), 816)}
    log.commit("orders", staged=[event(n) for n in (100, 101, 102)], progress=read)
    for journal in log.journals.values():
        journal.close()
    store.close()
    copied(places, first, *kinds[1:])
    journal = places.stores[-1].claim(InstanceName("orders"))
    number = journal.image.commits + 1
    journal.commit(step_of(number=number, reveal={PortName("out"): (Ssn(102), 816)}))
    journal.close()
    shown = places.stores[-1].read(InstanceName("orders")).pick(PortName("out"), [Ssn(3), Ssn(99), Ssn(102)])
    assert [o.payload.to_pylist() for o in shown] == [event(n).payload.to_pylist() for n in (3, 99, 102)]


def numbers_into(database: Path, folder: Path) -> ll.Pipeline:
    p = ll.Pipeline("halfway")
    events = p.source("events", Waiting(folder, 20, more=20), rows=1)
    events.apply("sums", retried.Gather(folder)).sink("store", ll.sinks.sqlite(database, "sums"))
    p.lineage()
    return p


def test_a_pipeline_that_was_stopped_goes_on_where_its_log_is_now(places: Places, tmp_path: Path) -> None:
    (tmp_path / "fixed").touch()
    before, after, database = places.fresh("lmdb"), places.fresh("postgresql"), tmp_path / "shop.db"
    with numbers_into(database, tmp_path).start(before, engine="inline") as run:
        until(lambda: run.status().operators["store"].written == 10)
        run.stop()
    run.log.store.close()
    copy_log(before, after)
    with pytest.raises(LogError, match=r"has moved to postgresql://.*go on there"):
        numbers_into(database, tmp_path).run(before, engine="inline")
    (tmp_path / "go").touch()
    done = numbers_into(database, tmp_path).run(after, engine="inline")
    done.log.store.close()
    with closing(sqlite3.connect(database)) as db:
        assert db.execute("select total from sums order by rowid").fetchall() == [(4 * n + 1,) for n in range(20)]
    check_views(places.request.getfixturevalue("postgres"), places.open(after))


class Killed(Exception):
    """As if the process ended here."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_that_was_killed_is_not_opened_and_can_be_repeated(places: Places, kind: str) -> None:
    there, url = places.fresh(kind), places.fresh("lmdb")
    hourly_sales(A1, A2, A3).run(url, engine="inline")

    def told(instance: str, done: int, many: int) -> None:
        if instance == "sold" and done:
            raise Killed

    for _ in range(2):
        with pytest.raises(Killed):
            copy_log(url, there, told=told)
        with pytest.raises(LogError, match="not finished"):
            find_store(there)
        with pytest.raises(LogError, match="not finished"):
            hourly_sales(A1, A2, A3).run(there, engine="inline")
    assert places.open(url).mark() is None
    copy_log(url, there)
    assert table(places.open(there), "event_data") == table(places.open(url), "event_data")


@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_before_the_last_step_leaves_that_step_to_the_next_copy(places: Places, kind: str) -> None:
    there, url = places.fresh(kind), places.fresh("lmdb")
    hourly_sales(A1, A2, A3).run(url, engine="inline")
    copy_log(url, there)
    places.open(there).set_mark(Mark("unfinished", url))
    copy_log(url, there)
    assert places.open(there).mark() is None
    with pytest.raises(LogError, match="has moved"):
        copy_log(url, there)
    with pytest.raises(LogError, match="has moved"):
        copy_log(url, places.fresh("lmdb"))


@pytest.mark.parametrize("kind", KINDS)
def test_where_a_log_is_no_other_one_is_copied_to(places: Places, kind: str) -> None:
    there, url = places.fresh(kind), places.fresh("lmdb")
    for log in (there, url):
        hourly_sales(A1).run(log, engine="inline").log.store.close()
    before = places.open(there).log_id
    with pytest.raises(LogError, match="there is a log"):
        copy_log(url, there)
    assert places.open(there).log_id == before
    assert places.open(url).mark() is None


def test_a_folder_with_something_else_in_it_stays_as_it_is(places: Places, tmp_path: Path) -> None:
    url = places.fresh("lmdb")
    hourly_sales(A1).run(url, engine="inline")
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_text("dear")
    with pytest.raises(LogError, match="is not empty"):
        copy_log(url, f"lmdb:{tmp_path}/letters")
    assert (tmp_path / "letters" / "a.txt").read_text() == "dear"


def test_what_runs_is_not_copied(places: Places, tmp_path: Path) -> None:
    url = places.fresh("lmdb")
    p = ll.Pipeline("runs")
    p.source("events", Waiting(tmp_path, 3), rows=1).sink("store", ll.sinks.collect())
    with p.start(url, engine="inline") as run:
        with pytest.raises(LogInUse):
            copy_log(url, places.fresh("lmdb"))
        (tmp_path / "go").touch()
        assert run.wait(PATIENCE).phase == "finished"


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_that_is_kept_beside_its_log_is_only_read(places: Places, kind: str) -> None:
    there, url = places.fresh(kind), places.fresh("lmdb")
    hourly_sales(A1, A2, A3).run(url, engine="inline")
    copy_log(url, there, keep=True)
    assert table(places.open(there), "lineage_edges") == table(places.open(url), "lineage_edges")
    with pytest.raises(LogError, match="made to be read"):
        hourly_sales(A1, A2, A3).run(there, engine="inline")
    with pytest.raises(LogError, match="made to be read"):
        copy_log(there, places.fresh("memory"))
    assert hourly_sales(A1, A2, A3).run(url, engine="inline").status().phase == "finished"


def test_no_password_is_in_what_a_log_says_of_another(places: Places) -> None:
    there, url = places.fresh("postgresql"), places.fresh("lmdb")
    hourly_sales(A1).run(url, engine="inline")
    copy_log(url, there.replace("postgres:@", "postgres:hunter2@"))
    mark = places.open(url).mark()
    assert mark is not None and mark.other.startswith("postgresql://") and "hunter2" not in mark.other


def test_there_is_nothing_to_copy(places: Places) -> None:
    with pytest.raises(LogError, match="there is no log"):
        copy_log(places.fresh("lmdb"), places.fresh("lmdb"))
    empty = places.fresh("lmdb")
    places.open(empty)
    with pytest.raises(LogError, match="no pipeline has run"):
        copy_log(empty, places.fresh("lmdb"))


def test_a_log_that_is_copied_to_several_servers_is_on_each_of_them(places: Places, tmp_path: Path) -> None:
    url, there = places.fresh("lmdb"), places.fresh("servers")
    hourly_sales(A1, A2, A3).run(url, engine="inline").log.store.close()
    copy_log(url, there)
    store = places.open(there)
    database = places.request.getfixturevalue("postgres")
    schemas = [one.rpartition("log=")[2] for one in there.split()]
    parts = [{name for (name,) in database.ask(f"select name from {s}.journals")} for s in schemas]
    assert all(parts) and sorted(parts[0] | parts[1]) == store.instances()
    assert hourly_sales(A1, A2, A3).run(there, engine="inline").status().phase == "finished"


def test_no_server_of_several_has_another_log(places: Places) -> None:
    url, taken, free = places.fresh("lmdb"), places.fresh("postgresql"), places.fresh("postgresql")
    for log in (url, taken):
        hourly_sales(A1).run(log, engine="inline").log.store.close()
    for there in (f"{taken} {free}", f"{free} {taken}"):
        with pytest.raises(LogError, match="there is a log at that address"):
            copy_log(url, there)
    with pytest.raises(LogError, match="names a server twice"):
        copy_log(url, f"{free} {free}")
    assert places.open(url).mark() is None
    assert places.open(taken).instances() == places.open(url).instances()
