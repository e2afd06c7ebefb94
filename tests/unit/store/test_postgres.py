"""What a log in PostgreSQL does beyond the suite of all stores: segments, clients that stand still, lost answers,
servers that go away, bells between hosts, too few connections."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.postgres import Database
from tests.waiting import PATIENCE, until

from logline.engine.events import Collection
from logline.engine.step import Step
from logline.errors import Fenced, LogError, LogInUse
from logline.graph.record import GraphRecord
from logline.names import OUT, BoxName, InstanceName, Ssn
from logline.store.address import find_store, open_store, shown
from logline.store.postgres import connections, events, journal, lease
from logline.store.postgres.address import parse_address
from logline.store.postgres.connections import Connections
from logline.store.postgres.store import PgStore
from logline.store.seam import Meta
from logline.testing.conformance.model import Scribe, batch, row

HOURLY = InstanceName("hourly")


@pytest.fixture
def address(postgres: Database) -> str:
    return f"{postgres.bare}&log=l_{postgres.schema}"


@pytest.fixture
def store(address: str) -> Iterator[PgStore]:
    opened = PgStore(parse_address(address))
    yield opened
    opened.close()


def sizes(store: PgStore) -> list[int]:
    """How many runs lie in each segment of the first journal."""
    query = " union all ".join(f"select count(*) from {name}" for name in events.tables_of(1))
    return [count for (count,) in store._commits.run(lambda c: c.execute(query).fetchall())]


def put(scribe: Scribe, count: int) -> None:
    """Events of 1 KB, one in a run each."""
    for _ in range(count):
        head = scribe.model.image.heads.get(OUT)
        last, total = (head.last, head.total) if head is not None else (0, 0)
        payload = batch(last + 1).append_column("text", [["x" * 1000]])
        scribe.commit(Step(outputs=[row(OUT, last + 1, total + 1000, 1000, payload=payload)]))


# ---- segments -----------------------------------------------------------------------------------------------------


def test_segments_are_truncated_and_pinned_events_move(store: PgStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "FULL", 20_000)
    scribe = Scribe(store, HOURLY)
    used, emptied = set[int](), set[int]()
    for upto in range(10, 201, 10):
        put(scribe, 10)
        scribe.commit(Step(collected={OUT: Collection(Ssn(upto - 4), frozenset({Ssn(3)}))}))
        found = sizes(store)
        emptied |= {at for at, size in enumerate(found) if at in used and not size}
        used |= {at for at, size in enumerate(found) if size}
        assert sum(found) < 80  # of up to 200: what is collected goes, and not one by one
        scribe.check()
    assert used == emptied
    assert len(used) > 1
    assert [e.ssn for e in store.read(HOURLY).pick(OUT, [Ssn(3), Ssn(200)])] == [3, 200]
    again = Scribe(store, HOURLY, scribe.model)  # the next life knows what is where
    put(again, 30)
    again.check()


def test_a_reader_of_a_segment_is_not_waited_for(
    store: PgStore, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "FULL", 5_000)
    monkeypatch.setattr(journal, "AGAIN", 2)
    scribe = Scribe(store, HOURLY)
    put(scribe, 6)
    before = sizes(store)[0]
    with store._commits.snapshot(events.tables_of(1)):  # somebody looks, for long
        put(scribe, 6)
        scribe.commit(Step(collected={OUT: Collection(Ssn(10), frozenset())}))
        put(scribe, 1)
        assert sizes(store)[0] == before
        scribe.check()
    put(scribe, 3)
    assert sizes(store)[0] < before
    scribe.check()


# ---- fences, answers, clients that stand still ------------------------------------------------------------


def test_a_claim_ends_a_client_that_stands_still_inside_its_commit(store: PgStore, address: str) -> None:
    old = Scribe(store, HOURLY)
    put(old, 1)
    with psycopg.connect(**parse_address(address).dsn.settings(), autocommit=False) as stuck:
        stuck.execute(f'set search_path = "{store.address.log}"'.encode())
        stuck.execute("select commit_begins(1, %s, 2, 0, 0, 0, false, 0, 0, 0)", (old.journal.incarnation,))
        new = Scribe(store, HOURLY, old.model)  # it holds the journal, and never goes on
        with pytest.raises(psycopg.Error):
            stuck.execute("select 1")
    put(new, 1)
    new.check()


def test_a_commit_whose_answer_got_lost_is_made_once(store: PgStore, monkeypatch: pytest.MonkeyPatch) -> None:
    scribe = Scribe(store, HOURLY)
    real, lost = journal.PgJournal._send, list[int]()

    def send(self: Any, statements: Any, connection: Any) -> None:
        real(self, statements, connection)
        if not lost:
            lost.append(1)
            connection.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(journal.PgJournal, "_send", send)
    put(scribe, 3)
    assert lost
    scribe.check()


def test_nothing_behind_a_fence_is_executed(store: PgStore) -> None:
    old = Scribe(store, HOURLY)
    put(old, 1)
    new = Scribe(store, HOURLY, old.model)
    step = old.number(Step(outputs=[row(OUT, 2, 2000, 1000)], state=b"zombie"))
    with pytest.raises(Fenced):
        old.journal.commit(step)
    assert sum(sizes(store)) == 1
    new.check()


# ---- the server ------------------------------------------------------------------------------------------


def test_a_server_that_is_away_is_waited_for(
    store: PgStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.postgres import server

    scribe = Scribe(store, HOURLY)
    put(scribe, 1)
    lease = store.lease("run")
    server().stop()
    away = threading.Event()
    real = connections.Connections._wait

    def wait(self: Any, *given: Any) -> None:
        away.set()
        real(self, *given)

    monkeypatch.setattr(connections.Connections, "_wait", wait)
    writer = threading.Thread(target=put, args=(scribe, 3), daemon=True)
    writer.start()
    assert away.wait(PATIENCE)
    server().start()
    writer.join(PATIENCE)
    assert not writer.is_alive()
    scribe.check()
    assert lease.held()
    with pytest.raises(LogInUse):  # its holder may not be back yet, and is not robbed
        store.lease("other")
    lease.release()


def test_a_server_that_was_never_there_is_told_without_the_password(tmp_path: Path) -> None:
    url = f"postgresql://ada:hunter2@/shop?host={tmp_path}&log=sales"
    with pytest.raises(LogError, match="can't be used") as error:
        PgStore(parse_address(url))
    assert "hunter2" not in str(error.value)
    assert shown(url) == f"postgresql://ada@{tmp_path}/shop?log=sales"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logline.store.postgres.store.OPENING", 0.0)


def test_there_is_no_such_log(address: str) -> None:
    assert find_store(f"{address}_not_there") is None
    with pytest.raises(LogError, match="no log 'sales2'"):
        PgStore(parse_address(f"{address.rpartition('&')[0]}&log=sales2"), create=False)
    with pytest.raises(LogError, match=r"\?log= takes small letters"):
        parse_address("postgresql://db/shop?log=Not a name")


def test_by_environment_variable(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_LOG", address)
    opened = open_store("env:THE_LOG")
    found = find_store("env:THE_LOG")
    assert found is not None and found.log_id == opened.log_id
    found.close()
    opened.close()


def test_another_format_is_refused(store: PgStore, address: str) -> None:
    store._commits.run(lambda c: c.execute("update about set layout = 99"))
    with pytest.raises(LogError, match=r"has format \d+\.99"):
        PgStore(parse_address(address))


def test_processes_that_make_the_same_log_at_once(address: str) -> None:
    made: list[PgStore] = []
    threads = [threading.Thread(target=lambda: made.append(PgStore(parse_address(address)))) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len({opened.log_id for opened in made}) == 1
    assert len(made) == 5
    for opened in made:
        opened.close()


def test_more_users_than_connections(postgres: Database, address: str, store: PgStore) -> None:
    """A role may have three; eight who use the log take turns."""
    role = f"few_{postgres.schema}"
    postgres.ask(f"create role {role} login connection limit 3")
    postgres.ask(f'grant usage on schema "{store.address.log}" to {role}')
    postgres.ask(f'grant select on all tables in schema "{store.address.log}" to {role}')
    dsn = parse_address(address.replace("postgres:@", f"{role}:@")).dsn
    assert dsn.parts()[0] == role
    done = []

    def work() -> None:
        pool = Connections(dsn, store.address.log)
        pool.crowded = lambda: True
        for _ in range(5):
            pool.run(lambda c: c.execute("select pg_sleep(0.002)"))
        done.append(1)
        pool.close()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(done) == 8
    postgres.ask(f"drop owned by {role}")
    postgres.ask(f"drop role {role}")


# ---- leases and bells ------------------------------------------------------------------------------------


def test_a_lease_is_free_when_its_session_is_gone(store: PgStore) -> None:
    held = store.lease("run")
    held._over.set()  # as if the process were killed: nobody renews, and the session ends
    held._thread.join()
    held._connection.close()
    until(lambda: store.running() is None)  # once the server has noticed
    store.lease("next").release()


def test_a_lease_of_a_host_that_vanished_expires(store: PgStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "EXPIRES", 0)
    monkeypatch.setattr(lease, "RENEW", 1e9)
    held = store.lease("run")  # its session stays, as that of a host that is cut off does
    assert store.running() is None
    other = store.lease("next")
    assert not held.held()
    other.release()


HEARS = """
import os, sys, threading
from logline.store.address import open_store
from logline.names import BoxName
store = open_store(sys.argv[1])
heard = threading.Event()
stop = store.on_bell(BoxName("@here"), heard.set)
print("listening", flush=True)
sys.exit(0 if heard.wait(240) else 1)
"""


def test_a_bell_is_heard_on_another_host(store: PgStore, address: str, tmp_path: Path) -> None:
    env = {**os.environ, "LOGLINE_HOST": "elsewhere", "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", HEARS, address]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "listening\n"
        stop = store.on_bell(BoxName("@there"), lambda: None)  # this host has a relay too
        while other.poll() is None:
            store.ring(BoxName("@here"))
            threading.Event().wait(0.05)
        stop()
    assert other.returncode == 0


# ---- several servers --------------------------------------------------------------------------------------------


def test_the_servers_of_a_log_are_part_of_it(address: str) -> None:
    one, two = f"{address}_1", f"{address}_2"
    opened = open_store(f"{one} {two}")
    for name in ("orders", "hourly", "store"):
        put(Scribe(opened, InstanceName(name)), 1)
    on_each = [len(part.instances()) for part in opened._parts]  # type: ignore[attr-defined]
    assert sorted(on_each) == [1, 2]
    opened.set_meta(Meta("sales", GraphRecord(pipeline="sales", operators={}, connections=(), scopes=())))
    opened.close()
    again = find_store(f"{one} {two}")
    assert again is not None
    assert list(again.instances()) == ["hourly", "orders", "store"]
    again.close()
    for wrong in (one, f"{two} {one}", f"{one} {address}_3", f"{one} {two} {address}_3"):
        with pytest.raises(LogError, match=r"name all its servers|there is no log"):
            open_store(wrong)
