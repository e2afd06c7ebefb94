"""The log in PostgreSQL passes the suite that every log store passes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from tests.postgres import Database, fresh

from logline.store.postgres import events
from logline.store.postgres.address import parse_address
from logline.store.postgres.spread import SpreadStore
from logline.store.postgres.store import PgStore
from logline.store.seam import Store
from logline.testing.conformance import StoreConformance
from logline.testing.conformance.base import OpenLog


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with fresh() as made:
        yield made


class TestPostgresStore(StoreConformance):
    bells_are_reliable = False
    examples = settings(StoreConformance.examples, max_examples=20)

    @pytest.fixture(autouse=True)
    def _on_server(self, database: Database) -> None:
        self.server = database.bare

    def make_store(self, location: Path) -> Store:
        name = "t_" + "".join(c if c.isalnum() else "_" for c in str(location).lower())[-40:]
        return PgStore(parse_address(f"{self.server}&log={name}"))

    def test_random_steps_with_small_segments(self, open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
        """Segments that are full after a few events: runs move, and tables are truncated."""
        monkeypatch.setattr(events, "FULL", 3_000)
        self.test_random_steps_lives_and_restarts(open_log)


class TestSpreadStore(TestPostgresStore):
    """The same with journals on two servers, which are two databases of one here."""

    examples = settings(StoreConformance.examples, max_examples=8)

    def make_store(self, location: Path) -> Store:
        name = "s_" + "".join(c if c.isalnum() else "_" for c in str(location).lower())[-38:]
        addresses = [parse_address(f"{self.server}&log={name}_{at}") for at in (1, 2)]
        return SpreadStore(addresses)
