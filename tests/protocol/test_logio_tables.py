"""Tables 1-6 of LOG.io with Examples 6-8: the paper's logs, and what comes of them after a crash.

a_i is `OP1:i`, b_i is `OP3:i`; I_k is (hour, serial), shown as `2010-10-02T05:00:00+00:00#1`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.protocol.sales import A1, A2, A3, HOUR, HOURS, Batches, Database, H, Query, Store, Take
from tests.protocol.stepper import Stepper

from logline.connectors import sinks
from logline.engine import actions as do
from logline.names import InstanceName, PortName
from logline.pipeline import Pipeline

I_1, I_2, I_3 = (f"{(H + k * HOUR).isoformat()}#{k + 1}" for k in range(3))

TABLE_4 = {
    ("OP1:1", "done", "OP1", "out", "OP3", "in", I_1),
    ("OP1:2", "done", "OP1", "out", "OP3", "in", I_1),
    # The paper prints "undone" here. By step 4 of its Algorithm 3 the transaction that logs b_2 marks the events
    # of I_2 as done, and Table 5 has b_2 of I_2: this row is as it was before b_2.
    ("OP1:2", "done", "OP1", "out", "OP3", "in", I_2),
    ("OP3:1", "undone", "OP3", "out", "OP4", "in", None),
    ("OP1:3", "undone", "OP1", "out", "OP3", "in", I_3),
    ("OP3:2", "undone", "OP3", "out", "OP4", "in", None),
}
TABLE_5 = {("OP3:1", "OP3", "out", I_1), ("OP3:2", "OP3", "out", I_2)}
TABLE_6 = {
    ("OP1:1", "done", "OP1", "out", "OP3", "in", I_1),
    ("OP1:2", "done", "OP1", "out", "OP3", "in", I_1),
    ("OP1:2", "undone", "OP1", "out", "OP3", "in", I_2),
    ("OP3:1", "undone", "OP3", "out", "OP4", "in", None),
    ("OP1:3", "undone", "OP1", "out", "OP3", "in", None),
}


# ---- Example 6, Tables 1-3: a read that is not replayable -------------------------------------------------


@pytest.fixture
def example_6() -> Stepper:
    """Steps 2.a and 2.b of Algorithm 1 have passed; of step 2.c two events of three."""
    p = Pipeline("example-6")
    p.source("OP", Query(Database([A1, A2, A3]), replayable=False)).apply("OP-prime", Take())
    s = Stepper(p)
    s.start("OP")
    s.run("OP", until=lambda: s.sent("OP") == 2)
    return s


def test_table_1_read_action(example_6: Stepper) -> None:
    assert example_6.rows("read_action") == [("OP.Cx:r1", "complete", "OP", "Cx", "text of action A")]


def test_table_2_event_log(example_6: Stepper) -> None:
    assert example_6.rows("event_log") == [
        ("OP.Cx:r1", "undone", "OP", "Cx", "OP", None, None),
        ("OP:1", "undone", "OP", "out", "OP-prime", "in", None),
        ("OP:2", "undone", "OP", "out", "OP-prime", "in", None),
    ]


def test_table_3_event_data(example_6: Stepper) -> None:
    """The paper shows the row of r_1; by step 2.c a_1 and a_2 are there too."""
    r_1, *events = example_6.rows("event_data")
    assert r_1 == ("OP.Cx:r1", "OP", None, None, None, json.dumps({"effect": "OP:3..3"}), None)
    assert [event[:4] for event in events] == [
        ("OP:1", "OP", "out", A1.num_rows),
        ("OP:2", "OP", "out", A2.num_rows),
    ]
    assert example_6.log.read("OP:1..2").to_pylist() == A1.to_pylist() + A2.to_pylist()


def test_example_6_before_the_read_is_complete_it_has_no_event() -> None:
    p = Pipeline("example-6")
    p.source("OP", Query(Database([A1]), replayable=False)).apply("OP-prime", Take())
    s = Stepper(p)
    s.start("OP")
    s.run("OP", before=lambda action: isinstance(action, do.Read))
    assert s.rows("read_action") == [("OP.Cx:r1", "incomplete", "OP", "Cx", "text of action A")]
    assert s.rows("event_log") == []
    assert s.rows("event_data") == []


@pytest.mark.parametrize("crash", [False, True])
def test_example_6_with_the_last_event_r_1_is_done_and_its_data_gone(example_6: Stepper, crash: bool) -> None:
    """Step 2.d; after a crash step 3.b of Algorithm 6 resumes from the last offset."""
    s = example_6
    if crash:
        s.crash("OP")
        s.start("OP")
    s.run("OP")
    assert s.rows("read_action") == [("OP.Cx:r1", "complete", "OP", "Cx", "text of action A")]
    assert s.rows("event_log")[0] == ("OP.Cx:r1", "done", "OP", "Cx", "OP", None, None)
    assert [row[0] for row in s.rows("event_log")[1:]] == ["OP:1", "OP:2", "OP:3"]
    assert [row[0] for row in s.rows("event_data")] == ["OP:1", "OP:2", "OP:3"]
    assert s.read("OP") == [row for batch in (A1, A2, A3) for row in batch.to_pylist()]


# ---- Example 7, Tables 4 and 5: an hour that ends within an event -----------------------------------------


def figure_1(op: Any) -> Stepper:
    """OP1 -> OP3 -> OP4. OP1 has read a_1 to a_3 and no more; OP4 does not run yet."""
    p = Pipeline("figure-1")
    hourly = p.source("OP1", Batches([A1, A2, A3])).apply("OP3", op)
    hourly.apply("OP4", Store(), targets={"out": sinks.collect()})
    p.lineage("OP1", "OP3")
    s = Stepper(p)
    s.start("OP1")
    return s


def example_7(op: Any) -> Stepper:
    s = figure_1(op)
    s.run("OP1", until=lambda: s.sent("OP1") == 3)
    s.start("OP3")
    s.run("OP3", until=lambda: s.sent("OP3") == 2)
    return s


def totals(s: Stepper) -> list[list[tuple[Any, ...]]]:
    """The records of each b_i, sorted."""
    reader = s.store.read(InstanceName("OP3"))
    port = PortName("out")
    return [
        sorted((r["window_start"], r["item_ID"], r["state"], r["total"]) for r in event.payload.to_pylist())
        for event in reader.pick(port, reader.stored(port))
        if not event.end
    ]


B1 = [(H, "BZ234", "FR", 17), (H, "CX100", "FR", 5)]
B2 = [(H + HOUR, "BZ234", "FR", 20), (H + HOUR, "CX100", "FR", 1)]
B3 = [(H + 2 * HOUR, "BZ234", "FR", 100)]


@pytest.mark.parametrize("op", HOURS.values(), ids=HOURS.keys())
def test_table_4_event_log(op: Any) -> None:
    s = example_7(op())
    log = s.rows("event_log")
    assert set(log) == TABLE_4
    assert len(log) == len(TABLE_4)
    assert totals(s) == [B1, B2]


@pytest.mark.parametrize("op", HOURS.values(), ids=HOURS.keys())
def test_table_5_event_lineage(op: Any) -> None:
    assert set(example_7(op()).rows("event_lineage")) == TABLE_5


@pytest.mark.parametrize("op", HOURS.values(), ids=HOURS.keys())
def test_section_7_3_an_event_that_gave_no_record_is_not_in_the_lineage(op: Any) -> None:
    """The lineage of b_2 is a_2 alone, though a_3 made it complete: EVENT_LINEAGE joined with EVENT_LOG."""
    s = example_7(op())
    inputs: dict[str, set[str]] = {}
    for event, send_op, _, inset in s.rows("event_lineage"):
        joined = {row[0] for row in s.rows("event_log") if (row[4], row[6]) == (send_op, inset)}
        inputs[event] = joined
    assert inputs == {"OP3:1": {"OP1:1", "OP1:2"}, "OP3:2": {"OP1:2"}}


# ---- Example 8, Table 6: a crash before a_3 is acknowledged ------------------------------------------------


def example_8(op: Any) -> Stepper:
    s = figure_1(op)
    s.run("OP1", until=lambda: s.sent("OP1") == 2)
    s.start("OP3")
    s.run("OP3", until=lambda: s.sent("OP3") == 1)
    s.run("OP1", until=lambda: s.sent("OP1") == 3)
    return s


@pytest.mark.parametrize("op", HOURS.values(), ids=HOURS.keys())
def test_table_6_event_log(op: Any) -> None:
    log = example_8(op()).rows("event_log")
    assert set(log) == TABLE_6
    assert len(log) == len(TABLE_6)


@pytest.mark.parametrize("a_3_taken_in", [False, True])
@pytest.mark.parametrize("op", HOURS.values(), ids=HOURS.keys())
def test_example_8_recovery_updates_only_the_open_window(op: Any, a_3_taken_in: bool) -> None:
    """OP3 crashes: before it has seen a_3, or with a_3 taken in and b_2 made, just before that is committed."""
    hours = op()
    s = example_8(hours)
    assert hours.updates == [(H, "OP1:1"), (H, "OP1:2"), (H + HOUR, "OP1:2")]
    if a_3_taken_in:
        s.run("OP3", before=lambda a: isinstance(a, do.Commit) and bool(a.step.outputs))
        assert hours.updates[3:] == [(H + 2 * HOUR, "OP1:3")]
    s.crash("OP3")
    assert set(s.rows("event_log")) == TABLE_6  # nothing of it was acknowledged

    hours.updates.clear()
    s.start("OP3")
    s.run("OP3", before=lambda action: isinstance(action, do.TakeIn))
    assert hours.updates == [(H + HOUR, "OP1:2")]  # the records of a_2 in hour H are ignored
    assert s.sent("OP3") == 1  # no triggering

    s.run("OP3", until=lambda: s.sent("OP3") == 2)
    assert hours.updates == [(H + HOUR, "OP1:2"), (H + 2 * HOUR, "OP1:3")]
    assert set(s.rows("event_log")) == TABLE_4
    assert set(s.rows("event_lineage")) == TABLE_5
    assert totals(s) == [B1, B2]


@pytest.mark.parametrize("op", HOURS.values(), ids=HOURS.keys())
def test_example_8_b_1_reaches_op4_once(op: Any) -> None:
    """Algorithm 7, step 1: OP4 takes b_1 from OP3's journal, whether OP3 lives, is restarted or has left."""
    s = example_8(op())
    s.start("OP4")
    s.run("OP4", until=lambda: s.taken("OP3.out>OP4.in") == 1)
    s.crash("OP3")
    s.start("OP3")
    s.run("OP1", "OP3", "OP4")
    assert totals(s) == [B1, B2, B3]
    writes = [row for row in s.rows("event_log") if row[2:4] == ("OP4", None)]
    assert writes == [(f"OP4.@out:{n}", "done", "OP4", None, "OP4", "out", None) for n in (1, 2, 3)]
    assert s.lives[InstanceName("OP4")].over == "left"
