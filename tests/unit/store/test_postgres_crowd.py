"""More who use a log in PostgreSQL than its server has connections: they take turns, and nothing is lost."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.paced import EVENTS, allow, paced
from tests.postgres import Server
from tests.waiting import PATIENCE, until

from logline.names import OUT, BoxName, InstanceName
from logline.store.address import open_store
from logline.store.postgres import connections, relay
from logline.store.postgres.address import parse_address
from logline.store.postgres.store import PgStore
from logline.testing.conformance.model import Scribe

LIVES = int(os.environ.get("LOGLINE_LIVES", "80"))
ROOM = LIVES // 2
CONNECTED = "select count(*) from pg_stat_activity where backend_type = 'client backend'"


@pytest.fixture
def small() -> Iterator[Server]:
    """A server of its own, for a test that leaves it few connections."""
    server = Server()
    yield server
    server.end()


class Life(threading.Thread):
    """As a process with one operator uses the log: with connections of its own, and a commit now and then."""

    def __init__(self, url: str, number: int, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._over = over
        self.instance = InstanceName(f"life{number}")
        self.commits = 0

    def run(self) -> None:
        store = PgStore(parse_address(self._url), create=False, known=True)
        scribe = Scribe(store, self.instance)
        while not self.commits or not self._over.wait(3.0):
            scribe.commit(scribe.emit())
            self.commits += 1
        scribe.journal.close()
        store.close()


def test_twice_as_many_lives_as_connections_take_turns(small: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "IDLE", 10 * PATIENCE)  # who has one gives it back because others need it
    monkeypatch.setattr(relay, "BEAT", 0.1)
    small.limit(ROOM)
    url = f"{small.dsn}&log=crowd"
    store, over = open_store(url), threading.Event()
    stop = store.on_bell(BoxName("@driver"), lambda: None)  # with it, a relay of this host looks how many there are
    lives = [Life(url, number, over) for number in range(LIVES)]
    counts = []
    with psycopg.connect(small.dsn, autocommit=True) as db:
        for life in lives:
            life.start()

        def all_have_committed() -> bool:
            counts.append((db.execute(CONNECTED).fetchone() or (0,))[0])
            return all(life.commits for life in lives)

        until(all_have_committed)
    over.set()
    for life in lives:
        life.join(PATIENCE)
    assert ROOM * relay.CROWDED < max(counts) <= ROOM
    assert {life.instance: store.read(life.instance).put_out(OUT) for life in lives} == {
        life.instance: life.commits for life in lives
    }
    stop()
    store.close()


def test_a_run_whose_processes_want_more_connections_than_there_are(small: Server, tmp_path: Path) -> None:
    small.limit(6)
    p = paced(tmp_path)
    allow(tmp_path, EVENTS)
    run = p.run(f"{small.dsn}&log=crowded", engine="processes")
    assert run.result("plain")["n"].to_pylist() == list(range(1, EVENTS + 1))
    assert run.result("store")["total"].to_pylist() == [2 * (n + n + 1 + n + 2) for n in range(1, EVENTS, 3)]
    assert "too many clients" in small.said()
