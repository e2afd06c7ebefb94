"""Connections of a log in PostgreSQL: how many there are, and when they end."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import psycopg
import pyarrow as pa
import pytest
from tests.paced import allow, paced
from tests.postgres import Database
from tests.waiting import PATIENCE, until

import logline as ll
from logline.errors import LogError, PipelineFailed
from logline.store.postgres import connections
from logline.store.postgres.address import parse_address
from logline.store.postgres.dsn import piped
from logline.store.postgres.store import PgStore


@pytest.fixture
def address(postgres: Database) -> str:
    return f"{postgres.bare}&log=l_{postgres.schema}"


@pytest.fixture(autouse=True)
def nothing_goes_by_itself(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is in a cycle stays, and so does a connection that nobody uses."""
    monkeypatch.setattr(connections, "IDLE", 10 * PATIENCE)
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def connected(postgres: Database) -> int:
    """How many are connected, besides the one who asks."""
    query = "select count(*) from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
    ((found,),) = postgres.ask(query)
    return int(found)


def sales() -> ll.Pipeline:
    pipeline = ll.Pipeline("sales")
    orders = pipeline.source("orders", ll.sources.batches([pa.table({"n": [1, 2]})]))
    orders.sink("store", ll.sinks.collect())
    return pipeline


@pytest.mark.parametrize("engine", ["inline", "processes"])
def test_a_run_that_is_over_holds_no_connection(
    postgres: Database, address: str, engine: Literal["inline", "processes"]
) -> None:
    over = [sales().run(f"{address}_{number}", engine=engine) for number in range(3)]
    until(lambda: connected(postgres) == 0)
    for run in over:  # their logs can be read all the same
        assert run.result("store").to_pylist() == [{"n": 1}, {"n": 2}]
    until(lambda: connected(postgres) == 0)


def test_a_log_that_nobody_holds_holds_no_connection(postgres: Database, address: str) -> None:
    sales().run(address, engine="inline")
    until(lambda: connected(postgres) == 0)
    log = ll.open_log(address)
    log.table("event_log")
    assert connected(postgres) == 1
    del log
    until(lambda: connected(postgres) == 0)


# ---- what a server says -------------------------------------------------------------------------------------------


def test_a_database_that_is_not_there_is_not_waited_for(postgres: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections.Connections, "_wait", lambda *given: pytest.fail("it waits"))
    with pytest.raises(LogError, match='database "nowhere" does not exist'):
        PgStore(parse_address(postgres.bare.replace("/postgres?", "/nowhere?")))
    with pytest.raises(LogError, match='role "nobody" does not exist'):
        PgStore(parse_address(postgres.bare.replace("//postgres:", "//nobody:")))


def test_a_lost_connection_is_not_told_by_psycopg_too(postgres: Database, caplog: pytest.LogCaptureFixture) -> None:
    def lose(connection: psycopg.Connection[Any]) -> None:
        with piped(connection):
            connection.execute("select 1")
            pid = connection.info.backend_pid
            postgres.ask("select pg_terminate_backend($1)", pid)
            until(lambda: not postgres.ask("select 1 from pg_stat_activity where pid = $1", pid))
            connection.execute("select 2").fetchone()

    with psycopg.connect(postgres.bare, autocommit=True) as lost, pytest.raises(psycopg.OperationalError):
        lose(lost)
    assert caplog.records == []


def remove_log(postgres: Database) -> None:
    """Drops the log's schema, as often as it takes. DROP locks one table after the other, a life's statement locks
    them in another order, and where these two meet the server ends either of them."""
    while True:
        try:
            postgres.ask(f'drop schema "l_{postgres.schema}" cascade')
        except psycopg.errors.DeadlockDetected:
            continue
        return


@pytest.mark.parametrize("engine", ["inline", "processes"])
def test_a_schema_that_is_dropped_under_a_run_is_told_in_one_line(
    postgres: Database,
    address: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    engine: Literal["inline", "processes"],
) -> None:
    run = paced(tmp_path).start(address, engine=engine)
    allow(tmp_path, 3)
    until(lambda: run.status().operators["plain"].written == 3)
    remove_log(postgres)
    allow(tmp_path, 9)
    with pytest.raises(PipelineFailed, match="is gone: somebody has removed its schema") as error:
        run.wait(PATIENCE)
    assert "\n" not in str(error.value)
    assert caplog.records == []


def test_the_folder_of_a_log_goes_with_the_last_who_uses_it(address: str) -> None:
    first, second = PgStore(parse_address(address)), PgStore(parse_address(address))
    folder = first._bells._folder
    first.close()
    assert folder.exists()
    second.close()
    assert not folder.exists()
    with closing(PgStore(parse_address(address))):
        assert folder.exists()
