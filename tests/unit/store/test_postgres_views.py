"""The views of a log in PostgreSQL show what the log's tables in Python show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.numbers import Waiting
from tests.postgres import Database
from tests.unit.graph.graphs import graph, middle, sink, source
from tests.unit.lineage import test_retried as retried
from tests.unit.lineage.pipelines import A1, A2, A3, figure_2, hourly_sales
from tests.unit.runtime.taps import Threes
from tests.unit.store.byhand import ByHand
from tests.unit.store.test_tables import CHANNEL, event, taken
from tests.unit.store.views import check_views, log_url, view
from tests.waiting import PATIENCE, until

import logline as ll
from logline.engine import codec
from logline.engine.events import Collection
from logline.engine.progress import Progress
from logline.engine.sets import Member
from logline.engine.step import Step
from logline.names import PartitionName, PortName, Serial, Ssn, TargetName
from logline.store.address import open_store
from logline.store.postgres.events import PART
from logline.store.seam import Store


@pytest.fixture
def store(postgres: Database) -> Iterator[Store]:
    opened = open_store(log_url(postgres))
    yield opened
    opened.close()


def ran(p: ll.Pipeline, postgres: Database) -> None:
    run = p.run(log_url(postgres), engine="inline")
    run.log.store.close()


@contextmanager
def started(p: ll.Pipeline, postgres: Database) -> Iterator[ll.Run]:
    with p.start(log_url(postgres), engine="inline") as run:
        yield run
    run.log.store.close()


def test_windows_and_what_they_were_made_of(postgres: Database, store: Store) -> None:
    ran(hourly_sales(A1, A2, A3), postgres)
    found = check_views(postgres, store)
    assert [row[0] for row in found["event_lineage"] if row[1] == "hourly"] == ["hourly:1", "hourly:2", "hourly:3"]
    assert ("hourly:1", "sold:1", "hourly") in [row[:3] for row in view(postgres, "lineage_edges")]
    assert {row[2] for row in found["event_data"]} == {"out", None}  # writes of the sink among them


def test_sets_that_are_open(postgres: Database, store: Store, tmp_path: Path) -> None:
    (tmp_path / "fixed").touch()
    p = ll.Pipeline("open")
    events = p.source("events", Waiting(tmp_path, 5), rows=1)
    events.apply("sums", retried.Gather(tmp_path)).sink("store", ll.sinks.collect())
    p.lineage("events", "sums")
    with started(p, postgres) as run:
        until(lambda: run.status().operators["sums"].taken == 5)
        run.stop()
    found = check_views(postgres, store)
    assert {row[1] for row in found["event_log"] if row[4] == "sums"} == {"done", "undone"}


class Seen(msgspec.Struct):
    times: int = 0


def count(batch: pa.RecordBatch, ctx: Any) -> pa.RecordBatch:
    ctx.state.times += batch.num_rows
    return batch


@pytest.mark.parametrize("scope", [False, True])
def test_checkpoints_event_time_and_keys(postgres: Database, store: Store, scope: bool) -> None:
    """Of windows, sessions and a state per key; some windows are out, and some records have no time."""
    schema = pa.schema([("key", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    minutes = [0, 10, 70, None, 80, 90]
    times = [pa.array([None if m is None else m * 60_000_000] * 2, schema.field("at").type) for m in minutes]
    tables = [pa.table([["a", "b"], at], schema) for at in times]
    p = ll.Pipeline("eventual")
    rows = p.source("rows", ll.sources.batches(lambda: tables, schema=schema), rows=2, time="at")
    often = ll.Eventual(replay=1, every="0s", budget=1.0)
    agg: Any = {"n": ("key", "count")}
    rows.window("hourly", ll.tumbling("1h", on="at"), agg=agg, policy="eventual", eventual=often)
    rows.window("visits", ll.session_window("15m", on="at"), by=["key"], agg=agg)
    rows.stateful("seen", count, by=["key"], state=Seen, schema=schema)
    if scope:
        p.lineage()
    run = p.run(log_url(postgres), engine="inline", until="now")
    run.log.store.close()
    found = check_views(postgres, store)
    states = {(row[0], row[2]) for row in found["checkpoints"]}
    assert {("hourly", "check"), ("visits", "open")} <= states
    assert ("hourly", "result") in states or not scope
    ((keys, late),) = postgres.ask("select max(keys), max(late) from status")
    assert (keys, late) == (2, 1)


def test_several_ports_and_scopes(postgres: Database, store: Store) -> None:
    ran(figure_2("R2.out", "OP3.out"), postgres)
    found = check_views(postgres, store)
    assert {row[2] for row in found["lineage_edges"]} == {"OP1", "OP2", "OP3"}


@pytest.mark.parametrize("scope", [False, True])
def test_errors_that_were_retried(postgres: Database, store: Store, tmp_path: Path, scope: bool) -> None:
    retried.finished(tmp_path, log_url(postgres), scope=scope).log.store.close()
    found = check_views(postgres, store)
    assert {row[2] for row in found["errors"]} == {"retried", "failed again"}


def test_errors_that_wait_and_errors_that_were_dropped(postgres: Database, store: Store, tmp_path: Path) -> None:
    with started(retried.pipeline(tmp_path, scope=True), postgres) as run:
        until(lambda: len(retried.errors(run)) == 3)
        run.drop("sums.errors:1")
        run.stop()
    found = check_views(postgres, store)
    assert ("chosen.errors:1", "chosen", "waiting") in [row[:3] for row in found["errors"]]
    assert {row[2] for row in found["errors"]} == {"waiting", "dropped"}
    assert all(row[4] and "not yet" in row[4] for row in found["errors"])


def test_a_run_that_holds_the_log(postgres: Database, store: Store, tmp_path: Path) -> None:
    p = ll.Pipeline("runs")
    p.source("events", Waiting(tmp_path, 3), rows=1).sink("store", ll.sinks.collect())
    with started(p, postgres) as run:
        until(lambda: {phase for (phase,) in postgres.ask("select phase from status")} == {"running"})
        (tmp_path / "go").touch()
        assert run.wait(PATIENCE).phase == "finished"
    check_views(postgres, store)


def test_operators_that_were_renamed_inserted_and_removed(postgres: Database, store: Store, tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()

    def day(name: str, between: str | None, at: int) -> None:
        pq.write_table(pa.table({"n": [at, at + 1]}), tmp_path / "orders" / f"{at}.parquet")
        p = ll.Pipeline("changes")
        orders: Any = p.source(name, ll.sources.parquet(tmp_path / "orders", schema="n long"), was="orders", rows=1)
        if between:
            orders = orders.filter(between, pc.field("n") >= 0)
        orders.sink("store", ll.sinks.collect())
        p.lineage()
        run = p.run(log_url(postgres), engine="inline", until="now")
        run.log.store.close()

    day("orders", None, 1)
    day("sold", "sane", 2)
    assert {row[2] for row in check_views(postgres, store)["event_log"]} == {"sold", "sane", "store"}
    day("sold", None, 3)
    found = check_views(postgres, store)
    assert {row[2] for row in found["event_log"]} == {"sold", "store"}
    assert {row[2] for row in found["lineage_edges"]} == {"sane"}
    assert postgres.ask("select operator from status") == [("sold",), ("store",)]


def test_a_read_that_is_staged(postgres: Database, store: Store) -> None:
    numbers = source("orders")
    assert numbers.source is not None
    numbers.source.replayable = False
    actions = {"0": "SELECT 1", "1": "SELECT 'ä'"}
    log = ByHand(store, graph([numbers, middle("hourly", op=Threes("v"))], "orders>hourly"), orders=actions)
    assert [row[1] for row in check_views(postgres, store)["read_action"]] == ["incomplete", "incomplete"]
    zero = PartitionName("0")
    complete = Progress(1, "complete", codec.encode(("a", 9)), Ssn(2), 16)
    log.commit("orders", staged=[event(1), event(2)], progress={zero: complete, PartitionName("2"): Progress(2)})
    found = check_views(postgres, store)
    assert [row[0] for row in found["event_data"]] == ["orders.0:r1"]
    assert '"shown": 0, "until": 2' in found["state"][0][2]
    log.commit("orders", reveal={PortName("out"): (Ssn(2), 16)}, progress={zero: complete._replace(status="done")})
    assert len(check_views(postgres, store)["event_data"]) == 2


def test_events_that_are_pinned_and_global_state(postgres: Database, store: Store) -> None:
    log = ByHand(store, graph([source("orders"), middle("hourly", op=Threes("v"))], "orders>hourly"))
    log.commit("orders", outputs=[event(n) for n in range(1, 130)])
    kept = frozenset(map(Ssn, (1, 63, 64, 127)))
    step = Step()
    step.open(Serial(1), "a", [Member(CHANNEL, ssn) for ssn in sorted(kept)])
    step.open(Serial(2), ("b", 7), [Member(CHANNEL, Ssn(1)), Member(CHANNEL, Ssn(129))])
    state = msgspec.msgpack.encode({"seen": 3})
    log.commit("hourly", positions=taken(129), opened=step.sets.opened, state=state)
    log.commit("orders", collected={PortName("out"): Collection(Ssn(129), kept)})
    found = check_views(postgres, store)
    assert {row[0] for row in found["event_data"]} == {f"orders:{ssn}" for ssn in (*kept, 129)}
    assert found["state"] == [("hourly:s", "hourly", '{"seen":3}')]
    assert {row[6] for row in found["event_log"]} == {"a#1", "(b, 7)#2"}


def test_writes_that_pass_an_event_on(postgres: Database, store: Store) -> None:
    log = ByHand(store, graph([source("orders"), sink("store")], "orders>store"))
    channel = "orders.out>store.in"
    log.commit("orders", outputs=[event(n) for n in range(1, 8)])
    writes = [
        event(n, "@out", n)._replace(payload=None, same=Member(channel, Ssn(of)))  # type: ignore[arg-type]
        for n, of in ((1, 3), (2, 4), (3, 6))
    ]
    log.commit("store", outputs=writes, written={TargetName("out"): 2})
    found = check_views(postgres, store)
    assert [row[1] for row in found["event_log"] if row[4] == "store" and row[3] is None] == [
        "done",
        "done",
        "undone",
    ]


def test_a_payload_in_parts(postgres: Database) -> None:
    p = ll.Pipeline("large")
    p.source("events", ll.sources.batches([pa.table({"n": pa.repeat(pa.scalar(7), (PART >> 3) + 1)})]), rows=1 << 30)
    p.lineage()
    ran(p, postgres)
    assert postgres.ask("select max(part) from raw_events") == [(1,)]
    ((body,),) = postgres.ask("select body from event_data")
    assert pa.ipc.open_stream(body).read_all().num_rows == (PART >> 3) + 1


def test_a_role_that_may_only_read_the_views(postgres: Database, store: Store) -> None:
    ran(hourly_sales(A1, A2), postgres)
    role = f"reader_{postgres.schema}"
    views = "event_log, event_data, read_action, state, event_lineage, lineage_edges, errors, checkpoints, status"
    postgres.ask(f"create role {role}")
    try:
        postgres.ask(f"grant usage on schema {postgres.schema} to {role}")
        postgres.ask(f"grant select on {views} to {role}")
        with psycopg.connect(postgres.dsn, autocommit=True) as db:
            db.execute(f"set role {role}".encode())
            for name in views.split(", "):
                db.execute(f"select * from {postgres.schema}.{name}".encode())
            for refused in (f"select * from {postgres.schema}.raw_events", f"delete from {postgres.schema}.journals"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    db.execute(refused.encode())
    finally:
        postgres.ask(f"drop owned by {role}")
        postgres.ask(f"drop role {role}")
