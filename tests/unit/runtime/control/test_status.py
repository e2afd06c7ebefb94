"""What a status says is so: lag, writes, rows within an event, processes, and what a drain waits for."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.waiting import PATIENCE, until

import logline as ll
from logline.engine.events import Output, Position
from logline.engine.step import Step
from logline.graph.instances import Channel
from logline.names import OUT, ChannelName, InstanceName, PortName, Serial, Ssn
from logline.runtime.control.progress import Rates, line
from logline.runtime.log.log_status import log_status
from logline.runtime.status import OperatorStatus, Status, TargetStatus, lag_behind
from logline.store.memory import MemoryStore

ENGINES = pytest.mark.parametrize("engine", ["inline", "processes"])


class Gated(ll.Sink):
    """Takes the first two writes, the others when there is a file."""

    guarantee = "named"

    def __init__(self, gate: Path, *, fails: bool = False) -> None:
        self.gate, self.fails = gate, fails

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        if number > 2 and self.fails and not self.gate.exists():
            raise ConnectionError("it is away")
        if number > 2:
            until(self.gate.exists)


class Numbers(ll.Source):
    """One number in an event, up to `last`; then nothing more comes, and it does not end."""

    schema = pa.schema({"n": pa.int64()})
    gather = False

    def __init__(self, last: int) -> None:
        self.last = last

    def read(self, partition: str, offset: Any) -> Iterator[Any]:
        for n in range(offset or 0, self.last):
            yield pa.record_batch({"n": [n]}), n + 1
        while True:
            yield None


@contextmanager
def draining(run: ll.Run, gate: Path) -> Iterator[None]:
    """A drain under way, which goes on when the block opens the gate or ends."""
    drain = threading.Thread(target=lambda: run.stop(drain=True, timeout=PATIENCE))
    drain.start()
    try:
        yield
    finally:
        gate.touch()
        drain.join(PATIENCE)


@ENGINES
@pytest.mark.parametrize("fails", [False, True])
def test_writes_are_written_or_pending_and_a_drain_waits_for_them(tmp_path: Path, engine: Any, fails: bool) -> None:
    gate = tmp_path / "gate"
    p = ll.Pipeline("gated")
    p.source("numbers", Numbers(5)).sink(
        "store", Gated(gate, fails=fails), retry=ll.Retry(attempts=1000, wait="10ms")
    )
    with p.start(f"lmdb:{tmp_path}/log", engine=engine) as run:
        until(lambda: run.status().operators["store"].targets == {"out": TargetStatus(2, 3)})
        assert run.status().operators["store"].waits == ""  # it goes on
        until(lambda: log_status(run.log.store).operators["store"].targets == {"out": TargetStatus(2, 3)})
        with draining(run, gate):
            wanted = "3 writes to target 'out' are not done" + (": write 3 failed" if fails else "")
            until(lambda: wanted in run.status().operators["store"].waits)
            assert f"store waits: {wanted}" in str(run.status())
            assert "waits: 3 writes to target 'out'" in line("gated", run.status())
            until(lambda: wanted in log_status(run.log.store).operators["store"].waits)
        after = run.status().operators["store"]
    assert (after.written, after.pending, after.waits) == (5, 0, "")


@ENGINES
def test_rows_within_an_event_and_the_call_that_a_drain_waits_for(tmp_path: Path, engine: Any) -> None:
    gate = tmp_path / "gate"

    def score(row: dict[str, Any], ctx: Any) -> dict[str, Any]:
        if row["n"] >= 3:
            until(gate.exists)
        return row

    p = ll.Pipeline("rows")
    rows = p.source("numbers", ll.sources.batches([pa.table({"n": [0, 1, 2, 3, 4]})]))
    rows.map_rows("score", score, schema="n long", concurrency=5).sink("store", ll.sinks.collect())
    with p.start(f"lmdb:{tmp_path}/log", engine=engine) as run:
        until(lambda: run.status().operators["score"].progress == "3 of 5 rows")
        assert "score: 3 of 5 rows answered" in str(run.status())
        with draining(run, gate):
            wanted = "input set numbers:1 is in generation, 3 of 5 rows answered, "
            waits = until(
                lambda: [w for w in run.status().operators["score"].waits.split("; ") if w.startswith(wanted)]
            )
            assert waits[0].endswith(("score asked for row 3", "score asked for row 4"))
        assert run.result("store")["n"].to_pylist() == [0, 1, 2, 3, 4]
        assert run.status().operators["score"].progress == ""


def test_a_drain_waits_for_the_call_of_a_set(tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def ask() -> int:
        until(gate.exists)
        return 7

    class Asking(ll.Operator[Any, Any]):
        outputs = {"out": "n long"}  # noqa: RUF012

        def generate(self, inset: Any, acc: Any, ctx: Any) -> Iterator[Any]:
            ctx.call(ask)
            yield acc

    p = ll.Pipeline("asking")
    p.source("numbers", Numbers(1)).apply("op", Asking(), concurrency=2).sink("store", ll.sinks.collect())
    with p.start(engine="inline") as run:
        until(lambda: run.status().operators["op"].in_flight)
        with draining(run, gate):
            wanted = "input set numbers:1 is in generation and waits for an answer of "
            waits = until(lambda: [w for w in run.status().operators["op"].waits.split("; ") if w.startswith(wanted)])
            assert waits[0].endswith(".ask")


@ENGINES
def test_each_operator_has_its_process_and_host(tmp_path: Path, engine: Any) -> None:
    p = ll.Pipeline("numbers")
    p.source("numbers", Numbers(3)).sink("store", ll.sinks.collect())
    with p.start(f"lmdb:{tmp_path}/log", engine=engine) as run:
        until(lambda: all(o.pid for o in run.status().operators.values()))
        found = {name: (o.pid, o.host) for name, o in run.status().operators.items()}
        assert found == {name: (run.pid(name), socket.gethostname()) for name in found}
        assert (found["store"][0] == os.getpid()) == (engine == "inline")
        until(lambda: log_status(run.log.store).operators["store"].pid == found["store"][0])
    assert [(o.pid, o.host) for o in run.status().operators.values()] == [(None, ""), (None, "")]
    assert log_status(run.log.store).operators["store"].pid is None


def mark(ssn: int, kind: Any) -> Output:
    return Output(OUT, Ssn(ssn), None, 0, 0, 0, Serial(0), kind)


def event(ssn: int) -> Output:
    return Output(OUT, Ssn(ssn), pa.record_batch({"n": [ssn]}), 1, 8, 8 * ssn, Serial(0))


def test_a_mark_is_no_lag() -> None:
    sender, receiver = InstanceName("numbers"), InstanceName("store")
    channel = Channel(ChannelName("numbers.out>store.in"), sender, OUT, receiver, PortName("in"))
    store = MemoryStore()
    journal = store.claim(sender)
    journal.commit(Step(number=1, outputs=[event(1), event(2), mark(3, "end")], ended=True))

    def lag(ssn: int, marks: int) -> int:
        return lag_behind(store, [channel], {channel.name: Position(Ssn(ssn), 0, marks)})

    assert [lag(0, 0), lag(1, 0), lag(2, 0), lag(3, 1)] == [2, 1, 0, 0]
    journal.commit(Step(number=2, outputs=[mark(4, "reopened"), event(5)], reopened=True))
    assert [lag(2, 0), lag(3, 1), lag(4, 2), lag(5, 2)] == [1, 1, 1, 0]


def test_a_run_that_goes_on_begins_with_what_is_logged(tmp_path: Path) -> None:
    """Before the first report: a rate from zero to there would be a spike."""

    def start(last: int) -> ll.Run:
        p = ll.Pipeline("numbers")
        p.source("numbers", Numbers(last)).sink("store", ll.sinks.collect())
        return p.start(f"lmdb:{tmp_path}/log", engine="processes")

    with start(20) as run:
        until(lambda: run.status().operators["store"].written == 20)
    with start(30) as run:
        first = run.status().operators
        assert (first["numbers"].out, first["store"].taken, first["store"].written) == (20, 20, 20)


def test_rates_begin_with_the_first_look_and_count_nothing_twice() -> None:
    def look(**taken: int) -> Status:
        return Status("running", {name: OperatorStatus(taken=n) for name, n in taken.items()})

    rates = Rates()
    assert rates.note(look(a=1000), 0.0) == {"a": 0.0}
    assert rates.note(look(a=1010, b=5000), 1.0) == {"a": 10.0, "b": 0.0}
    assert rates.note(look(a=1000, b=5000), 2.0)["a"] == 5.0  # a new life: the rate steps back, never below nothing
    assert rates.note(look(a=1010, b=5000), 2.5)["a"] == 4.0  # what is done again is not counted again


def test_errors_are_those_that_are_open() -> None:
    def refuse(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise ValueError("no")

    p = ll.Pipeline("refused")
    numbers = p.source("numbers", ll.sources.batches([pa.table({"n": [1]}), pa.table({"n": [2]})]), rows=1)
    numbers.map_batches("op", refuse, schema="n long", on_error="divert").sink("store", ll.sinks.collect())
    run = p.run("memory:open-errors", engine="inline")
    assert run.status().summary == "finished, 2 errors open"
    run.drop("op.errors:1")
    after = log_status(run.log.store).operators["op"]
    assert (after.errors, after.errors_ever) == (1, 2)


@ENGINES
def test_errors_that_are_being_retried_are_not_open(tmp_path: Path, engine: Any) -> None:
    gate, log = tmp_path / "gate", f"lmdb:{tmp_path / 'log'}"
    p = ll.Pipeline("p")

    def ask(row: dict[str, Any], ctx: Any) -> dict[str, Any]:
        if (tmp_path / "fixed").exists():
            until(gate.exists)
        elif row["n"] < 2:
            raise ValueError("no")
        return row

    asked = p.source("s", Numbers(3)).map_rows("m", ask, schema="n long", on_error="divert")
    asked.sink("store", ll.sinks.collect())

    def errors(status: Any) -> tuple[int, int, int]:
        one = status.operators["m"]
        return one.errors, one.errors_retried, one.errors_ever

    with p.start(log, engine=engine) as run:
        until(lambda: errors(run.status()) == (2, 0, 2) and run.log.errors().num_rows == 2)  # and they are logged
        (tmp_path / "fixed").touch()
        run.retry("m.errors:1")
        until(lambda: errors(run.status()) == (1, 1, 2))
        assert errors(log_status(run.log.store)) == (1, 1, 2) and run.status().open_errors == 1
        assert "m: 1 error being retried" in run.status().remarks
        assert "1 errors, 1 errors being retried" in line("p", run.status())
        gate.touch()
        until(lambda: errors(run.status()) == (1, 0, 2))
    run.retry("m.errors:2")  # at rest
    assert errors(log_status(run.log.store)) == (0, 1, 2)


@ENGINES
def test_late_rows_are_told(tmp_path: Path, engine: Any) -> None:
    """Also after the run, and of earlier ones: the log has them."""
    times = [datetime(2026, 1, 1, hour) for hour in (1, 5, 1, 2)]
    p = ll.Pipeline("p")
    events = [pa.table({"at": pa.array([at], pa.timestamp("us")), "n": [1]}) for at in times]
    events.append(pa.table({"at": pa.array([None], pa.timestamp("us")), "n": [1]}))
    hourly = p.source("rows", ll.sources.batches(events), rows=1).window(
        "hourly", ll.tumbling("1h", on="at"), agg={"n": ("n", "sum")}
    )
    hourly.sink("store", ll.sinks.collect())
    log = f"lmdb:{tmp_path / 'log'}"
    status = p.run(log, engine=engine).status()
    assert status.operators["hourly"].late == 3 and status.operators["store"].late == 0
    wanted = "hourly: 3 events on hourly.late (in this run 2 rows too late, 1 row without a time)"
    assert wanted in status.remarks and "3 late" in line("p", status)
    again = p.run(log, engine=engine)
    assert again.status().remarks == ["hourly: 3 events on hourly.late"]
    assert log_status(again.log.store).operators["hourly"].late == 3
