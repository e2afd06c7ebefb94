"""A port of which the log holds a part only is announced as that, to whoever reads all of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from tests.cli.harness import logline

import logline as ll
from logline.engine.events import Collection
from logline.engine.step import Step
from logline.names import OUT, InstanceName, Ssn

HOLDS = (
    r"^orders holds 10\.\.12 of 1\.\.12: the other events are collected, .*put it into a lineage scope: p\.lineage\("
)


def logged(url: str, *, scope: bool, collected: int) -> ll.Log:
    """Twelve events, of which the first ones were collected, as a long run does."""
    p = ll.Pipeline("sales")
    orders = p.source("orders", ll.sources.batches([pa.table({"n": [n]}) for n in range(1, 13)]), rows=1)
    orders.sink("store", ll.sinks.collect())
    if scope:
        p.lineage()
    p.run(url, engine="inline")
    log = ll.open_log(url)
    if collected:
        journal = log.store.claim(InstanceName("orders"))
        upto = Collection(Ssn(collected + 1), frozenset())
        journal.commit(Step(number=journal.image.commits + 1, collected={OUT: upto}))
        journal.close()
    return log


@pytest.mark.parametrize(
    "ask",
    [
        lambda log: log.sql("select count(*) as n from orders")["n"][0].as_py(),
        lambda log: log.read("orders").num_rows,
        lambda log: log.read("orders.out").num_rows,
    ],
)
def test_sql_and_read_of_a_port_warn_at_the_line_that_asks(ask: Callable[[ll.Log], int]) -> None:
    log = logged(f"memory:partial-{id(ask)}", scope=True, collected=9)
    with pytest.warns(ll.PartialData, match=HOLDS) as warned:
        assert ask(log) == 3
    assert warned[0].filename == __file__


def test_a_port_that_is_whole_is_read_without_a_word(recwarn: pytest.WarningsRecorder) -> None:
    log = logged("memory:whole", scope=True, collected=0)
    assert log.read("orders")["n"].to_pylist() == list(range(1, 13))
    assert log.sql("select count(*) as n from orders")["n"].to_pylist() == [12]
    assert not recwarn.list


def test_a_port_of_which_nothing_is_left() -> None:
    log = logged("memory:nothing", scope=False, collected=0)
    with pytest.warns(ll.PartialData, match=r"orders holds none of 1\.\.12"):
        assert log.read("orders").schema == pa.schema({"n": pa.int64()})


def test_tables_and_other_ports_are_not_spoken_of() -> None:
    log = logged("memory:tables", scope=True, collected=9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log.sql("select count(*) from event_log")
        log.read("orders:10..12")


def test_the_command_line_says_it_in_a_line(tmp_path: Path) -> None:
    logged(f"lmdb:{tmp_path / 'log'}", scope=True, collected=9)
    ran = logline("sql", tmp_path / "log", "select count(*) as n from orders")
    assert ran.returncode == 0 and "3" in ran.stdout
    (line,) = ran.stderr.splitlines()
    assert line.startswith("logline: orders holds 10..12 of 1..12: ")
