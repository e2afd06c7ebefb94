"""The queries of Nexmark equal SQL over the same data: in a calm run, with crashes of every operator, and when
processes are killed."""

from __future__ import annotations

import doctest
import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path

import pyarrow as pa
import pytest
from examples.nexmark import generator, suite
from examples.nexmark.generator import Data, generate
from examples.nexmark.suite import QUERIES, agrees, pipeline
from tests.examples.test_examples import run as run_example
from tests.waiting import PATIENCE, until

import logline as ll
from logline.runtime.control.supervisor import Supervisor

RECORDS, KILLS = 3000, 3


@pytest.fixture(scope="module")
def data() -> Data:
    return generate(RECORDS)


@pytest.mark.parametrize("module", [generator, suite])
def test_the_examples_in_the_modules_run(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


def test_the_data_is_out_of_order_and_crosses_midnight(data: Data) -> None:
    times = data["bids"]["date_time"].to_pylist()
    assert times != sorted(times)
    assert len({at.date() for at in times}) == 2


@pytest.mark.parametrize("name", QUERIES)
def test_a_calm_run_equals_sql(name: str, data: Data) -> None:
    run = pipeline(name, data, rows=100).run(engine="inline")
    found = run.result("store")
    assert found.num_rows
    assert agrees(name, found, data)
    counters = {name: operator.counters for name, operator in run.status().operators.items() if operator.counters}
    assert counters == {}  # nothing was late


@pytest.mark.parametrize("name", QUERIES)
def test_crashes_of_every_operator_change_nothing(name: str, data: Data) -> None:
    p = pipeline(name, data)
    victims = cycle(p.graph().nodes)
    script: dict[str, list[ll.Tabular | ll.testing.CRASH]] = {}
    for kind in QUERIES[name].inputs:
        script[kind] = []
        for batch in data[kind].to_batches(max_chunksize=data[kind].num_rows // 12):
            script[kind] += [batch, ll.testing.CRASH(next(victims))]
    found = ll.testing.run(p, script)
    assert agrees(name, found["store"], data)


def test_windows_of_processing_time_are_those_of_the_clock(data: Data) -> None:
    """Query 12 is compared over all windows; these are the ones in which it ran."""
    before = datetime.now(UTC)
    found = pipeline("q12", data).run(engine="inline").result("store").to_pylist()
    size = timedelta(seconds=10)
    for row in found:
        assert row["window_end"] - row["window_start"] == size
        assert row["window_start"].timestamp() % 10 == 0
        assert before < row["window_end"] and row["window_start"] <= datetime.now(UTC)


def in_parts(table: pa.Table, rows: int) -> list[list[pa.RecordBatch]]:
    """The batches of a table, some of them before each kill and some after the last one."""
    batches = table.to_batches(max_chunksize=rows)
    size = -(-len(batches) // (KILLS + 1))
    return [batches[part * size : (part + 1) * size] for part in range(KILLS + 1)]


def paced(parts: list[list[pa.RecordBatch]], folder: str) -> Callable[[], Iterator[pa.RecordBatch]]:
    """A part of the batches for each file that the test has made."""

    def read() -> Iterator[pa.RecordBatch]:
        for number, part in enumerate(parts):
            while not Path(folder, str(number)).exists():
                time.sleep(0.01)
            yield from part

    return read


@pytest.mark.parametrize(("name", "victim", "rows"), [("q4", "joined", 20), ("q8", "active", 5), ("q11", "q11", 60)])
def test_kills_of_a_process_change_nothing(
    name: str, victim: str, rows: int, data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Supervisor, "soon", 0.0)  # so many deaths in a row are no crash loop
    parts = {kind: in_parts(data[kind], rows) for kind in QUERIES[name].inputs}
    job = pipeline(name, {kind: paced(each, str(tmp_path)) for kind, each in parts.items()}, rows=rows)
    with job.start(f"lmdb:{tmp_path / 'log'}", engine="processes", durability="process") as run:
        sent = 0
        for number in range(KILLS):
            (tmp_path / str(number)).touch()
            sent += sum(len(each[number]) for each in parts.values())
            until(lambda sent=sent: run.status().operators[victim].taken >= sent)  # type: ignore[misc]
            pid = until(lambda: run.pid(victim))
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            until(lambda number=number: run.status().operators[victim].restarts > number)  # type: ignore[misc]
        (tmp_path / str(KILLS)).touch()
        assert run.wait(PATIENCE).phase == "finished"
        assert agrees(name, run.result("store"), data)


def test_the_command_compares_with_sql(tmp_path: Path) -> None:
    said = run_example(
        tmp_path, "-m", "examples.nexmark", "--records", "3000", "--rows", "500", "--repeats", "1", "q1", "q7"
    )
    assert said.count("equal") == 2
