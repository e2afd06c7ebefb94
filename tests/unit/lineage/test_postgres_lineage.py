"""Lineage of a log in PostgreSQL: the answers of the embedded log, in a number of round trips that does not grow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.compute as pc
import pytest
from tests.postgres import Database
from tests.unit.lineage import test_retried as retried
from tests.unit.lineage.pipelines import Each, figure_2, numbers
from tests.unit.store.views import log_url

import logline as ll
from logline.engine.events import Output
from logline.lineage.records import Chosen
from logline.lineage.trace import Trace
from logline.lineage.view import Event, LogView
from logline.names import OUT, InstanceName, Ssn
from logline.store.copying import copy_log
from logline.store.postgres.connections import Connections

EVENTS = 2000


def many(events: int) -> ll.Pipeline:
    """numbers -> kept (all but numbers:8, of which nothing comes) -> tens -> store."""
    p = ll.Pipeline("many")
    kept = p.source("numbers", Each(*map(numbers, range(events)))).filter("kept", pc.field("n") != 7)
    kept.window("tens", ll.events(10), agg={"total": ("n", "sum")}).sink("store", ll.sinks.collect())
    p.lineage()
    return p


def in_both(url: str, postgres: Database) -> tuple[ll.Log, ll.Log]:
    """The log at that address, and a copy of it in PostgreSQL."""
    copy_log(url, log_url(postgres), keep=True)
    return ll.open_log(url), ll.open_log(log_url(postgres))


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is asked of the server, and how often a connection is taken for it."""
    asked: list[str] = []
    run: Callable[..., Any] = Connections.run
    execute: Callable[..., Any] = psycopg.Connection.execute

    def running(self: Connections, work: Any, **options: Any) -> Any:
        asked.append("connection")
        return run(self, work, **options)

    def executing(self: Any, query: Any, *given: Any, **options: Any) -> Any:
        asked.append(str(query))
        return execute(self, query, *given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Connections, "run", running)
        patch.setattr(psycopg.Connection, "execute", executing)
        yield asked


@pytest.mark.parametrize(
    ("way", "few", "all_"),
    [("backward", "tens:2..3", "tens"), ("forward", "numbers:7..9", "numbers")],
)
def test_as_many_statements_for_many_events_as_for_few(
    way: str, few: str, all_: str, postgres: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(EVENTS).run(f"lmdb:{tmp_path}/log", engine="inline")
    here, there = in_both(f"lmdb:{tmp_path}/log", postgres)
    last = {port: here.store.read(InstanceName(port)).put_out(OUT) for port in ("tens", "numbers")}
    statements, rows = [], 0
    for asked in (few, few, f"{all_}:1..{last[all_]}"):  # the first one finds out which journals there are
        with counted(monkeypatch) as count:
            found = getattr(there, way)(asked)
        assert found == getattr(here, way)(asked)
        statements.append(len(count))
        rows = found.num_rows
    assert rows > EVENTS
    assert statements[1] == statements[2]
    there.store.close()


def test_as_many_statements_for_the_records_and_calls_of_many_events(
    postgres: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(80).run(f"lmdb:{tmp_path}/log", engine="inline")
    here, there = in_both(f"lmdb:{tmp_path}/log", postgres)
    questions: dict[str, Callable[[ll.Log, str], Any]] = {
        "records": lambda log, asked: log.forward(asked, records=True),
        "records that fit": lambda log, asked: log.forward(asked, records=True, where="n < 1000"),
        "calls": lambda log, asked: log.calls(asked),
    }
    statements: dict[str, list[int]] = {}
    for asked in (
        "numbers:7..9",
        "numbers:7..9",
        "numbers:1..80",
    ):  # the first one finds out which journals there are
        for name, question in questions.items():
            with counted(monkeypatch) as count:
                found = question(there, asked)
            assert found == question(here, asked)
            statements.setdefault(name, []).append(len(count))
    assert {name: few for name, (_, few, _) in statements.items()} == {
        name: all_ for name, (_, _, all_) in statements.items()
    }
    with counted(monkeypatch) as count:
        assert there.table("lineage_edges") == here.table("lineage_edges")
    assert len(count) < 80
    there.store.close()


def test_records_of_events_that_are_collected_meanwhile(tmp_path: Path) -> None:
    many(20).run(f"lmdb:{tmp_path}/log", engine="inline")
    view = LogView(ll.open_log(f"lmdb:{tmp_path}/log").store)
    there, gone = (*view.port("numbers"), Ssn(3)), (*view.port("numbers"), Ssn(99))
    seen: dict[Event, Output | None] = dict.fromkeys([there, gone], view.reader(there[0]).headers(OUT, [Ssn(3)])[0])
    chosen = Chosen(view, Trace("backward", [there, gone], headers=seen), None)
    assert chosen.rows == {there: {0}, gone: set()}


def test_the_same_answers_where_errors_were_retried(postgres: Database, tmp_path: Path) -> None:
    retried.finished(tmp_path, f"lmdb:{tmp_path}/log", scope=True)
    check_all(
        *in_both(f"lmdb:{tmp_path}/log", postgres), ports=("events", "chosen", "chosen.errors", "sums", "twice")
    )


def test_the_same_answers_on_several_ports(postgres: Database, tmp_path: Path) -> None:
    figure_2("R2.out", "OP3.out").run(f"lmdb:{tmp_path}/log", engine="inline")
    check_all(*in_both(f"lmdb:{tmp_path}/log", postgres), ports=("R1", "R2", "OP1.out1", "OP1.out2", "OP2", "OP3"))


def check_all(here: ll.Log, there: ll.Log, ports: tuple[str, ...]) -> None:
    for port in ports:
        for way in ("backward", "forward"):
            assert getattr(there, way)(port) == getattr(here, way)(port), (way, port)
            assert getattr(there, way)(port, records=True) == getattr(here, way)(port, records=True), (way, port)
    assert there.table("lineage_edges") == here.table("lineage_edges")
    there.store.close()
