"""The tables of a log in PostgreSQL that another version of Logline made."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from tests.postgres import Database
from tests.unit.store.views import log_url
from tests.waiting import PATIENCE, until

from logline.errors import LogError
from logline.store.address import find_store, open_store
from logline.store.encoding import FORMAT
from logline.store.postgres import schema

STEPS = {
    schema.LAYOUT + 1: ("create table added (step int)", "insert into added values (1)"),
    schema.LAYOUT + 2: ("alter table added add column note text", "insert into added values (2, 'new')"),
}
"""What brings a log of today to the layout of a version that is still to come; it can be done only once."""
NEWER = """
import sys
from logline.store.address import find_store
from logline.store.postgres import schema
schema.LAYOUT += {many}
schema.MIGRATIONS.update({steps})
store = find_store(sys.argv[1])
print(store.log_id)
store.close()
"""


@pytest.fixture
def url(postgres: Database) -> str:
    """A log that this version made."""
    open_store(log_url(postgres)).close()
    return log_url(postgres)


@contextmanager
def being_prepared(postgres: Database) -> Iterator[None]:
    """As if a process were just making or changing the tables."""
    with psycopg.connect(postgres.dsn) as db:
        db.execute("select pg_advisory_xact_lock(%s, hashtext(%s))", (schema._LOCK, postgres.schema))
        yield


def layout(postgres: Database) -> int:
    ((found,),) = postgres.ask("select layout from about")
    return int(found)


def test_one_of_two_processes_brings_an_older_log_up_to_date(postgres: Database, url: str) -> None:
    code = NEWER.format(many=len(STEPS), steps=STEPS)
    with being_prepared(postgres):
        both = [
            subprocess.Popen([sys.executable, "-c", code, url], stdout=subprocess.PIPE, text=True) for _ in range(2)
        ]
        waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
        until(lambda: postgres.ask(waiting) == [(2,)])
        assert layout(postgres) == schema.LAYOUT
    told = [process.communicate(timeout=PATIENCE)[0].strip() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert postgres.ask("select log_id from about") == [(told[0],)] == [(told[1],)]
    assert layout(postgres) == schema.LAYOUT + 2
    assert postgres.ask("select step, note from added order by step") == [(1, None), (2, "new")]


def test_a_migration_that_fails_leaves_the_log_as_it_was(
    postgres: Database, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "LAYOUT", schema.LAYOUT + 2)
    monkeypatch.setattr(schema, "MIGRATIONS", STEPS | {schema.LAYOUT: ("alter table nothing add column note text",)})
    with pytest.raises(LogError):
        find_store(url)
    assert layout(postgres) == schema.LAYOUT - 2
    assert postgres.ask("select to_regclass('added')") == [(None,)]


def test_the_log_of_a_newer_version_is_refused(postgres: Database, url: str) -> None:
    postgres.ask("update about set layout = layout + 1")
    for opened in (find_store, open_store):
        with pytest.raises(LogError, match=rf"has format {FORMAT}.{schema.LAYOUT + 1}, this version .* reads"):
            opened(url)
    assert layout(postgres) == schema.LAYOUT + 1


def test_a_log_of_another_format_is_not_migrated(
    postgres: Database, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version that began it goes on with it: its tables stay as that one knows them."""
    postgres.ask("update about set format = format - 1")
    monkeypatch.setattr(schema, "LAYOUT", schema.LAYOUT + 2)
    monkeypatch.setattr(schema, "MIGRATIONS", STEPS)
    with pytest.raises(LogError, match="finish the run with the version that began it"):
        find_store(url)
    assert layout(postgres) == schema.LAYOUT - 2
    assert postgres.ask("select to_regclass('added')") == [(None,)]
