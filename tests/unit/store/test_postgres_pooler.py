"""A log through a pooler in transaction mode: each transaction may be on another session of the server."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.paced import EVENTS, allow, paced
from tests.pooler import PGBOUNCER, pooler
from tests.postgres import Database, server
from tests.waiting import PATIENCE, until

import logline as ll

pytestmark = pytest.mark.skipif(PGBOUNCER is None, reason="there is no pgbouncer: install that package to test it")
SESSIONS = 4


@pytest.fixture
def address(postgres: Database) -> Iterator[str]:
    with pooler(server(), SESSIONS) as pooled:
        past = quote(str(server().folder), safe="")
        yield f"{pooled}&log=l_{postgres.schema}&direct={past}"


def test_a_run_through_a_pooler(address: str, postgres: Database, tmp_path: Path) -> None:
    """Six processes share four sessions; bells and the lease go past them. One process is killed on the way."""
    with paced(tmp_path).start(address, engine="processes") as run:
        allow(tmp_path, EVENTS // 2)
        until(lambda: run.status().operators["plain"].written == EVENTS // 2)
        victim = run.pid("twice")
        assert victim is not None
        os.kill(victim, signal.SIGKILL)
        allow(tmp_path, EVENTS)
        assert run.wait(PATIENCE).phase == "finished"
    assert sorted(run.result("plain")["n"].to_pylist()) == list(range(1, EVENTS + 1))
    log = ll.open_log(address)
    assert log.table("event_log").num_rows > 0 or log.table("state").num_rows > 0
    # Nothing of the log is elsewhere: a transaction without its settings would have made it in another schema.
    found = postgres.ask("select distinct schemaname from pg_tables where tablename = 'raw_journal'")
    assert (f"l_{postgres.schema}",) in found
    assert ("public",) not in found
