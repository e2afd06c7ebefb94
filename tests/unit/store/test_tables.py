"""The five tables as a join of journals, each of them written here by hand."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.protocol.stepper import rows
from tests.unit.graph.graphs import ID, Pass, graph, middle, sink, source
from tests.unit.runtime.taps import Threes
from tests.waiting import PATIENCE

from logline.connectors import sinks, sources
from logline.engine import codec
from logline.engine.events import Collection, Output, Position
from logline.engine.history import Finished
from logline.engine.progress import Progress
from logline.engine.sets import Member
from logline.engine.step import Step
from logline.graph.model import Graph, Scope
from logline.graph.record import record_of
from logline.names import (
    ChannelName,
    InsetId,
    InstanceName,
    OperatorName,
    PartitionName,
    PortName,
    Serial,
    Ssn,
    TargetName,
)
from logline.pipeline import Pipeline
from logline.runtime.control.launch import start as start_inline
from logline.runtime.control.settings import StartSettings
from logline.store import tables
from logline.store.memory import MemoryStore
from logline.store.seam import Meta
from logline.testing.conformance.model import step_of

CHANNEL = ChannelName("orders.out>hourly.in")


class Logged:
    """Journals of a graph; each `commit` is a step of one instance."""

    def __init__(self, graph: Graph, **actions: dict[str, str]) -> None:
        self.store = MemoryStore()
        self.store.set_meta(Meta(graph.name, msgspec.structs.replace(record_of(graph), actions=actions)))
        self.journals = {n: self.store.claim(InstanceName(n)) for n in graph.nodes}
        self.counts = dict.fromkeys(graph.nodes, 0)

    def commit(self, name: str, **step: Any) -> None:
        operator = OperatorName(name)
        self.counts[operator] += 1
        self.journals[operator].commit(step_of(number=self.counts[operator], **step))

    def table(self, name: str) -> list[tuple[Any, ...]]:
        meta = self.store.meta()
        assert meta is not None
        return rows(tables.TABLES[name](self.store, meta.graph))


def batch(*ids: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(ids, pa.int64())], schema=ID)


def event(ssn: int, port: str = "out", serial: int = 0, *, end: bool = False) -> Output:
    payload = None if end else batch(ssn)
    return Output(PortName(port), Ssn(ssn), payload, 1, 8, 8 * ssn, Serial(serial), "end" if end else "event")


def taken(ssn: int) -> dict[ChannelName, Position]:
    return {CHANNEL: Position(Ssn(ssn), 8 * ssn)}


def orders_to(receiver: Any, scopes: tuple[Scope, ...] = ()) -> Logged:
    return Logged(graph([source("orders"), receiver], f"orders>{receiver.name}", scopes))


def stateful(name: str = "hourly") -> Any:
    return middle(name, op=Threes("tables"))


# ---- EVENT_LOG --------------------------------------------------------------------------------------------


def test_status_and_set_of_an_event_on_a_connection() -> None:
    log = orders_to(stateful())
    log.commit("orders", outputs=[event(n) for n in range(1, 6)])
    step = Step()
    step.open(Serial(1), "a", [Member(CHANNEL, Ssn(1)), Member(CHANNEL, Ssn(2))])
    step.open(Serial(2), "b", [Member(CHANNEL, Ssn(2)), Member(CHANNEL, Ssn(3))])
    step.open(Serial(3), "c", [Member(CHANNEL, Ssn(3))])
    log.commit("hourly", positions=taken(4), opened=step.sets.opened, due={Serial(2): "ready"})
    log.commit("hourly", done=[Serial(1)])
    of = ("orders", "out", "hourly", "in")
    assert log.table("event_log") == [
        ("orders:1", "done", *of, "a#1"),
        ("orders:2", "done", *of, "a#1"),
        ("orders:2", "undone", *of, "b#2"),  # due is not done
        ("orders:3", "undone", *of, "b#2"),
        ("orders:3", "undone", *of, "c#3"),
        ("orders:4", "done", *of, None),  # taken into no set
        ("orders:5", "undone", *of, None),  # above the position
    ]


def test_a_set_that_began_and_ended_within_a_step() -> None:
    log = orders_to(stateful())
    log.commit("orders", outputs=[event(1)])
    finished = Finished(Serial(7), "a", (Member(CHANNEL, Ssn(1)),))
    log.commit("hourly", positions=taken(1), finished=[finished])
    assert [(row[1], row[6]) for row in log.table("event_log")] == [("done", "a#7")]


def test_an_id_used_again_is_another_set() -> None:
    log = orders_to(stateful())
    log.commit("orders", outputs=[event(1), event(2)])
    step = Step()
    step.open(Serial(2), "a", [Member(CHANNEL, Ssn(2))])
    finished = Finished(Serial(1), "a", (Member(CHANNEL, Ssn(1)),))
    log.commit("hourly", positions=taken(2), finished=[finished], opened=step.sets.opened)
    assert [(row[1], row[6]) for row in log.table("event_log")] == [("done", "a#1"), ("undone", "a#2")]


def test_a_stateless_receiver_has_a_set_per_event_named_after_it() -> None:
    log = orders_to(middle("hourly", op=Pass()))
    log.commit("orders", outputs=[event(n) for n in (1, 2, 3)])
    log.commit("hourly", positions=taken(2), alone={Serial(2): Member(CHANNEL, Ssn(2))})
    assert [(row[0], row[1], row[6]) for row in log.table("event_log")] == [
        ("orders:1", "done", "orders:1"),
        ("orders:2", "undone", "orders:2"),
        ("orders:3", "undone", None),
    ]


def test_a_row_per_connection_and_none_for_an_end_or_what_is_collected() -> None:
    nodes = [source("orders"), middle("hourly"), middle("daily")]
    log = Logged(graph(nodes, "orders>hourly orders>daily"))
    log.commit("orders", outputs=[event(1), event(2), event(3), event(4, end=True)], ended=True)
    log.commit("orders", collected={PortName("out"): Collection(Ssn(3), frozenset({Ssn(1)}))})
    assert [(row[0], row[4]) for row in log.table("event_log")] == [
        ("orders:1", "hourly"),  # kept below the base: a member of somebody's open set
        ("orders:3", "hourly"),
        ("orders:1", "daily"),
        ("orders:3", "daily"),
    ]
    assert [row[0] for row in log.table("event_data")] == ["orders:1", "orders:3"]


def test_writes_are_done_up_to_a_number() -> None:
    log = orders_to(sink("store"))
    log.commit("store", outputs=[event(n, "@out", n) for n in (1, 2)])
    log.commit("store", written={TargetName("out"): 1})
    of = ("store", None, "store", "out", None)
    assert log.table("event_log") == [("store.@out:1", "done", *of), ("store.@out:2", "undone", *of)]
    assert [row[:4] for row in log.table("event_data")] == [
        ("store.@out:1", "store", None, 1),
        ("store.@out:2", "store", None, 1),
    ]


# ---- EVENT_DATA -------------------------------------------------------------------------------------------


def test_the_body_is_an_arrow_stream() -> None:
    log = orders_to(stateful())
    log.commit("orders", outputs=[event(4)])
    ((event_id, send_op, send_port, count, nbytes, header, body),) = log.table("event_data")
    assert (event_id, send_op, send_port, count, nbytes, header) == ("orders:4", "orders", "out", 1, 8, None)
    assert pa.ipc.open_stream(body).read_all().to_batches() == [batch(4)]


# ---- READ_ACTION and STATE --------------------------------------------------------------------------------


def not_replayable() -> Logged:
    numbers = source("orders")
    assert numbers.source is not None
    numbers.source.replayable = False
    return Logged(graph([numbers, stateful()], "orders>hourly"), orders={"0": "SELECT 1", "1": "SELECT 2"})


def test_reads_from_incomplete_to_done() -> None:
    log = not_replayable()
    assert [row[:4] for row in log.table("read_action")] == [
        ("orders.0:r1", "incomplete", "orders", "0"),
        ("orders.1:r1", "incomplete", "orders", "1"),
    ]
    zero = PartitionName("0")
    complete = Progress(1, "complete", codec.encode(9), Ssn(2), 16)
    log.commit("orders", staged=[event(1), event(2)], progress={zero: complete})
    of = ("orders", "0", "orders", None, None)
    assert log.table("read_action")[0] == ("orders.0:r1", "complete", "orders", "0", "SELECT 1")
    assert log.table("event_log") == [("orders.0:r1", "undone", *of)]
    header = json.dumps({"effect": "orders:1..2"})
    assert log.table("event_data") == [("orders.0:r1", "orders", None, None, None, header, None)]
    (state,) = log.table("state")
    assert json.loads(state[2])["0"] == {"offset": 9, "shown": 0, "until": 2}
    done = complete._replace(status="done")
    log.commit("orders", reveal={PortName("out"): (Ssn(2), 16)}, progress={zero: done})
    assert log.table("event_log")[0] == ("orders.0:r1", "done", *of)
    assert [row[0] for row in log.table("event_data")] == ["orders:1", "orders:2"]
    log.commit("orders", progress={zero: Progress(2, offset=done.offset)})
    assert log.table("read_action")[0][:2] == ("orders.0:r2", "incomplete")


def test_the_global_state_is_shown_as_json() -> None:
    log = orders_to(stateful())
    assert log.table("state") == []
    log.commit("hourly", state=msgspec.msgpack.encode({"seen": 3, "at": datetime(2010, 10, 2, tzinfo=UTC)}))
    assert log.table("state") == [("hourly:s", "hourly", '{"seen":3,"at":"2010-10-02T00:00:00Z"}')]


@pytest.mark.parametrize(
    ("inset", "text"),
    [
        (datetime(2010, 10, 2, 5, tzinfo=UTC), "2010-10-02T05:00:00+00:00#1"),
        (7, "7#1"),
        ("BZ234", "BZ234#1"),
        (("late", 3), "(late, 3)#1"),
    ],
)
def test_how_a_set_is_shown(inset: InsetId, text: str) -> None:
    assert tables.inset_text(inset, Serial(1)) == text


# ---- EVENT_LINEAGE ----------------------------------------------------------------------------------------


def test_lineage_only_where_it_is_enabled() -> None:
    scope = Scope(None, (OperatorName("hourly"), PortName("out")), codec.instant(1) - codec.instant(0))
    rows = [("hourly.errors:1", "hourly", "errors", "a#1"), ("hourly:1", "hourly", "out", "a#1")]
    for scopes, expected in (((), []), ((scope,), rows)):
        log = orders_to(stateful(), scopes)
        log.commit("orders", outputs=[event(1)])
        finished = Finished(Serial(1), "a", (Member(CHANNEL, Ssn(1)),))
        made = [event(1, serial=1), event(1, "errors", 1), event(2, end=True)]
        log.commit("hourly", positions=taken(1), finished=[finished], outputs=made)
        assert log.table("event_lineage") == expected


# ---- while it grows ---------------------------------------------------------------------------------------


def test_tables_of_a_pipeline_at_work() -> None:
    """Journals grow and are collected under the reader's feet; no table minds."""
    p = Pipeline("busy")
    orders = p.source("orders", sources.batches([pa.table({"id": [n]}) for n in range(3000)]), rows=1)
    threes = orders.apply("threes", Threes("busy"))
    threes.sink("store", sinks.collect())
    run = start_inline(p.graph(), StartSettings())
    looks = 0
    while run.status().phase == "running":
        for name in tables.TABLES:
            run.log.table(name)
        looks += 1
    assert run.wait(PATIENCE).phase == "finished"
    assert looks
    left = run.log.table("event_data")["send_op"].unique().to_pylist()
    assert left == ["store"]  # the writes of collect() are its result; nothing else is needed any more
    assert sum(run.result("store")["id"].to_pylist()) == sum(range(3000))
